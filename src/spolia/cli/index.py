"""`spolia index`: a folder of documents into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spolia.cli.exits import Exit
from spolia.cli.options import AsJson, StorePath, Weights
from spolia.cli.plain import one_line
from spolia.cli.screen import Screen

if TYPE_CHECKING:
    from rich.text import Text

    from spolia.indexing.report import SyncReport

SHOWN = 10
Vectors = Annotated[
    bool | None,
    typer.Option("--vectors/--no-vectors", help="Embed the passages; by default where that helps.", show_default=False),
]


def index(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with documents.", show_default=False)],
    store: StorePath,
    vectors: Vectors = None,
    weights: Weights = "",
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads for the embedder.")] = 1,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="If the store was built with other parts, index everything again.")
    ] = False,
    follow_links: Annotated[bool, typer.Option("--follow-links", help="Go where links lead out of DIR too.")] = False,
    json: AsJson = False,
) -> Exit:
    """Bring a store in step with a folder: text, Markdown, HTML, PDF, DOCX; only what has changed is read.

    A document that cannot be read does not stop the others; it is listed, and the exit code is 5.
    """
    from spolia.cli.indexing import index_folder

    screen = Screen(json=json)
    report, chosen = index_folder(
        screen,
        folder,
        store,
        vectors=vectors,
        weights=weights,
        threads=threads,
        rebuild=rebuild,
        follow_links=follow_links,
    )
    screen.say(chosen)
    screen.give(folder=str(folder), store=str(store), chosen=chosen, **report_data(report))
    screen.show(report_text(report, store))
    return Exit.PARTLY if report.failed else Exit.DONE


def report_data(report: SyncReport) -> dict[str, Any]:
    """A report as plain data."""
    counts = ("generation", "added", "changed", "moved", "removed", "unchanged", "warned", "chunks", "embedded")
    return {
        **{name: getattr(report, name) for name in counts},
        "seconds": report.seconds,
        "failed": [{"uri": uri, "reason": reason} for uri, reason in report.failed],
        "skipped": [{"uri": item.uri, "reason": item.reason} for item in report.skipped],
        "unread": dict(report.unread),
    }


def report_text(report: SyncReport, store: Path) -> Text:
    """A report for people: what changed, what failed, what was left out."""
    from rich.text import Text

    names = ("added", "changed", "moved", "removed", "unchanged")
    counts = [f"{getattr(report, name)} {name}" for name in names if getattr(report, name)]
    text = Text(f"{store}", "bold")
    text.append(f"  {', '.join(counts) or 'nothing to do'}; {report.chunks} passages made", "not bold")
    text.append(f", {report.embedded} embedded; {report.seconds:.1f} s", "not bold")
    for label, style, rows in _troubles(report):
        text.append(f"\n{len(rows)} {label}", style)
        for uri, reason in rows[:SHOWN]:
            text.append(f"\n  {one_line(uri)}", "bold").append(f"  {one_line(reason, 300)}", "not bold")
        if len(rows) > SHOWN:
            text.append(f"\n  … and {len(rows) - SHOWN} more; --json lists all", "not bold dim")
    if report.unread:
        kinds = ", ".join(f"{count} {one_line(suffix) or 'without suffix'}" for suffix, count in report.unread[:8])
        text.append(f"\nnot documents: {kinds}", "not bold dim")
    return text


def _troubles(report: SyncReport) -> list[tuple[str, str, list[tuple[str, str]]]]:
    found = [
        ("failed:", "bold red", list(report.failed)),
        ("left out:", "yellow", [(item.uri, item.reason) for item in report.skipped]),
    ]
    return [trouble for trouble in found if trouble[2]]
