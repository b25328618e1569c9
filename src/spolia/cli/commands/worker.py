"""`spolia worker`: a process that reads and embeds documents for a service."""

from contextlib import suppress
from typing import Annotated

from spolia.cli import options
from spolia.cli.exit_codes import Exit
from spolia.cli.parameters import option
from spolia.cli.readers import build_readers
from spolia.cli.screen import Screen
from spolia.cli.user_modules import load_user_modules
from spolia.errors import QueryError
from spolia.indexing.workers.pool import WorkerProcesses
from spolia.services.jobs import JobQueue
from spolia.services.publisher import open_table
from spolia.services.workers import work
from spolia.stores.corpus import Corpus


def worker(
    jobs: Annotated[str, option("--jobs STORE", "The store of a service; only its jobs are opened.")],
    wait: Annotated[float, option("--wait SECONDS", "End if no service was found for this long.", min=0)] = 10.0,
    known: options.Known = None,
    redact: options.Redact = None,
    allow_env: options.AllowEnv = None,
) -> Exit:
    """Read, split and embed documents for `spolia serve --documents --workers`.

    Give it the service's options for readers and groups (--known, --redact, --allow-env); no others are needed.
    """
    corpus = Corpus(jobs)
    if not corpus.exists():
        raise QueryError(f"Store not found: {jobs}. Start `spolia serve --documents --workers 0` first.")
    with WorkerProcesses(1) as processes, suppress(KeyboardInterrupt):  # or SIGTERM: the usual end of a worker
        queue = JobQueue(open_table(corpus))
        work(
            queue,
            processes,
            readers=build_readers(known, redact),
            operators=load_user_modules(known).operators,
            wait_s=wait,
        )
        Screen().say(f"Ended: {jobs} has no running service. `spolia serve --documents` starts one.")
    return Exit.DONE
