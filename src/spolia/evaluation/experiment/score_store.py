"""What flows answered and scored, in an append-only file: every answer is there as soon as it is given.

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
from spolia.evaluation.measures.costs import shown
from spolia.evaluation.measures.measure import Case, Seen
from spolia.private_files import keep_copy, make_folder, private
from spolia.run.budget import NO_COST
from spolia.run.lane import StepCalls
from spolia.types import Answer, Failure, Hit, Item, LateHits, Node, Query, Ranking, Usage, digest_of
from spolia.types.rankings import Fetch

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
JUDGED = np.dtype([
    *((name, "<u8") for name in ("place", "flow", "question", "gold", "measure")), ("usage", "<f8", len(USAGE))
])  # fmt: skip
CALLED = np.dtype([(name, "<u8") for name in ("place", "flow", "question", "steps")])
_KINDS = {ANSWER: ANSWERS, SCORES: NUMBERS, JUDGING: JUDGED, STEPS: CALLED}
_ODD = (ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error, ZlibError)
"""What is raised for records that nobody has written so."""
Columns: TypeAlias = NDArray[Any]
"""An array with named fields."""
HitColumns: TypeAlias = tuple[Sequence[str], Sequence[int], Sequence[float]]
"""Hits: the names of their parts, where their nodes are, and their scores followed by a column for each name."""


class ScoreStore:
    """The answers and scores of an experiment; in memory without a path.

    A killed process loses only the questions in progress; of a file whose end is damaged the rest is read. One process
    has the file at a time, until it is closed: others get `StoreBusy`.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        self.notes: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = []
        """What is called as something else was before: its kind, what that was and what it is."""
        self._lock = threading.RLock()
        self._descriptor = -1 if path is None else _opened(path)
        self._memory = bytearray()
        self._names: dict[tuple[str, bytes], int] = {}
        self._said: dict[int, Mapping[str, Any]] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._outcomes: dict[tuple[StepCalls, ...], int] = {}
        self._nodes: dict[bytes, int] = {}
        # By key, where nodes of late hits are, and their ids.
        self._node_keys: dict[Fetch, tuple[dict[int, int], dict[int, str]]] = {}
        self._read: dict[int, Node] = {}
        self._unwritten: dict[int, Case] = {}
        self._records = {kind: bytearray() for kind in (ANSWER, SCORES, JUDGING, STEPS)}
        self._end = 0
        raw = b"" if path is None else Path(path).read_bytes()
        self._is_damaged = False
        self._end = self._scan(raw, 0, start) if (start := _start(path, raw)) else 0
        if self._is_damaged:
            whole = [row.tobytes() for row in self.columns(ANSWER) if not row["status"] or self._is_whole(row)]
            self._records[ANSWER] = bytearray(b"".join(whole))
        if path is not None and self._end < len(raw):
            keep_copy(Path(path))
            self._cut()
        if raw.startswith(EARLIER):
            os.pwrite(self._descriptor, MAGIC, 0)  # an earlier version would cut off what it does not know
        if not self._end:
            self._end = self._append(MAGIC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Let other processes have the file; what was read can still be looked up."""
        self.release_nodes()
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            os.close(self._descriptor)

    # Writing.

    def name(self, kind: str, digest: bytes, said: Mapping[str, Any]) -> int:
        """The id of a flow, a question, its gold, a measure or a run."""
        return self.names(kind, [(digest, said)])[0]

    def names(self, kind: str, records: Sequence[tuple[bytes, Mapping[str, Any]]]) -> list[int]:
        """Return the ids of records of one kind; the new ones are written together."""
        with self._lock:
            missing = {digest: said for digest, said in records if (kind, digest) not in self._names}
            if missing:
                with self._written() as draft:
                    for digest, said in missing.items():
                        before = self._last.get((kind, said["name"]))
                        if before is not None:
                            self.notes.append((kind, self._said[before], said))
                        draft.add(NAME, digest + json.dumps({"kind": kind, **said}).encode())
            return [self._names[kind, digest] for digest, _ in records]

    def run(self, id: str) -> int:
        return self.name("runs", digest_of(id), {"name": id})

    def keep(self, flow: int, question: int, case: Case, steps: Sequence[StepCalls] = (), **columns: Any) -> None:
        """Write an answer, and how often the flow's steps were called for it; both are in the file when this returns.
        An answer without a plain form is asked again when the file is opened the next time."""
        status = FAILED if isinstance(case.result, Failure) else ANSWERED
        outcome = self._outcome(tuple(steps))
        columns |= {name: usage_row(columns[name]) for name in ("usage", "spent")}
        with self._lock, self._written() as draft:
            plain = self._plain(case, draft)
            place = draft.next
            if not plain:
                for ranking in case.retrievals:
                    ranking.fetched()  # else it keeps its snapshot from being swept
                self._unwritten[place] = case
            columns |= {"place": place, "flow": flow, "question": question}
            draft.add(ANSWER, _row(columns | {"status": status, "found": len(shown(case))}) + plain)
            draft.add(STEPS, np.array((draft.next, flow, question, outcome), CALLED).tobytes())

    def _outcome(self, steps: tuple[StepCalls, ...]) -> int:
        """Return the id of how often steps were called; most questions of a flow have the same."""
        id = self._outcomes.get(steps)
        if id is None:
            called = json.dumps([(one.step, one.calls, one.failed, one.asked, one.idle, one.reasons) for one in steps])
            id = self._outcomes[steps] = self.name("steps", digest_of(called), {"name": called})
        return id

    def release_nodes(self) -> None:
        """Let go of the snapshots from which late hits were written."""
        with self._lock:
            self._node_keys.clear()

    def drop(self, cells: Iterable[tuple[int, int]]) -> None:
        """Forget answers, by flow and question, and what was scored of them."""
        with self._lock, self._written() as draft:
            for flow, question in cells:
                draft.add(ANSWER, _row({"place": draft.next, "flow": flow, "question": question}))

    def score(self, flow: int, question: int, gold: int, scores: Mapping[int, tuple[int, Seen | None, Usage]]) -> None:
        """Write scores of the last answer, by measure: state, numbers, and what judges spent."""
        with self._lock, self._written() as draft:
            same = (draft.next, flow, question, gold)
            rows = [
                NUMBER.pack(*same, measure, state, part, len(seen or ()), number)
                for measure, (state, seen, _) in scores.items()
                for part, number in enumerate(seen or (nan,))
            ]
            draft.add(SCORES, b"".join(rows))
            judged = [(*same, one, usage_row(spent)) for one, (*_, spent) in scores.items() if spent != NO_COST]
            if judged:
                draft.add(JUDGING, np.array(judged, JUDGED).tobytes())

    def score_flows(
        self,
        flows: NDArray[np.uint64],
        question: int,
        gold: int,
        measures: NDArray[np.uint64],
        scores: NDArray[np.float64],
    ) -> None:
        """Write what measures make of many flows on one question in one record; their answers are not kept.

        Args:
            scores: by flow and measure.
        """
        rows = np.zeros(scores.shape, NUMBERS)
        with self._lock, self._written() as draft:
            given = {"place": draft.next, "flow": flows[:, None], "question": question, "gold": gold}
            given |= {"measure": measures, "state": SCORED, "width": 1, "number": scores}
            for name, values in given.items():
                rows[name] = values
            draft.add(SCORES, rows.tobytes())

    @contextmanager
    def _written(self) -> "Iterator[_Draft]":
        """Records that are written together, and read as they will be when the file is opened again."""
        draft = _Draft(self._end)
        try:
            yield draft
            self._end = self._append(bytes(draft.raw))
        except BaseException:
            self._node_keys.clear()  # they may name places that were not written
            raise
        for record in draft.records:
            self._take(*record)

    def _append(self, raw: bytes) -> int:
        """Write at the end, all of it or nothing; where the end is then."""
        if self._descriptor < 0:
            self._memory += raw
            return self._end + len(raw)
        try:
            written = os.pwrite(self._descriptor, raw, self._end)
        except OSError as error:
            raise DataError(
                f"{self.path} cannot be written: {error.strerror}. Free some space, or name another file; earlier "
                "data is complete."
            ) from error
        if written < len(raw):
            self._cut()
            raise DataError(
                f"{self.path}: only {written} of {len(raw)} bytes could be written. Free some space, or name another "
                "file; earlier data is complete."
            )
        return self._end + len(raw)

    def _cut(self) -> None:
        os.ftruncate(self._descriptor, self._end)

    # Reading.

    def _scan(self, raw: bytes, base: int, at: int) -> int:
        """Take the records of a stretch of the file; where the last whole one ends. Damaged ones are passed over."""
        for kind, place, payload, is_whole in _records(raw, at):
            if is_whole:
                self._take(kind, base + place, payload)
            else:
                self._is_damaged = True
            at = place + HEAD.size + len(payload)
        return base + at

    def _take(self, kind: int, place: int, payload: bytes | memoryview) -> None:
        if kind == HITS:
            return
        if kind == NODE:
            self._nodes[bytes(payload[:DIGEST])] = place
        elif kind == NAME:
            try:
                said = dict(json.loads(bytes(payload[DIGEST:])))
                named, name = str(said.pop("kind")), str(said["name"])
            except _ODD:
                self._is_damaged = True
                return
            self._names[named, bytes(payload[:DIGEST])] = place
            self._said[place], self._last[named, name] = said, place
        elif len(payload) < ANSWERS.itemsize if kind == ANSWER else len(payload) % _KINDS[kind].itemsize:
            self._is_damaged = True
        elif kind != ANSWER:
            self._records[kind] += payload
        elif len(payload) > ANSWERS.itemsize or place in self._unwritten or not _status(payload):
            self._records[kind] += payload[: ANSWERS.itemsize]

    def columns(self, kind: int) -> Columns:
        """All rows of answers, scores or judging, oldest first."""
        with self._lock:
            return np.frombuffer(bytes(self._records[kind]), _KINDS[kind])

    def called(self, place: int) -> str:
        """The name for an id; empty if unknown."""
        return str(self._said.get(place, {}).get("name", ""))

    def steps(self, place: int) -> tuple[StepCalls, ...]:
        """How often the steps of a flow were called, by the id of that; nothing where it is not known."""
        return tuple(
            StepCalls(step, calls, failed, asked, idle, tuple((reason, n) for reason, n in reasons))
            for step, calls, failed, asked, idle, reasons in json.loads(self.called(place) or "[]")
        )

    def case(self, row: Any, item: Item) -> Case:
        """What a flow made of a question, from its row among the answers."""
        if (place := int(row["place"])) in self._unwritten:
            return self._unwritten[place]
        try:
            return self._case(row, place, item)
        except _ODD as error:
            if isinstance(error, DataError):
                raise
            raise DataError(
                f"{self.path}: an answer is not as it was written ({type(error).__name__}). Name another file."
            ) from error

    def _case(self, row: Any, place: int, item: Item) -> Case:
        plain = _unpacked(self._payload(place, ANSWER)[ANSWERS.itemsize :])
        queries = [decode(one, Query) for one in plain.get("queries", ())]
        rankings = [self._ranking(one, queries) for one in plain.get("rankings", ())]
        result: Any = rankings[plain["result"]] if plain.get("result") is not None else None
        if "answer" in plain:
            result = decode(plain["answer"], Answer).but(evidence=result)
        elif "failure" in plain:
            result = Failure(*plain["failure"])
        warm = None if row["cached"] or not isnan(row["opening"]) else float(row["seconds"])
        retrievals = tuple(rankings[at] for at in plain.get("retrievals", ()))
        return Case(item, result, usage_of(row["usage"]), retrievals, warm)

    def _is_whole(self, row: Any) -> bool:
        """Whether all that an answer refers to is there."""
        try:
            self.case(row, Item("", ""))
        except (DataError, struct.error):
            return False
        return True

    def _payload(self, place: int, kind: int) -> bytes:
        found, length, checksum = HEAD.unpack(self._bytes(place, HEAD.size))
        payload = self._bytes(place + HEAD.size, length)
        if found != kind or crc32(payload, kind) != checksum:
            raise DataError(f"{self.path} has changed while it was read. Open it again.")
        return payload

    def _bytes(self, at: int, length: int) -> bytes:
        if self._descriptor < 0:
            return bytes(self._memory[at : at + length])
        return os.pread(self._descriptor, length, at)

    def _plain(self, case: Case, draft: "_Draft") -> bytes:
        """The result and the retrievals of a case; nothing where they have no plain form. A ranking is written once."""
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
            plain["result"] = None if result is None else _among(result, rankings)
            plain["retrievals"] = [_among(one, rankings) for one in case.retrievals]
            queries: dict[int, tuple[int, Query]] = {}  # by identity: the rankings of a question share their query
            plain["rankings"] = [self._plain_ranking(one, queries, draft) for one in rankings]
            plain["queries"] = [encode(query.but(vector=None), Query) for _, query in queries.values()]
            return _packed(plain)
        except (CodecError, TypeError, ValueError, struct.error):
            return _packed({"failure": plain["failure"]}) if "failure" in plain else b""

    def _plain_ranking(self, ranking: Ranking, queries: dict[int, tuple[int, Query]], draft: "_Draft") -> list[Any]:
        """What `_ranking` reads."""
        query, _ = queries.setdefault(id(ranking.query), (len(queries), ranking.query))
        table = self._late_columns(ranking.late, draft)
        if table is None and (parts := _part_columns(ranking.hits)) is not None:
            names, numbers = parts
            scores = [hit.score for hit in ranking.hits]
            table = names, [self._node(hit.node, draft) for hit in ranking.hits], [*scores, *numbers]
        if table is None:
            hits: list[Any] = [self._plain_hit(hit, draft) for hit in ranking.hits]
        else:
            names, places, numbers = table
            columns = struct.pack(f"<{len(places)}Q{len(numbers)}d", *places, *numbers)
            hits = [draft.add(HITS, columns), *names]
        return [query, hits, ranking.source, *([ranking.merged] if ranking.merged else [])]

    def _late_columns(self, late: LateHits | None, draft: "_Draft") -> HitColumns | None:
        """Write the nodes of late hits that the file lacks; return the hits as `LateHits.hits` orders them. None where
        who may read them has changed, so that they must be fetched."""
        if late is None or not draft.is_readable(late.fetch):
            return None
        places, ids = self._node_keys.setdefault(late.fetch, ({}, {}))
        if missing := [key for key in late.keys if key not in places]:
            for key, node in late.fetch(missing).items():
                places[key] = self._node(node, draft)
                ids[key] = node.id
            if any(key not in places for key in missing):
                return None
        keys, scores = late.keys, late.scores
        if len({*scores}) < len(scores):
            ordered = sorted(zip(map(neg, scores), map(ids.__getitem__, keys), keys, scores, strict=True))
            _, _, keys, scores = zip(*ordered, strict=True)
        return (), [*map(places.__getitem__, keys)], scores

    def _plain_hit(self, hit: Hit, draft: "_Draft") -> list[Any]:
        """What `_hit` reads."""
        plain = [self._node(hit.node, draft), float(hit.score), [self._node(node, draft) for node in hit.found]]
        return [*plain, [(name, float(part)) for name, part in hit.parts]] if hit.parts else plain

    def _node(self, node: Node, draft: "_Draft") -> int:
        found = self._nodes.get(node.digest) or draft.nodes.get(node.digest)
        if found is None:
            found = draft.nodes[node.digest] = draft.add(NODE, node.digest + _packed(encode(node, Node)))
        return found

    def _ranking(self, plain: Any, queries: Sequence[Query]) -> Ranking:
        query, hits, source, *merged = plain  # version 0.2 wrote no merged rankings
        names = tuple((source, text) for source, text in chain(*merged))
        query = queries[query] if isinstance(query, int) else decode(query, Query)  # until form 2 each had its own
        if hits and isinstance(hits[0], int):
            hits = self._read_columns(*hits)
        return Ranking(query, tuple(self._hit(*one) for one in hits), source, names)

    def _read_columns(self, place: int, *names: str) -> Iterator[tuple[int, float, tuple[()], list[tuple[str, float]]]]:
        columns = np.frombuffer(self._payload(place, HITS), "<u8").reshape(2 + len(names), -1)
        scores, *parts = columns[1:].view("<f8").tolist()
        for row, (node, score) in enumerate(zip(columns[0].tolist(), scores, strict=True)):
            of_names = zip(names, [column[row] for column in parts], strict=True)
            yield node, score, (), [(name, part) for name, part in of_names if not isnan(part)]

    def _hit(self, node: int, score: float, smaller: Sequence[int], parts: Sequence[tuple[str, float]] = ()) -> Hit:
        return Hit(self._found(node), score, tuple(map(tuple, parts)), tuple(map(self._found, smaller)))  # type: ignore[arg-type]

    def _found(self, place: int) -> Node:
        if place not in self._read:
            self._read[place] = decode(_unpacked(self._payload(place, NODE)[DIGEST:]), Node)
        return self._read[place]


def _records(raw: bytes, at: int) -> Iterator[tuple[int, int, memoryview, bool]]:
    """The records from a place on: kind, place, payload, and whether the checksum is right."""
    view, end = memoryview(raw), len(raw)
    while at + HEAD.size <= end:
        kind, length, checksum = HEAD.unpack_from(raw, at)
        start = at + HEAD.size
        if not NAME <= kind <= HITS or start + length > end:
            break
        payload = view[start : start + length]
        yield kind, at, payload, crc32(payload, kind) == checksum
        at = start + length


def experiment_damage(path: Path) -> str:
    """Return what is wrong with the file of an experiment, in words; empty if nothing is. Nothing is written."""
    raw = path.read_bytes()
    end = _start(path, raw)
    changed = 0
    for _, place, payload, is_whole in _records(raw, end):
        changed += not is_whole
        end = place + HEAD.size + len(payload)
    if not changed and end == len(raw):
        return ""
    return (
        f"{path} is damaged: {changed} records changed since they were written, and the last {len(raw) - end} bytes "
        "are not a whole record. The next experiment asks these questions again."
    )


class _Draft:
    """Records that are to be written at the end of the file."""

    def __init__(self, at: int) -> None:
        self.at, self.raw = at, bytearray()
        self.records: list[tuple[int, int, bytes]] = []
        self.nodes: dict[bytes, int] = {}
        self._readable: dict[Fetch, bool] = {}

    @property
    def next(self) -> int:
        """Where the next record will stand."""
        return self.at + len(self.raw)

    def add(self, kind: int, payload: bytes) -> int:
        place = self.next
        self.raw += HEAD.pack(kind, len(payload), crc32(payload, kind)) + payload
        self.records.append((kind, place, payload))
        return place

    def is_readable(self, fetch: Fetch) -> bool:
        """Return whether the reader may still read the hits; ask the store once for all arms."""
        if fetch not in self._readable:
            self._readable[fetch] = fetch.for_fusion() is not None
        return self._readable[fetch]


def usage_row(usage: Usage) -> tuple[float, ...]:
    return tuple(getattr(usage, name) for name in USAGE)


def usage_of(row: Sequence[float]) -> Usage:
    """What something cost, from its columns.

    >>> usage_of(usage_row(Usage(calls=2, cost_usd=0.5)))
    Usage(calls=2, input_tokens=0, output_tokens=0, embedded=0, cost_usd=0.5)
    """
    *whole, cost_usd = row
    calls, input_tokens, output_tokens, embedded = map(int, whole)
    return Usage(calls, input_tokens, output_tokens, embedded, float(cost_usd))


LEAST = 1024
"""Bytes of what is compressed: to begin takes zlib as long as all else that is done to write a short answer."""


def _packed(plain: Any) -> bytes:
    raw = json.dumps(plain).encode()
    return raw if len(raw) < LEAST else compress(raw, 1)


_MOST = 2**28
"""Bytes of one answer, unpacked."""


def _unpacked(raw: bytes) -> Any:
    if raw.startswith(b"{"):  # no stream of zlib does
        return json.loads(raw)
    unpacking = decompressobj()
    found = unpacking.decompress(raw, _MOST)
    if unpacking.unconsumed_tail:
        raise DataError("An answer in the file of the experiment is too large to have been written. Name another file.")
    return json.loads(found)


def _status(payload: bytes | memoryview) -> int:
    return int(np.frombuffer(payload[: ANSWERS.itemsize], ANSWERS)[0]["status"])


_NONE: dict[str, Any] = dict(zip(ANSWERS.names or (), np.zeros(1, ANSWERS)[0].tolist(), strict=True))


def _row(values: Mapping[str, Any]) -> bytes:
    """Return the row of an answer; what is not given is 0."""
    return np.array(tuple({**_NONE, **values}.values()), ANSWERS).tobytes()


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


def _among(ranking: Ranking, rankings: list[Ranking]) -> int:
    """Return the number of a ranking among others, to which it is added if it is new. Late ones are not compared:
    their hits would be fetched."""
    for number, other in enumerate(rankings):
        if other is ranking or (other.late is None and ranking.late is None and other == ranking):
            return number
    rankings.append(ranking)
    return len(rankings) - 1


def _opened(path: str | Path) -> int:
    """The descriptor of a file that nobody else has."""
    try:
        make_folder(Path(path).parent)
        descriptor = private(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise DataError(
            f"{path} cannot be opened: {error.strerror or error}. Check its permissions, or name another file."
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StoreBusy(
            f"{path} is in use: another process is at this experiment. Wait for it, or name another file."
        ) from error
    return descriptor


def _start(path: str | Path | None, raw: bytes) -> int:
    """Where the first record is; 0 where the file is to be begun."""
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
