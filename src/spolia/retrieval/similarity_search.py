"""Search by a user's own function of likeness, under `@similarity`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, overload

import numpy as np

from spolia.core.function import LAMBDA, Function
from spolia.errors import WiringError
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.retrieval.group_search import GroupSearch, search_text
from spolia.retrieval.vector_search import refuse_other, text_to_embed, vectors_of
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.corpus import NodeGroup
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.vectors.search import rank_scores
from spolia.types import Filter, Hit, Node, Query

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors

Mode: TypeAlias = Literal["text", "embedding"]
Scores: TypeAlias = tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Compared:
    """A query's text or vector float32[d], and its candidates: nodes, or their vectors float32[n, d]."""

    query: str | Vectors
    candidates: Sequence[Node] | Vectors


@dataclass(frozen=True, repr=False)
class Similarity(Function[Compared, Scores]):
    """Plain function as a measure of likeness, made by the decorator `similarity`."""

    mode: ClassVar[Mode] = "text"
    at_once: ClassVar[bool] = False  # it takes all nodes in one call
    descending: ClassVar[bool] = True  # higher is better; else it is a distance, and its negative is the score

    def apply(self, value: Compared, /) -> Scores:
        count = len(value.candidates)
        if not count:
            return ()
        if self.at_once:
            candidates = list(value.candidates) if self.mode == "text" else value.candidates
            numbers = self._listed(self.call_function(value.query, candidates), count)
        else:
            numbers = [self.call_function(value.query, candidate) for candidate in value.candidates]
        return tuple(self._score(number, row, value) for row, number in enumerate(numbers))

    def _listed(self, returned: Any, count: int) -> list[Any]:
        try:
            numbers = list(returned)
        except TypeError:
            numbers = [returned]
        if len(numbers) != count:
            raise WiringError(
                f"The similarity {self.name} was given {count} nodes and returned {len(numbers)} numbers. "
                "Return a list of one number for each node, in their order."
            )
        return numbers

    def _score(self, number: Any, row: int, value: Compared) -> float:
        if not isinstance(number, Real) or math.isnan(number):
            candidate = value.candidates[row]
            place = f"node {candidate.id!r}" if isinstance(candidate, Node) else f"the vector in row {row}"
            raise WiringError(
                f"The similarity {self.name} returned {number!r:.80} for {place}. "
                f"Return a number{'' if self.at_once else ' for every node'}, -math.inf for what is not alike at all."
            )
        # 0.0 - x and not -x: a distance of 0 gives 0.0, never -0.0.
        return float(number) if self.descending else 0.0 - float(number)


