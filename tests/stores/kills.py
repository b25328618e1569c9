"""Kills ingestions: `python -m tests.stores.kills FOLDER [fail points …] [--random COUNT SEED]`.

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
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import tantivy  # noqa: F401  imported once for all children

from spolia.stores import files
from spolia.stores.corpus import POSTGRES, Corpus
from tests.stores.scenario import FIFTH, INGESTION, STATES, cut_a_segment, problems, source_of, sync, tables

Step: TypeAlias = Callable[[Corpus, Path | None], object]
"""What an ingestion does to a store; it notes the generation that it published."""


@dataclass(frozen=True)
class Ingestion:
    """What is killed.

    Args:
        steps: make a store and bring it from state to state, noting each published generation in a file.
        last: brings a store to the last state; returns how many texts were embedded.
        wrong: sources of a store that are not as they were in the state that is published.
        beside: in what a database beside a store is not as the backend, once somebody has opened it to write.
    """

    steps: tuple[Step, ...]
    last: Callable[[Corpus], int]
    wrong: Callable[[Corpus], list[str]]
    beside: Callable[[Corpus], list[str]] = lambda corpus: []

    def all(self, corpus: Corpus, said: Path | None = None) -> None:
        for step in self.steps:
            step(corpus, said)

    def mend(self, corpus: Corpus, said: Path | None = None) -> None:
        """A step after the last one: a segment is damaged, and the last state is made again."""
        if not problems(corpus):
            cut_a_segment(corpus)
        self.last(corpus)


def say(result: object) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def start_child(work: Callable[[], object]) -> int:
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


def wait_for_child(pid: int) -> int:
    """How a child ended: 0, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_in_child(work: Callable[[], object], place: Path) -> object:
    """What `work` returns in a child process, by way of a file."""
    code = wait_for_child(start_child(lambda: place.write_text(json.dumps(work(), default=repr))))
    return json.loads(place.read_text()) if code == 0 else f"exit {code}"


def problems_at_once(folder: Path, ingestion: Ingestion) -> dict[str, object]:
    """What is wrong with a store whose writer was killed."""
    corpus, log = store(folder, "killed"), folder / "said"
    problems_by_kind: dict[str, object] = {"at once": problems(corpus)}
    published = corpus.snapshot().generation if corpus.exists() else 0
    problems_by_kind["lost generations"] = max(0, int(log.read_text() or 0) - published) if log.exists() else 0
    if published:
        problems_by_kind["not as published"] = ingestion.wrong(corpus)
        problems_by_kind["beside, opened"] = ingestion.beside(corpus)
    return {name: problem for name, problem in problems_by_kind.items() if problem}


def problems_after_repeat(folder: Path, ingestion: Ingestion, expected: dict[str, object]) -> dict[str, object]:
    """What is wrong with a store after the whole ingestion was repeated."""
    corpus = store(folder, "killed")
    ingestion.all(corpus)
    problems_by_kind: dict[str, object] = {"repeated": problems(corpus) + ingestion.beside(corpus)}
    got = json.loads(json.dumps(tables(corpus), default=repr))
    problems_by_kind["different"] = [name for name in sorted(expected) if got.get(name) != expected[name]]
    generation = corpus.snapshot().generation
    problems_by_kind["embedded again"] = ingestion.last(corpus)
    problems_by_kind["published again"] = corpus.snapshot().generation - generation
    return {name: problem for name, problem in problems_by_kind.items() if problem}


def kill_at_points(
    folder: Path, points: Sequence[str], ingestion: Ingestion, expected: dict[str, object]
) -> Iterator[dict[str, object]]:
    """Kill at each point.

    The next process goes on with the step that was killed, so one store is killed at many points. At its end the whole
    ingestion is repeated. Points that it did not come past again follow with the next store.
    """
    place = folder / "told"
    _fresh(folder)
    mend = any(point.startswith("forget") for point in points)
    passed = run_in_child(lambda: fail_points_passed(lambda: go_on(folder, ingestion, mend=mend)), place)
    assert isinstance(passed, list), passed
    yield from ({"at": point, "killed": False, "wrong": {}} for point in points if point not in passed)
    left = [point for point in passed if point in points]
    while left:
        _fresh(folder)
        previous_points = list(left)
        while (
            exit_code := wait_for_child(start_child(lambda: go_on(folder, ingestion, *left[:1])))
        ) == -signal.SIGKILL:
            yield {
                "at": left.pop(0),
                "killed": True,
                "wrong": run_in_child(lambda: problems_at_once(folder, ingestion), place),
            }
        assert (exit_code == 0) & (left != previous_points), f"exit {exit_code}, not killed at {left}"
        yield {
            "at": "the end",
            "killed": True,
            "wrong": run_in_child(lambda: problems_after_repeat(folder, ingestion, expected), place),
        }


