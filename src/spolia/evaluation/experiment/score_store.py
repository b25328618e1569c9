"""Answers and scores of flows in an append-only file: every answer is there as soon as it is given.

The file is a list of records, each with a checksum. A record never changes; a later one of the same cell replaces it.

    NAME     a flow, a question, its gold, a measure or a run: digest, and what it is, as JSON
    NODE     a passage that was found, once for the whole file, as packed JSON
    ANSWER   one flow on one question: status, times, usage, and the result, as packed JSON
    SCORES   what measures made of the last answer before it
    JUDGING  what judges spent on that
    STEPS    how often each step of the flow was called for the last answer before it, and what failed (form 2)
    HITS     the hits of a ranking as two columns: where their passages are, and their scores (form 3)

Records are referred to by their offset, so that a damaged record takes nothing but itself and what refers to it.
"""

import fcntl
import json
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import isnan, nan
from operator import neg
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias
from zlib import compress, crc32, decompressobj
from zlib import error as ZlibError

import numpy as np
from numpy.typing import NDArray

from spolia.core.codec import decode, encode
from spolia.errors import CodecError, DataError, NotAStore, StoreBusy, StoreTooNew, pip_install
from spolia.evaluation.measures.costs import shown_hits
from spolia.evaluation.measures.measure import Case, Observation
from spolia.private_files import keep_copy, make_folder, private
from spolia.run.budget import NO_COST
from spolia.run.lane import StepCalls
from spolia.types import Answer, Failure, Hit, Item, LateHits, Node, Query, Ranking, Usage, digest_of
from spolia.types.rankings import NodeFetcher

FORM = b"Spolia scores "
EARLIER, MAGIC = (FORM + b"1\n", FORM + b"2\n"), FORM + b"3\n"
HEAD = struct.Struct("<BII")
"""Kind, length and checksum of what follows."""
NAME, NODE, ANSWER, SCORES, JUDGING, STEPS, HITS = range(1, 8)
DIGEST = 16
USAGE = tuple(Usage.__dataclass_fields__)

MISSING, ANSWERED, FAILED = range(3)
"""Status of an answer."""
UNSCORED, SCORED, UNDETERMINED, INTERRUPTED, WITHOUT_GOLD, NO_ANSWER = range(6)
"""State of a score: not taken yet, taken, not told by its judge, its judge's server was down, no gold for it, of an
answer where the flow gives a ranking."""

ANSWERS = np.dtype([
    *((name, "<u8") for name in ("place", "flow", "question", "run", "lane")),
    ("found", "<u4"), ("status", "u1"), ("cached", "?"), ("interrupted", "?"), ("seconds", "<f8"), ("opening", "<f8"),
    ("usage", "<f8", len(USAGE)), ("spent", "<f8", len(USAGE)),
])  # fmt: skip
NUMBERS = np.dtype([
    *((name, "<u8") for name in ("place", "flow", "question", "gold", "measure")),
    ("state", "u1"), ("part", "<u2"), ("width", "<u2"), ("number", "<f8"),
])  # fmt: skip
NUMBER = struct.Struct("<5QB2Hd")
"""A row of `NUMBERS`, which it packs five times as fast."""
JUDGE_USAGE = np.dtype([
    *((name, "<u8") for name in ("place", "flow", "question", "gold", "measure")), ("usage", "<f8", len(USAGE))
])  # fmt: skip
STEP_IDS = np.dtype([(name, "<u8") for name in ("place", "flow", "question", "steps")])
_KINDS = {ANSWER: ANSWERS, SCORES: NUMBERS, JUDGING: JUDGE_USAGE, STEPS: STEP_IDS}
_DAMAGE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error, ZlibError)
"""What is raised for records that nobody has written so."""
Columns: TypeAlias = NDArray[Any]
"""An array with named fields."""
HitColumns: TypeAlias = tuple[Sequence[str], Sequence[int], Sequence[float]]
"""Hits: the names of their parts, where their nodes are, and their scores followed by a column for each name."""


