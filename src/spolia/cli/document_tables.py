"""Tables of documents: a line for each, and no column in which nothing stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spolia.cli.plain import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from spolia.cli.held import Held
    from spolia.indexing.report import DocumentReport

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


def listed(found: Sequence[Held], width: int | None) -> Table:
    """What `docs list` shows.

    Args:
        width: columns of the terminal, where what is as usual for all is left out, and in a narrow one the title; None
            for a file, whose lines may be long.
    """
    rows = [_list_row(one) for one in found]
    shown = LIST if width is None else [name for name in _filled(LIST, rows) if name != "title" or width >= WIDE]
    return _table(rows, shown, width)


def reported(found: Sequence[tuple[str, str, DocumentReport | None]], width: int | None) -> Table:
    """What was read of each document, in numbers.

    Args:
        found: of each its uri, its state, and its report.
        width: as for `listed`.
    """
    rows = [_report_row(*one) for one in found]
    return _table(rows, _filled(REPORT, rows), width)


def _list_row(one: Held) -> dict[str, str]:
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
    """The columns that tell something."""
    return [name for name in names if any(row[name] not in _USUAL for row in rows)]


def _table(rows: Sequence[dict[str, str]], shown: Sequence[str], width: int | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    if width is not None:
        others = sum(max(len(name), *(len(row[name]) for row in rows)) + 2 for name in shown if name != "document")
        left = max(LEAST, width - others)
        for row in rows:  # of a path the end tells more than the beginning
            row["document"] = row["document"] if len(row["document"]) <= left else f"…{row['document'][1 - left :]}"
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in shown:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(row[name], _STYLES.get(name, "") or _STYLES.get(row[name], "")) for name in shown))
    return table
