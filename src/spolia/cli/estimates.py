"""What a command would ask models for, found out without asking any."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, cast

from spolia.cli.screen import Screen, table
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.core.replacement import replaced
from spolia.errors import ModelError, StepFailed
from spolia.indexing.sync.cost_estimate import ModelUse
from spolia.models.http.remote import Remote
from spolia.models.prompting.stand_in_models import Silent, SilentScorer, Unanswered
from spolia.models.protocols import LanguageModel, Scorer
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.group_search import GroupSearch
from spolia.run import Run
from spolia.types import Prompt, Query, Usage

SAMPLE = 5
"""Questions that an estimate is made of."""
SILENCE = "none"
"""What a model is taken to reply: nothing, so that no step makes calls of what it says."""


def estimate(flow: Operator[Query, Any], queries: Sequence[Query], groups: Sequence[str], n: int) -> dict[str, Any]:
    """What a flow would ask models for, of `n` questions of which these are a sample; no language model is asked.

    Prompts are made as they would be, of what is really found, and each reply is taken to be `none`. Tokens are
    estimated as they are reserved before a call, with the longest reply that is allowed.

    Returns:
        `calls` and `tokens` as far as they are seen so, `most_calls` (None without a bound), and `cost_usd` (None where
        no model states a price).
    """
    return estimated(flow, silent_use(flow, queries, groups)[1], len(queries), n)


def estimated(flow: Operator[Query, Any], use: ModelUse, sample: int, n: int) -> dict[str, Any]:
    """What `estimate` gives, from the model calls of a sample."""
    each, bound = n / sample, flow.calls()
    return {
        "calls": round(use.usage.calls * each),
        "most_calls": None if bound is None else bound * n,
        "tokens": round((use.usage.input_tokens + use.usage.output_tokens) * each),
        "cost_usd": use.usage.cost_usd * each if use.has_price else None,
    }


def silent_use(
    flow: Operator[Query, Any], queries: Sequence[Query], groups: Sequence[str] = ()
) -> tuple[ModelUse, ModelUse, float]:
    """What a flow would ask models for these questions, if every reply says nothing: with empty replies, and with the
    longest that are allowed; and the seconds without models. No language model is asked."""

    least, most = ModelUse(), ModelUse()

    def said(model: Any, prompt: Prompt, max_tokens: int) -> str:
        least.add(model, prompt, 0)
        most.add(model, prompt, max_tokens)
        return SILENCE

    def scored(usage: Usage) -> None:
        least.count(usage)
        most.count(usage)

    silent = replaced(offline(flow, scored), lambda one: Silent(one, said) if isinstance(one, LanguageModel) else one)
    start = perf_counter()
    with Run(groups=tuple(groups)):
        for query in queries:
            with suppress(Unanswered, StepFailed, ModelError):  # what would ask a server ends here
                silent(query)
    return least, most, perf_counter() - start


def offline(flow: Operator[Any, Any], scored: Callable[[Usage], None] = lambda usage: None) -> Operator[Any, Any]:
    """Return the flow without servers, apart from its language models: rerankers keep the order of passages, and
    searches that would have a question embedded by a server search for its words."""

    def change(one: Any) -> Any:
        if isinstance(one, SilentScorer):
            return one.model  # which is silent now
        if isinstance(one, Scorer) and not isinstance(one, Operator):
            return SilentScorer(one, scored)
        if isinstance(one, GroupSearch) and any(
            isinstance(model, Remote) and not isinstance(model, LanguageModel) for model in one.resources
        ):
            return BM25(one.group, one.top_k, one.source, one.filter)
        return one

    return cast("Operator[Any, Any]", replaced(flow, change))


def tell_estimates(
    screen: Screen,
    found: Mapping[str, Mapping[str, Any]],
    n: int,
    notes: Iterable[str] = (),
    assumed: str = "every reply says nothing",
) -> None:
    rows = []
    for name, one in found.items():
        most = "no bound" if one["most_calls"] is None else f"{one['most_calls']:,}"
        usd = "–" if one["cost_usd"] is None and one["calls"] else f"{one['cost_usd'] or 0:.4g}"
        rows.append((name, f"{one['calls']:,}", most, f"{one['tokens']:,}", usd))
    screen.give(estimate={name: dict(one) for name, one in found.items()}, n=n)
    screen.show(
        f"Estimate for {several(n, 'question')}; nothing was sent to a server.",
        table(rows, "", "calls", "at most", "tokens", "USD"),
        f"Calls if {assumed}; tokens with the longest replies that are allowed. –: no price is known.",
    )
    for note in notes:
        screen.say(note, "yellow")
