"""Measures that ask a language model, and what they do with its silence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from spolia.errors import BudgetSpent, ModelRejected, ModelUnavailable
from spolia.evaluation.measures.measure import Case, Measure, Seen
from spolia.models.ask import Brief
from spolia.operator import Operator
from spolia.surrounding import gather
from spolia.types import Failure

UNASKED = (ModelUnavailable, ModelRejected, BudgetSpent)
"""Why a judge may have no opinion; the trace says which. Any other error is a mistake of the caller, and is raised."""


def judgements(judge: Operator[Brief, Any], briefs: Sequence[Brief]) -> list[Any]:
    """What a judge says of each brief; None where it could not be asked, or its reply not be read."""
    found: list[Any] = []
    for result in judge.batch(briefs):
        if isinstance(result, Failure) and not isinstance(result.error, UNASKED):
            raise result.raised()
        found.append(None if isinstance(result, Failure) else result)
    return found


class JudgedMeasure(Measure):
    """A measure that asks a language model. What it could not be asked, or its reply not be read, is undetermined.

    Use a run for judging, apart from that of the flow, so that neither cost is taken for the other's:

        with Run(cache=runs.cache, budget=Budget(cost_usd=1)) as judging:
            print(measured(Faithfulness(llm), cases))
    """

    def all_seen(self, cases: Sequence[Case]) -> list[Seen | None]:
        results = gather([partial(self.seen, case) for case in cases])
        for result in results:
            if isinstance(result, Failure):
                raise result.raised()
        return [None if isinstance(result, Failure) else result for result in results]