class ScoreStore:
    """Answers and scores of an experiment; in memory without a path.

    A killed process loses only the questions in progress; of a file whose end is damaged the rest is read. One process
    has the file at a time, until it is closed: others get `StoreBusy`.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        self.notes: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
        """What is called as something else was before: its kind, what that was and what it is."""
        self._lock = threading.RLock()
        self._descriptor = -1 if path is None else _open_locked(path)
        self._memory = bytearray()
        self._names: dict[tuple[str, bytes], int] = {}
        self._descriptions: dict[int, Mapping[str, Any]] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._outcomes: dict[tuple[StepCalls, ...], int] = {}
        self._nodes: dict[bytes, int] = {}
        # By key, where nodes of late hits are, and their ids.
        self._node_keys: dict[NodeFetcher, tuple[dict[int, int], dict[int, str]]] = {}
        self._node_cache: dict[int, Node] = {}
        self._unwritten: dict[int, Case] = {}
        self._records = {kind: bytearray() for kind in (ANSWER, SCORES, JUDGING, STEPS)}
        self._end = 0
        raw = b"" if path is None else Path(path).read_bytes()
        self._is_damaged = False
        self._end = self._scan(raw, 0, start) if (start := _find_start(path, raw)) else 0
        if self._is_damaged:
            intact_rows = [row.tobytes() for row in self.columns(ANSWER) if not row["status"] or self._is_whole(row)]
            self._records[ANSWER] = bytearray(b"".join(intact_rows))
        if path is not None and self._end < len(raw):
            # A damaged end is cut off, so that new records follow whole ones; the copy keeps what is cut.
            keep_copy(Path(path))
            self._cut()
        if raw.startswith(EARLIER):
            os.pwrite(self._descriptor, MAGIC, 0)  # an earlier version would cut off what it does not know
        if not self._end:
            self._end = self._append(MAGIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let other processes have the file; what was read stays available."""
        self.release_nodes()
        if self._descriptor >= 0:
            # The descriptor stays open until the object ends, so that answers can still be read.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)

    # Writing.

    def register(self, kind: str, digest: bytes, description: Mapping[str, Any]) -> int:
        """Return the id of a flow, a question, its gold, a measure or a run, written at first use."""
        return self.register_all(kind, [(digest, description)])[0]

    def register_all(self, kind: str, records: Sequence[tuple[bytes, Mapping[str, Any]]]) -> list[int]:
        """Return the ids of records of one kind; the new ones are written together."""
        with self._lock:
            missing = {digest: description for digest, description in records if (kind, digest) not in self._names}
            if missing:
                with self._write_records() as draft:
                    for digest, description in missing.items():
                        previous = self._last.get((kind, description["name"]))
                        if previous is not None:
                            self.notes.append((kind, self._descriptions[previous], description))
                        draft.add(NAME, digest + json.dumps({"kind": kind, **description}).encode())
            return [self._names[kind, digest] for digest, _ in records]

    def register_run(self, id: str) -> int:
        return self.register("runs", digest_of(id), {"name": id})

    def write_answer(
        self, flow: int, question: int, case: Case, steps: Sequence[StepCalls] = (), **columns: Any
    ) -> None:
        """Write an answer, and how often the flow's steps were called for it; both are in the file when this returns.
        An answer without a plain form is asked again when the file is opened the next time."""
        status = FAILED if isinstance(case.result, Failure) else ANSWERED
        outcome = self._register_outcome(tuple(steps))
        columns |= {name: usage_row(columns[name]) for name in ("usage", "spent")}
        with self._lock, self._write_records() as draft:
            plain = self._encode_case(case, draft)
            place = draft.next
            if not plain:
                for ranking in case.retrievals:
                    ranking.fetched()  # else it keeps its snapshot from being swept
                self._unwritten[place] = case
            columns |= {"place": place, "flow": flow, "question": question}
            draft.add(ANSWER, _make_row(columns | {"status": status, "found": len(shown_hits(case))}) + plain)
            draft.add(STEPS, np.array((draft.next, flow, question, outcome), STEP_IDS).tobytes())

    def _register_outcome(self, steps: tuple[StepCalls, ...]) -> int:
        """Return the id of how often steps were called; most questions of a flow have the same."""
        id = self._outcomes.get(steps)
        if id is None:
            step_text = json.dumps(
                [(step.step, step.calls, step.failed, step.asked, step.idle, step.reasons) for step in steps]
            )
            id = self._outcomes[steps] = self.register("steps", digest_of(step_text), {"name": step_text})
        return id

    def release_nodes(self) -> None:
        """Let go of the snapshots from which late hits were written."""
        with self._lock:
            self._node_keys.clear()

    def drop_answers(self, cells: Iterable[tuple[int, int]]) -> None:
        """Forget answers, by flow and question, and their scores."""
        with self._lock, self._write_records() as draft:
            for flow, question in cells:
                # The file is append-only: an empty answer replaces the one before.
                draft.add(ANSWER, _make_row({"place": draft.next, "flow": flow, "question": question}))

    def write_scores(
        self, flow: int, question: int, gold: int, scores: Mapping[int, tuple[int, Observation | None, Usage]]
    ) -> None:
        """Write scores of the last answer, by measure: state, numbers, and what judges spent."""
        with self._lock, self._write_records() as draft:
            same = (draft.next, flow, question, gold)
            rows = [
                NUMBER.pack(*same, measure, state, part, len(numbers or ()), number)
                for measure, (state, numbers, _) in scores.items()
                for part, number in enumerate(numbers or (nan,))
            ]
            draft.add(SCORES, b"".join(rows))
            judged = [(*same, measure, usage_row(usage)) for measure, (*_, usage) in scores.items() if usage != NO_COST]
            if judged:
                draft.add(JUDGING, np.array(judged, JUDGE_USAGE).tobytes())

    def write_flow_scores(
        self,
        flows: NDArray[np.uint64],
        question: int,
        gold: int,
        measures: NDArray[np.uint64],
        scores: NDArray[np.float64],
    ) -> None:
        """Write the scores of many flows on one question in one record; their answers are not kept.

        Args:
            scores: by flow and measure.
        """
        rows = np.zeros(scores.shape, NUMBERS)
        with self._lock, self._write_records() as draft:
            columns = {"place": draft.next, "flow": flows[:, None], "question": question, "gold": gold}
            columns |= {"measure": measures, "state": SCORED, "width": 1, "number": scores}
            for name, values in columns.items():
                rows[name] = values
            draft.add(SCORES, rows.tobytes())

    @contextmanager
    def _write_records(self) -> "Iterator[_Draft]":
        """Write the records of a draft together, and take them in as when the file is opened again."""
        draft = _Draft(self._end)
        try:
            yield draft
            self._end = self._append(bytes(draft.raw))
        except BaseException:
            self._node_keys.clear()  # they may name places that were not written
            raise
        for record in draft.records:
            self._index_record(*record)

    def _append(self, raw: bytes) -> int:
        """Write at the end, all of it or nothing; return the new end."""
        if self._descriptor < 0:
            self._memory += raw
            return self._end + len(raw)
        try:
            byte_count = os.pwrite(self._descriptor, raw, self._end)
        except OSError as error:
            raise DataError(
                f"{self.path} cannot be written: {error.strerror}. Free some space, or name another file; earlier "
                "data is complete."
            ) from error
        # A full disk writes a part without an error; the part is cut off, so that no record is half there.
        if byte_count < len(raw):
            self._cut()
            raise DataError(
                f"{self.path}: only {byte_count} of {len(raw)} bytes could be written. Free some space, or name "
                "another file; earlier data is complete."
            )
        return self._end + len(raw)

    def _cut(self) -> None:
        os.ftruncate(self._descriptor, self._end)

    # Reading.

    def _scan(self, raw: bytes, base: int, position: int) -> int:
        """Index the records of a stretch of the file, without damaged ones; return where the last whole one ends."""
        for kind, place, payload, is_whole in _split_records(raw, position):
            if is_whole:
                self._index_record(kind, base + place, payload)
            else:
                self._is_damaged = True
            position = place + HEAD.size + len(payload)
        return base + position

    def _index_record(self, kind: int, place: int, payload: bytes | memoryview) -> None:
        if kind == HITS:  # read when its ranking is
            return
        if kind == NODE:
            self._nodes[bytes(payload[:DIGEST])] = place
        elif kind == NAME:
            try:
                description = dict(json.loads(bytes(payload[DIGEST:])))
                kind_name, name = str(description.pop("kind")), str(description["name"])
            except _DAMAGE_ERRORS:
                self._is_damaged = True
                return
            self._names[kind_name, bytes(payload[:DIGEST])] = place
            self._descriptions[place], self._last[kind_name, name] = description, place
        elif len(payload) < ANSWERS.itemsize if kind == ANSWER else len(payload) % _KINDS[kind].itemsize:
            self._is_damaged = True
        elif kind != ANSWER:
            self._records[kind] += payload
        # An answer without a plain form is known to this process alone; of a file, it is asked again.
        elif len(payload) > ANSWERS.itemsize or place in self._unwritten or not _read_status(payload):
            self._records[kind] += payload[: ANSWERS.itemsize]

    def columns(self, kind: int) -> Columns:
        """Return all rows of answers, scores or judging, oldest first."""
        with self._lock:
            return np.frombuffer(bytes(self._records[kind]), _KINDS[kind])

    def name_of(self, place: int) -> str:
        """Return the name for an id; empty if unknown."""
        return str(self._descriptions.get(place, {}).get("name", ""))

    def steps(self, place: int) -> tuple[StepCalls, ...]:
        """Return how often the steps of a flow were called, by the id of that record; empty if it is unknown."""
        return tuple(
            StepCalls(step, calls, failed, asked_count, idle, tuple((reason, n) for reason, n in reasons))
            for step, calls, failed, asked_count, idle, reasons in json.loads(self.name_of(place) or "[]")
        )

    def case(self, row: Any, item: Item) -> Case:
        """Return what a flow made of a question, from its row among the answers."""
        if (place := int(row["place"])) in self._unwritten:
            return self._unwritten[place]
        try:
            return self._case(row, place, item)
        except _DAMAGE_ERRORS as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{self.path}: an answer is not as it was written ({type(error).__name__}). Name another file."
            ) from error

    def _case(self, row: Any, place: int, item: Item) -> Case:
        plain = _decompress_json(self._payload(place, ANSWER)[ANSWERS.itemsize :])
        queries = [decode(query, Query) for query in plain.get("queries", ())]
        rankings = [self._decode_ranking(entry, queries) for entry in plain.get("rankings", ())]
        result: Any = rankings[plain["result"]] if plain.get("result") is not None else None
        if "answer" in plain:
            result = decode(plain["answer"], Answer).but(evidence=result)
        elif "failure" in plain:
            result = Failure(*plain["failure"])
        warm = None if row["cached"] or not isnan(row["opening"]) else float(row["seconds"])
        retrievals = tuple(rankings[index] for index in plain.get("retrievals", ()))
        return Case(item, result, usage_from_row(row["usage"]), retrievals, warm)

    def _is_whole(self, row: Any) -> bool:
        """Return whether everything an answer refers to can be read."""
        try:
            self.case(row, Item("", ""))
        except (DataError, struct.error):
            return False
        return True

    def _payload(self, place: int, kind: int) -> bytes:
        stored_kind, length, checksum = HEAD.unpack(self._bytes(place, HEAD.size))
        payload = self._bytes(place + HEAD.size, length)
        if stored_kind != kind or crc32(payload, kind) != checksum:
            raise DataError(f"{self.path} has changed while it was read. Open it again.")
        return payload

    def _bytes(self, place: int, length: int) -> bytes:
        if self._descriptor < 0:
            return bytes(self._memory[place : place + length])
        return os.pread(self._descriptor, length, place)

    def _encode_case(self, case: Case, draft: "_Draft") -> bytes:
        """Encode the result and the retrievals of a case, each ranking once; empty if they have no plain form."""
        rankings: list[Ranking] = []
        plain: dict[str, Any] = {}
        result: Ranking | None = None
        if isinstance(case.result, Failure):
            plain["failure"] = [case.result.kind, case.result.message, case.result.step]
        elif isinstance(case.result, Answer):
            result = case.result.evidence
        else:
            result = case.result
        try:
            if isinstance(case.result, Answer):
                plain["answer"] = encode(case.result, Answer)
            plain["result"] = None if result is None else _intern_ranking(result, rankings)
            plain["retrievals"] = [_intern_ranking(ranking, rankings) for ranking in case.retrievals]
            queries: dict[int, tuple[int, Query]] = {}  # by identity: the rankings of a question share their query
            plain["rankings"] = [self._encode_ranking(ranking, queries, draft) for ranking in rankings]
            plain["queries"] = [encode(query.but(vector=None), Query) for _, query in queries.values()]
            return _compress_json(plain)
        # An object of the user may have no plain form: its scores are kept, and the answer is asked again
        # next time.
        except (CodecError, TypeError, ValueError, struct.error):
            return _compress_json({"failure": plain["failure"]}) if "failure" in plain else b""

    def _encode_ranking(self, ranking: Ranking, queries: dict[int, tuple[int, Query]], draft: "_Draft") -> list[Any]:
        """Encode a ranking for `_decode_ranking`."""
        query, _ = queries.setdefault(id(ranking.query), (len(queries), ranking.query))
        table = self._write_late_hits(ranking.late_hits, draft)
        if table is None and (parts := _part_columns(ranking.hits)) is not None:
            names, numbers = parts
            scores = [hit.score for hit in ranking.hits]
            table = names, [self._write_node(hit.node, draft) for hit in ranking.hits], [*scores, *numbers]
        if table is None:
            hits: list[Any] = [self._encode_hit(hit, draft) for hit in ranking.hits]
        else:
            names, places, numbers = table
            columns = struct.pack(f"<{len(places)}Q{len(numbers)}d", *places, *numbers)
            hits = [draft.add(HITS, columns), *names]
        return [query, hits, ranking.source, *([ranking.merged] if ranking.merged else [])]

    def _write_late_hits(self, late_hits: LateHits | None, draft: "_Draft") -> HitColumns | None:
        """Write the nodes of late hits that the file lacks; return the hits in the order of `LateHits.hits`, or None if
        the right to read them has changed, so that they must be fetched."""
        if late_hits is None or not draft.is_readable(late_hits.fetch):
            return None
        places, ids = self._node_keys.setdefault(late_hits.fetch, ({}, {}))
        if missing := [key for key in late_hits.keys if key not in places]:
            for key, node in late_hits.fetch(missing).items():
                places[key] = self._write_node(node, draft)
                ids[key] = node.id
            if any(key not in places for key in missing):
                return None
        keys, scores = late_hits.keys, late_hits.scores
        # Equal scores are ordered by id, as `LateHits.hits` orders them.
        if len({*scores}) < len(scores):
            ordered = sorted(zip(map(neg, scores), map(ids.__getitem__, keys), keys, scores, strict=True))
            _, _, keys, scores = zip(*ordered, strict=True)
        return (), [*map(places.__getitem__, keys)], scores

    def _encode_hit(self, hit: Hit, draft: "_Draft") -> list[Any]:
        """Encode a hit for `_decode_hit`."""
        plain = [
            self._write_node(hit.node, draft),
            float(hit.score),
            [self._write_node(node, draft) for node in hit.found],
        ]
        return [*plain, [(name, float(part)) for name, part in hit.parts]] if hit.parts else plain

    def _write_node(self, node: Node, draft: "_Draft") -> int:
        place = self._nodes.get(node.digest) or draft.nodes.get(node.digest)
        if place is None:
            place = draft.nodes[node.digest] = draft.add(NODE, node.digest + _compress_json(encode(node, Node)))
        return place

    def _decode_ranking(self, plain: Any, queries: Sequence[Query]) -> Ranking:
        query, hits, source, *merged = plain  # version 0.2 wrote no merged rankings
        names = tuple((source, text) for source, text in chain(*merged))
        query = queries[query] if isinstance(query, int) else decode(query, Query)  # until form 2 each had its own
        if hits and isinstance(hits[0], int):
            hits = self._read_columns(*hits)
        return Ranking(query, tuple(self._decode_hit(*hit) for hit in hits), source, names)

    def _read_columns(self, place: int, *names: str) -> Iterator[tuple[int, float, tuple[()], list[tuple[str, float]]]]:
        columns = np.frombuffer(self._payload(place, HITS), "<u8").reshape(2 + len(names), -1)
        scores, *parts = columns[1:].view("<f8").tolist()
        for row, (node, score) in enumerate(zip(columns[0].tolist(), scores, strict=True)):
            of_names = zip(names, [column[row] for column in parts], strict=True)
            yield node, score, (), [(name, part) for name, part in of_names if not isnan(part)]

    def _decode_hit(
        self, node: int, score: float, smaller: Sequence[int], parts: Sequence[tuple[str, float]] = ()
    ) -> Hit:
        return Hit(self._read_node(node), score, tuple(map(tuple, parts)), tuple(map(self._read_node, smaller)))  # type: ignore[arg-type]

    def _read_node(self, place: int) -> Node:
        if place not in self._node_cache:
            self._node_cache[place] = decode(_decompress_json(self._payload(place, NODE)[DIGEST:]), Node)
        return self._node_cache[place]


