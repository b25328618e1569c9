"""Contract of vector databases, as classes of tests that the author of an adapter derives from.

    class TestMine(IndexContract):
        exact = True

        def settings(self, place):
            return Mine(folder=str(place))

Vectors lie in clusters, as those of texts do; results are compared with exact search in double precision.
"""

import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar
from urllib.parse import urlsplit
from warnings import warn
from zlib import crc32

import numpy as np

from spolia.errors import StoreError
from spolia.stores.indexes import Database, VectorIndex
from spolia.testing.wire import Wire
from spolia.types.arrays import Vectors

METRICS = ("cosine", "dot", "euclidean")
NAME, DIMENSION = "notes_chunk", 48
ENOUGH = 0.95
READER_SCRIPT = """
import os, pickle, sys
out = open(os.dup(1), "wb")
os.dup2(2, 1)  # where a database prints
database, folder, name, dimension, queries = pickle.load(sys.stdin.buffer)
while sys.stdin.buffer.readline():
    index = database.open(folder, name, dimension, "cosine")
    found = sorted(index.keys()), index.search(queries, 5)
    index.close()
    out.write(pickle.dumps(found))
    out.flush()
"""


def make_clusters(rows: int, seed: int = 0, dimension: int = DIMENSION) -> Vectors:
    """Make float32[rows, dimension] around some centres, of different lengths."""
    draw = np.random.default_rng(seed)
    # Always the same centres, so that queries lie in the clusters of the vectors.
    centres = np.random.default_rng(1).normal(size=(max(1, rows // 25), dimension))
    spread = draw.normal(size=(rows, dimension)) * 0.6
    vectors = (centres[draw.integers(0, len(centres), rows)] + spread) * draw.uniform(0.5, 2, size=(rows, 1))
    return vectors.astype(np.float32)


def search_exactly(queries: Vectors, keys: Sequence[int], vectors: Vectors, top_k: int, metric: str) -> list[Any]:
    """Search exactly: return for each query keys and scores, best first, equal scores by key."""
    query_rows, vector_rows = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "euclidean":
        scores = -np.linalg.norm(query_rows[:, None, :] - vector_rows[None, :, :], axis=2)
    else:
        scores = query_rows @ vector_rows.T
    if metric == "cosine":
        lengths = np.linalg.norm(query_rows, axis=1)[:, None] * np.linalg.norm(vector_rows, axis=1)[None, :]
        scores = np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0)
    orders = [np.lexsort((keys, -row))[:top_k] for row in scores]
    return [[(keys[i], float(row[i])) for i in order] for row, order in zip(scores, orders, strict=True)]


def collection_name(place: Path, name: str = NAME) -> str:
    """Return a collection name that no test in another folder uses; a server keeps the collections of all tests."""
    return f"{name}_{crc32(str(place).encode()):08x}"


class IndexContract:
    """Tests of one kind of database. `place` is an empty folder of the test, given by pytest's `tmp_path`.

    Class attributes:
        exact: it finds the same as exact search; else at least 95 % of it.
        many: more keys than the database gives in one reply.
        processes: another process may read what this one holds open; else only after it was closed.
    """

    exact: ClassVar[bool] = False
    many: ClassVar[int] = 12_000
    processes: ClassVar[bool] = True

    def settings(self, place: Path) -> Database:
        """Return the settings that are tested; the same for the same place."""
        raise NotImplementedError

    @contextmanager
    def open_index(self, place: Path, metric: str = "cosine", name: str = NAME) -> Iterator[VectorIndex]:
        index = self.settings(place).open(place, collection_name(place, name), DIMENSION, metric)
        try:
            yield index
        finally:
            index.close()

    def test_finds_what_exact_search_finds(self, tmp_path: Path) -> None:
        keys, vectors, queries = [7 * i for i in range(500)], make_clusters(500), make_clusters(40, seed=3)
        for metric in METRICS:
            with self.open_index(tmp_path, metric, f"by_{metric}") as index:
                index.add(keys, vectors)
                self._compare(index.search(queries, 10), search_exactly(queries, keys, vectors, 10, metric), metric)

    def _compare(self, results: list[Any], expected: list[Any], metric: str) -> None:
        shared = 0
        for hits, expected_hits in zip(results, expected, strict=True):
            assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0])), f"{metric}: not in order"
            scores = dict(expected_hits)
            shared += sum(key in scores for key, _ in hits)
            for key, score in hits:
                assert abs(score - scores.get(key, score)) < 2e-3 * max(1, abs(score)), (
                    f"{metric}: {score} is not the score"
                )
        recall = shared / sum(map(len, expected))
        assert recall >= (1.0 if self.exact else ENOUGH), f"{metric}: recall {recall}"

    def test_scores_are_in_the_scale_of_the_metric(self, tmp_path: Path) -> None:
        vectors = np.zeros((3, DIMENSION), dtype=np.float32)
        vectors[0, 0], vectors[1, 0], vectors[2, 1] = 2.0, -3.0, 4.0
        expected = {
            "cosine": [(0, 1.0), (2, 0.0), (1, -1.0)],
            "dot": [(0, 4.0), (2, 0.0), (1, -6.0)],
            "euclidean": [(0, 0.0), (2, -np.sqrt(20)), (1, -5.0)],
        }
        for metric in METRICS:
            with self.open_index(tmp_path, metric, f"by_{metric}") as index:
                index.add([0, 1, 2], vectors)
                (hits,) = index.search(vectors[:1], 3)
                assert [key for key, _ in hits] == [key for key, _ in expected[metric]], metric
                for (_, score), (_, expected_score) in zip(hits, expected[metric], strict=True):
                    assert abs(score - expected_score) < 1e-2, f"{metric}: {score} in place of {expected_score}"

    def test_equal_scores_are_in_the_order_of_keys_wherever_the_results_end(self, tmp_path: Path) -> None:
        vectors = make_clusters(60)
        vectors[10:50] = vectors[10]
        keys = list(range(1000, 940, -1))
        with self.open_index(tmp_path) as index:
            index.add(keys, vectors)
            assert [key for key, _ in index.search(vectors[10:11], 5)[0]] == sorted(keys[10:50])[:5]

    def test_zeros_have_the_cosine_0(self, tmp_path: Path) -> None:
        vectors = make_clusters(3)
        vectors[1] = 0.0
        with self.open_index(tmp_path) as index:
            index.add([1, 2, 3], vectors)
            assert dict(index.search(vectors[:1], 3)[0])[2] == 0.0
            assert {score for _, score in index.search(vectors[1:2], 3)[0]} == {0.0}

    def test_holds_nothing_at_first_and_gives_what_there_is(self, tmp_path: Path) -> None:
        vectors = make_clusters(3)
        with self.open_index(tmp_path) as index:
            assert index.search(vectors, 4) == [[], [], []]
            assert list(index.keys()) == []
            index.remove([5])
            index.add([], vectors[:0])
            # 2^53 + 1 is no double: a database whose keys go through floats loses it.
            index.add([5, 2**53 + 1], vectors[:2])
            assert [len(near) for near in index.search(vectors, 4)] == [2, 2, 2]
            assert index.search(vectors[:0], 4) == []
            assert index.search(vectors[:1], 0) == [[]]
            assert sorted(index.keys()) == [5, 2**53 + 1]

    def test_adding_puts_a_vector_in_the_place_of_what_is_there(self, tmp_path: Path) -> None:
        vectors = make_clusters(300)
        with self.open_index(tmp_path) as index:
            for _ in range(3):
                index.add(range(300), vectors)
            assert sorted(index.keys()) == list(range(300))
            index.add([4, 4, 9], vectors[[0, 8, 5]])
            (near,) = index.search(vectors[8:9], 300)
            assert [key for key, score in near if score > 0.9999] == [4, 8]

    def test_what_is_removed_is_not_found(self, tmp_path: Path) -> None:
        vectors = make_clusters(200)
        with self.open_index(tmp_path) as index:
            index.add(range(200), vectors)
            index.remove([*range(0, 200, 2), 7777])
            assert sorted(index.keys()) == list(range(1, 200, 2))
            assert all(key % 2 for near in index.search(vectors, 20) for key, _ in near)
            index.add([0], vectors[:1])
            assert index.search(vectors[:1], 1)[0][0][0] == 0

    def test_keys_come_from_more_than_one_page(self, tmp_path: Path) -> None:
        keys = list(range(5, 3 * self.many, 3))
        with self.open_index(tmp_path) as index:
            index.add(keys, np.random.default_rng(2).normal(size=(len(keys), DIMENSION)).astype(np.float32))
            assert sorted(index.keys()) == keys

    def test_wrong_vectors_are_refused_before_anything_is_written(self, tmp_path: Path) -> None:
        good = make_clusters(4)
        nan, infinite, large = good.copy(), good.copy(), good.astype(np.float64)
        nan[2, 3], infinite[3, 0], large[1, 1] = np.nan, np.inf, 1e300  # 1e300 is infinite in single precision
        ragged = [*good[:2], good[2][:-1]]
        with self.open_index(tmp_path) as index:
            for wrong in (nan, infinite, large, ragged, good[:, :-1], good[0]):
                _expect_error(lambda wrong=wrong: index.add(range(len(wrong)), wrong))
            _expect_error(lambda: index.add([1, 2], good))
            _expect_error(lambda: index.add([1, 2, 3, 2**63], good))
            assert list(index.keys()) == []
            _expect_error(lambda: index.search(good[:, :-1], 3))
            _expect_error(lambda: index.search(nan, 3))

    def test_a_collection_remembers_dimension_and_metric(self, tmp_path: Path) -> None:
        database = self.settings(tmp_path)
        with self.open_index(tmp_path) as index:
            index.add([1], make_clusters(1))
        message = _expect_error(lambda: database.open(tmp_path, collection_name(tmp_path), DIMENSION + 1, "cosine"))
        assert str(DIMENSION) in message, message
        assert str(DIMENSION + 1) in message, message
        message = _expect_error(lambda: database.open(tmp_path, collection_name(tmp_path), DIMENSION, "dot"))
        assert "cosine" in message, message
        assert "dot" in message, message
        with self.open_index(tmp_path) as index:
            assert list(index.keys()) == [1]

    def test_another_process_finds_the_same(self, tmp_path: Path) -> None:
        keys, vectors = list(range(300)), make_clusters(300)
        expected = search_exactly(vectors[:4], keys, vectors, 5, "cosine")
        with self._start_reader(tmp_path, vectors[:4]) as ask_reader:
            with self.open_index(tmp_path) as index:
                index.add(keys, vectors)
                replies = [ask_reader()] if self.processes else []
            replies.append(ask_reader())
        for reader_keys, near in replies:
            assert reader_keys == keys
            self._compare(near, expected, "cosine")

    @contextmanager
    def _start_reader(self, place: Path, queries: Vectors) -> Iterator[Callable[[], Any]]:
        command, pipe = [sys.executable, "-c", READER_SCRIPT], subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
            questions, answers = process.stdin, process.stdout
            assert questions is not None
            assert answers is not None
            pickle.dump((self.settings(place), place, collection_name(place), DIMENSION, queries), questions)

            def ask_reader() -> Any:
                questions.write(b"\n")
                questions.flush()
                return pickle.load(answers)

            yield ask_reader

    def test_threads_search_while_vectors_are_added(self, tmp_path: Path) -> None:
        vectors, failures, done = make_clusters(600), list[BaseException](), threading.Event()
        with self.open_index(tmp_path) as index:
            index.add(range(100), vectors[:100])

            def search() -> None:
                try:
                    while not done.is_set():
                        for near in index.search(vectors[:3], 5):
                            assert len(near) == 5, near
                            assert near == sorted(near, key=lambda hit: (-hit[1], hit[0])), near
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=search) for _ in range(3)]
            for thread in threads:
                thread.start()
            for start in range(100, 600, 50):
                index.add(range(start, start + 50), vectors[start : start + 50])
            done.set()
            for thread in threads:
                thread.join()
            assert failures == []
            assert sorted(index.keys()) == list(range(600))

    def test_dropping_forgets_a_collection_and_no_other(self, tmp_path: Path) -> None:
        database = self.settings(tmp_path)
        for name in ("one", "other"):
            with self.open_index(tmp_path, name=name) as index:
                index.add([1], make_clusters(1))
        for _ in range(2):
            database.drop(tmp_path, collection_name(tmp_path, "one"))
        with self.open_index(tmp_path, "dot", "one") as index:
            assert list(index.keys()) == []
        with self.open_index(tmp_path, name="other") as index:
            assert list(index.keys()) == [1]

    def test_names_that_are_not_valid_everywhere_are_refused(self, tmp_path: Path) -> None:
        database = self.settings(tmp_path)
        for name in ("", "a/b", "A", "x' OR 1=1", "a" * 61):
            _expect_error(lambda name=name: database.open(tmp_path, name, DIMENSION, "cosine"))
        _expect_error(lambda: database.open(tmp_path, NAME, DIMENSION, "manhattan"))
        for name in ("_" * 60, "0"):
            database.open(tmp_path, name, DIMENSION, "cosine").close()
            database.drop(tmp_path, name)