def go_on(folder: Path, ingestion: Ingestion, point: str = "", mend: bool = False) -> None:
    """Begin, or go on with the step that was killed, up to a fail point."""
    corpus, log, done = store(folder, "killed"), folder / "said", folder / "done"
    steps = (*ingestion.steps, ingestion.mend) if mend or point.startswith("forget") else ingestion.steps
    files.arm(point)
    for number in range(int(done.read_text()), len(steps)):
        steps[number](corpus, log)
        done.write_text(str(number + 1))


def fail_points_passed(work: Callable[[], object]) -> list[str]:
    """The names of the fail points that `work` comes past, in order."""
    names = dict[str, None]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code is files.fail_point.__code__:
            names[frame.f_locals["name"]] = None

    threading.setprofile(note)
    sys.setprofile(note)
    work()
    sys.setprofile(None)
    return list(names)


def kill_at_random(
    folder: Path, seconds: float, ingestion: Ingestion, expected: dict[str, object]
) -> dict[str, object]:
    corpus, log = _fresh(folder)
    pid = start_child(lambda: ingestion.all(corpus, log))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    killed = wait_for_child(pid) == -signal.SIGKILL

    def wrong() -> dict[str, object]:
        return problems_at_once(folder, ingestion) | problems_after_repeat(folder, ingestion, expected)

    return {"at": seconds, "killed": killed, "wrong": run_in_child(wrong, folder / "told")}


def store(folder: Path, name: str) -> Corpus:
    """Where a store is made."""
    database = os.environ.get("SPOLIA_TEST_DATABASE")
    return Corpus(f"{database}&schema={name}" if database else str(folder / f"{name}.spolia"))


def _fresh(folder: Path) -> tuple[Corpus, Path]:
    corpus, log = store(folder, "killed"), folder / "said"
    wait_for_child(start_child(lambda: _remove(corpus)))
    log.unlink(missing_ok=True)
    (folder / "done").write_text("0")
    return corpus, log


def _remove(corpus: Corpus) -> None:
    if not corpus.path.startswith(POSTGRES):
        shutil.rmtree(corpus.path, ignore_errors=True)
    elif corpus.exists():
        import psycopg

        from spolia.stores.backends.postgres.address import parse_address

        shutil.rmtree(corpus.backend.folder, ignore_errors=True)
        with psycopg.connect(os.environ["SPOLIA_TEST_DATABASE"]) as connection:
            connection.execute(f"DROP SCHEMA {parse_address(corpus.path).schema} CASCADE")


def _not_as_put(corpus: Corpus) -> list[str]:
    snapshot = corpus.snapshot()
    stored_hashes = {uri: row.content_hash for uri, row in snapshot.sources().items()}
    meant = {uri: source_of(uri, text).content_hash for uri, text in STATES[snapshot.generation - 1].items()}
    return sorted(uri for uri in stored_hashes | meant if stored_hashes.get(uri) != meant.get(uri))


def _import_what_children_do(folder: Path, ingestion: Ingestion) -> None:
    """Modules of ours, so that no child does it again; others' may start threads, which a fork has not."""

    corpus, _ = _fresh(folder)

    def modules() -> list[str]:
        ingestion.all(corpus)
        problems_at_once(folder, ingestion)
        problems_after_repeat(folder, ingestion, {})
        return sorted(name for name in sys.modules if name.startswith("spolia."))

    module_names = run_in_child(modules, folder / "told")
    assert isinstance(module_names, list), module_names
    for name in module_names:
        import_module(name)


if os.environ.get("SPOLIA_TEST_DATABASE"):
    from spolia.stores.manifest import GroupEmbedding
    from tests.stores import scenario

    soon = GroupEmbedding(scenario.EMBEDDER, scenario.DIMENSION, index='{"HNSW": {"above": 5}}')
    scenario.MANIFEST = scenario.MANIFEST.but(embeddings=(soon,))

PUTTING = Ingestion(INGESTION, lambda corpus: sync(corpus, FIFTH), _not_as_put)


def main(folder: Path, arguments: list[str], ingestion: Ingestion = PUTTING) -> None:
    whole, timed = store(folder, "whole"), store(folder, "timed")
    wait_for_child(start_child(lambda: _remove(whole)))
    wait_for_child(start_child(lambda: _remove(timed)))
    _import_what_children_do(folder, ingestion)
    wait_for_child(start_child(lambda: ingestion.all(whole)))
    began = time.monotonic()
    wait_for_child(start_child(lambda: ingestion.all(timed)))
    seconds = time.monotonic() - began
    expected = run_in_child(lambda: tables(whole), folder / "told")
    assert isinstance(expected, dict), expected
    say({"at": "the end", "killed": True, "wrong": run_in_child(lambda: problems(whole), folder / "told")})
    points = list(takewhile(lambda argument: argument != "--random", arguments))
    for result in kill_at_points(folder, points, ingestion, expected) if points else ():
        say(result)
    if points != arguments:
        _, count, seed = arguments[len(points) :]
        kills, draw = int(count), random.Random(int(seed))
        while kills > 0:
            result = kill_at_random(folder, draw.uniform(0, seconds), ingestion, expected)
            kills -= bool(result["killed"])
            say(result)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
