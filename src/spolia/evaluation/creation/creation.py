"""Questions made until there are enough, and why others were dropped."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from spolia.core.operator import Operator
from spolia.core.replacement import replaced
from spolia.errors import BudgetSpent, StepFailed
from spolia.evaluation.creation.draft import UNUSABLE, QuestionDraft, SampleRange
from spolia.evaluation.creation.recipes import DISTINCT, Recipe
from spolia.indexing.sync.cost_estimate import ModelUse
from spolia.models.prompting.stand_in_models import Silent, Unanswered
from spolia.models.protocols import LanguageModel
from spolia.types import Failure, Prompt, Quote, Value

AT_ONCE = 16
"""Questions that are made together."""
TRIES = 4
"""Drafts for each question that is wanted, at most, and `AT_ONCE` in all at least: where filters drop more than that,
the prompts do not suit the documents, and going on would only cost."""
SAMPLE = 5
"""Drafts that an estimate is made of."""
Told: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True)
class CreatedQuestions(Value):
    """Created questions.

    Args:
        kept: the questions, in the order in which they were drawn.
        dropped: the others, with what dropped them and why.
        missing: by type, how many questions were wanted and not made.
        stopped: why there are fewer than were wanted: by type `passages` or `links` (all were used), `tries`, `model`
            (it gave no reply that can be used) or `budget`.
    """

    kept: tuple[QuestionDraft, ...]
    dropped: tuple[QuestionDraft, ...]
    missing: Mapping[str, int]
    stopped: Mapping[str, str]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How many each step dropped, by reason, most first."""
        found: dict[str, Counter[str]] = {}
        for one in self.dropped:
            reason = one.reason.partition(":")[0].partition("“")[0].strip()
            found.setdefault(one.dropped_by, Counter())[reason] += 1
        return {step: dict(reasons.most_common()) for step, reasons in found.items()}


def create(
    wanted: Mapping[Recipe, int],
    *,
    told: Told = lambda done, total: None,
) -> CreatedQuestions:
    """Make `number` questions by each recipe, without near duplicates.

    With the run's cache a second call asks models nothing again, so that what was killed goes on where it was. More
    questions of the same seed begin with these.

    Args:
        wanted: how many by each recipe; the first says what is a near-duplicate.
        told: learns how many questions there are, of how many.

    Raises:
        ModelUnavailable: a model cannot be reached. A spent budget is no error: it ends the work.
    """
    distinct = next((one.distinct for one in wanted), DISTINCT)
    kept: list[QuestionDraft] = []
    dropped: list[QuestionDraft] = []
    missing: dict[str, int] = {}
    stopped: dict[str, str] = {}
    total = sum(wanted.values())
    for one, number in wanted.items():
        at, there = 0, len(kept)
        while (lacking := number - (len(kept) - there)) > 0:
            width = min(AT_ONCE, lacking, most_drafts(number) - at)
            may_ask = width > 0 and one.type not in stopped and "budget" not in stopped.values()
            drafts = one.sample(SampleRange(at, at + width)) if may_ask else ()
            if not drafts:
                missing[one.type] = lacking
                stopped.setdefault(one.type, one.source if width > 0 else "tries")
                break
            at += width
            results = one.body.batch(drafts)
            if any(isinstance(result, Failure) for result in results):
                stopped[one.type] = "budget"
                _refuse_others(results)
            made = [result for result in results if not isinstance(result, Failure)]
            if len(kept) == there and made and all(draft.reason.startswith(UNUSABLE) for draft in made):
                stopped.setdefault(one.type, "model")
            every = distinct((*kept, *made))
            dropped += [draft for draft in every if not draft.is_kept]
            kept = [draft for draft in every if draft.is_kept]
            told(len(kept), total)
    return CreatedQuestions(tuple(kept), tuple(dropped), missing, stopped)


def most_drafts(number: int) -> int:
    """The largest number of drafts for a number of questions."""
    return max(AT_ONCE, TRIES * number)


def _refuse_others(results: list[QuestionDraft | Failure]) -> None:
    """Raise the first failure that is no spent budget."""
    for result in results:
        if isinstance(result, Failure) and not isinstance(result.error, BudgetSpent):
            raise result.raised()


def estimate(recipe: Recipe, number: int) -> dict[str, Any]:
    """The model calls of `number` questions if none is dropped; asks no language model.

    Returns:
        `calls` and `tokens` (with the longest replies that are allowed), `most_calls` (with every reply repaired, and
        as many drafts dropped as are tried), and `cost_usd`, None where no model states a price.
    """
    use, drafts = ModelUse(), recipe.sample(SampleRange(0, min(SAMPLE, number)))

    def said(model: Any, prompt: Prompt, max_tokens: int) -> None:
        use.add(model, prompt, max_tokens)

    for step in recipe.steps:
        silent: Operator[Any, Any] = replaced(
            step, lambda one: Silent(one, said) if isinstance(one, LanguageModel) else one
        )
        for draft in drafts:
            with suppress(Unanswered, StepFailed):
                silent(_stand_in(draft))
    each, bound = number / max(1, len(drafts)), recipe.body.calls()
    return {
        "calls": round(use.usage.calls * each),
        "most_calls": None if bound is None else bound * most_drafts(number),
        "tokens": round((use.usage.input_tokens + use.usage.output_tokens) * each),
        "cost_usd": use.usage.cost_usd * each if use.has_price else None,
    }


def _stand_in(draft: QuestionDraft) -> QuestionDraft:
    """A draft as long as one that a model has written."""
    node = draft.passages[0]
    words = " ".join(node.text.split()[:20])
    return draft.but(question=f"{words}?", answers=(words[:40],), evidence=(words,), quotes=(Quote("", 0, words),))
