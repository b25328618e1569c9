"""Run of a command: its record beside the store, and its budget."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

from spolia.cli.screen import Screen
from spolia.errors import QueryError, StoreError
from spolia.journal import Cache, Journal, Runs
from spolia.models.file_hash import cache_folder
from spolia.models.http.remote import Remote
from spolia.models.protocols import LanguageModel
from spolia.private_files import make_folder
from spolia.run import Budget, Run
from spolia.stores.corpus import Corpus
from spolia.types import Usage

RUNS, FEEDBACK = "runs.db", "feedback.jsonl"


THREADS = 8
"""What waits, such as calls of servers, runs so often at the same time."""


@contextmanager
def record_run(
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
    corpus, principals = Corpus(str(store)), tuple(access or ())
    corpus.snapshot()  # raises an error if there is no store
    try:
        folder = corpus.backend.folder
        make_folder(folder)  # of a store in a database it may not be there yet
        runs = Runs(folder / RUNS, values=values)
    except (StoreError, OSError) as error:
        screen.say(f"Nothing is recorded of this run: {error}", "yellow")
        with Run(groups=principals, budget=budget, share=share, threads=threads, journal=log) as run:
            yield run
        return
    if damaged_copy := runs.database.damaged:
        screen.say(f"{folder / RUNS} was damaged. It is now {damaged_copy}, with earlier traces.", "yellow")
    cache = None if not cached else Cache(runs.database, replace=True) if replace else runs.cache
    journal = runs.journal if values or not share else None
    try:
        run_options: dict[str, Any] = {"journal": journal, "cache": cache, "budget": budget, "share": share}
        run_options |= {} if log is None else {"journal": log, "cache": None, "replies": cache}
        with runs, Run(groups=principals, threads=threads, **run_options) as run:
            yield run
    finally:
        if runs.database.dropped:
            screen.say(f"Not all of this run is recorded: {runs.database.problem or 'it came too fast'}", "yellow")


def store_for(folder: Path) -> str:
    """Return the store of a folder that is asked without naming one: in the cache directory, one for each folder."""
    path = folder.resolve()
    # Two folders of the same name get two stores.
    key = blake2b(str(path).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return str(cache_folder() / "stores" / f"{path.name[:60] or 'root'}-{key}.spolia")  # file systems allow 255 bytes


def budget_of(calls: int | None, tokens: int | None, usd: float | None) -> Budget | None:
    return None if calls is tokens is usd is None else Budget(calls=calls, tokens=tokens, cost_usd=usd)


def refuse_unpriced(usd: float | None, models: Iterable[object]) -> None:
    """Refuse a budget in dollars that could never hold, since a server's price is not known."""
    if usd is None:
        return
    million = Usage(input_tokens=10**6, output_tokens=10**6)  # a price is known if a million tokens cost anything
    for model in models:
        if isinstance(model, Remote) and isinstance(model, LanguageModel) and not model.add_price(million).cost_usd:
            raise QueryError(
                f"The price of {model.model} at {model.base_url} is not known, so no limit in USD could hold. Write "
                "--budget-calls or --budget-tokens, or usd_per_million for the model in a flow file."
            )
