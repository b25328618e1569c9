"""Records of a database or an API as documents: paths into JSON, templates, values as texts and metadata."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from spolia.errors import DocumentError, SourceError
from spolia.indexing.readers.reader import Blob, FileReader, Reading, is_isolated, reader_of
from spolia.indexing.sources.source import ChangeCollector
from spolia.types import Meta, Scalar, Value


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path, as `data.items.0.id`; None if nothing is there."""
    for step in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


LONGEST_KEY = 1_000
_NAMED = re.compile(r"\{([^{}]+)\}")
# Uris are written in UTF-8, into reports and terminals: control characters and lone surrogates are quoted.
_ODD = re.compile("[%\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class RecordReader(Value):
    """Reader of what `encode_record` has written; `body` reads its text."""

    body: FileReader
    version = 1
    suffixes = ()

    @property
    def name(self) -> str:
        return self.body.name

    @property
    def media_type(self) -> str:
        return self.body.media_type

    @property
    def isolated(self) -> bool:
        return is_isolated(self.body)

    def read(self, blob: Blob, /) -> Reading:
        record = json.loads(blob.data)
        reading = self.body.read(Blob(blob.uri, record["text"].encode("utf-8", "replace")))
        meta: Meta = tuple((name, value) for name, value in record["meta"])
        record_fields = {name for name, _ in meta}
        document = reading.document.but(
            id=f"{blob.content_hash}.{self.name}",
            title=record["title"] or reading.document.title,
            meta=meta + tuple(pair for pair in reading.document.meta if pair[0] not in record_fields),
        )
        return reading.but(document=document)


def encode_record(text: str, title: str, meta: Meta) -> bytes:
    """Encode a document as the bytes that `RecordReader` reads."""
    record = {"title": title, "text": text, "meta": meta}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class RecordCollector(ChangeCollector):
    """Collector of records whose texts are of one format: `.txt`, `.md`, `.html`."""

    def __init__(self, source: str, format: str, readers: Mapping[str, FileReader]) -> None:
        super().__init__(source, readers)
        if (body := reader_of(f"record{format}", readers)) is None:
            raise SourceError(
                f"No reader knows the format {format!r}. Write a suffix with its dot: .txt, .md or .html."
            )
        self.reader = RecordReader(body)

    def add_record(
        self,
        uri: str,
        value: Callable[[str], object],
        text: str,
        title: str,
        metadata: Iterable[tuple[str, str]],
        changed: object,
    ) -> None:
        """Add a record; `value` gives what a name or path in a template stands for."""
        try:
            meta = tuple((name, scalar) for name, path in metadata for scalar in scalars(value(path)))
            data = encode_record(fill_template(text, value), fill_template(title, value) if title else "", meta)
            self.add(uri, data, seconds_of(changed), self.reader)
        except DocumentError as error:
            self.fail(uri, error)


def names_in(template: str) -> tuple[str, ...]:
    """Return the names in a template, or the one name that it is."""
    return tuple(dict.fromkeys(_NAMED.findall(template))) or (template,)


def fill_template(template: str, value: Callable[[str], object]) -> str:
    """Fill values into the places of a template, or return the value of the one name that it is."""
    if not _NAMED.search(template):
        return as_text(value(template))
    return _NAMED.sub(lambda match: as_text(value(match[1])), template)


def as_text(value: object) -> str:
    """Return a value as a part of a text; raise DocumentError if it is bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise DocumentError("The text is of bytes, not of characters. Convert it in the query, or leave the row out.")
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def scalars(value: object) -> tuple[Scalar, ...]:
    """Return a value as metadata; a list is several values."""
    if isinstance(value, (list, tuple)):
        return tuple(scalar for item in value for scalar in scalars(item))
    if value is None:
        return ()
    if isinstance(value, (str, bool, int, float)):
        return (value,)
    if isinstance(value, Decimal):
        return (float(value),)
    if isinstance(value, (datetime, date)):
        return (value.isoformat(),)
    return (as_text(value),)


def uri_of(prefix: str, key: object) -> str:
    """Return the uri of a row or an item; raise DocumentError if its key is too long or not valid."""
    if isinstance(key, (dict, list)) or len(text := str(key)) > LONGEST_KEY or not text:
        raise DocumentError(f"{key!r:.80} is not a key. Name a field with a short text or a number for each document.")
    return prefix + _ODD.sub(lambda match: quote(match[0], safe="", errors="surrogatepass"), text)


def seconds_of(value: Any) -> float | None:
    """Return a time in seconds since 1970; None if it is not a time."""
    try:
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):  # a bool is an int, too
            return float(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = value.isoformat()
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return moment.timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None
