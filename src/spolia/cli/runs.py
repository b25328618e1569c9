"""The run of a command: its record beside the store, its budget, and what it would cost."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from spolia.cli.screen import Screen, table
from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.errors import QueryError, StepFailed, StoreError
from spolia.journal import Cache, Journal, Runs
from spolia.models.http.remote import Remote
from spolia.models.protocols import LanguageModel
from spolia.run import Budget, Run
from spolia.stores.corpus import Corpus
from spolia.types import Prompt, Query, Usage

if TYPE_CHECKING:
    from spolia.indexing.sync.cost_estimate import ModelUse

RUNS, FEEDBACK = "runs.db", "feedback.jsonl"
SAMPLE = 5
"""Questions that an estimate is made of."""
SILENCE = "none"
"""What a model is taken to reply: nothing, so that no step makes calls of what it says."""


THREADS = 8
"""What waits, such as calls of servers, runs so often at the same time."""


@contextmanager
def recorded(
    store: str,
    screen: Screen,
    access: Sequence[str] | None = None,
    *,
    replace: bool = False,
    cached: bool = True,
    budget: Budget | None = None,
    values: bool = False,
    share: bool | int = False,
    threads: int = THREADS,
    log: Journal | None = None,
) -> Iterator[Run]:
    """Run with journal and cache in the store's `runs.db`; without them, and say so, if it cannot be written. One that
    shares equal steps runs too many of them to trace each, and has a journal only for their values. Without `cached`
    it has no cache. With a `log`, each step runs and goes there; only replies of models are kept, by their prompts."""
    corpus, who = Corpus(str(store)), tuple(access or ())
    corpus.snapshot()
    try:
        folder = corpus.backend.folder
        folder.mkdir(0o700, parents=True, exist_ok=True)  # of a store in a database it may not be there yet
        runs = Runs(folder / RUNS, values=values)
    except (StoreError, OSError) as error:
        screen.say(f"Nothing is recorded of this run: {error}", "yellow")
        with Run(groups=who, budget=budget, share=share, threads=threads, journal=log) as run:
            yield run
        return
    cache = None if not cached else Cache(runs.database, replace=True) if replace else runs.cache
    journal = runs.journal if values or not share else None
    try:
        own: dict[str, Any] = {"journal": journal, "cache": cache, "budget": budget, "share": share}
        own |= {} if log is None else {"journal": log, "cache": None, "replies": cache}
        with runs, Run(groups=who, threads=threads, **own) as run:
            yield run
    finally:
        if runs.database.dropped:
            screen.say(f"Not all of this run is recorded: {runs.database.problem or 'it came too fast'}", "yellow")


def store_for(folder: Path) -> str:
    """The store of a folder that is asked without naming one: in the cache directory, one for each folder."""
    from spolia.evaluation.data.passage_store import cache_folder

    whole = folder.resolve()
    key = blake2b(str(whole).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return str(cache_folder() / "stores" / f"{whole.name[:60] or 'root'}-{key}.spolia")


def budget_of(calls: int | None, tokens: int | None, usd: float | None) -> Budget | None:
    return None if calls is tokens is usd is None else Budget(calls=calls, tokens=tokens, cost_usd=usd)


def refuse_unpriced(usd: float | None, asked: Iterable[object]) -> None:
    """Refuse a budget in dollars that could never hold, since a server's price is not known."""
    if usd is None:
        return
    million = Usage(input_tokens=10**6, output_tokens=10**6)
    for model in asked:
        if isinstance(model, Remote) and isinstance(model, LanguageModel) and not model.priced(million).cost_usd:
            raise QueryError(
                f"The price of {model.model} at {model.base_url} is not known, so no limit in USD could hold. Write "
                "--budget-calls or --budget-tokens, or usd_per_million for the model in a flow file."
            )


def estimate(flow: Operator[Query, Any], queries: Sequence[Query], groups: Sequence[str], n: int) -> dict[str, Any]:
    """What a flow would ask models for, of `n` questions of which these are a sample; no language model is asked.

    Prompts are made as they would be, of what is really found, and each reply is taken to be `none`. Tokens are
    estimated as they are reserved before a call, with the longest reply that is allowed.

    Returns:
        `calls` and `tokens` as far as they are seen so, `most_calls` (None without a bound), and `cost_usd` (None where
        no model states a price).
    """
    return estimated(flow, silent_use(flow, queries, groups)[1], len(queries), n)


def estimated(flow: Operator[Query, Any], use: "ModelUse", sample: int, n: int) -> dict[str, Any]:
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
) -> "tuple[ModelUse, ModelUse, float]":
    """What a flow would ask models for these questions, if every reply says nothing: with empty replies, and with the
    longest that are allowed; and the seconds without models. No language model is asked."""
    from spolia.indexing.sync.cost_estimate import ModelUse
    from spolia.models.prompting.stand_in_models import Silent, Unanswered, replaced

    least, most = ModelUse(), ModelUse()

    def said(model: Any, prompt: Prompt, max_tokens: int) -> str:
        least.add(model, prompt, 0)
        most.add(model, prompt, max_tokens)
        return SILENCE

    silent = replaced(flow, lambda one: Silent(one, said) if isinstance(one, LanguageModel) else one)
    start = perf_counter()
    with Run(groups=tuple(groups)):
        for query in queries:
            with suppress(Unanswered, StepFailed):
                silent(query)
    return least, most, perf_counter() - start


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
        f"Estimate for {several(n, 'question')}; no language model was asked.",
        table(rows, "", "calls", "at most", "tokens", "USD"),
        f"Calls if {assumed}; tokens with the longest replies that are allowed. –: no price is known.",
    )
    for note in notes:
        screen.say(note, "yellow")
