"""Files that a service keeps beside a store's database, and readers of their content."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from spolia.evaluation.creation.feedback import Feedback, FeedbackQueue
from spolia.journal import Runs
from spolia.models.vectors import TokenVectors
from spolia.record_files import DIGEST
from spolia.retrieval.array_files import read_arrays, write_arrays
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.token_index import TokenVectorFiles
from spolia.run import Run
from spolia.server import audit
from spolia.server.keys import UsageLedger, load_token
from spolia.services.aliases import Aliases
from spolia.services.callbacks import Callbacks
from spolia.services.documents import Documents
from spolia.services.jobs import JobQueue, SqliteTable
from spolia.stores.corpus import Corpus
from spolia.stores.files import links_folder, tokens_folder
from spolia.types import Query, Usage

HASH = b"0123456789abcdef"


def make_service_files(corpus: Corpus) -> None:
    """Run once what writes each file."""
    folder = corpus.backend.folder
    with Runs(folder / "runs.db", values=True) as runs, Run(journal=runs.journal, cache=runs.cache):
        BM25(corpus.group())(Query("Who built the mill by the river?"))
    documents = Documents(corpus)
    for number in range(8):
        documents.add(f"sent{number}.md", f"Salt {number} is dug in mines.".encode() * 20)
    documents.publish()
    documents.add("later.md", b"Owls hunt mice by night." * 40)
    ledger = UsageLedger(folder / "usage.db")
    for name in ("ann", "bob"):
        ledger.add(name, Usage(calls=1, input_tokens=60), requests=1)
    aliases = Aliases(folder)
    for content in (b"flow: bm25\n", b"flow: hybrid\n"):
        (folder / "flow.yaml").write_bytes(content)
        aliases.promote("production", aliases.copy_flow(folder / "flow.yaml", content))
    (folder / "flow.yaml").unlink()
    log = audit.AuditLog(folder / audit.FILE)
    for status in (200, 403):
        log.add(key="ann", method="POST", route="/v1/answer", flow="naive", status=status)
    log.close()
    feedback = FeedbackQueue(folder / "feedback.jsonl")
    for run in ("r1", "r2"):
        feedback.add(Feedback(run, "ann", "What is spolia?", "Stones.", False, ("n1",), ("n1", "n2"), "up"))
    load_token(folder)
    Callbacks(documents.queue, folder).secret  # noqa: B018
    write_arrays(links_folder(folder, "chunk") / "g1.npz", {"keys": np.arange(40), "near": np.arange(80.0)})
    vectors = np.arange(64, dtype=np.float32).reshape(8, 8)
    TokenVectorFiles(tokens_folder(folder, "tokens"), 8).add([HASH], TokenVectors(np.array([0, 8]), vectors))


def _read_rows(file: Path) -> Any:
    """Read the rows of all tables, without digests."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes  # damaged texts need not be UTF-8
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'schema_digest'")
        tables = {}
        for (name,) in names.fetchall():
            columns = [row[1].decode() for row in connection.execute(f"PRAGMA table_info({name.decode()})")]
            columns_read = ", ".join(column for column in columns if column != DIGEST)
            tables[name] = connection.execute(f"SELECT {columns_read} FROM {name.decode()}").fetchall()
        return tables


def _read_arrays(file: Path) -> Any:
    with read_arrays(file) as parts:
        return {name: parts[name].tolist() for name in parts}


def _read_jobs(folder: Path) -> None:
    queue = JobQueue(SqliteTable(folder / "jobs.db"))
    for job in queue.jobs():
        queue.attachment(job.id)
    queue.counts()


def _use_quotas(folder: Path) -> None:
    ledger = UsageLedger(folder / "usage.db")
    ledger.used("ann")
    ledger.add("ann", Usage(calls=1))


def _read_traces(folder: Path) -> None:
    with Runs(folder / "runs.db") as runs:
        runs.journal.runs()


CONTENTS: Mapping[str, Callable[[Path], Any]] = {
    "runs.db": _read_rows,
    "jobs.db": _read_rows,
    "usage.db": _read_rows,
    "*.npz": _read_arrays,
    "feedback.jsonl": lambda file: FeedbackQueue(file).read(),
    "audit.jsonl": lambda file: list(audit.read_rows(file)),
    "aliases.json": lambda file: Aliases(file.parent).history(),
}
"""What files say, by their names; of others their bytes count."""
READERS: Mapping[str, Callable[[Path], object]] = {
    "runs.db": _read_traces,
    "jobs.db": _read_jobs,
    "usage.db": _use_quotas,
    "aliases.json": lambda folder: Aliases(folder).current(),
    "audit.jsonl": lambda folder: audit.verify_log(folder / audit.FILE),
    "feedback.jsonl": lambda folder: FeedbackQueue(folder / "feedback.jsonl").read(),
    "serve.token": load_token,
    "callback.secret": lambda folder: Callbacks(None, folder).secret,  # type: ignore[arg-type]
}
"""Reads a file as a service does, by its name: a damaged one raises a `SpoliaError`, or is made again."""


def content_of(file: Path) -> Any:
    """Read the content of a file."""
    read = next((read for pattern, read in CONTENTS.items() if file.match(pattern)), Path.read_bytes)
    return read(file)


@contextmanager
def damage_byte(file: Path, place: int, change: int) -> Iterator[None]:
    """Change one byte of a file while inside."""
    original = file.read_bytes()
    content = bytearray(original)
    content[place] ^= change
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(original)
