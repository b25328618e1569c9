"""Quality of a corpus in numbers, and a page of HTML that shows them with each text beside its chunks."""

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

from spolia.indexing.sync.diff import ATTEMPTS, retry_time_ns
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
        """Return the share of pages read by OCR; between 0 and 1."""
        return self.ocr_pages / self.pages if self.pages else 0.0


def measure_quality(snapshot: Snapshot, access: Iterable[str] = ()) -> Quality:
    """Measure what these principals may read, with all that failed."""
    texts = {
        item.id: _hash_words(item.text) if item.text.strip() else b"" for item in snapshot.documents(frozenset(access))
    }
    pairs = _list_reports(snapshot, texts)
    rows, reports = [row for row, _ in pairs], [report for _, report in pairs]
    dropped = Counter[str]()
    for item in reports:
        dropped.update(dict(item.dropped))
    sums = ("pages", "characters", "chunks", "tables", "images")
    return Quality(
        **{name: sum(getattr(item, name) for item in reports) for name in sums},
        sources=len(rows),
        failed=sum(row.status == "failed" for row in rows),
        given_up=sum(row.status == "failed" and report.attempts >= ATTEMPTS for row, report in pairs),
        empty_pages=sum(len(item.empty_pages) for item in reports),
        ocr_pages=sum(len(item.ocr_pages) for item in reports),
        warned=sum(bool(item.warnings) for item in reports),
        dropped=tuple(dropped.most_common()),
        encodings=tuple(Counter(item.encoding for item in reports if item.encoding).most_common()),
        copies=_group_names((row.content_hash, row.uri, row.uri) for row in rows if row.content_hash and row.size),
        same_text=_group_names(
            (texts[row.document], row.content_hash or row.document, row.uri) for row in rows if texts.get(row.document)
        ),
    )


def _list_reports(snapshot: Snapshot, readable: Container[str]) -> list[tuple[SourceRow, DocumentReport]]:
    """Return the sources of readable documents and all that failed, with what indexing noticed of them."""
    rows = [row for row in snapshot.sources(noted=True).values() if row.document in readable or not row.document]
    return [(row, DocumentReport.from_json(row.report) if row.report else DocumentReport("", 0)) for row in rows]


def _hash_words(text: str) -> bytes:
    return blake2b(" ".join(text.casefold().split()).encode("utf-8", "replace"), digest_size=16).digest()


def _group_names(keyed: Iterable[tuple[str | bytes, str, str]]) -> tuple[tuple[str, ...], ...]:
    """Group names by the first item, which they share; of equal second items, the first name counts."""
    groups = defaultdict[str | bytes, dict[str, str]](dict)
    for key, variant, uri in keyed:
        groups[key].setdefault(variant, uri)
    return tuple(tuple(uris.values()) for uris in groups.values() if len(uris) > 1)


HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing in a document can load anything, call anybody or run."""
MOST_CHARACTERS = 3_000_000
"""Of texts that are shown; of further documents the numbers alone are."""
_LONGEST_PAGE = 3_000
_LAST = 2**62  # beyond the number of any node
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def render_page(snapshot: Snapshot, access: frozenset[str], *, group: str = "chunk", title: str = "") -> Iterator[str]:
    """Render the page piece by piece: documents that failed first, then those with a warning, then the others."""
    totals = measure_quality(snapshot, access)
    name = _escape_text(title or "Documents")
    style = (HERE / "quality.css").read_text("utf-8")
    yield (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f"<body><h1>{name}</h1>{_render_numbers(totals)}{_render_lists(totals)}<h2>Documents</h2>"
    )
    left = MOST_CHARACTERS
    pairs = _list_reports(snapshot, {document.id for document in snapshot.documents(access)})
    for row, report in sorted(pairs, key=lambda pair: (pair[0].status != "failed", not pair[1].warnings, pair[0].uri)):
        document = snapshot.document(row.document, access) if row.document else None
        is_shown = document is not None and len(document.text) <= left
        nodes = snapshot.numbered_nodes(row.document, group, 0, _LAST, access) if document and is_shown else []
        left -= len(document.text) if document and is_shown else 0
        yield from _render_document(row, report, document if is_shown else None, nodes)
    yield "</body></html>\n"


def _render_numbers(totals: Quality) -> str:
    numbers = (
        ("files", totals.sources), ("failed", totals.failed),
        ("pages", totals.pages), ("empty pages", totals.empty_pages),
        ("pages by OCR", f"{totals.ocr_share:.0%}"), ("characters", totals.characters), ("chunks", totals.chunks),
        ("tables", totals.tables), ("pictures", totals.images), ("with a warning", totals.warned),
    )  # fmt: skip
    cells = ((name, f"{value:,}".replace(",", " ") if isinstance(value, int) else value) for name, value in numbers)
    return (
        '<div class="numbers">'
        + "".join(f"<div><b>{value}</b><span>{name}</span></div>" for name, value in cells)
        + "</div>"
    )


def _render_lists(totals: Quality) -> str:
    counts = (("Parts that were not read", totals.dropped), ("Encodings that were found out", totals.encodings))
    listed = (
        ("The same bytes under several names", totals.copies),
        ("The same words in other bytes", totals.same_text),
    )
    parts = [_render_table(title, [(name, str(count)) for name, count in rows]) for title, rows in counts]
    return "".join(parts + [_render_table(title, [(", ".join(uris),) for uris in rows]) for title, rows in listed])


def _render_table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{_escape_text(cell)}</td>' for cell in row)}</tr>" for row in rows[:200])
    return f'<h2>{title}</h2><div class="wide"><table>{body}</table></div>' if rows else ""


def _render_document(
    row: SourceRow, report: DocumentReport, document: Document | None, nodes: Sequence[Node]
) -> Iterator[str]:
    kind = "failed" if row.status == "failed" else "warning" if report.warnings else ""
    message = row.error or " ".join(report.warnings)
    yield (
        f"<details><summary><b>{_escape_text(row.uri)}</b>"
        f'<span class="facts">{_escape_text(format_facts(row, report))}</span>'
        f'{f"""<br><span class="{kind}">{_escape_text(message)}</span>""" if message else ""}</summary>'
    )
    if document is None:
        yield "<p>" + (
            "It could not be read.</p>" if not row.document else "Its text is not shown: there is too much.</p>"
        )
    else:
        yield from _render_pages(document, nodes)
    yield "</details>"


def format_facts(row: SourceRow, report: DocumentReport) -> str:
    """Describe a document in words, beside its text."""
    if row.status == "failed":
        return f"{report.reader}, {format_attempts(report)}"
    counts = (
        (report.pages, "page"), (len(report.empty_pages), "page without text"), (len(report.ocr_pages), "page by OCR"),
        (report.characters, "character"), (report.chunks, "chunk"), (report.tables, "table"),
        (report.images, "picture"), (report.parts, "file in it"),
    )  # fmt: skip
    words = [report.reader, *(format_count(count, name) for count, name in counts if count), report.encoding]
    words += [f"{count} {name} not read" for name, count in report.dropped]
    return ", ".join(filter(None, words))


def format_count(count: int, name: str) -> str:
    """Write a number of things, `2 pages by OCR`."""
    noun, blank, rest = name.partition(" ")
    return f"{count} {name}" if count == 1 else f"{count} {noun}s{blank}{rest}"


def format_attempts(report: DocumentReport) -> str:
    """Describe how often a file was tried, and when it is tried again."""
    if not report.attempts:
        return "tried in every run"
    times = "once" if report.attempts == 1 else f"{report.attempts} times"
    if report.attempts >= ATTEMPTS:
        return f"tried {times}; not again until it changes, or with --rebuild"
    next_attempt = datetime.fromtimestamp(retry_time_ns(report) // 1_000_000_000, UTC)
    return f"tried {times}; again " + (
        f"after {next_attempt:%Y-%m-%d %H:%M:%S} UTC" if report.passes else "in the next run"
    )


def _render_pages(document: Document, nodes: Sequence[Node]) -> Iterator[str]:
    """Yield each page's text, with the numbers of the chunks where they begin, and the chunks beside it."""
    placed = sorted(((node.span.start, node) for node in nodes if node.span), key=lambda pair: pair[0])
    starts = [start for start, _ in placed]
    for number, (start, end) in enumerate(pairwise([*_find_breaks(document), len(document.text)]), 1):
        first, last = bisect_left(starts, start), bisect_left(starts, end)
        name = f'<span class="where">page {number}</span>' if document.pages else ""
        chunks = "".join(_render_chunk(node) for _, node in placed[first:last])
        text = _mark_chunks(document.text, start, end, placed[first:last])
        yield f'<div class="page"><div>{name}<div class="text">{text}</div></div><div>{chunks}</div></div>'
    if unplaced := [node for node in nodes if node.span is None]:
        yield f'<div class="page"><div></div><div>{"".join(map(_render_chunk, unplaced))}</div></div>'


def _find_breaks(document: Document) -> list[int]:
    """Return where its pages begin; without pages, a line's end every few thousand characters."""
    if document.pages:
        return [0, *document.pages[1:]]
    breaks = [0]
    while (position := breaks[-1] + _LONGEST_PAGE) < len(document.text):
        line = document.text.find("\n", position, position + _LONGEST_PAGE)
        breaks.append(line + 1 if line >= 0 else position)
    return breaks


def _mark_chunks(text: str, start: int, end: int, placed: Sequence[tuple[int, Node]]) -> str:
    pieces, position = [], start
    for place, node in placed:
        pieces += [_escape_text(text[position:place]), f"<i>{node.number}</i>"]
        position = place
    return "".join((*pieces, _escape_text(text[position:end])))


def _render_chunk(node: Node) -> str:
    context = " · ".join(node.context.split("\n"))
    label = f'<span class="where">{node.number}{f" · {_escape_text(context)}" if context else ""}</span>'
    return f'<div class="chunk">{label}<p>{_escape_text(node.text)}</p></div>'


def _escape_text(text: str) -> str:
    """Escape text for HTML; invisible characters, and those that turn the order of letters, become a sign."""
    return escape(_INVISIBLE.sub("�", text))
