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
from spolia.indexing.sources.source import Gathering
from spolia.types import Meta, Scalar, Value


def at(value: Any, path: str) -> Any:
    """The value at a path, as `data.items.0.id`; else None."""
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
_ODD = re.compile("[%\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class RecordReader(Value):
    """Reads what `written` has written; `body` reads its text."""

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
        said = json.loads(blob.data)
        found = self.body.read(Blob(blob.uri, said["text"].encode("utf-8", "replace")))
        meta: Meta = tuple((name, value) for name, value in said["meta"])
        named = {name for name, _ in meta}
        document = found.document.but(
            id=f"{blob.content_hash}.{self.name}",
            title=said["title"] or found.document.title,
            meta=meta + tuple(pair for pair in found.document.meta if pair[0] not in named),
        )
        return found.but(document=document)


def written(text: str, title: str, meta: Meta) -> bytes:
    """A document as the bytes that `RecordReader` reads."""
    said = {"title": title, "text": text, "meta": meta}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class RecordGathering(Gathering):
    """Gathers records whose texts are of a format: `.txt`, `.md`, `.html`."""

    def __init__(self, source: str, format: str, readers: Mapping[str, FileReader]) -> None:
        super().__init__(source, readers)
        if (body := reader_of(f"record{format}", readers)) is None:
            raise SourceError(
                f"No reader knows the format {format!r}. Write a suffix with its dot: .txt, .md or .html."
            )
        self.reader = RecordReader(body)

    def record(
        self,
        uri: str,
        value: Callable[[str], object],
        text: str,
        title: str,
        metadata: Iterable[tuple[str, str]],
        changed: object,
    ) -> None:
        """A record whose `value` gives what a name or path in a template stands for."""
        try:
            meta = tuple((name, one) for name, path in metadata for one in scalars(value(path)))
            data = written(filled(text, value), filled(title, value) if title else "", meta)
            self.hold(uri, data, seconds_of(changed), self.reader)
        except DocumentError as error:
            self.fail(uri, error)


def names_in(template: str) -> tuple[str, ...]:
    """The names in a template, or the one name that it is."""
    return tuple(dict.fromkeys(_NAMED.findall(template))) or (template,)


def filled(template: str, value: Callable[[str], object]) -> str:
    """A template with values in the places of its names, or the value of the one name that it is."""
    if not _NAMED.search(template):
        return as_text(value(template))
    return _NAMED.sub(lambda found: as_text(value(found[1])), template)


def as_text(value: object) -> str:
    """A value as a part of a text. Raises DocumentError where it is bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise DocumentError("The text is of bytes, not of characters. Convert it in the query, or leave the row out.")
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


def scalars(value: object) -> tuple[Scalar, ...]:
    """A value as metadata; a list is several values."""
    if isinstance(value, (list, tuple)):
        return tuple(one for item in value for one in scalars(item))
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
    """The uri of a row or an item; DocumentError if its key is too long or not valid."""
    if isinstance(key, (dict, list)) or len(text := str(key)) > LONGEST_KEY or not text:
        raise DocumentError(f"{key!r:.80} is not a key. Name a field with a short text or a number for each document.")
    return prefix + _ODD.sub(lambda found: quote(found[0], safe="", errors="surrogatepass"), text)


def seconds_of(value: Any) -> float | None:
    """A time in seconds since 1970, if it is one."""
    try:
        if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, date) and not isinstance(value, datetime):
            value = value.isoformat()
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return found.timestamp()
    except (TypeError, ValueError, OverflowError, OSError):
        return None
