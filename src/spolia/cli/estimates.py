"""Cost estimates of commands, computed without asking any model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, cast

from spolia.cli.screen import Screen, table
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.core.replacement import replace_parts
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
    """Estimate what a flow would ask models for `n` questions of which these are a sample; no language model is asked.

    Prompts are made as they would be, of what is really found, and each reply is taken to be `none`. Tokens are
    estimated as they are reserved before a call, with the longest reply that is allowed.

    Returns:
        `calls` and `tokens` as far as they are seen so, `most_calls` (None without a bound), and `cost_usd` (None where
        no model states a price).
    """
    return scale_estimate(flow, measure_silent_use(flow, queries, groups)[1], len(queries), n)


def scale_estimate(flow: Operator[Query, Any], use: ModelUse, sample: int, n: int) -> dict[str, Any]:
    """Scale the model calls of a sample up to `n` questions."""
    factor, bound = n / sample, flow.calls()
    return {
        "calls": round(use.usage.calls * factor),
        "most_calls": None if bound is None else bound * n,
        "tokens": round((use.usage.input_tokens + use.usage.output_tokens) * factor),
        "cost_usd": use.usage.cost_usd * factor if use.has_price else None,
    }


def measure_silent_use(
    flow: Operator[Query, Any], queries: Sequence[Query], groups: Sequence[str] = ()
) -> tuple[ModelUse, ModelUse, float]:
    """Return a flow's model use if every reply says nothing, with empty and with the longest replies, and the seconds
    without models."""

    shortest, longest = ModelUse(), ModelUse()

    def reply_nothing(model: Any, prompt: Prompt, max_tokens: int) -> str:
        shortest.add(model, prompt, 0)
        longest.add(model, prompt, max_tokens)
        return SILENCE

    def count_scores(usage: Usage) -> None:
        shortest.count(usage)
        longest.count(usage)

    silent_flow = replace_parts(
        without_servers(flow, count_scores),
        lambda part: Silent(part, reply_nothing) if isinstance(part, LanguageModel) else part,
    )
    start = perf_counter()
    with Run(groups=tuple(groups)):
        for query in queries:
            with suppress(Unanswered, StepFailed, ModelError):  # what would ask a server ends here
                silent_flow(query)
    return shortest, longest, perf_counter() - start


def without_servers(
    flow: Operator[Any, Any], on_score: Callable[[Usage], None] = lambda usage: None
) -> Operator[Any, Any]:
    """Return the flow without servers, apart from its language models: rerankers keep the order of passages, and
    searches that would have a question embedded by a server search for its words."""

    def replace_part(part: Any) -> Any:
        if isinstance(part, SilentScorer):
            return part.model  # which is silent now
        if isinstance(part, Scorer) and not isinstance(part, Operator):
            return SilentScorer(part, on_score)
        if isinstance(part, GroupSearch) and any(
            isinstance(model, Remote) and not isinstance(model, LanguageModel) for model in part.resources
        ):
            return BM25(part.group, part.top_k, part.source, part.filter)
        return part

    return cast("Operator[Any, Any]", replace_parts(flow, replace_part))


def print_estimates(
    screen: Screen,
    estimates_by_name: Mapping[str, Mapping[str, Any]],
    n: int,
    notes: Iterable[str] = (),
    assumed: str = "every reply says nothing",
) -> None:
    rows = []
    for name, flow_estimate in estimates_by_name.items():
        call_limit = "no bound" if flow_estimate["most_calls"] is None else f"{flow_estimate['most_calls']:,}"
        usd = (
            "–"
            if flow_estimate["cost_usd"] is None and flow_estimate["calls"]
            else f"{flow_estimate['cost_usd'] or 0:.4g}"
        )
        rows.append((name, f"{flow_estimate['calls']:,}", call_limit, f"{flow_estimate['tokens']:,}", usd))
    screen.give(estimate={name: dict(flow_estimate) for name, flow_estimate in estimates_by_name.items()}, n=n)
    screen.show(
        f"Estimate for {several(n, 'question')}; nothing was sent to a server.",
        table(rows, "", "calls", "at most", "tokens", "USD"),
        f"Calls if {assumed}; tokens with the longest replies that are allowed. –: no price is known.",
    )
    for note in notes:
        screen.say(note, "yellow")