def _split_records(raw: bytes, position: int) -> Iterator[tuple[int, int, memoryview, bool]]:
    """Yield the records from a position on: kind, place, payload, and whether the checksum is right."""
    view, end = memoryview(raw), len(raw)  # its slices copy nothing
    while position + HEAD.size <= end:
        kind, length, checksum = HEAD.unpack_from(raw, position)
        start = position + HEAD.size
        if not NAME <= kind <= HITS or start + length > end:
            break
        payload = view[start : start + length]
        yield kind, position, payload, crc32(payload, kind) == checksum  # the checksum is also of the kind
        position = start + length


def experiment_damage(path: Path) -> str:
    """Return what is wrong with the file of an experiment, in words; empty if nothing is. It only reads."""
    raw = path.read_bytes()
    end = _find_start(path, raw)
    changed = 0
    for _, place, payload, is_whole in _split_records(raw, end):
        changed += not is_whole
        end = place + HEAD.size + len(payload)
    if not changed and end == len(raw):
        return ""
    return (
        f"{path} is damaged: {changed} records changed since they were written, and the last {len(raw) - end} bytes "
        "are not a whole record. The next experiment asks these questions again."
    )


class _Draft:
    """Records to be written at the end of the file."""

    def __init__(self, start: int) -> None:
        self.start, self.raw = start, bytearray()
        self.records: list[tuple[int, int, bytes]] = []
        self.nodes: dict[bytes, int] = {}
        self._readable: dict[NodeFetcher, bool] = {}

    @property
    def next(self) -> int:
        """Return where the next record will stand."""
        return self.start + len(self.raw)

    def add(self, kind: int, payload: bytes) -> int:
        place = self.next
        self.raw += HEAD.pack(kind, len(payload), crc32(payload, kind)) + payload
        self.records.append((kind, place, payload))
        return place

    def is_readable(self, fetch: NodeFetcher) -> bool:
        """Return whether the reader may still read the hits; ask the store once for all arms."""
        if fetch not in self._readable:
            self._readable[fetch] = fetch.for_fusion() is not None
        return self._readable[fetch]


