"""What a ranking is handed out as: nodes, text, or dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from spolia.errors import WiringError
from spolia.misfits import refuse_misfits
from spolia.operator import Operator
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
        join: what stands between them.

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
            `pages` and `lines` are first and last, or None where they are not known.

    Raises:
        WiringError: for an unknown field.

    >>> from spolia.types import Query
    >>> node = Node("a", "Tides", meta=(("lang", "en"),))
    >>> AsDicts(("rank", "id", "meta"))(Ranking(Query("?"), (Hit(node, 1.0),)))
    ({'rank': 1, 'id': 'a', 'meta': {'lang': 'en'}},)
    """

    fields: tuple[str, ...] = ("id", "score", "text", "uri", "meta")

    def __post_init__(self) -> None:
        refuse_misfits(self)
        for name in self.fields:
            if name not in _FIELDS:
                raise WiringError(f"A hit has no field {name!r}. Write some of: {', '.join(_FIELDS)}.")

    def apply(self, value: Ranking, /) -> tuple[Plain, ...]:
        return tuple({name: _FIELDS[name](hit, rank) for name in self.fields} for rank, hit in enumerate(value.hits, 1))


def _of_meta(meta: Meta) -> Plain:
    values: dict[str, list[Any]] = {}
    for name, value in meta:
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}


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
    "pages": lambda hit, rank: list(hit.node.span.pages) if hit.node.span and hit.node.span.pages else None,
    "lines": lambda hit, rank: list(hit.node.span.lines) if hit.node.span and hit.node.span.lines else None,
    "meta": lambda hit, rank: _of_meta(hit.node.meta),
}
