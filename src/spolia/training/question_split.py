"""Which questions a part is trained on, which validate it, and which are kept apart for its score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.data.dataset import asked_by, part_of
from spolia.types import Item, Value

TRAIN, VALIDATE, KEPT_APART = "tune", "select", "report"
"""Parts of a data set, as everywhere: what flows are tuned on, parts are trained on."""


@dataclass(frozen=True)
class QuestionSplit(Value):
    """Questions in three parts; none shares its id, its text or a gold passage with one of an other part.

    >>> items = [Item("q1", "Who?", gold=(("p1",),)), Item("q3", "Whose?", gold=(("p1",), ("p2",)))]
    >>> split = QuestionSplit.of(items)  # q1 is of the part report, q3 of tune, and both have p1
    >>> [item.id for item in split.kept_apart], [item.id for item in split.train], split.left_out
    (['q1'], [], 1)
    """

    train: tuple[Item, ...]
    validation: tuple[Item, ...] = ()
    kept_apart: tuple[Item, ...] = ()
    left_out: int = 0

    @classmethod
    def of(cls, items: Sequence[Item], kept_apart: Sequence[Item] | None = None) -> Self:
        """Split by the part of each question, always in the same way; or keep apart exactly the given questions.

        Of two questions that share something, the one that is kept apart stays, then the one that validates.

        Raises:
            DataError: a question that was given to be kept apart shares something with one to train on.
        """
        if kept_apart is not None:
            _refuse_shared(items, kept_apart)
            return cls(tuple(items), (), tuple(kept_apart))
        by_part = {name: [item for item in items if part_of(item.id) == name] for name in (TRAIN, VALIDATE, KEPT_APART)}
        apart = by_part[KEPT_APART]
        validation = _without(by_part[VALIDATE], apart)
        train = _without(by_part[TRAIN], [*apart, *validation])
        left_out = len(items) - len(train) - len(validation) - len(apart)
        return cls(tuple(train), tuple(validation), tuple(apart), left_out)

    @property
    def ids(self) -> dict[str, list[str]]:
        """The ids of the questions of each part."""
        return {name: [one.id for one in getattr(self, name)] for name in ("train", "validation", "kept_apart")}


def marks(item: Item) -> Iterator[tuple[str, str]]:
    """What links a question with others: its id, its text, each of its gold passages."""
    yield "id", asked_by(item.id)
    yield "text", " ".join(item.question.casefold().split())
    for document in sorted(item.documents):
        yield "passage", document


def _without(items: Sequence[Item], others: Sequence[Item]) -> list[Item]:
    """The questions that share nothing with others."""
    taken = {mark for other in others for mark in marks(other)}
    return [item for item in items if taken.isdisjoint(marks(item))]


def _refuse_shared(items: Sequence[Item], kept_apart: Sequence[Item]) -> None:
    trained = {mark: item.id for item in items for mark in marks(item)}
    shared = [(item.id, trained[mark], mark) for item in kept_apart for mark in marks(item) if mark in trained]
    if shared:
        asked, learned, (kind, value) = shared[0]
        count = several(len({one for one, _, _ in shared}), "question")
        raise DataError(
            f"{count} of the held-out questions cannot be reported on, the first {asked!r}: it shares the {kind} "
            f"{value[:80]!r} with {learned!r}, which is trained on. Keep other questions apart, or leave these out of "
            "the training."
        )
