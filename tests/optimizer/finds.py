"""A search whose settings decide how soon it finds the gold passage, and a model that reads it."""

from dataclasses import dataclass
from random import Random
from typing import Any

from spolia.core.operator import Operator
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import LanguageModel
from spolia.post_retrieval.selection import Cut
from spolia.types import Hit, Item, Node, Query, Ranking

NODES = [Node(f"n{at}", f"other {at}" if at else "sesame", f"d{at}" if at else "gold") for at in range(6)]
MODEL = ScriptedModel((("sesame", "gold"), ("", "none")))
"""Answers right where it is shown the gold passage."""


@dataclass(frozen=True)
class Finds(Operator[Query, Ranking]):
    """The gold passage, the sooner the better the settings are."""

    skill: int = 0
    luck: int = 0

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0

    def apply(self, value: Query, /) -> Ranking:
        position = max(0, Random(f"{value.text} {self.luck}").randrange(6) - self.skill)
        order = [*NODES[1 : position + 1], NODES[0], *NODES[position + 1 :]]
        return Ranking(value, tuple(Hit(node, 1.0 / (1 + rank)) for rank, node in enumerate(order)), "finds")


def questions(n: int) -> list[Item]:
    return [Item(f"q{number}", f"question {number}", ("gold",), gold=(("gold",),)) for number in range(n)]


def reading(model: LanguageModel) -> Operator[Query, Any]:
    """Searches of two skills, cut at one or three passages, and read by a model."""
    return Finds().vary("skill", skill=[0, 5]) >> Cut().vary("most", top_k=[1, 3]) >> Reader(model)