@overload
def similarity(function: Callable[..., Any], /) -> Similarity: ...
@overload
def similarity(
    *, mode: Mode = "text", batch: bool = False, descending: bool = True, version: int = 1, waits: bool = False
) -> Callable[[Callable[..., Any]], Similarity]: ...
def similarity(
    function: Callable[..., Any] | None = None,
    /,
    *,
    mode: Mode = "text",
    batch: bool = False,
    descending: bool = True,
    version: int = 1,
    waits: bool = False,
) -> Any:
    """Make a plain function a measure of likeness that has a name and a version, for `BySimilarity`.

    | mode, batch | the function takes | and returns |
    |---|---|---|
    | `text` | the query's text, a `Node` | a number |
    | `text`, batch | the query's text, a list of nodes | a number for each, in their order |
    | `embedding` | the query's vector float32[d], a node's | a number |
    | `embedding`, batch | the query's vector, those of all nodes float32[n, d] | a number for each, in their order |

    Further parameters with defaults are its hyper-parameters: `overlap.but(least=2)` is the same with another one.

    Args:
        mode: what is compared. Vectors are given as they are kept, of length 1 for the cosine.
        batch: all nodes that may be found in one call, so that it may look at them together.
        descending: a higher number is better. If not, it is a distance, and its negative is the score, because higher
            scores are always better: a node at most 0.5 away has a score of at least -0.5.
        version: count it up when its numbers change.
        waits: it waits for a server or a disk.

    Raises:
        WiringError: the function does not take a query and a node; when it runs, for a result that is not a
            number, NaN, or not one for each node.

    >>> @similarity
    ... def overlap(query, node, *, least=1):
    ...     shared = len(set(query.split()) & set(node.text.split()))
    ...     return shared if shared >= least else 0
    >>> overlap(Compared("red stones", [Node("a", "old red stones"), Node("b", "red roofs")]))
    (2.0, 1.0)
    >>> overlap.but(least=2)(Compared("red stones", [Node("b", "red roofs")]))
    (0.0,)
    """
    if mode not in ("text", "embedding"):
        raise WiringError(f"There is no mode {mode!r}. Write 'text' or 'embedding'.")

    def make_similarity(function: Callable[..., Any]) -> Similarity:
        name = getattr(function, "__name__", LAMBDA)
        parameters = inspect.signature(function).parameters.values()
        required = [
            p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if len(required) != 2:
            second = "nodes" if batch else "node"
            raise WiringError(
                f"{name} takes {', '.join(required) or 'nothing'}; a similarity takes a query and what it is compared "
                f"with. Write def {name}(query, {second}): ..., and give other parameters a default."
            )
        class_fields = {"mode": mode, "at_once": batch, "descending": descending, "version": version, "waits": waits}
        return Similarity.from_function(function, (Compared, Scores), **class_fields)

    return make_similarity if function is None else make_similarity(function)


# Bounds the memory of a search that reads every node of a group.
AT_ONCE = 2_048  # nodes that are in memory at the same time, unless the similarity wants them all


@dataclass(frozen=True)
class BySimilarity(GroupSearch):
    """Search that compares every node that may be found with the query, by a plain function.

    The function never sees a node that the asker may not read or that the filters leave out. Equal scores go
    by the nodes' ids. For a distance the score is its negative.

    Args:
        similarity: a function under `@similarity`.
        embedder: whose vectors are compared, for a similarity of embeddings; one that the group was built with.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        ManifestMismatch: when the group was built with another embedder, or none.
        WiringError: a similarity of embeddings without a valid embedder, or one of texts with one;
            when it runs, for a function that does not return scores.

    >>> from spolia.retrieval.similarity_search import similarity
    >>> from spolia.stores.corpus import Corpus
    >>> @similarity
    ... def shared_words(query, node):
    ...     return len(set(query.split()) & set(node.text.split()))
    >>> BySimilarity(Corpus("notes.spolia").group(), shared_words, top_k=5).short
    "BySimilarity(top_k=5, source='similarity')"
    """

    group: NodeGroup
    similarity: Similarity
    top_k: int = 10
    embedder: Embedder | None = None
    source: str = "similarity"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.similarity, Similarity):
            raise WiringError(
                f"{self.similarity!r:.80} is not a similarity. Write @similarity above a function of query and node."
            )
        if (self.embedder is None) is (self.similarity.mode == "embedding"):
            advice = "Write embedder=." if self.embedder is None else "Leave the embedder out."
            raise WiringError(f"{self.similarity.name} compares {self.similarity.mode}s. {advice}")
        if self.embedder is not None:
            refuse_no_embedder(self.embedder, "BySimilarity", Embedder)

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...]:
        allowed = snapshot.allowed(self.group.name, principals, filter)
        if self.embedder is not None:
            parts = self._score_vectors(self.embedder, query, snapshot, allowed)
        else:
            parts = self._score_nodes(query, snapshot, allowed, principals)
        scores = np.array([score for part in parts for score in part], dtype=np.float64)
        ranking = rank_scores(allowed.keys[allowed.positions()], scores, self.top_k, snapshot.ids)
        return snapshot.hits(ranking, principals)

    def reads(self, value: Query, /) -> object:
        return (value.text if value.vector is None or self.embedder is None else value.vector), value.filter

    def _score_vectors(
        self, embedder: Embedder, query: Query, snapshot: Snapshot, allowed: Allowed
    ) -> Iterator[Scores]:
        refuse_other(self.group, snapshot, embedder)
        query_vector = vectors_of([query], [text_to_embed(query, embedder)], embedder)[0]
        yield self.similarity(Compared(query_vector, snapshot.vectors(self.group.name, embedder.name, allowed)))

    def _score_nodes(
        self, query: Query, snapshot: Snapshot, allowed: Allowed, principals: frozenset[str]
    ) -> Iterator[Scores]:
        text, keys = search_text(query), [int(key) for key in allowed.keys[allowed.positions()]]
        size = len(keys) if self.similarity.at_once else AT_ONCE
        for start in range(0, len(keys), max(1, size)):
            yield self.similarity(Compared(text, snapshot.nodes(keys[start : start + size], principals)))
