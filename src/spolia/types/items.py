"""Questions with their gold, of which data sets are made."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.types.value import Meta, Value


@dataclass(frozen=True)
class SubQuestion(Value):
    """One hop of a question: what it asks, its answer, the passage that states it."""

    question: str
    answer: str
    gold_id: str = ""


@dataclass(frozen=True)
class Item(Value):
    """A question with its gold.

    Args:
        id: unique within a data set.
        question: what is asked.
        answers: accepted answers, the main one first.
        gold: groups of passage ids; a group is satisfied by any of its members, the gold by all groups.
        grades: how relevant a gold passage is, higher is better, where judges gave grades; else every one counts 1.
        type: a label to slice by.
        decomposition: the hops, where they are known.
        meta: anything else that the data set says.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    gold: tuple[tuple[str, ...], ...] = ()
    grades: tuple[tuple[str, float], ...] = ()
    type: str = ""
    decomposition: tuple[SubQuestion, ...] = ()
    meta: Meta = ()
