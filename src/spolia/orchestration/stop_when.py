"""A rule on a field of a loop's state."""

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
