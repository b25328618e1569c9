"""Presentations of a ranking: as nodes, text or dicts, in another order, with metadata."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from spolia.core.operator import Operator
from spolia.core.validation import validate
from spolia.errors import WiringError
from spolia.stores.snapshot.records import metadata_text
from spolia.types import Hit, Meta, Node, Ranking

Plain: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class AsNodes(Operator[Ranking, tuple[Node, ...]]):
    """The nodes, best first.

    >>> from spolia.types import Query
    >>> AsNodes()(Ranking(Query("?"), (Hit(Node("a", "Tides"), 1.0),)))[0].text
    'Tides'
    """

    def apply(self, value: Ranking, /) -> tuple[Node, ...]:
        return value.nodes


@dataclass(frozen=True)
class AsText(Operator[Ranking, str]):
    """The texts of the nodes, best first, put together; empty for no hits.

    Args:
        join: text between them.

    >>> from spolia.types import Query
    >>> AsText(join=" | ")(Ranking(Query("?"), (Hit(Node("a", "Tides"), 1.0), Hit(Node("b", "Salt"), 0.5))))
    'Tides | Salt'
    """

    join: str = "\n\n"

    def apply(self, value: Ranking, /) -> str:
        return self.join.join(node.text for node in value.nodes)


@dataclass(frozen=True)
class AsDicts(Operator[Ranking, tuple[Plain, ...]]):
    """The hits as dicts of plain data, best first: what JSON can hold.

    Args:
        fields: what of each hit. `meta` is a dict of all metadata, in which a field with several values is a list;
            `pages`, `lines` and `seconds` are first and last, or None where they are not known.

    Raises:
        WiringError: for an unknown field.

    >>> from spolia.types import Query
    >>> node = Node("a", "Tides", meta=(("lang", "en"),))
    >>> AsDicts(("rank", "id", "meta"))(Ranking(Query("?"), (Hit(node, 1.0),)))
    ({'rank': 1, 'id': 'a', 'meta': {'lang': 'en'}},)
    """

    fields: tuple[str, ...] = ("id", "score", "text", "uri", "meta")

    def __post_init__(self) -> None:
        validate(self)
        for name in self.fields:
            if name not in _FIELDS:
                raise WiringError(f"A hit has no field {name!r}. Write some of: {', '.join(_FIELDS)}.")

    def apply(self, value: Ranking, /) -> tuple[Plain, ...]:
        return tuple({name: _FIELDS[name](hit, rank) for name in self.fields} for rank, hit in enumerate(value.hits, 1))


def _meta_to_dict(meta: Meta) -> Plain:
    values: dict[str, list[Any]] = {}
    for name, value in meta:
        values.setdefault(name, []).append(value)
    return {name: entries[0] if len(entries) == 1 else entries for name, entries in values.items()}


_FIELDS: Mapping[str, Callable[[Hit, int], Any]] = {
    "rank": lambda hit, rank: rank,
    "score": lambda hit, rank: hit.score,
    "id": lambda hit, rank: hit.node.id,
    "text": lambda hit, rank: hit.node.text,
    "context": lambda hit, rank: hit.node.context,
    "document": lambda hit, rank: hit.node.document,
    "group": lambda hit, rank: hit.node.group,
    "parent": lambda hit, rank: hit.node.parent,
    "number": lambda hit, rank: hit.node.number,
    "uri": lambda hit, rank: hit.node.uri,
    # Lists, not tuples: what is read back from JSON is equal.
    "pages": lambda hit, rank: list(hit.node.span.pages) if hit.node.span and hit.node.span.pages else None,
    "lines": lambda hit, rank: list(hit.node.span.lines) if hit.node.span and hit.node.span.lines else None,
    "seconds": lambda hit, rank: list(hit.node.span.seconds) if hit.node.span and hit.node.span.seconds else None,
    "meta": lambda hit, rank: _meta_to_dict(hit.node.meta),
}


Order: TypeAlias = Literal["sides", "reverse", "ascending", "shuffle", "best again"]


@dataclass(frozen=True)
class Reorder(Operator[Ranking, Ranking]):
    """The same hits with the same scores in the order in which a prompt is to show them; the last step before a reader.

    | order | five hits, best first 1 2 3 4 5 | for |
    |---|---|---|
    | `sides` | 1 3 5 4 2 | models that overlook the middle |
    | `reverse` | 5 4 3 2 1 | the best next to the question that follows |
    | `ascending` | by score, lowest first; equal ones as they were | the same, of hits in any order |
    | `shuffle` | by chance, the same for the same question, ids and seed | to measure what the order does |
    | `best again` | 1 2 3 4 5 1 | the best at both ends |

    Whatever looks at ranks afterwards (`Cut`, fusions, measures) looks at the new ones.

    Args:
        order: of the table.
        seed: of `shuffle`.

    Raises:
        WiringError: the order is unknown.

    Source: Liu et al., "Lost in the middle: how language models use long contexts", TACL 2024; `best again` is the
    `long_context_reorder` of AutoRAG.

    >>> from spolia.types import Node, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(str(n), ""), 1 / n) for n in range(1, 6)))
    >>> [[hit.node.id for hit in Reorder(order)(found)] for order in ("sides", "reverse")]
    [['1', '3', '5', '4', '2'], ['5', '4', '3', '2', '1']]
    """

    order: Order = "sides"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise WiringError(f"There is no order {self.order!r}. Write one of: {', '.join(get_args(Order))}.")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(self._order_hits(value)))

    def _order_hits(self, ranking: Ranking) -> Sequence[Hit]:
        hits = ranking.hits
        if self.order == "sides":
            return hits[::2] + hits[1::2][::-1]
        if self.order == "reverse":
            return hits[::-1]
        if self.order == "ascending":
            return sorted(hits, key=lambda hit: (hit.score == hit.score, hit.score))  # NaN is the lowest
        if self.order == "best again":
            return hits + hits[: len(hits) > 1]  # a lone hit is not shown twice
        shuffled = list(hits)
        # Seeded by question and hits, so that a row is shuffled alike whatever was shuffled before it.
        random.Random("\0".join((str(self.seed), ranking.query.question, *(hit.node.id for hit in hits)))).shuffle(
            shuffled
        )
        return shuffled


@dataclass(frozen=True)
class ShowMetadata(Operator[Ranking, Ranking]):
    """Put metadata above the text that a reader is shown, a line `name: value` for each field; it is never quoted.

    It was not searched. `AttachMetadata` puts it into the searched text as well.

    Args:
        fields: which, in this order; one that a node does not have is left out.

    >>> from spolia.types import Node, Query
    >>> node = Node("n", "Stones were reused.", context="Rome", meta=(("year", 1999), ("author", "Ann")))
    >>> (hit,) = ShowMetadata(("author", "year"))(Ranking(Query("reuse"), (Hit(node, 1.0),)))
    >>> hit.node.shown_text
    'Rome\\nauthor: Ann\\nyear: 1999\\nStones were reused.'
    """

    fields: tuple[str, ...]

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(map(self._add_metadata, value.hits)))

    def _add_metadata(self, hit: Hit) -> Hit:
        node = hit.node
        context = "\n".join(filter(None, (node.context, metadata_text(node.meta, self.fields))))
        return hit.but(node=node.but(context=context))
