"""A judge: a language model that is asked in one role, and what measures do with its silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from spolia.errors import BudgetSpent, ModelRejected, ModelUnavailable
from spolia.evaluation.measures.measure import Case, Measure, Seen
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.operator import Operator
from spolia.surrounding import gather
from spolia.types import Failure, Prompt, Value

UNASKED = (ModelUnavailable, ModelRejected, BudgetSpent)
"""Why a judge may have no opinion; the trace says which. Any other error is a mistake of the caller, and is raised."""


@dataclass(frozen=True)
class Brief(Value):
    """What a judge is shown.

    Args:
        places: by place of the prompt file: a text, or several texts.
        sample: number of the random draw.
    """

    places: tuple[tuple[str, str | tuple[str, ...]], ...]
    sample: int = 0

    @classmethod
    def of(cls, sample: int = 0, **places: str | tuple[str, ...]) -> Brief:
        """The brief with these texts."""
        return cls(tuple(places.items()), sample)


@dataclass(frozen=True)
class Judge(Operator[Brief, Any]):
    """Ask a language model for a judgement: an operator, so that a run caches it, limits it and counts what it takes.

    Args:
        llm: the language model.
        role: the prompt file, the reader of its reply, what holds when it cannot be read.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a brief differ.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read or has a place that the brief does not fill.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.

    >>> from spolia.evaluation.measures.judged.correctness import CORRECT
    >>> from spolia.models.scripted import ScriptedModel
    >>> judge = Judge(ScriptedModel(("Yes.",)), CORRECT)
    >>> judge(Brief.of(question="Who employed him?", answers=("Nokia",), answer="Nokia, in Salo."))
    True
    """

    llm: LanguageModel
    role: Role[Any]
    max_tokens: int = 1024
    temperature: float = 0.0

    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def apply(self, value: Brief, /) -> Any:
        return self.role.ask(
            self.llm,
            dict(value.places),
            sample=self._sample(value),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )

    def reads(self, value: Brief, /) -> Prompt:
        return self.role.prompt_for(dict(value.places), sample=self._sample(value))

    def _sample(self, value: Brief) -> int:
        return value.sample if self.temperature > 0 else 0

    def calls(self, rows: int | None = None, /) -> int | None:
        return 2 if self.role.repair else 1


def judgements(judge: Judge, briefs: Sequence[Brief]) -> list[Any]:
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