def usage_row(usage: Usage) -> tuple[float, ...]:
    return tuple(getattr(usage, name) for name in USAGE)


def usage_from_row(row: Sequence[float]) -> Usage:
    """Return a usage from its columns.

    >>> usage_from_row(usage_row(Usage(calls=2, cost_usd=0.5)))
    Usage(calls=2, input_tokens=0, output_tokens=0, embedded=0, cost_usd=0.5)
    """
    *counts, cost_usd = row
    calls, input_tokens, output_tokens, embedded = map(int, counts)
    return Usage(calls, input_tokens, output_tokens, embedded, float(cost_usd))


MINIMUM_COMPRESSED = 1024
"""Bytes of what is compressed: to begin takes zlib as long as all else that is done to write a short answer."""


def _compress_json(plain: Any) -> bytes:
    raw = json.dumps(plain).encode()
    return raw if len(raw) < MINIMUM_COMPRESSED else compress(raw, 1)


_LARGEST_ANSWER = 2**28
"""Bytes of one answer, unpacked."""


def _decompress_json(raw: bytes) -> Any:
    if raw.startswith(b"{"):  # no stream of zlib does
        return json.loads(raw)
    unpacking = decompressobj()
    # A damaged or hostile file could unpack to any size.
    text = unpacking.decompress(raw, _LARGEST_ANSWER)
    if unpacking.unconsumed_tail:
        raise DataError("An answer in the file of the experiment is too large to have been written. Name another file.")
    return json.loads(text)


