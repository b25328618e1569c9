"""Kills ingestions: `python -m tests.stores.kills FOLDER [fail points …]` or `… FOLDER --random COUNT SEED`.

With the address of a PostgreSQL database in `SPOLIA_TEST_DATABASE`, the stores are schemas in it.

Every ingestion runs in a fork of this process, which has imported everything and opened nothing, so that a kill costs
some milliseconds. Prints one JSON object for each.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import tantivy  # noqa: F401  imported once for all children

from spolia.stores import files
from spolia.stores.corpus import POSTGRES, Corpus
from tests.stores.scenario import FIFTH, STATES, cut_a_segment, ingest, problems, source_of, sync, tables


@dataclass(frozen=True)
class Ingestion:
    """What is killed.

    Args:
        all: makes a store and brings it from state to state, noting each published generation in a file.
        last: brings a store to the last state; returns how many texts were embedded.
        wrong: sources of a store that are not as they were in the state that is published.
        beside: in what a database beside a store is not as the backend, once somebody has opened it to write.
    """

    all: Callable[[Corpus, Path | None], None]
    last: Callable[[Corpus], int]
    wrong: Callable[[Corpus], list[str]]
    beside: Callable[[Corpus], list[str]] = lambda corpus: []


def say(result: object) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def forked(work: Callable[[], object]) -> int:
    """Run in a child process; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int) -> int:
    """How a child ended: 0, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def told(work: Callable[[], object], place: Path) -> object:
    """What `work` returns in a child process, by way of a file."""
    code = ended(forked(lambda: place.write_text(json.dumps(work(), default=repr))))
    return json.loads(place.read_text()) if code == 0 else f"exit {code}"


def after(folder: Path, ingestion: Ingestion, expected: dict[str, object]) -> dict[str, object]:
    """What is wrong with a store whose writer was killed, at once and after the ingestion was repeated."""
    corpus, said = store(folder, "killed"), folder / "said"
    found: dict[str, object] = {"at once": problems(corpus)}
    published = corpus.snapshot().generation if corpus.exists() else 0
    found["lost generations"] = max(0, int(said.read_text() or 0) - published) if said.exists() else 0
    if published:
        found["not as published"] = ingestion.wrong(corpus)
        found["beside, opened"] = ingestion.beside(corpus)
    ingestion.all(corpus, None)
    found["repeated"] = problems(corpus) + ingestion.beside(corpus)
    got = json.loads(json.dumps(tables(corpus), default=repr))
    found["different"] = [name for name in sorted(expected) if got.get(name) != expected[name]]
    generation = corpus.snapshot().generation
    found["embedded again"] = ingestion.last(corpus)
    found["published again"] = corpus.snapshot().generation - generation
    return {name: problem for name, problem in found.items() if problem}


def at_point(folder: Path, point: str, ingestion: Ingestion, expected: dict[str, object]) -> dict[str, object]:
    corpus, said = _fresh(folder)
    if damaged := point.startswith("forget"):
        ended(forked(lambda: ingestion.all(corpus, None)))
        cut_a_segment(corpus)

    def run() -> None:
        files.arm(point)
        if damaged:
            ingestion.last(corpus)
        else:
            ingestion.all(corpus, said)

    killed = ended(forked(run)) == -signal.SIGKILL
    return {"at": point, "killed": killed, "wrong": told(lambda: after(folder, ingestion, expected), folder / "told")}


def at_random(folder: Path, seconds: float, ingestion: Ingestion, expected: dict[str, object]) -> dict[str, object]:
    corpus, said = _fresh(folder)
    pid = forked(lambda: ingestion.all(corpus, said))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    killed = ended(pid) == -signal.SIGKILL
    return {"at": seconds, "killed": killed, "wrong": told(lambda: after(folder, ingestion, expected), folder / "told")}


def store(folder: Path, name: str) -> Corpus:
    """Where a store is made."""
    database = os.environ.get("SPOLIA_TEST_DATABASE")
    return Corpus(f"{database}&schema={name}" if database else str(folder / f"{name}.spolia"))


def _fresh(folder: Path) -> tuple[Corpus, Path]:
    corpus, said = store(folder, "killed"), folder / "said"
    ended(forked(lambda: _remove(corpus)))
    said.unlink(missing_ok=True)
    return corpus, said


def _remove(corpus: Corpus) -> None:
    if not corpus.path.startswith(POSTGRES):
        shutil.rmtree(corpus.path, ignore_errors=True)
    elif corpus.exists():
        import psycopg

        from spolia.stores.backends.postgres.address import address_of

        shutil.rmtree(corpus.backend.folder, ignore_errors=True)
        with psycopg.connect(os.environ["SPOLIA_TEST_DATABASE"]) as connection:
            connection.execute(f"DROP SCHEMA {address_of(corpus.path).schema} CASCADE")


def _not_as_put(corpus: Corpus) -> list[str]:
    snapshot = corpus.snapshot()
    there = {uri: row.content_hash for uri, row in snapshot.sources().items()}
    meant = {uri: source_of(uri, text).content_hash for uri, text in STATES[snapshot.generation - 1].items()}
    return sorted(uri for uri in there | meant if there.get(uri) != meant.get(uri))


def _import_what_children_do(folder: Path, ingestion: Ingestion) -> None:
    """Modules of ours, so that no child does it again; others' may start threads, which a fork has not."""

    corpus, _ = _fresh(folder)

    def modules() -> list[str]:
        ingestion.all(corpus, None)
        after(folder, ingestion, {})
        return sorted(name for name in sys.modules if name.startswith("spolia."))

    found = told(modules, folder / "told")
    assert isinstance(found, list), found
    for name in found:
        import_module(name)


if os.environ.get("SPOLIA_TEST_DATABASE"):
    from spolia.stores.manifest import GroupEmbedding
    from tests.stores import scenario

    soon = GroupEmbedding(scenario.EMBEDDER, scenario.DIMENSION, index='{"HNSW": {"above": 5}}')
    scenario.MANIFEST = scenario.MANIFEST.but(embeddings=(soon,))

PUTTING = Ingestion(ingest, lambda corpus: sync(corpus, FIFTH), _not_as_put)


def main(folder: Path, arguments: list[str], ingestion: Ingestion = PUTTING) -> None:
    whole, timed = store(folder, "whole"), store(folder, "timed")
    ended(forked(lambda: _remove(whole)))
    ended(forked(lambda: _remove(timed)))
    _import_what_children_do(folder, ingestion)
    ended(forked(lambda: ingestion.all(whole, None)))
    began = time.monotonic()
    ended(forked(lambda: ingestion.all(timed, None)))
    seconds = time.monotonic() - began
    expected = told(lambda: tables(whole), folder / "told")
    assert isinstance(expected, dict), expected
    say({"at": "the end", "killed": True, "wrong": told(lambda: problems(whole), folder / "told")})
    if arguments[0] == "--random":
        kills, draw = int(arguments[1]), random.Random(int(arguments[2]))
        while kills > 0:
            result = at_random(folder, draw.uniform(0, seconds), ingestion, expected)
            kills -= bool(result["killed"])
            say(result)
    else:
        for point in arguments:
            say(at_point(folder, point, ingestion, expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
