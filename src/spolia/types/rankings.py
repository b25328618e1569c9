"""Queries and rankings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from spolia.errors import QueryError
from spolia.types import notebook
from spolia.types.documents import Node
from spolia.types.value import Record, Value, explaining_field, refuse_type, unchecked_constructor

ROLES = ("system", "user", "assistant")


class Filter(Value):
    """Condition on the metadata of nodes that may be found; `spolia.filters` has the conditions."""

    def accepts(self, record: Record, /) -> bool:
        """Return whether all values of the fields, defaults filled in, fulfil it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Message(Value):
    """One message of a chat: the role is `system`, `user` or `assistant`."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            refuse_type(self, "role", "'system', 'user' or 'assistant'")
        if not isinstance(self.content, str):
            refuse_type(self, "content", "a text")


@dataclass(frozen=True)
class Query(Value):
    """Question on its way through a flow.

    Args:
        text: to search for.
        question: of the asker; `text` unless a step has rewritten it.
        vector: an embedding to search with instead of the text's own.
        weight: how much its hits count when several queries are fused.
        sample: number of the random draw; part of the identity, so that samples differ in the cache.
        filter: which nodes may be found; None for all.
        history: the conversation before the question, oldest message first; `Condense` reads it.
        origin: the query that it was made from.

    Raises:
        QueryError: the text is not a text, or the history holds something else than messages.

    >>> Query("Who employed Carsten Olsen?").question
    'Who employed Carsten Olsen?'
    """

    text: str
    question: str = ""
    vector: tuple[float, ...] | None = None
    weight: float = 1.0
    sample: int = 0
    filter: Filter | None = None
    history: tuple[Message, ...] = ()
    origin: Query | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise QueryError(f"The query is {self.text!r:.80} ({type(self.text).__name__}). Write a text.")
        if not self.question:
            object.__setattr__(self, "question", self.text)
        if self.filter is not None and not isinstance(self.filter, Filter):
            refuse_type(self, "filter", "a condition: where(year=2020), from spolia.filters")
        if self.history:
            object.__setattr__(self, "history", tuple(self.history))
            if wrong := [message for message in self.history if not isinstance(message, Message)]:
                raise QueryError(
                    f"The history holds {wrong[0]!r:.80} ({type(wrong[0]).__name__}). Write Message('user', '...')."
                )

    def rewritten(self, text: str) -> Query:
        """Return this query with another text to search for; the original question stays."""
        return replace(self, text=text, vector=None, origin=self)  # the vector is of the old text

    def condensed(self, question: str) -> Query:
        """Return this query with a standalone question in place of the follow-up and its history."""
        return replace(self, text=question, question=question, vector=None, history=(), origin=self)

    def asking(self, question: str) -> Query:
        """Return a query of its own on the way to this one's answer: another question; filter and sample stay.

        It is standalone, so it has no history.
        """
        return Query(question, sample=self.sample, filter=self.filter, origin=self)


Queries: TypeAlias = tuple[Query, ...]


@dataclass(frozen=True)
class Hit(Value):
    """Node that was found. Higher score is better, always.

    Args:
        node: to show.
        score: of this ranking; NaN is the worst.
        parts: the scores that were fused, by source; of a learned ranking, what features add to the score.
        found: the smaller nodes that were searched, best first, where `node` is shown in their place. A citation of the
            hit points to them.
    """

    node: Node
    score: float
    parts: tuple[tuple[str, float], ...] = explaining_field(())
    found: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        # `Real` is asked last: a check against an abstract class takes far longer, and hits come by the thousand.
        if type(self.score) is not float and not isinstance(self.score, Real):
            refuse_type(self, "score", "a number; higher is better")

    @property
    def parts_text(self) -> str:
        """Return the scores that were fused, or what features add to the score, in words.

        >>> Hit(Node("n", "Salt is dug."), 1.5, (("bm25", 1.25), ("dense", 0.25))).parts_text
        'bm25 1.25, dense 0.25'
        """
        return ", ".join(f"{name} {score:.3g}" for name, score in self.parts)

    def json(self) -> dict[str, Any]:
        """Return plain data, as `spolia search --json` prints it: where it stands, its scores, its text."""
        node = self.node
        return {
            "place": node.place,
            "uri": node.uri,
            "document": node.document,
            "node": node.id,
            "span": None if node.span is None else node.span.json(),
            "score": self.score,
            "parts": dict(self.parts),
            "text": node.text,
            "context": node.context,
        }


_make_hit = unchecked_constructor(Hit)


class NodeFetcher(Protocol):
    """Fetcher of nodes by their keys, without those that may no longer be read. Equal for all hits of one generation of
    a store and one asker."""

    def __call__(self, keys: Sequence[int], /) -> Mapping[int, Node]: ...

    def for_fusion(self) -> Callable[[Sequence[int]], Mapping[int, Node]] | None:
        """Return the fetcher by the rights of this moment; None if reader lists have changed since the generation:
        scores of nodes hidden by now may not count."""


@dataclass(frozen=True, eq=False)
class LateHits:
    """Hits as keys and scores; nodes are fetched when they are needed.

    Args:
        keys, scores: of the hits, best first; of equal scores in any order.
    """

    keys: Sequence[int]
    scores: Sequence[float]
    fetch: NodeFetcher

    def hits(self) -> tuple[Hit, ...]:
        """Fetch the hits, best first; equal scores by the ids of their nodes."""
        nodes = self.fetch(self.keys)
        scored = ((score, nodes[key]) for key, score in zip(self.keys, self.scores, strict=True) if key in nodes)
        best = sorted(scored, key=lambda pair: (-pair[0], pair[1].id))
        return tuple(_make_hit(node, score, (), ()) for score, node in best)


@dataclass(frozen=True)
class Ranking(Value):
    """Hits, best first, and the query that found them. `source` names the retriever, for weights per source.

    `merged` names the rankings of which a loop has kept the hits (`extended`), by source and text of the query.
    """

    query: Query
    hits: tuple[Hit, ...]
    source: str = ""
    merged: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False, metadata={"written": True})

    def __post_init__(self) -> None:
        if type(self.hits) is not tuple:
            if isinstance(self.hits, LateHits):
                # without the field, Python asks `__getattr__` for it, which fetches
                self.__dict__["_late"] = self.__dict__.pop("hits")
                return
            object.__setattr__(self, "hits", tuple(self.hits))
        # The set of types is made in C; the loop in Python runs only where it found something else than hits.
        if {*map(type, self.hits)} - {Hit} and (wrong := [hit for hit in self.hits if not isinstance(hit, Hit)]):
            raise QueryError(f"The ranking holds {wrong[0]!r:.80} ({type(wrong[0]).__name__}). Write Hit(node, score).")

    if not TYPE_CHECKING:  # a checker sees the field

        def __getattr__(self, name: str) -> object:
            """Fetch late hits when they are looked at."""
            if name == "hits" and "hits" in self.fetched().__dict__:
                return self.__dict__["hits"]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def late_hits(self) -> LateHits | None:
        """Return the hits still to be fetched; None if they are there."""
        late_hits: LateHits | None = self.__dict__.get("_late")
        return late_hits

    def fetched(self) -> Self:
        """Return this ranking after fetching its hits."""
        if (late_hits := self.late_hits) is not None:
            # before `_late` goes: a thread that no longer finds it reads the hits
            self.__dict__["hits"] = late_hits.hits()
            self.__dict__.pop("_late", None)  # which another thread may have done
        return self

    def but(self, **changes: Any) -> Self:
        return super(Ranking, self.fetched()).but(**changes)  # `but` copies `__dict__`, where late hits are no field

    def __getstate__(self) -> dict[str, object]:
        return dict(self.fetched().__dict__)

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(hit.node for hit in self.hits)

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the texts of the hits that a model is shown, best first."""
        return tuple(hit.node.shown_text for hit in self.hits)

    def extended(self, addition: Ranking) -> Ranking:
        """Return this ranking with the other one's new hits after its own: what a loop has found so far."""
        ids = {hit.node.id for hit in self.hits}
        hits = (*self.hits, *(hit for hit in addition.hits if hit.node.id not in ids))
        merged = (
            name
            for ranking in (self, addition)
            if ranking.hits
            for name in ranking.merged or ((ranking.source, ranking.query.text),)
        )
        return replace(self, hits=hits, merged=tuple(merged))

    def cut(self, top_k: int) -> Ranking:
        """Return the best `top_k` hits."""
        return self if len(self.hits) <= top_k else replace(self, hits=self.hits[:top_k])

    def json(self) -> dict[str, Any]:
        """Return plain data, as `spolia search --json` prints it.

        >>> found = Ranking(Query("salt"), (Hit(Node("n", "Salt is dug.", uri="salt.txt"), 1.5),)).json()
        >>> found["query"], found["hits"][0]["place"]
        ('salt', 'salt.txt')
        """
        return {"query": self.query.text, "hits": [hit.json() for hit in self.hits]}

    def __str__(self) -> str:
        """Return a line for each hit: its rank, score and place.

        >>> print(Ranking(Query("salt"), (Hit(Node("n", "Salt is dug.", uri="salt.txt"), 1.5),)))
        1  1.5  salt.txt
        """
        return "\n".join(f"{rank}  {hit.score:.4g}  {hit.node.place}" for rank, hit in enumerate(self.hits, 1))

    def _repr_html_(self) -> str:
        head = ["rank", "score", "place", "text", *(["parts"] if any(hit.parts for hit in self.hits) else [])]
        rows = (
            (rank, float(hit.score), hit.node.place, hit.node.text, hit.parts_text)[: len(head)]
            for rank, hit in enumerate(self.hits, 1)
        )
        return notebook.render_paragraph(self.query.text) + notebook.render_table(head, rows)