def _read_status(payload: bytes | memoryview) -> int:
    return int(np.frombuffer(payload[: ANSWERS.itemsize], ANSWERS)[0]["status"])


_EMPTY_ROW: dict[str, Any] = dict(zip(ANSWERS.names or (), np.zeros(1, ANSWERS)[0].tolist(), strict=True))


def _make_row(values: Mapping[str, Any]) -> bytes:
    """Return the row of an answer; what is not given is 0."""
    return np.array(tuple({**_EMPTY_ROW, **values}.values()), ANSWERS).tobytes()


def _part_columns(hits: Sequence[Hit]) -> tuple[Sequence[str], Sequence[float]] | None:
    """Return the names of parts and a column for each, NaN where a hit lacks it; None for hits that columns cannot
    hold: in another order, twice, NaN, or shown for smaller nodes."""
    rows = [dict(hit.parts) for hit in hits]
    names = [*max(rows, key=len, default={})]
    for hit, row in zip(hits, rows, strict=True):
        own = [*row]
        is_regular = own == names or own == [name for name in names if name in row]
        if hit.found or not is_regular or len(own) < len(hit.parts):
            return None
    numbers = [row.get(name, nan) for name in names for row in rows]
    are_numbers = sum(map(isnan, numbers)) == len(numbers) - sum(map(len, rows))
    return (names, numbers) if are_numbers else None


