"""The values that steps took and gave, and the operators: each once, by the hash of its text, as JSON of the codec."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as quoted
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from spolia.core.codec import IMPORTED, decode, plan_of, shape_of
from spolia.core.codec.shape import EncodeContext, type_id
from spolia.core.environment import is_secret
from spolia.core.operator import Operator
from spolia.core.redaction import Redactor, labelled
from spolia.errors import CodecError, StoreError
from spolia.types import Hit, Node, Prompt, Query, Ranking, Value

if TYPE_CHECKING:
    from spolia.journal.database import JournalFile

MOST_BYTES = 256 * 2**20
"""Of all values of a journal; the oldest are dropped."""
MOST_VALUE_BYTES = 2**20
"""Of one value; of a longer one only the beginning is kept."""
BEGINNING = 2_000
LOST, WORDS = "lost", "words"
"""Keys of what stands for a value that cannot be read back: a longer one's beginning, or what has no plain form."""
SECRET = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$")
LITERAL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\w.+-])-?\d+(?![\w.])')
"""A string of JSON, or a whole number."""
ESCAPE = re.compile(r"\\+(?:[abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")
SHARED = (Node, Query, Ranking)
"""Kept on their own and named by their hash in the values that hold them: they pass through many steps."""
ANY = shape_of(Any)

PUT_VALUE = "INSERT OR REPLACE INTO trace_values (hash, value, used, size) VALUES (?,?,?,?)"
PUT_DETAIL = "INSERT OR REPLACE INTO trace_details (run, span, operator, input, output, exchanges) VALUES (?,?,?,?,?,?)"
PUT_RUN = "INSERT OR IGNORE INTO trace_runs (run, principals) VALUES (?,?)"
PRUNE_VALUES = """DELETE FROM trace_values WHERE hash IN (SELECT hash FROM (
    SELECT hash, sum(size) OVER (ORDER BY used DESC, hash) AS total FROM trace_values) WHERE total > ?)"""

Redaction = Callable[[str], str]


@dataclass(frozen=True)
class Exchange(Value):
    """What one call of a language model was sent, and what it replied: the text, or the tokens that it foretold."""

    model: str
    prompt: Prompt
    reply: Any


class Detail(NamedTuple):
    """What a step was and took, beside its span: the values themselves, to be written by the writer thread."""

    op: Operator[Any, Any]
    given: Any
    principals: frozenset[str]
    exchanges: Sequence[Exchange]


def secrets() -> Redaction | None:
    """Replaces the values of environment variables that hold secrets by the variables' names; None without any.

    >>> os.environ["EXAMPLE_API_KEY"] = "k-1234567890"
    >>> redact = secrets()
    >>> redact("Sent with k-1234567890.") if redact else ""
    'Sent with [EXAMPLE_API_KEY].'
    >>> del os.environ["EXAMPLE_API_KEY"]
    """
    names = filter(_names_secret, os.environ)  # to decode only their values takes a tenth of the time
    found = {value: name for name in names if is_secret(value := os.environ.get(name, ""))}
    if not found:
        return None
    found |= {quoted(value)[1:-1]: name for value, name in found.items()}
    pattern = re.compile("|".join(re.escape(value) for value in sorted(found, key=len, reverse=True)))
    return lambda text: pattern.sub(lambda one: f"[{found[one[0]]}]", text)


@lru_cache(1024)
def _names_secret(variable: str) -> bool:
    return SECRET.search(variable.upper()) is not None


def hiding(redactor: Redactor) -> Redaction:
    """Replaces secrets, and what a redactor finds by its kind."""
    replaced = secrets()
    return lambda text: labelled(text if replaced is None else replaced(text), redactor)


def redacted(text: str, redact: Redaction) -> str:
    r"""A text redacted, also where `repr` or JSON wrote its line breaks as escapes.

    >>> redacted(r"{'note': 'Call\n+44 20 7946 0958'}", lambda text: re.sub(r"(?<!\w)[+]44[ 0-9]+", "[PHONE]", text))
    "{'note': 'Call\n[PHONE]'}"
    """
    text = redact(text)
    if "\\" not in text:
        return text
    plain = ESCAPE.sub("\n", text)
    return text if (changed := redact(plain)) == plain else changed


