"""What a store holds, as its operator sees it: access lists do not bind anyone who can read the store's files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from rich.table import Table

from spolia.cli.screen import Renderable, indented, one_line, table, text
from spolia.core.codec import encode
from spolia.errors import QueryError, without_name
from spolia.evaluation.data.json_lines import whole_files
from spolia.indexing.quality import Quality, attempts_told, facts, page
from spolia.indexing.sync.files import TEXT, is_elsewhere
from spolia.indexing.sync.report import DocumentReport
from spolia.stores.backends.rows import EARLIEST_NS, SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.records import file_meta, with_file_fields
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Document, Node

MissingGroups = Mapping[str, Mapping[str, str]]
"""Why groups could not be made, by document and group."""
LAST = 2**62
"""No node has a higher number."""


@dataclass(frozen=True)
class StoredSource:
    """A source of a store, its document (without text; None if it cannot be read), its report, and missing groups."""

    source: SourceRow
    document: Document | None
    characters: int
    report: DocumentReport | None
    unmade: Mapping[str, str]

    @property
    def changed(self) -> str:
        """When the file was last changed, in UTC; empty where that is not known."""
        if not self.source.mtime_ns or self.source.mtime_ns < EARLIEST_NS:
            return ""
        return datetime.fromtimestamp(self.source.mtime_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")

    @property
    def noticed(self) -> tuple[str, ...]:
        """Why it could not be read, or what it was read with, and which groups it is not in."""
        said = (self.source.error,) if self.source.error else ()
        lacks = tuple(f"It is not in group {group}: {reason}" for group, reason in self.unmade.items())
        return said + lacks + (self.report.warnings if self.report else ())

    @property
    def is_lacking(self) -> bool:
        """Whether something of it cannot be found."""
        return self.source.status == "failed" or bool(self.unmade)


def latest(store: str) -> Snapshot:
    return Corpus(str(store)).latest()


def seen_by(snapshot: Snapshot, access: Sequence[str] | None) -> frozenset[str]:
    """These principals; None for the operator of the store."""
    return keeper(snapshot) if access is None else frozenset(access)


def keeper(snapshot: Snapshot) -> frozenset[str]:
    """All principals that a store knows."""
    return frozenset(chain.from_iterable(snapshot.readers.lists.values()))


def held(snapshot: Snapshot, access: Sequence[str] | None = None) -> Iterator[StoredSource]:
    """All sources by uri, or those whose document one of these principals may read."""
    who = seen_by(snapshot, access)
    documents = {one.id: (one.but(text=""), len(one.text)) for one in snapshot.documents(who)}
    unmade = _unmade(snapshot)
    for source in snapshot.sources(noted=True).values():
        if access is None or source.document in documents:
            document, characters = documents.get(source.document, (None, 0))
            yield _held(source, document, characters, unmade)


def one_held(snapshot: Snapshot, name: str, access: Sequence[str] | None = None) -> StoredSource:
    """The source of this uri or document id; `QueryError` names similar ones."""
    sources = (
        {one.source.uri: one.source for one in held(snapshot, access)} if access is not None else snapshot.sources()
    )
    source = sources.get(name) or next((row for row in sources.values() if row.document == name), None)
    if source is None:
        raise QueryError(f"There is no document {name!r} in {snapshot.opened.store}. {_near(name, list(sources))}")
    document = snapshot.document(source.document, keeper(snapshot)) if source.document else None
    return _held(source, document, len(document.text) if document else 0, _unmade(snapshot))


def _held(source: SourceRow, document: Document | None, characters: int, unmade: MissingGroups) -> StoredSource:
    report = DocumentReport.of(source.report) if source.report else None
    return StoredSource(source, document, characters, report, unmade.get(source.document, {}))


def _unmade(snapshot: Snapshot) -> MissingGroups:
    found: dict[str, dict[str, str]] = {}
    for lack in snapshot.unmade():
        found.setdefault(lack.document, {})[lack.group] = lack.reason
    return found


def _near(name: str, there: Sequence[str]) -> str:
    near = get_close_matches(name, there, 3) or [uri for uri in there if name in uri][:3]
    return f"Write one of: {', '.join(near)}." if near else "`spolia docs list` has all."


def parts_of(uri: str, sources: Mapping[str, SourceRow]) -> list[str]:
    """What was read out of a container, by uri, and out of what was; nothing of what is no container."""
    within: dict[str, list[str]] = {}
    for row in sources.values():
        if row.report and (container := DocumentReport.of(row.report).within):
            within.setdefault(container, []).append(row.uri)
    found = list(within.get(uri, ()))
    for part in found:  # it grows
        found += within.get(part, ())
    return sorted(found)


SHOWN = ("uri", "id", "title", "media_type", "characters", "bytes", "changed", "status")
TEXT_SHOWN, SAME_SHOWN = 300, 5
LIST = ("document", "title", "characters", "passages", "state", "readers", "changed (UTC)")
REPORT = (
    "document", "state", "format", "pages", "empty", "by OCR", "characters", "passages", "beyond window", "tables",
    "pictures", "files in it", "encoding", "not read",
)  # fmt: skip
_NUMBERS = frozenset((*REPORT[3:12],))
_USUAL = ("indexed", "everybody", "")
_STYLES = {"document": "bold", "failed": "red"}
WIDE, LEAST = 110, 20
READERS_SHOWN = 3


def listed(found: Sequence[StoredSource], width: int | None) -> Renderable:
    """What `docs list` shows; a terminal of some width omits columns that say nothing, a file (None) has all."""
    rows = [_list_row(one) for one in found]
    shown = LIST if width is None else [name for name in _filled(LIST, rows) if name != "title" or width >= WIDE]
    return _table(rows, shown, width)


def reported(found: Sequence[tuple[str, str, DocumentReport | None]], width: int | None) -> Renderable:
    """What was read of each document, in numbers."""
    rows = [_report_row(*one) for one in found]
    return _table(rows, _filled(REPORT, rows), width)


def _list_row(one: StoredSource) -> dict[str, str]:
    document, is_cut = one.document, one.report is not None and one.source.status == "indexed"
    return {
        "document": one_line(one.source.uri, 80),
        "title": one_line(document.title if document else "", 40),
        "characters": str(one.characters),
        "passages": str(one.report.chunks) if one.report is not None and is_cut else "",
        "state": one.source.status,
        "readers": readers_told(document.readers if document else ()),
        "changed (UTC)": one.changed.rpartition(":")[0],
    }


def readers_told(readers: Sequence[str]) -> str:
    """Who may read a document, the first of them by their names."""
    if not readers:
        return "everybody"
    more = f" and {len(readers) - READERS_SHOWN} more" if len(readers) > READERS_SHOWN else ""
    return ", ".join(one_line(name, 30) for name in readers[:READERS_SHOWN]) + more


def _report_row(uri: str, state: str, report: DocumentReport | None) -> dict[str, str]:
    row = dict.fromkeys(REPORT, "") | {"document": one_line(uri, 80), "state": state}
    if report is None:
        return row
    counts = {
        "pages": report.pages, "empty": len(report.empty_pages), "by OCR": len(report.ocr_pages),
        "beyond window": report.beyond_window, "tables": report.tables, "pictures": report.images,
        "files in it": report.parts,
    }  # fmt: skip
    is_read = state == "indexed"
    return (
        row
        | {name: str(count) if count else "" for name, count in counts.items()}
        | {
            "format": report.reader,
            "characters": str(report.characters) if is_read else "",
            "passages": str(report.chunks) if is_read else "",
            "encoding": report.encoding if report.encoding != "utf-8" else "",
            "not read": one_line(", ".join(f"{count} {name}" for name, count in report.dropped), 60),
        }
    )


def _filled(names: Sequence[str], rows: Sequence[dict[str, str]]) -> list[str]:
    return [name for name in names if any(row[name] not in _USUAL for row in rows)]


def _table(rows: Sequence[dict[str, str]], shown: Sequence[str], width: int | None) -> Renderable:
    if width is not None:
        others = sum(max(len(name), *(len(row[name]) for row in rows)) + 2 for name in shown if name != "document")
        left = max(LEAST, width - others)
        for row in rows:  # of a path the end tells more than the beginning
            row["document"] = row["document"] if len(row["document"]) <= left else f"…{row['document'][1 - left :]}"
    found = Table(box=None, pad_edge=False, header_style="dim")
    for name in shown:
        found.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        found.add_row(*(text(row[name], _STYLES.get(name, "") or _STYLES.get(row[name], "")) for name in shown))
    return found


def write_page(path: Path, snapshot: Snapshot, store: str) -> None:
    with whole_files(path) as (part,), part.open("w", encoding="utf-8") as file:
        file.writelines(page(snapshot, keeper(snapshot), title=str(store)))


def comes_back(removed: StoredSource) -> str:
    if removed.source.uri.startswith(TEXT):
        return "It was added as a text, so that nothing brings it back."
    if removed.report and removed.report.within:
        return f"It was read out of {one_line(removed.report.within)}: it comes back when that is read again."
    if is_elsewhere(removed.source.uri):
        return "Its source brings it back once it has changed there, or with --rebuild."
    return "If the file is still in the folder, the next `spolia index` adds it again: move the file away too."


def document_data(one: StoredSource) -> dict[str, Any]:
    source, document = one.source, one.document
    of_text = {name: getattr(document, name, "") for name in ("title", "media_type")}
    return {
        "uri": source.uri,
        "id": source.document,
        **of_text,
        "characters": one.characters,
        "chunks": one.report.chunks if one.report and source.status == "indexed" else None,
        "status": source.status,
        "error": source.error,
        "bytes": source.size,
        "changed": one.changed,
        "readers": list(document.readers) if document else [],
        "meta": [list(pair) for pair in document.meta] if document else [],
        "report": asdict(one.report) if one.report else None,
    }


def node_data(node: Node) -> dict[str, Any]:
    return {"number": node.number, "id": node.id, "text": node.text, "context": node.context, "span": encode(node.span)}


def metadata_of(one: StoredSource) -> tuple[tuple[str, Any], ...]:
    row = one.source
    files = file_meta(row.uri, row.size, row.created_ns, row.mtime_ns, row.accessed_ns)
    return with_file_fields(one.document.meta if one.document else (), files)


def nodes_of(snapshot: Snapshot, one: StoredSource, group: str, access: Sequence[str] | None) -> list[Node]:
    return snapshot.numbered(one.source.document, group, 0, LAST, seen_by(snapshot, access)) if one.document else []


def description(one: StoredSource, counts: dict[str, int]) -> Renderable:
    data = document_data(one)
    rows = [(name, data[name]) for name in SHOWN]
    rows += [("read", facts(one.source, one.report))] if one.report else []
    rows += [("readers", readers_told(data["readers"]))] + [(f"meta {name}", value) for name, value in data["meta"]]
    rows += [(f"nodes of {group}", count) for group, count in counts.items()]
    rows += [("noticed", said) for said in one.noticed]
    return table((text(one_line(name), "bold"), one_line(str(value), 1_000)) for name, value in rows)


def node_lines(node: Node) -> list[Renderable]:
    place = node.span.place if node.span else ""
    head: list[Renderable] = [text().append(f"{node.number:>3}  ", "bold cyan").append(place, "bold")]
    if node.context:
        head.append(indented(one_line(node.context, 150), 5, "dim"))
    return [*head, indented(one_line(node.text, TEXT_SHOWN), 5)]


def quality_table(found: "Quality") -> Renderable:
    given_up = f", {found.given_up} of them not tried again until they change" if found.given_up else ""
    rows = {
        "pages": f"{found.pages}, {found.empty_pages} of them empty, {found.ocr_share:.0%} by OCR"
        if found.pages
        else "",
        "text": f"{found.characters} characters, {found.chunks} passages",
        "beside it": f"{found.tables} tables, {found.images} pictures",
        "failed": f"{found.failed}{given_up}" if found.failed else "",
        "not read": ", ".join(f"{count} {name}" for name, count in found.dropped),
        "encodings found out": ", ".join(f"{name} {count}" for name, count in found.encodings),
        "same bytes": "; ".join(", ".join(uris) for uris in found.copies[:SAME_SHOWN]),
        "same words": "; ".join(", ".join(uris) for uris in found.same_text[:SAME_SHOWN]),
    }
    return table((text(name, "dim"), one_line(said, 300)) for name, said in rows.items() if said)


def noticed_line(one: StoredSource) -> Renderable:
    style = "bold red" if one.source.status == "failed" else "yellow"
    tried = (f"({attempts_told(one.report)})",) if one.source.status == "failed" and one.report else ()
    said = [without_name(one.source.uri, said) for said in one.noticed]
    return text().append(f"{one_line(one.source.uri)}  ", style).append(one_line(" ".join((*said, *tried)), 400))
