"""Rules that stop a loop: by a field of its state, by what a router named."""

from __future__ import annotations

from dataclasses import dataclass, fields

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.types import State, Verdict


@dataclass(frozen=True)
class StopWhen(Operator[State, Verdict]):
    """Stop a loop when a field of its state has at least so much: a number, or so many entries of a tuple or a text.

    Args:
        field: of the state.
        at_least: the number.
        reason: why it stopped, for `stop`.

    Raises:
        WiringError: when it runs: the state has no such field, or one that is neither.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, rule
    judge.

    >>> from spolia.types import Chain, Query
    >>> StopWhen("pairs", 1)(Chain(Query("Who?"), (("Who is it?", "Olsen."),)))
    Verdict(stop=True, reason='sufficient')
    """

    field: str
    at_least: float
    reason: str = "sufficient"

    def apply(self, value: State, /) -> Verdict:
        known = [f.name for f in fields(value)]
        if self.field not in known:
            raise WiringError(f"{type(value).__name__} has no field {self.field!r}. It has: {', '.join(known)}.")
        found = getattr(value, self.field)
        amount = len(found) if isinstance(found, (tuple, str)) else found
        if not isinstance(amount, (int, float)):
            raise WiringError(f"The field {self.field!r} holds {found!r:.60}. Write one with a number or entries.")
        return Verdict(amount >= self.at_least, self.reason)


@dataclass(frozen=True)
class StopOn(Operator[str, Verdict]):
    """Stop a loop when a router names this label: any router becomes a judge.

    Args:
        label: one of the router's.
        reason: why it stopped, for `stop`; the label where it is empty.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, rule
    judge.

    >>> from spolia.orchestration.exceeds import Exceeds
    >>> from spolia.types import ArmScores
    >>> judge = Exceeds("enough", "search on", threshold=0.5) >> StopOn("enough")
    >>> judge(ArmScores((("enough", 0.7),))), judge(ArmScores((("enough", 0.3),))).stop
    (Verdict(stop=True, reason='enough'), False)
    """

    label: str
    reason: str = ""

    def apply(self, value: str, /) -> Verdict:
        return Verdict(value == self.label, self.reason or self.label)
