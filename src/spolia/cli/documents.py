"""Documents of a store as its operator sees them: access lists do not bind anyone who can read the store's files."""

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
from spolia.errors import QueryError, strip_name
from spolia.evaluation.data.json_lines import replace_files
from spolia.indexing.quality import Quality, format_attempts, format_facts, render_page
from spolia.indexing.sync.files import TEXT, is_elsewhere
from spolia.indexing.sync.report import DocumentReport
from spolia.stores.backends.rows import EARLIEST_NS, SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.records import file_meta, with_file_fields
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Document, Node

MissingGroups = Mapping[str, Mapping[str, str]]
"""Why groups could not be made, by document and group."""
LAST_NODE = 2**62
"""No node has a higher number."""


@dataclass(frozen=True)
class StoredSource:
    """A source of a store, its document (without text; None if it cannot be read), its report, and missing groups."""

    source: SourceRow
    document: Document | None
    characters: int
    report: DocumentReport | None
    missing_groups: Mapping[str, str]

    @property
    def changed(self) -> str:
        """Return the time of the file's last change, in UTC; empty if it is not known."""
        if not self.source.mtime_ns or self.source.mtime_ns < EARLIEST_NS:
            return ""
        return datetime.fromtimestamp(self.source.mtime_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return why it could not be read, its warnings, and the groups that lack it."""
        errors = (self.source.error,) if self.source.error else ()
        missing = tuple(f"It is not in group {group}: {reason}" for group, reason in self.missing_groups.items())
        return errors + missing + (self.report.warnings if self.report else ())

    @property
    def is_incomplete(self) -> bool:
        """Return whether it could not be read, or some group lacks it."""
        return self.source.status == "failed" or bool(self.missing_groups)


def open_latest(store: str) -> Snapshot:
    return Corpus(str(store)).latest()


def resolve_principals(snapshot: Snapshot, access: Sequence[str] | None) -> frozenset[str]:
    """Return these principals, or all of the store for its operator (None)."""
    return list_principals(snapshot) if access is None else frozenset(access)


def list_principals(snapshot: Snapshot) -> frozenset[str]:
    """Return all principals that a store knows."""
    return frozenset(chain.from_iterable(snapshot.readers.lists.values()))


def list_sources(snapshot: Snapshot, access: Sequence[str] | None = None) -> Iterator[StoredSource]:
    """Yield all sources by uri, or those whose document one of these principals may read."""
    principals = resolve_principals(snapshot, access)
    documents = {
        document.id: (document.but(text=""), len(document.text)) for document in snapshot.documents(principals)
    }
    missing = _read_missing_groups(snapshot)
    for source in snapshot.sources(noted=True).values():
        if access is None or source.document in documents:
            document, characters = documents.get(source.document, (None, 0))
            yield _build_source(source, document, characters, missing)


def find_source(snapshot: Snapshot, name: str, access: Sequence[str] | None = None) -> StoredSource:
    """Return the source of this uri or document id; raise QueryError with similar names for an unknown one."""
    sources = (
        {stored_source.source.uri: stored_source.source for stored_source in list_sources(snapshot, access)}
        if access is not None
        else snapshot.sources()
    )
    source = sources.get(name) or next((row for row in sources.values() if row.document == name), None)
    if source is None:
        raise QueryError(
            f"There is no document {name!r} in {snapshot.open_store.store}. {_suggest(name, list(sources))}"
        )
    document = snapshot.document(source.document, list_principals(snapshot)) if source.document else None
    return _build_source(source, document, len(document.text) if document else 0, _read_missing_groups(snapshot))


def _build_source(
    source: SourceRow, document: Document | None, characters: int, missing: MissingGroups
) -> StoredSource:
    report = DocumentReport.from_json(source.report) if source.report else None
    return StoredSource(source, document, characters, report, missing.get(source.document, {}))


def _read_missing_groups(snapshot: Snapshot) -> MissingGroups:
    reasons_by_document: dict[str, dict[str, str]] = {}
    for lack in snapshot.unmade():
        reasons_by_document.setdefault(lack.document, {})[lack.group] = lack.reason
    return reasons_by_document


def _suggest(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, 3) or [uri for uri in names if name in uri][:3]
    return f"Write one of: {', '.join(near)}." if near else "`spolia docs list` has all."


def list_parts(uri: str, sources: Mapping[str, SourceRow]) -> list[str]:
    """List by uri what was read out of a container and out of its parts; empty for other documents."""
    parts_by_container: dict[str, list[str]] = {}
    for row in sources.values():
        if row.report and (container := DocumentReport.from_json(row.report).within):
            parts_by_container.setdefault(container, []).append(row.uri)
    parts = list(parts_by_container.get(uri, ()))
    for part in parts:  # it grows
        parts += parts_by_container.get(part, ())
    return sorted(parts)


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
TITLE_WIDTH, MIN_NAME_WIDTH = 110, 20
READERS_SHOWN = 3


def list_table(stored_sources: Sequence[StoredSource], width: int | None) -> Renderable:
    """Build the table of `docs list`; a terminal of some width hides empty columns, a file (None) gets all."""
    rows = [_list_row(stored_source) for stored_source in stored_sources]
    columns = (
        LIST if width is None else [name for name in _filled(LIST, rows) if name != "title" or width >= TITLE_WIDTH]
    )
    return _build_table(rows, columns, width)


def report_table(reports: Sequence[tuple[str, str, DocumentReport | None]], width: int | None) -> Renderable:
    """Build a table of what was read of each document, in numbers."""
    rows = [_report_row(*row) for row in reports]
    return _build_table(rows, _filled(REPORT, rows), width)


def _list_row(stored_source: StoredSource) -> dict[str, str]:
    document, is_cut = (
        stored_source.document,
        stored_source.report is not None and stored_source.source.status == "indexed",
    )
    return {
        "document": one_line(stored_source.source.uri, 80),
        "title": one_line(document.title if document else "", 40),
        "characters": str(stored_source.characters),
        "passages": str(stored_source.report.chunks) if stored_source.report is not None and is_cut else "",
        "state": stored_source.source.status,
        "readers": format_readers(document.readers if document else ()),
        "changed (UTC)": stored_source.changed.rpartition(":")[0],
    }


def format_readers(readers: Sequence[str]) -> str:
    """Return who may read a document; only the first few are named."""
    if not readers:
        return "everybody"
    rest = f" and {len(readers) - READERS_SHOWN} more" if len(readers) > READERS_SHOWN else ""
    return ", ".join(one_line(name, 30) for name in readers[:READERS_SHOWN]) + rest


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


def _build_table(rows: Sequence[dict[str, str]], columns: Sequence[str], width: int | None) -> Renderable:
    if width is not None:
        other_width = sum(
            max(len(name), *(len(row[name]) for row in rows)) + 2 for name in columns if name != "document"
        )
        name_width = max(MIN_NAME_WIDTH, width - other_width)
        for row in rows:  # of a path the end tells more than the beginning
            row["document"] = (
                row["document"] if len(row["document"]) <= name_width else f"…{row['document'][1 - name_width :]}"
            )
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        grid.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*(text(row[name], _STYLES.get(name, "") or _STYLES.get(row[name], "")) for name in columns))
    return grid


def write_page(path: Path, snapshot: Snapshot, store: str) -> None:
    with replace_files(path) as (part,), part.open("w", encoding="utf-8") as file:
        file.writelines(render_page(snapshot, list_principals(snapshot), title=str(store)))


def explain_return(removed: StoredSource) -> str:
    if removed.source.uri.startswith(TEXT):
        return "It was added as a text, so that nothing brings it back."
    if removed.report and removed.report.within:
        return f"It was read out of {one_line(removed.report.within)}: it comes back when that is read again."
    if is_elsewhere(removed.source.uri):
        return "Its source brings it back once it has changed there, or with --rebuild."
    return "If the file is still in the folder, the next `spolia index` adds it again: move the file away too."


def document_data(stored_source: StoredSource) -> dict[str, Any]:
    source, document = stored_source.source, stored_source.document
    of_text = {name: getattr(document, name, "") for name in ("title", "media_type")}
    return {
        "uri": source.uri,
        "id": source.document,
        **of_text,
        "characters": stored_source.characters,
        "chunks": stored_source.report.chunks if stored_source.report and source.status == "indexed" else None,
        "status": source.status,
        "error": source.error,
        "bytes": source.size,
        "changed": stored_source.changed,
        "readers": list(document.readers) if document else [],
        "meta": [list(pair) for pair in document.meta] if document else [],
        "report": asdict(stored_source.report) if stored_source.report else None,
    }


def node_data(node: Node) -> dict[str, Any]:
    return {"number": node.number, "id": node.id, "text": node.text, "context": node.context, "span": encode(node.span)}


def metadata_of(stored_source: StoredSource) -> tuple[tuple[str, Any], ...]:
    row = stored_source.source
    files = file_meta(row.uri, row.size, row.created_ns, row.mtime_ns, row.accessed_ns)
    return with_file_fields(stored_source.document.meta if stored_source.document else (), files)


def nodes_of(snapshot: Snapshot, stored_source: StoredSource, group: str, access: Sequence[str] | None) -> list[Node]:
    return (
        snapshot.numbered_nodes(
            stored_source.source.document, group, 0, LAST_NODE, resolve_principals(snapshot, access)
        )
        if stored_source.document
        else []
    )


def describe_source(stored_source: StoredSource, counts: dict[str, int]) -> Renderable:
    data = document_data(stored_source)
    rows = [(name, data[name]) for name in SHOWN]
    rows += [("read", format_facts(stored_source.source, stored_source.report))] if stored_source.report else []
    rows += [("readers", format_readers(data["readers"]))] + [(f"meta {name}", value) for name, value in data["meta"]]
    rows += [(f"nodes of {group}", count) for group, count in counts.items()]
    rows += [("noticed", remark) for remark in stored_source.remarks]
    return table((text(one_line(name), "bold"), one_line(str(value), 1_000)) for name, value in rows)


def node_lines(node: Node) -> list[Renderable]:
    place = node.span.place if node.span else ""
    head: list[Renderable] = [text().append(f"{node.number:>3}  ", "bold cyan").append(place, "bold")]
    if node.context:
        head.append(indented(one_line(node.context, 150), 5, "dim"))
    return [*head, indented(one_line(node.text, TEXT_SHOWN), 5)]


def quality_table(quality: "Quality") -> Renderable:
    given_up = f", {quality.given_up} of them not tried again until they change" if quality.given_up else ""
    rows = {
        "pages": f"{quality.pages}, {quality.empty_pages} of them empty, {quality.ocr_share:.0%} by OCR"
        if quality.pages
        else "",
        "text": f"{quality.characters} characters, {quality.chunks} passages",
        "beside it": f"{quality.tables} tables, {quality.images} pictures",
        "failed": f"{quality.failed}{given_up}" if quality.failed else "",
        "not read": ", ".join(f"{count} {name}" for name, count in quality.dropped),
        "encodings found out": ", ".join(f"{name} {count}" for name, count in quality.encodings),
        "same bytes": "; ".join(", ".join(uris) for uris in quality.copies[:SAME_SHOWN]),
        "same words": "; ".join(", ".join(uris) for uris in quality.same_text[:SAME_SHOWN]),
    }
    return table((text(name, "dim"), one_line(value, 300)) for name, value in rows.items() if value)


def format_remarks(stored_source: StoredSource) -> Renderable:
    style = "bold red" if stored_source.source.status == "failed" else "yellow"
    tried = (
        (f"({format_attempts(stored_source.report)})",)
        if stored_source.source.status == "failed" and stored_source.report
        else ()
    )
    messages = [strip_name(stored_source.source.uri, message) for message in stored_source.remarks]
    return (
        text()
        .append(f"{one_line(stored_source.source.uri)}  ", style)
        .append(one_line(" ".join((*messages, *tried)), 400))
    )