def redacted_json(text: str, redact: Redaction) -> str:
    """JSON whose strings, keys among them, and whole numbers are redacted one by one, as what they stand for."""

    def literal(found: re.Match[str]) -> str:
        said = json.loads(found[0]) if found[0][0] == '"' else found[0]
        return found[0] if (changed := redacted(said, redact)) == said else quoted(changed)

    return LITERAL.sub(literal, text)


class _References(EncodeContext):
    """Nodes, queries and rankings inside a value are written as `{use: hash}`."""

    def __init__(self, batch: DetailRows) -> None:
        super().__init__(plan_of, {"": None})
        self.batch = batch

    def name_of(self, value: object) -> str | None:
        return self.batch.hash_of(value) if isinstance(value, SHARED) else None


@dataclass
class KnownHashes:
    """What a journal knows to be written already."""

    written: dict[str, None] = field(default_factory=dict)
    operators: dict[int, tuple[Operator[Any, Any], str]] = field(default_factory=dict)
    entries: int = 20_000
    bytes: int = 0

    def add(self, hash: str) -> bool:
        """Whether it is not known yet."""
        if hash in self.written:
            return False
        self.written[hash] = None
        if len(self.written) > self.entries:
            del self.written[next(iter(self.written))]
        return True


class DetailRows:
    """The rows of some spans. It is filled by the writer thread; a value that cannot be written says so in its row."""

    def __init__(
        self, spans: Sequence[tuple[tuple[Any, ...], Detail]], memory: KnownHashes, redact: Redaction | None, most: int
    ) -> None:
        self.spans, self.memory, self.redact, self.most = spans, memory, redact, most
        self._rows: list[tuple[str, bytes, float, int]] = []
        self._hashes: dict[int, str] = {}
        self._hits: dict[int, str] = {}
        self._alive: list[Any] = []  # ids recur
        self._context = _References(self)
        self._now = time()

    @cached_property
    def details(self) -> list[tuple[Any, ...]]:
        return [
            (
                row[0],
                row[1],
                self._operator(one.op),
                self.hash_of(one.given),
                self.hash_of(row[-1]) if not row[-3] else "",
                self.hash_of(tuple(one.exchanges)) if one.exchanges else "",
            )
            for row, one in self.spans
        ]

    def values(self) -> list[tuple[str, bytes, float, int]]:
        _ = self.details
        return self._rows

    def runs(self) -> list[tuple[str, str]]:
        return [(run, json.dumps(sorted(who))) for run, who in {row[0]: d.principals for row, d in self.spans}.items()]

    def _operator(self, op: Operator[Any, Any]) -> str:
        held = self.memory.operators.get(id(op))
        if held is None:
            if len(self.memory.operators) >= 256:
                self.memory.operators.clear()
            held = self.memory.operators[id(op)] = op, self._put(self._text(op))
        return held[1]

    def hash_of(self, value: Any) -> str:
        """The hash under which a value is kept."""
        kind = type(value)
        if kind in (str, int, bool, float, type(None)):
            return self._put(self._text(value))
        found = self._hashes.get(id(value))
        if found is None:
            found = self._hashes[id(value)] = self._put(self._text(value))
            self._alive.append(value)
        return found

    def _text(self, value: Any) -> str:
        """A value as JSON."""
        try:
            if type(value) is Ranking:
                return self._ranking(value)
            if isinstance(value, SHARED):  # the codec would write it as a reference to itself
                return _json({type_id(type(value)): self._fields(value)})
            return _json(ANY.encode(value, self._context))
        except Exception as problem:  # no plain form, or an object that cannot even be described
            return _lost(value, problem)

    def _fields(self, value: Any) -> Any:
        return self._context.plan(type(value)).encode(value, self._context)

    def _ranking(self, value: Ranking) -> str:
        """As the codec writes it, with the nodes as references; most stored values are rankings, so it is written for
        speed."""
        known, hit = self._hits, self._hit
        hits = [known.get(id(one)) or hit(one) for one in value.hits]
        source = f',"source":{quoted(value.source)}' if value.source else ""
        return f'{{"Ranking":{{"query":{{"use":"{self.hash_of(value.query)}"}},"hits":[{",".join(hits)}]{source}}}}}'

    def _hit(self, hit: Hit) -> str:
        is_finite = hit.score - hit.score == 0 and all(part - part == 0 for _, part in hit.parts)
        if type(hit) is Hit and type(hit.score) is float and not hit.found and is_finite:
            parts = f',"parts":{_json(hit.parts)}' if hit.parts else ""
            text = f'{{"node":{{"use":"{self.hash_of(hit.node)}"}},"score":{hit.score!r}{parts}}}'
        else:
            text = _json(self._fields(hit))
        self._hits[id(hit)] = text
        return text

    def _put(self, text: str) -> str:
        if self.redact is not None:
            text = redacted_json(text, self.redact)
        raw = text.encode("utf-8", "surrogatepass")
        if len(raw) > self.most:
            text = json.dumps({LOST: f"{len(raw):,} bytes, of which {self.most:,} are kept", WORDS: text[:BEGINNING]})
            raw = text.encode("utf-8", "surrogatepass")
        found = blake2b(raw, digest_size=16).hexdigest()
        if self.memory.add(found):
            self._rows.append((found, raw, self._now, len(raw)))
            self.memory.bytes += len(raw)
        return found


