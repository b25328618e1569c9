"""A run whose steps and results are kept beside the store, and where the store of a folder is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from spolia.cli.screen import Screen
from spolia.errors import StoreError
from spolia.run import Budget, Run

RUNS = "runs.db"


@contextmanager
def recorded(
    store: str, screen: Screen, access: Sequence[str] | None = None, *, anew: bool = False, budget: Budget | None = None
) -> Iterator[Run]:
    """Run with journal and cache in the store's `runs.db`; without them, and say so, if it cannot be written."""
    from spolia.journal import Cache, Runs
    from spolia.stores.corpus import Corpus

    corpus, who = Corpus(str(store)), tuple(access or ())
    corpus.snapshot()
    try:
        folder = corpus.backend.folder
        folder.mkdir(0o700, parents=True, exist_ok=True)  # of a store in a database it may not be there yet
        runs = Runs(folder / RUNS)
    except (StoreError, OSError) as error:
        screen.say(f"Nothing is recorded of this run: {error}", "yellow")
        with Run(groups=who, budget=budget) as run:
            yield run
        return
    cache = Cache(runs.database, anew=True) if anew else runs.cache
    with runs, Run(groups=who, journal=runs.journal, cache=cache, budget=budget) as run:
        yield run


def store_for(folder: Path) -> str:
    """The store of a folder that is asked without naming one: in the cache directory, one for each folder."""
    from spolia.evaluation.data.passage_store import cache_folder

    whole = folder.resolve()
    key = blake2b(str(whole).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return str(cache_folder() / "stores" / f"{whole.name[:60] or 'root'}-{key}.spolia")
