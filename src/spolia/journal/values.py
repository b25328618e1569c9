"""Values that steps took and gave, and operators: each once, by the hash of its text, as JSON of the codec."""

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
from spolia.core.redaction import Redactor, label_places
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
    """Prompt of one call of a language model, and its reply: the text, or the tokens that it foretold."""

    model: str
    prompt: Prompt
    reply: Any


class Detail(NamedTuple):
    """Step and its input, beside its span: the values themselves, to be written by the writer thread."""

    op: Operator[Any, Any]
    input_value: Any
    principals: frozenset[str]
    exchanges: Sequence[Exchange]


def make_secret_redaction() -> Redaction | None:
    """Return what replaces the values of secret environment variables by their names; None without any.

    >>> os.environ["EXAMPLE_API_KEY"] = "k-1234567890"
    >>> redact = make_secret_redaction()
    >>> redact("Sent with k-1234567890.") if redact else ""
    'Sent with [EXAMPLE_API_KEY].'
    >>> del os.environ["EXAMPLE_API_KEY"]
    """
    names = filter(_names_secret, os.environ)  # to decode only their values takes a tenth of the time
    names_by_value = {value: name for name in names if is_secret(value := os.environ.get(name, ""))}
    if not names_by_value:
        return None
    names_by_value |= {quoted(value)[1:-1]: name for value, name in names_by_value.items()}  # also as JSON escapes it
    # The longest first: one secret may be the beginning of another.
    pattern = re.compile("|".join(re.escape(value) for value in sorted(names_by_value, key=len, reverse=True)))
    return lambda text: pattern.sub(lambda match: f"[{names_by_value[match[0]]}]", text)


@lru_cache(1024)
def _names_secret(variable: str) -> bool:
    return SECRET.search(variable.upper()) is not None


def make_redaction(redactor: Redactor) -> Redaction:
    """Return what replaces secrets, and whatever a redactor finds, by its kind."""
    redact_secrets = make_secret_redaction()
    return lambda text: label_places(text if redact_secrets is None else redact_secrets(text), redactor)


def redact_text(text: str, redact: Redaction) -> str:
    r"""Redact a text, also where `repr` or JSON wrote its line breaks as escapes.

    >>> redact_text(r"{'note': 'Call\n+44 20 7946 0958'}", lambda text: re.sub(r"(?<!\w)[+]44[ 0-9]+", "[PHONE]", text))
    "{'note': 'Call\n[PHONE]'}"
    """
    text = redact(text)
    if "\\" not in text:
        return text
    plain = ESCAPE.sub("\n", text)
    return text if (changed := redact(plain)) == plain else changed


def redact_json(text: str, redact: Redaction) -> str:
    """Redact the strings, keys too, and whole numbers of JSON one by one, as what they stand for."""

    def redact_literal(match: re.Match[str]) -> str:
        content = json.loads(match[0]) if match[0][0] == '"' else match[0]
        return match[0] if (changed := redact_text(content, redact)) == content else quoted(changed)

    return LITERAL.sub(redact_literal, text)


class _References(EncodeContext):
    """Encoding in which nodes, queries and rankings inside a value are written as `{use: hash}`."""

    def __init__(self, batch: DetailRows) -> None:
        super().__init__(plan_of, {"": None})
        self.batch = batch

    def name_of(self, value: object) -> str | None:
        return self.batch.hash_of(value) if isinstance(value, SHARED) else None


@dataclass
class KnownHashes:
    """Hashes that a journal knows to be written already."""

    hashes: dict[str, None] = field(default_factory=dict)
    # Holds the operator too: else its id could become another one's.
    operators: dict[int, tuple[Operator[Any, Any], str]] = field(default_factory=dict)
    entries: int = 20_000  # a hash that was dropped is written again, over an equal row
    bytes: int = 0

    def add(self, hash: str) -> bool:
        """Add a hash; return whether it was new."""
        if hash in self.hashes:
            return False
        self.hashes[hash] = None
        if len(self.hashes) > self.entries:
            del self.hashes[next(iter(self.hashes))]
        return True


