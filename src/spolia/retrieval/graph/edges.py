"""Kinds of links between the nodes of a graph. All links go both ways and have a weight above 0."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.type_compatibility import refuse_counts
from spolia.core.validation import validate
from spolia.errors import WiringError
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.types import Value


class Edges(Value):
    """Base of all kinds of links.

    Args:
        weight: the links are multiplied with it.
    """

    weight: float
    counts: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        validate(self)
        refuse_counts(self, *self.counts)
        if not 0 < self.weight < float("inf"):
            raise WiringError(f"{self!r} has weight {self.weight}. Write a number above 0.")


@dataclass(frozen=True)
class Similar(Edges):
    """Links each node to those whose vectors are nearest to its own; the weight is their cosine.

    Args:
        neighbours: links from a node; others may link to it.
        at_least: lower cosines do not make links.
        embedder: whose vectors are compared, or its name, which the definition keeps; empty for the group's first.

    >>> from spolia.models.onnx.minilm import MiniLM
    >>> Similar(embedder=MiniLM()) == Similar(embedder=MiniLM().name)
    True
    """

    neighbours: int = 5
    at_least: float = 0.0
    embedder: str = ""
    weight: float = 1.0
    counts: ClassVar[tuple[str, ...]] = ("neighbours",)

    if TYPE_CHECKING:

        def __init__(
            self, neighbours: int = 5, at_least: float = 0.0, embedder: Embedder | str = "", weight: float = 1.0
        ) -> None: ...

    def __post_init__(self) -> None:
        embedder: Any = self.embedder
        if not isinstance(embedder, str):
            refuse_no_embedder(embedder, "Similar", Embedder)
            # The definition of a graph keeps the embedder's name, so that it can be written down and
            # hashed.
            object.__setattr__(self, "embedder", embedder.name)
        super().__post_init__()


@dataclass(frozen=True)
class SharedEntities(Edges):
    """Links nodes that speak of the same; the weight is the cosine of their sets of entities, weighed by rarity.

    w(p, q) = Σ_{e in p and q} idf(e)² / (|p| · |q|), |p|² = Σ_{e in p} idf(e)²,
    idf(e) = ln(1 + (N - n + ½) / (n + ½)), n of N nodes speaking of e.

    Args:
        group: of the entities; made from the graph's nodes, one node for each entity of a text (`RuleEntities`).
        field: the metadata field in which it is named.
        neighbours: links from a node, the heaviest; others may link to it.
        most: an entity that more nodes speak of links none of them.
    """

    group: str = "entity"
    field: str = "entity"
    neighbours: int = 10
    most: int = 100
    weight: float = 1.0
    counts: ClassVar[tuple[str, ...]] = ("neighbours", "most")


@dataclass(frozen=True)
class Belonging(Edges):
    """Links nodes that were cut from the same larger node, with weight 1.

    Args:
        to: the group of the larger nodes, above the graph's.
        neighbours: links from a node, those of the first nodes of the text; others may link to it.
        most: a larger node that more nodes were cut from links none of them.
    """

    to: str = "section"
    neighbours: int = 10
    most: int = 100
    weight: float = 1.0
    counts: ClassVar[tuple[str, ...]] = ("neighbours", "most")


@dataclass(frozen=True)
class InOrder(Edges):
    """Links each node to the next one of its document, with weight 1."""

    weight: float = 1.0
