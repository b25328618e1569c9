"""Parsers of a judge's reply, all of which can read `undetermined`, and the base class of judged measures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spolia.core.operator import Operator
from spolia.core.run_context import gather
from spolia.errors import BudgetSpent, MeasureError, ModelRejected, ModelUnavailable
from spolia.evaluation.measures.measure import Case, Measure, Observation, Result
from spolia.models.parsers import Lines, OneOf, Parser, says_nothing
from spolia.models.prompting.role import Brief, Role
from spolia.types import Answer, Failure, Item

UNDETERMINED = "undetermined"
"""What a judge may write, and the default of every role here."""
_SAYS_UNDETERMINED = re.compile(r"[\W_]*(?:undetermined|n/a|nan)(?:[\W\d_]|(?:out )?of)*", re.IGNORECASE)
"""Also `N/A` and `NaN`, as servers and judges write it, with the scale after it: `N/A out of 5` is not five."""
_CHOICE = OneOf(("yes", "no", UNDETERMINED))


@dataclass(frozen=True)
class OrUndetermined(Parser[Any]):
    """The result of another parser, or None for the word `undetermined`.

    >>> from spolia.models.parsers import YesNo
    >>> [OrUndetermined(YesNo()).parse(reply) for reply in ("Undetermined.", "N/A", "No.")]
    [None, None, False]
    """

    parser: Parser[Any]

    def parse(self, reply: str) -> Any:
        return None if _SAYS_UNDETERMINED.fullmatch(reply) else self.parser.parse(reply)


@dataclass(frozen=True)
class Statements(Parser[tuple[str, ...]]):
    """One statement a line, without bullets and numbers; none at all for the word `none`.

    Args:
        at_most: statements; the rest is left out.

    >>> Statements().parse("1. He worked for Nokia.\\n2. He left in 1998.")
    ('He worked for Nokia.', 'He left in 1998.')
    """

    at_most: int = 1000

    def parse(self, reply: str) -> tuple[str, ...]:
        return () if says_nothing(reply) else Lines(self.at_most).parse(reply)


@dataclass(frozen=True)
class Decisions(Parser[tuple[bool | None, ...]]):
    """A line for each thing that is judged: True for yes, False for no, None for undetermined; others are skipped.

    >>> Decisions().parse("1: yes\\n2: No, the passage says 1998.\\n3: undetermined")
    (True, False, None)
    """

    def parse(self, reply: str) -> tuple[bool | None, ...]:
        decisions: list[bool | None] = []
        for line in reply.splitlines():
            try:
                beginning = re.findall(r"\w+", line)[:3]  # `Statement 2: no`; after it stands the reason
                word = _CHOICE.parse(" ".join(beginning))
            except ValueError:
                continue
            decisions.append(None if word == UNDETERMINED else word == "yes")
        if not decisions:
            raise ValueError("it must have a line with yes or no for each statement")
        return tuple(decisions)


def judging_role(file: str, parser: Parser[Any]) -> Role[Any]:
    """Return the role of a judge by its prompt file here, whose reply may be `undetermined`."""
    place = f"spolia:evaluation/measures/judged/prompts/{file}.txt"
    return Role(place, OrUndetermined(parser), default=UNDETERMINED)


TOLERATED_ERRORS = (ModelUnavailable, ModelRejected, BudgetSpent)
"""Why a judge may have no opinion; the trace says which. Any other error is a mistake of the caller, and is raised."""


def judgements(judge: Operator[Brief, Any], briefs: Sequence[Brief]) -> list[Any]:
    """Ask a judge about each brief; None if it could not be asked, or its reply not be read."""
    verdicts: list[Any] = []
    for result in judge.batch(briefs):
        if isinstance(result, Failure) and not isinstance(result.error, TOLERATED_ERRORS):
            raise result.raised()
        verdicts.append(None if isinstance(result, Failure) else result)
    return verdicts


class JudgedMeasure(Measure):
    """Measure that asks a language model. It is undetermined if the model cannot be asked, or its reply not be read.

    Use a run for judging, apart from that of the flow, so that neither cost is taken for the other's.
    """

    def applies(self, item: Item) -> bool:
        return True

    def observe_all(self, cases: Sequence[Case]) -> list[Observation | None]:
        observations: list[Observation | None] = []
        # Questions are judged in the threads of the run; each waits for its model.
        for result in gather([partial(self.observe, case) for case in cases]):
            if isinstance(result, Failure):
                raise result.raised()
            observations.append(result)
        return observations


def passages(result: Result) -> tuple[str, ...]:
    """Return the texts of a ranking, or those that the reader of an answer was shown, best first."""
    ranking = result.evidence if isinstance(result, Answer) else result
    if ranking is None:
        raise MeasureError("An Answer without evidence holds no passages to judge. Give the answer its evidence.")
    return tuple(node.shown_text for node in ranking.nodes)