class ServerContract(IndexContract):
    """Tests of a database on a server, besides those of every index; no answer after `patience_s` is an error."""

    patience_s: ClassVar[float] = 1.5

    def settings_at(self, url: str, timeout_s: float) -> Database:
        """Return the settings for a server at another address; also by the method's former name `at`."""
        if (former := getattr(self, "at", None)) is None:
            raise NotImplementedError
        text = f"{type(self).__name__}.at is settings_at now. The former name goes with the next minor version."
        warn(text, DeprecationWarning, stacklevel=2)
        return former(url, timeout_s)  # type: ignore[no-any-return]

    def outage(self) -> AbstractContextManager[None]:
        """Stop the tested server while inside; it keeps its data."""
        raise NotImplementedError

    def test_nobody_there(self, tmp_path: Path) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            message = _expect_error(
                lambda: self.settings_at(url, 5.0).open(tmp_path, NAME, DIMENSION, "cosine"), transient=True
            )
        assert url in message

    def test_no_answer_is_an_error_in_time(self, tmp_path: Path) -> None:
        with Wire(None) as wire:
            url, began = f"http://127.0.0.1:{wire.port}", monotonic()
            message = _expect_error(
                lambda: self.settings_at(url, 1.0).open(tmp_path, NAME, DIMENSION, "cosine"), transient=True
            )
            assert monotonic() - began < 30.0, "it waits without end"
        assert url in message

    def test_a_server_that_goes_silent_or_is_cut_off_in_the_middle_of_a_write_loses_nothing(
        self, tmp_path: Path
    ) -> None:
        keys, vectors = list(range(400)), make_clusters(400)
        with Wire(self._place(tmp_path)) as wire:
            url = f"http://127.0.0.1:{wire.port}"
            index = self.settings_at(url, self.patience_s).open(
                tmp_path, collection_name(tmp_path), DIMENSION, "cosine"
            )
            index.add(keys[:100], vectors[:100])
            for number, fails in enumerate((wire.cut_off, wire.go_silent), 1):
                for byte_count in (0, 300, 20_000):  # before the request, in its head, among the vectors
                    fails(byte_count)
                    began = monotonic()
                    assert url in _expect_error(lambda: index.add(keys, vectors), transient=True)
                    assert monotonic() - began < 10 * self.patience_s, "it waits without end"
                    wire.mend()
                    assert set(index.keys()) >= set(keys[: 100 * number])
                index.add(keys[: 100 * (number + 1)], vectors[: 100 * (number + 1)])
            index.add(keys, vectors)
            assert sorted(index.keys()) == keys
            assert [near[0][0] for near in index.search(vectors[::40], 1)] == keys[::40]
            index.close()

    def _place(self, place: Path) -> tuple[str, int]:
        parts = urlsplit(getattr(self.settings(place), "url", ""))
        assert parts.hostname, "settings() names no server in its field url"
        return parts.hostname, parts.port or 80

    def test_a_server_that_goes_away_loses_nothing_and_the_same_add_is_repeated(self, tmp_path: Path) -> None:
        keys, vectors = list(range(400)), make_clusters(400)
        with self.open_index(tmp_path) as index:
            index.add(keys[:200], vectors[:200])
            with self.outage():
                _expect_error(lambda: index.add(keys, vectors), transient=True)
                _expect_error(lambda: index.search(vectors[:1], 3), transient=True)
                _expect_error(lambda: list(index.keys()), transient=True)
            index.add(keys, vectors)
            assert sorted(index.keys()) == keys


def _expect_error(call: Any, transient: bool = False) -> str:
    raised: StoreError | None = None
    try:
        call()
    except StoreError as error:
        raised = error
    assert raised is not None, "nothing was refused"
    assert raised.transient == transient, f"transient is {raised.transient}: {raised}"
    return str(raised)