class DetailRows:
    """Rows of some spans, filled by the writer thread; a value that cannot be written says so in its row."""

    def __init__(
        self,
        spans: Sequence[tuple[tuple[Any, ...], Detail]],
        memory: KnownHashes,
        redact: Redaction | None,
        max_bytes: int,
    ) -> None:
        self.spans, self.memory, self.redact, self.max_bytes = spans, memory, redact, max_bytes
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
                self._operator_hash(detail.op),
                self.hash_of(detail.input_value),
                self.hash_of(row[-1]) if not row[-3] else "",
                self.hash_of(tuple(detail.exchanges)) if detail.exchanges else "",
            )
            for row, detail in self.spans
        ]

    def values(self) -> list[tuple[str, bytes, float, int]]:
        _ = self.details
        return self._rows

    def runs(self) -> list[tuple[str, str]]:
        return [
            (run, json.dumps(sorted(principals)))
            for run, principals in {row[0]: detail.principals for row, detail in self.spans}.items()
        ]

    def _operator_hash(self, op: Operator[Any, Any]) -> str:
        entry = self.memory.operators.get(id(op))
        if entry is None:
            if len(self.memory.operators) >= 256:
                self.memory.operators.clear()
            entry = self.memory.operators[id(op)] = op, self._add_text(self._encode(op))
        return entry[1]

    def hash_of(self, value: Any) -> str:
        """Return the hash under which a value is kept."""
        kind = type(value)
        if kind in (str, int, bool, float, type(None)):
            return self._add_text(self._encode(value))
        digest = self._hashes.get(id(value))
        if digest is None:
            digest = self._hashes[id(value)] = self._add_text(self._encode(value))
            self._alive.append(value)
        return digest

    def _encode(self, value: Any) -> str:
        """Return a value as JSON."""
        try:
            if type(value) is Ranking:
                return self._encode_ranking(value)
            if isinstance(value, SHARED):  # the codec would write it as a reference to itself
                return _to_json({type_id(type(value)): self._encode_fields(value)})
            return _to_json(ANY.encode(value, self._context))
        except Exception as problem:  # no plain form, or an object that cannot even be described
            return _describe_lost(value, problem)

    def _encode_fields(self, value: Any) -> Any:
        return self._context.plan(type(value)).encode(value, self._context)

    def _encode_ranking(self, value: Ranking) -> str:
        """Encode a ranking as the codec does, with nodes as references; most stored values are rankings, so it is
        written for speed."""
        hit_texts, encode_hit = self._hits, self._encode_hit
        hits = [hit_texts.get(id(item)) or encode_hit(item) for item in value.hits]
        source = f',"source":{quoted(value.source)}' if value.source else ""
        return f'{{"Ranking":{{"query":{{"use":"{self.hash_of(value.query)}"}},"hits":[{",".join(hits)}]{source}}}}}'

    def _encode_hit(self, hit: Hit) -> str:
        # False for NaN and infinity; `isfinite` is a call, and most stored values are hits.
        is_finite = hit.score - hit.score == 0 and all(part - part == 0 for _, part in hit.parts)
        if type(hit) is Hit and type(hit.score) is float and not hit.found and is_finite:
            parts = f',"parts":{_to_json(hit.parts)}' if hit.parts else ""
            text = f'{{"node":{{"use":"{self.hash_of(hit.node)}"}},"score":{hit.score!r}{parts}}}'
        else:
            text = _to_json(self._encode_fields(hit))
        self._hits[id(hit)] = text
        return text

    def _add_text(self, text: str) -> str:
        if self.redact is not None:
            text = redact_json(text, self.redact)
        raw = text.encode("utf-8", "surrogatepass")
        if len(raw) > self.max_bytes:
            text = json.dumps(
                {LOST: f"{len(raw):,} bytes, of which {self.max_bytes:,} are kept", WORDS: text[:BEGINNING]}
            )
            raw = text.encode("utf-8", "surrogatepass")
        digest = blake2b(raw, digest_size=16).hexdigest()
        if self.memory.add(digest):
            self._rows.append((digest, raw, self._now, len(raw)))
            self.memory.bytes += len(raw)
        return digest


def _to_json(plain: Any) -> str:
    # NaN is no JSON: no other reader takes it
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _describe_lost(value: Any, problem: Exception) -> str:
    try:
        words = repr(value)[:BEGINNING]
    except Exception:
        words = type(value).__name__
    return json.dumps({LOST: f"it has no plain form: {problem}"[:300], WORDS: words})


class ValueLost(StoreError):
    """Error for a value that is not in the journal, or only in words."""

    def __init__(self, reason: str, words: str = "") -> None:
        super().__init__(reason)
        self.words = words


class ValueReader(Mapping[str, Any]):
    """Values of a journal by their hashes; raises `ValueLost` for one that is not there.

    Args:
        classes: operators and values that may be named, by id.
        accept: is shown what is read, and raises for what may not be.
    """

    def __init__(
        self,
        database: JournalFile,
        classes: Mapping[str, Any] = IMPORTED,
        accept: Callable[[Any], None] | None = None,
    ) -> None:
        self.database, self.classes, self.accept = database, classes, accept
        self._values: dict[str, Any] = {}

    def read_plain(self, hash: str) -> Any:
        """Return what is written under a hash."""
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
        if hash not in self._values:
            plain = self.read_plain(hash)
            if isinstance(plain, dict) and LOST in plain:
                raise ValueLost(f"It cannot be read back: {plain[LOST]}.", str(plain.get(WORDS, "")))
            try:
                self._values[hash] = decode(plain, Any, classes=self.classes, objects=self, accept=self.accept)
            except CodecError as error:
                raise ValueLost(f"It cannot be read back: {error}") from error
        return self._values[hash]

    def __bool__(self) -> bool:  # else `decode` takes it for an empty mapping, and names no objects
        return True

    def __contains__(self, hash: object) -> bool:
        return isinstance(hash, str)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return len(self._values)