def _json(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _lost(value: Any, problem: Exception) -> str:
    try:
        words = repr(value)[:BEGINNING]
    except Exception:
        words = type(value).__name__
    return json.dumps({LOST: f"it has no plain form: {problem}"[:300], WORDS: words})


class ValueLost(StoreError):
    """A value is not in the journal, or only in words."""

    def __init__(self, reason: str, words: str = "") -> None:
        super().__init__(reason)
        self.words = words


class ValueReader(Mapping[str, Any]):
    """The values of a journal by their hashes; raises `ValueLost` where one is not there.

    Args:
        known: operators and values that may be named, by id.
        accept: is shown what is read, and raises for what may not be.
    """

    def __init__(
        self,
        database: JournalFile,
        known: Mapping[str, Any] = IMPORTED,
        accept: Callable[[Any], None] | None = None,
    ) -> None:
        self.database, self.known, self.accept = database, known, accept
        self._found: dict[str, Any] = {}

    def plain(self, hash: str) -> Any:
        """What is written under a hash."""
        if not hash:
            raise ValueLost("It was not kept.")
        try:
            rows = self.database.read("SELECT value FROM trace_values WHERE hash = ?", (hash,))
        except sqlite3.Error as error:
            raise ValueLost(f"It cannot be read: {error}.") from error
        if not rows:
            raise ValueLost("It is no longer kept: the journal drops the values that were written first.")
        raw = rows[0][0]
        try:
            if blake2b(raw, digest_size=16).hexdigest() != hash:
                raise ValueLost("It is not as it was written.")
            return json.loads(raw.decode("utf-8", "surrogatepass"))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueLost(f"It is not as it was written: {error}.") from error

    def __getitem__(self, hash: str) -> Any:
        if hash not in self._found:
            plain = self.plain(hash)
            if isinstance(plain, dict) and LOST in plain:
                raise ValueLost(f"It cannot be read back: {plain[LOST]}.", str(plain.get(WORDS, "")))
            try:
                self._found[hash] = decode(plain, Any, known=self.known, given=self, accept=self.accept)
            except CodecError as error:
                raise ValueLost(f"It cannot be read back: {error}") from error
        return self._found[hash]

    def __bool__(self) -> bool:
        return True

    def __contains__(self, hash: object) -> bool:
        return isinstance(hash, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return len(self._found)
