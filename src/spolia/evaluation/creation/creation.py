"""Creation of questions until there are enough, with the reasons why others were dropped."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from spolia.core.deprecation import renamed_arguments
from spolia.core.operator import Operator
from spolia.core.replacement import replace_parts
from spolia.errors import BudgetSpent, StepFailed
from spolia.evaluation.creation.draft import UNUSABLE, QuestionDraft, SampleRange
from spolia.evaluation.creation.recipes import DISTINCT, Recipe
from spolia.indexing.sync.cost_estimate import ModelUse
from spolia.models.prompting.stand_in_models import Silent, Unanswered
from spolia.models.protocols import LanguageModel
from spolia.types import Failure, Prompt, Quote, Value

BATCH_SIZE = 16
"""Questions that are made together."""
TRIES = 4
"""Drafts for each question that is wanted, at most, and `AT_ONCE` in all at least: where filters drop more than that,
the prompts do not suit the documents, and going on would only cost."""
SAMPLE = 5
"""Drafts that an estimate is made of."""
ProgressCallback: TypeAlias = Callable[[int, int], None]


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
        """Return how many drafts each step dropped, by reason, most frequent first."""
        reasons_by_step: dict[str, Counter[str]] = {}
        for draft in self.dropped:
            reason = draft.reason.partition(":")[0].partition("“")[0].strip()
            reasons_by_step.setdefault(draft.dropped_by, Counter())[reason] += 1
        return {step: dict(reasons.most_common()) for step, reasons in reasons_by_step.items()}


@renamed_arguments(wanted="numbers", told="on_progress")
def create(
    numbers: Mapping[Recipe, int],
    *,
    on_progress: ProgressCallback = lambda done, total: None,
) -> CreatedQuestions:
    """Make `number` questions by each recipe, without near duplicates.

    With the run's cache a second call asks models nothing again, so that what was killed goes on where it was. More
    questions of the same seed begin with these.

    Args:
        numbers: how many by each recipe; the first says what is a near-duplicate.
        on_progress: learns how many questions there are, of how many.

    Raises:
        ModelUnavailable: a model cannot be reached. A spent budget is no error: it ends the work.
    """
    distinct = next((recipe.distinct for recipe in numbers), DISTINCT)
    accepted: list[QuestionDraft] = []
    dropped: list[QuestionDraft] = []
    missing: dict[str, int] = {}
    stopped: dict[str, str] = {}
    total = sum(numbers.values())
    for recipe, number in numbers.items():
        start, accepted_before = 0, len(accepted)
        while (missing_count := number - (len(accepted) - accepted_before)) > 0:
            # No batch is larger than what is missing, so that few questions are made in vain.
            width = min(BATCH_SIZE, missing_count, most_drafts(number) - start)
            # All recipes have one budget.
            may_ask = width > 0 and recipe.type not in stopped and "budget" not in stopped.values()
            drafts = recipe.sample(SampleRange(start, start + width)) if may_ask else ()
            if not drafts:
                missing[recipe.type] = missing_count
                stopped.setdefault(recipe.type, recipe.source if width > 0 else "tries")
                break
            start += width
            results = recipe.body.batch(drafts)
            if any(isinstance(result, Failure) for result in results):
                stopped[recipe.type] = "budget"
                _raise_other_failures(results)
            revised = [result for result in results if not isinstance(result, Failure)]
            # Nothing is accepted yet, and no reply of a whole batch can be used: more calls would only
            # cost.
            if (
                len(accepted) == accepted_before
                and revised
                and all(draft.reason.startswith(UNUSABLE) for draft in revised)
            ):
                stopped.setdefault(recipe.type, "model")
            # Questions of earlier batches come first, so that a later one is dropped as their duplicate.
            compared = distinct((*accepted, *revised))
            dropped += [draft for draft in compared if not draft.is_kept]
            accepted = [draft for draft in compared if draft.is_kept]
            on_progress(len(accepted), total)
    return CreatedQuestions(tuple(accepted), tuple(dropped), missing, stopped)


def most_drafts(number: int) -> int:
    """Return the largest number of drafts for a number of questions."""
    return max(BATCH_SIZE, TRIES * number)


def _raise_other_failures(results: list[QuestionDraft | Failure]) -> None:
    """Raise the first failure that is no spent budget."""
    for result in results:
        if isinstance(result, Failure) and not isinstance(result.error, BudgetSpent):
            raise result.raised()


def estimate(recipe: Recipe, number: int) -> dict[str, Any]:
    """Estimate the model calls of `number` questions if none is dropped, without asking a language model.

    Returns:
        `calls` and `tokens` (with the longest replies that are allowed), `most_calls` (with every reply repaired, and
        as many drafts dropped as are tried), and `cost_usd`, None where no model states a price.
    """
    use, drafts = ModelUse(), recipe.sample(SampleRange(0, min(SAMPLE, number)))

    def add_use(model: Any, prompt: Prompt, max_tokens: int) -> None:
        use.add(model, prompt, max_tokens)

    for step in recipe.steps:
        silent: Operator[Any, Any] = replace_parts(
            step, lambda part: Silent(part, add_use) if isinstance(part, LanguageModel) else part
        )
        for draft in drafts:
            # A silent model counts the prompt and gives no reply, which ends the step.
            with suppress(Unanswered, StepFailed):
                silent(_stand_in(draft))
    scale, bound = number / max(1, len(drafts)), recipe.body.calls()
    return {
        "calls": round(use.usage.calls * scale),
        "most_calls": None if bound is None else bound * most_drafts(number),
        "tokens": round((use.usage.input_tokens + use.usage.output_tokens) * scale),
        "cost_usd": use.usage.cost_usd * scale if use.has_price else None,
    }


def _stand_in(draft: QuestionDraft) -> QuestionDraft:
    """Return a draft as long as one that a model has written."""
    node = draft.passages[0]
    words = " ".join(node.text.split()[:20])
    return draft.but(question=f"{words}?", answers=(words[:40],), evidence=(words,), quotes=(Quote("", 0, words),))
