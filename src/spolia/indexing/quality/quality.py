"""The quality of a corpus in numbers: how much was read, how, and what was lost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from spolia.indexing.sync.diff import ATTEMPTS
from spolia.indexing.sync.report import DocumentReport
from spolia.stores.backends.rows import SourceRow
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Value


@dataclass(frozen=True)
class Quality(Value):
    """Numbers of all documents together.

    Args:
        sources: files, and what stands in them.
        failed: those that could not be read.
        given_up: those of them that are not tried again until they change.
        pages: of formats that have them.
        empty_pages: without text.
        ocr_pages: whose text was recognised in their picture.
        characters: of all texts.
        chunks: nodes of the main group.
        tables: that keep their cells.
        images: pictures that are kept.
        warned: documents with a warning.
        dropped: what was seen and not read, and how many.
        encodings: of characters, where that had to be found out, and how often.
        copies: names under which the same bytes stand.
        same_text: names of documents whose words are the same, though not their bytes.
    """

    sources: int = 0
    failed: int = 0
    given_up: int = 0
    pages: int = 0
    empty_pages: int = 0
    ocr_pages: int = 0
    characters: int = 0
    chunks: int = 0
    tables: int = 0
    images: int = 0
    warned: int = 0
    dropped: tuple[tuple[str, int], ...] = ()
    encodings: tuple[tuple[str, int], ...] = ()
    copies: tuple[tuple[str, ...], ...] = ()
    same_text: tuple[tuple[str, ...], ...] = ()

    @property
    def ocr_share(self) -> float:
        """Of all pages, those whose text was recognised; between 0 and 1."""
        return self.ocr_pages / self.pages if self.pages else 0.0


def quality(snapshot: Snapshot, access: Iterable[str] = ()) -> Quality:
    """The quality of what these principals may read, with all that failed.

    >>> import tempfile
    >>> from spolia.indexing.sync.texts import add_texts
    >>> from spolia.stores.corpus import Corpus
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = Corpus(f"{folder}/notes.spolia")
    ...     _ = add_texts(corpus, {"a": "Old stones.", "b": "Old stones.", "c": "old  STONES."})
    ...     found = quality(corpus.snapshot())
    >>> found.sources, found.copies, found.same_text
    (3, (('text:a', 'text:b'),), (('text:a', 'text:c'),))
    """
    texts = {one.id: _words(one.text) if one.text.strip() else b"" for one in snapshot.documents(frozenset(access))}
    rows = [row for row in snapshot.sources(noted=True).values() if row.document in texts or not row.document]
    told = [DocumentReport.of(row.report) if row.report else DocumentReport("", 0) for row in rows]
    dropped, encodings = Counter[str](), Counter[str]()
    for one in told:
        dropped.update(dict(one.dropped))
        encodings[one.encoding] += bool(one.encoding)
    broken = [one for row, one in zip(rows, told, strict=True) if row.status == "failed"]
    return Quality(
        sources=len(rows),
        failed=len(broken),
        given_up=sum(one.attempts >= ATTEMPTS for one in broken),
        pages=sum(one.pages for one in told),
        empty_pages=sum(len(one.empty_pages) for one in told),
        ocr_pages=sum(len(one.ocr_pages) for one in told),
        characters=sum(one.characters for one in told),
        chunks=sum(one.chunks for one in told),
        tables=sum(one.tables for one in told),
        images=sum(one.images for one in told),
        warned=sum(bool(one.warnings) for one in told),
        dropped=tuple(dropped.most_common()),
        encodings=tuple((+encodings).most_common()),
        copies=_copies(rows),
        same_text=_same_text(rows, {id: found for id, found in texts.items() if found}),
    )


def _words(text: str) -> bytes:
    """Tells words apart, whatever their case and the blanks between them."""
    return blake2b(" ".join(text.casefold().split()).encode("utf-8", "replace"), digest_size=16).digest()


def _copies(rows: Sequence[SourceRow]) -> tuple[tuple[str, ...], ...]:
    by_content = defaultdict[str, list[str]](list)
    for row in rows:
        if row.content_hash and row.size:
            by_content[row.content_hash].append(row.uri)
    return tuple(tuple(uris) for uris in by_content.values() if len(uris) > 1)


def _same_text(rows: Sequence[SourceRow], words: dict[str, bytes]) -> tuple[tuple[str, ...], ...]:
    by_words = defaultdict[bytes, dict[str, str]](dict)
    for row in rows:
        if row.document in words:
            by_words[words[row.document]].setdefault(row.content_hash or row.document, row.uri)
    return tuple(tuple(uris.values()) for uris in by_words.values() if len(uris) > 1)