def _intern_ranking(ranking: Ranking, rankings: list[Ranking]) -> int:
    """Return the number of a ranking in a list, to which it is added if it is new. Late rankings are not compared: that
    would fetch their hits."""
    for number, existing in enumerate(rankings):
        if existing is ranking or (existing.late_hits is None and ranking.late_hits is None and existing == ranking):
            return number
    rankings.append(ranking)
    return len(rankings) - 1


def _open_locked(path: str | Path) -> int:
    """Open a file that no other process has open, and return its descriptor."""
    try:
        make_folder(Path(path).parent)
        descriptor = private(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise DataError(
            f"{path} cannot be opened: {error.strerror or error}. Check its permissions, or name another file."
        ) from error
    try:
        # The kernel frees this lock when a process dies; a lock file would stay.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreBusy(
            f"{path} is in use: another process is at this experiment. Wait for it, or name another file."
        ) from error
    return descriptor


def _find_start(path: str | Path | None, raw: bytes) -> int:
    """Return where the first record is; 0 if the file must be begun."""
    if raw.startswith((*EARLIER, MAGIC)):
        return len(MAGIC)
    if MAGIC.startswith(raw):  # a new file, or a process was killed at its first write
        return 0
    if raw.startswith(FORM):
        form = raw[len(FORM) : raw.find(b"\n")].decode("ascii", "replace")
        raise StoreTooNew(f"{path} has form {form}; this version knows 1 to 3. Upgrade: {pip_install('', '-U')}")
    if raw.startswith(b"SQLite format 3"):
        raise NotAStore(
            f"{path} is a database: an experiment of an earlier version, or something else. Name another file; "
            "answers of an earlier version are asked again."
        )
    raise NotAStore(f"{path} holds no experiment. Name another file.")
