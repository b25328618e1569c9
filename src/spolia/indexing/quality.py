"""The quality of a corpus in numbers, and a page of HTML that shows them with each text beside its chunks."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from html import escape
from itertools import pairwise
from pathlib import Path

from spolia.indexing.sync.diff import ATTEMPTS, again_ns
from spolia.indexing.sync.report import DocumentReport
from spolia.stores.backends.rows import SourceRow
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Document, Node, Value


@dataclass(frozen=True)
class Quality(Value):
    """Totals over all documents, sources, files and their content.

    Args:
        given_up: failed files that are not tried again until they change.
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
        """The share of pages read by OCR; between 0 and 1."""
        return self.ocr_pages / self.pages if self.pages else 0.0


def quality(snapshot: Snapshot, access: Iterable[str] = ()) -> Quality:
    """The quality of what these principals may read, with all that failed."""
    texts = {one.id: _words(one.text) if one.text.strip() else b"" for one in snapshot.documents(frozenset(access))}
    found = _reported(snapshot, texts)
    rows, told = [row for row, _ in found], [report for _, report in found]
    dropped = Counter[str]()
    for one in told:
        dropped.update(dict(one.dropped))
    sums = ("pages", "characters", "chunks", "tables", "images")
    return Quality(
        **{name: sum(getattr(one, name) for one in told) for name in sums},
        sources=len(rows),
        failed=sum(row.status == "failed" for row in rows),
        given_up=sum(row.status == "failed" and report.attempts >= ATTEMPTS for row, report in found),
        empty_pages=sum(len(one.empty_pages) for one in told),
        ocr_pages=sum(len(one.ocr_pages) for one in told),
        warned=sum(bool(one.warnings) for one in told),
        dropped=tuple(dropped.most_common()),
        encodings=tuple(Counter(one.encoding for one in told if one.encoding).most_common()),
        copies=_shared((row.content_hash, row.uri, row.uri) for row in rows if row.content_hash and row.size),
        same_text=_shared(
            (texts[row.document], row.content_hash or row.document, row.uri) for row in rows if texts.get(row.document)
        ),
    )


def _reported(snapshot: Snapshot, readable: Container[str]) -> list[tuple[SourceRow, DocumentReport]]:
    """The sources of documents that may be read, and all that failed, with what indexing noticed of them."""
    rows = [row for row in snapshot.sources(noted=True).values() if row.document in readable or not row.document]
    return [(row, DocumentReport.of(row.report) if row.report else DocumentReport("", 0)) for row in rows]


def _words(text: str) -> bytes:
    return blake2b(" ".join(text.casefold().split()).encode("utf-8", "replace"), digest_size=16).digest()


def _shared(keyed: Iterable[tuple[str | bytes, str, str]]) -> tuple[tuple[str, ...], ...]:
    """Names by what they share, which comes first; of what comes second, the first name of each."""
    found = defaultdict[str | bytes, dict[str, str]](dict)
    for key, one, uri in keyed:
        found[key].setdefault(one, uri)
    return tuple(tuple(uris.values()) for uris in found.values() if len(uris) > 1)


HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing in a document can load anything, call anybody or run."""
MOST_CHARACTERS = 3_000_000
"""Of texts that are shown; of further documents the numbers alone are."""
_LONGEST_PAGE = 3_000
_LAST = 2**62
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def page(snapshot: Snapshot, access: frozenset[str], *, group: str = "chunk", title: str = "") -> Iterator[str]:
    """The page, piece by piece: documents that failed first, then those with a warning, then the others."""
    found = quality(snapshot, access)
    name = _shown(title or "Documents")
    look = (HERE / "quality.css").read_text("utf-8")
    yield (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{look}</style></head>'
        f"<body><h1>{name}</h1>{_numbers(found)}{_lists(found)}<h2>Documents</h2>"
    )
    left = MOST_CHARACTERS
    told = _reported(snapshot, {document.id for document in snapshot.documents(access)})
    for row, report in sorted(told, key=lambda one: (one[0].status != "failed", not one[1].warnings, one[0].uri)):
        document = snapshot.document(row.document, access) if row.document else None
        is_shown = document is not None and len(document.text) <= left
        nodes = snapshot.numbered_nodes(row.document, group, 0, _LAST, access) if document and is_shown else []
        left -= len(document.text) if document and is_shown else 0
        yield from _document(row, report, document if is_shown else None, nodes)
    yield "</body></html>\n"


def _numbers(found: Quality) -> str:
    shown = (
        ("files", found.sources), ("failed", found.failed), ("pages", found.pages), ("empty pages", found.empty_pages),
        ("pages by OCR", f"{found.ocr_share:.0%}"), ("characters", found.characters), ("chunks", found.chunks),
        ("tables", found.tables), ("pictures", found.images), ("with a warning", found.warned),
    )  # fmt: skip
    said = ((name, f"{value:,}".replace(",", " ") if isinstance(value, int) else value) for name, value in shown)
    return (
        '<div class="numbers">'
        + "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in said)
        + "</div>"
    )


def _lists(found: Quality) -> str:
    counted = (("Parts that were not read", found.dropped), ("Encodings that were found out", found.encodings))
    listed = (("The same bytes under several names", found.copies), ("The same words in other bytes", found.same_text))
    parts = [_table(title, [(name, str(count)) for name, count in rows]) for title, rows in counted]
    return "".join(parts + [_table(title, [(", ".join(uris),) for uris in rows]) for title, rows in listed])


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{_shown(cell)}</td>' for cell in row)}</tr>" for row in rows[:200])
    return f'<h2>{title}</h2><div class="wide"><table>{body}</table></div>' if rows else ""


def _document(
    row: SourceRow, report: DocumentReport, document: Document | None, nodes: Sequence[Node]
) -> Iterator[str]:
    kind = "failed" if row.status == "failed" else "warning" if report.warnings else ""
    said = row.error or " ".join(report.warnings)
    yield (
        f'<details><summary><b>{_shown(row.uri)}</b><span class="facts">{_shown(facts(row, report))}</span>'
        f'{f"""<br><span class="{kind}">{_shown(said)}</span>""" if said else ""}</summary>'
    )
    if document is None:
        yield "<p>" + (
            "It could not be read.</p>" if not row.document else "Its text is not shown: there is too much.</p>"
        )
    else:
        yield from _pages(document, nodes)
    yield "</details>"


def facts(row: SourceRow, report: DocumentReport) -> str:
    """What is to be known of a document beside its text, in words."""
    if row.status == "failed":
        return f"{report.reader}, {attempts_told(report)}"
    counts = (
        (report.pages, "page"), (len(report.empty_pages), "page without text"), (len(report.ocr_pages), "page by OCR"),
        (report.characters, "character"), (report.chunks, "chunk"), (report.tables, "table"),
        (report.images, "picture"), (report.parts, "file in it"),
    )  # fmt: skip
    words = [report.reader, *(counted(count, name) for count, name in counts if count), report.encoding]
    words += [f"{count} {name} not read" for name, count in report.dropped]
    return ", ".join(filter(None, words))


def counted(count: int, name: str) -> str:
    """A number of things, `2 pages by OCR`."""
    noun, blank, rest = name.partition(" ")
    return f"{count} {name}" if count == 1 else f"{count} {noun}s{blank}{rest}"


def attempts_told(report: DocumentReport) -> str:
    """How often it was tried, and when again."""
    if not report.attempts:
        return "tried in every run"
    times = "once" if report.attempts == 1 else f"{report.attempts} times"
    if report.attempts >= ATTEMPTS:
        return f"tried {times}; not again until it changes, or with --rebuild"
    at = datetime.fromtimestamp(again_ns(report) // 1_000_000_000, UTC)
    return f"tried {times}; again " + (f"after {at:%Y-%m-%d %H:%M:%S} UTC" if report.passes else "in the next run")


def _pages(document: Document, nodes: Sequence[Node]) -> Iterator[str]:
    """Each page's text, with the numbers of the chunks where they begin, and the chunks beside it."""
    placed = sorted(((node.span.start, node) for node in nodes if node.span), key=lambda one: one[0])
    starts = [start for start, _ in placed]
    for number, (start, end) in enumerate(pairwise([*_breaks(document), len(document.text)]), 1):
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        name = f'<span class="where">page {number}</span>' if document.pages else ""
        chunks = "".join(_chunk(node) for _, node in placed[first:last])
        text = _marked(document.text, start, end, placed[first:last])
        yield f'<div class="page"><div>{name}<div class="text">{text}</div></div><div>{chunks}</div></div>'
    if written := [node for node in nodes if node.span is None]:
        yield f'<div class="page"><div></div><div>{"".join(map(_chunk, written))}</div></div>'


def _breaks(document: Document) -> list[int]:
    """Where its pages begin; where it has none, after a line every few thousand characters."""
    if document.pages:
        return [0, *document.pages[1:]]
    found = [0]
    while (at := found[-1] + _LONGEST_PAGE) < len(document.text):
        line = document.text.find("\n", at, at + _LONGEST_PAGE)
        found.append(line + 1 if line >= 0 else at)
    return found


def _marked(text: str, start: int, end: int, placed: Sequence[tuple[int, Node]]) -> str:
    pieces, at = [], start
    for place, node in placed:
        pieces += [_shown(text[at:place]), f"<i>{node.number}</i>"]
        at = place
    return "".join((*pieces, _shown(text[at:end])))


def _chunk(node: Node) -> str:
    context = " · ".join(node.context.split("\n"))
    where = f'<span class="where">{node.number}{f" · {_shown(context)}" if context else ""}</span>'
    return f'<div class="chunk">{where}<p>{_shown(node.text)}</p></div>'


def _shown(text: str) -> str:
    """Text as HTML; what would not be seen, or turn the order of letters, is shown as a sign."""
    return escape(_UNSEEN.sub("�", text))
