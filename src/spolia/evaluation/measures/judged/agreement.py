"""How far a judge can be believed: its verdicts against labels that people gave, or against its own of another day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from spolia.errors import MeasureError
from spolia.types import Value


@dataclass(frozen=True)
class Agreement(Value):
    """Verdicts beside labels.

    Args:
        confusion: how often each pair of label and verdict occurs, in the order of the labels and verdicts as written.
        undetermined: pairs that are not counted, because the judge could not tell or there is no label.
    """

    confusion: tuple[tuple[tuple[str, str], int], ...]
    undetermined: int

    @property
    def n(self) -> int:
        """Pairs that are counted."""
        return sum(count for _, count in self.confusion)

    @property
    def observed(self) -> float | None:
        """Share of the pairs that are the same; None without a pair."""
        same = sum(count for (label, verdict), count in self.confusion if label == verdict)
        return same / self.n if self.n else None

    @property
    def expected(self) -> float | None:
        """Share of the pairs that would be the same if the judge drew its verdicts as often, but blindly."""
        labels, verdicts = Counter[str](), Counter[str]()
        for (label, verdict), count in self.confusion:
            labels[label] += count
            verdicts[verdict] += count
        return sum(labels[word] * verdicts[word] for word in labels) / self.n**2 if self.n else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa: (observed - expected) / (1 - expected); 1 is perfect, 0 is chance.

        None where only one word was ever used on both sides, which shows nothing.
        """
        if self.observed is None or self.expected is None or self.expected == 1:
            return None
        return (self.observed - self.expected) / (1 - self.expected)

    def __str__(self) -> str:
        kappa = "undefined" if self.kappa is None else f"{self.kappa:.3f}"
        same = "nothing" if self.observed is None else f"{self.observed:.1%}"
        return f"kappa {kappa}, {same} of {self.n} the same, {self.undetermined} undetermined"


def agreement(verdicts: Sequence[Hashable], labels: Sequence[Hashable]) -> Agreement:
    """A judge's verdicts against labels of the same things: yes and no, grades, words.

    Numbers that are equal are the same word (1, 1.0 and True), so that scores of a measure fit to labels of people.

    Args:
        verdicts: one for each thing; None, and a number that is none, where the judge could not tell.
        labels: the same; None where nobody did.

    Raises:
        MeasureError: there are not as many verdicts as labels.

    Source: Cohen 1960, "A coefficient of agreement for nominal scales".

    >>> found = agreement([1, 1, 0, 0, None], [1, 0, 0, 0, 1])  # observed 3/4, expected (1·2 + 3·2) / 16 = 1/2
    >>> print(found)
    kappa 0.500, 75.0% of 4 the same, 1 undetermined
    >>> found.confusion
    ((('0', '0'), 2), (('0', '1'), 1), (('1', '1'), 1))
    """
    if len(verdicts) != len(labels):
        raise MeasureError(
            f"Got {len(verdicts)} verdicts and {len(labels)} labels. Give one of each for every thing that was judged."
        )
    pairs = [(_word(label), _word(verdict)) for label, verdict in zip(labels, verdicts, strict=True)]
    told = Counter((label, verdict) for label, verdict in pairs if label is not None and verdict is not None)
    return Agreement(tuple(sorted(told.items())), len(pairs) - told.total())


def _word(found: Hashable) -> str | None:
    """A verdict as a word; None for none at all."""
    if found is None or found != found:
        return None
    return f"{float(found):g}" if isinstance(found, (bool, int, float)) else str(found)
