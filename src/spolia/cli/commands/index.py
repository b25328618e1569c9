"""`spolia index`: folders of documents and other sources into a store."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spolia.cli.exit_codes import Exit
from spolia.cli.options import WAIT_S, AsJson, Wait, option
from spolia.cli.screen import Screen, one_line, text
from spolia.cli.store_options import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

    from spolia.indexing.sync.report import DocumentReport, SyncReport
    from spolia.stores.backends.rows import Unmade

SHOWN, KINDS = 10, 8
SYNC = """Keep a store in step with a folder or other sources: with --watch as long as it runs, else once.

    It does what `spolia index` does, and takes the same options.
    """


def index(
    making: StoreOptions,
    rebuild: Annotated[
        bool, option("--rebuild", "Build again what has other parts; retry files that were given up.")
    ] = False,
    documents: Annotated[
        bool, option("--report", "List every document: pages, characters, passages, what is not embedded.")
    ] = False,
    watch: Annotated[bool, option("--watch", "Stay, and follow all of it until you press Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.05, help="With --watch: seconds between two looks.")] = 2.0,
    wait: Wait = WAIT_S,
    json: AsJson = False,
) -> Exit:
    """Bring a store in step with a folder or other sources; only what has changed is read.

    A document that cannot be read does not stop the others; it is listed, and the exit code is 5.
    """
    from spolia.cli.ingest import index_folder

    screen, places, store = Screen(json=json), making.places(), making.store
    run = partial(index_folder, screen, making, wait_s=wait)
    report, chosen = run(rebuild=rebuild)
    screen.say(chosen)
    warnings = warnings_of(report, store)
    listed = {"documents": document_data(store)} if documents else {}
    name = ", ".join(str(place) if isinstance(place, Path) else place.id for place in places)
    screen.give(folder=name, store=store, chosen=chosen, **report_data(report, warnings), **listed)
    screen.show(report_text(report, store, warnings))
    if documents:
        from spolia.cli.documents import reported

        screen.show(reported(_read(store), screen.width))
    if watch:
        from spolia.cli.user_modules import own
        from spolia.cli.watch import Watch
        from spolia.indexing.readers.registry import READERS

        beside = [path for path in (making.readers, making.groups) if path is not None]
        read = own(making.known).readers or READERS
        return Watch(screen, places, run, every, beside, follow_links=making.follow_links, readers=read).go_on(report)
    return Exit.DONE if report.is_in_step else Exit.PARTLY


def report_data(report: SyncReport, warnings: list[tuple[str, str]]) -> dict[str, Any]:
    counts = ("generation", "added", "changed", "moved", "removed", "unchanged", "warned", "chunks", "embedded")
    return {
        **{name: getattr(report, name) for name in counts},
        "seconds": report.seconds,
        "failed": [{"uri": uri, "reason": reason} for uri, reason in report.failed],
        "unmade": unmade_data(report.unmade),
        "behind": [{"group": group, "reason": reason} for group, reason in report.behind],
        "fields": list(report.fields),
        "damaged": list(report.damaged),
        "warnings": [{"uri": uri, "warning": said} for uri, said in warnings],
        "skipped": [{"uri": item.uri, "reason": item.reason} for item in report.skipped],
        "unread": dict(report.unread),
    }


def unmade_data(unmade: Iterable[Unmade]) -> list[dict[str, str]]:
    """Which groups could not be made of which documents, as plain data."""
    return [{"uri": lack.uri, "group": lack.group, "reason": lack.reason} for lack in unmade]


def document_data(store: str) -> dict[str, dict[str, Any]]:
    """The report of every document as plain data, by file."""
    return {uri: asdict(one) for uri, _, one in _read(store)}


def _read(store: str) -> list[tuple[str, str, DocumentReport]]:
    from spolia.indexing.sync.report import reports
    from spolia.stores.corpus import Corpus

    return [(uri, "indexed", one) for uri, one in sorted(reports(Corpus(str(store))).items())]


def report_text(report: SyncReport, store: str, warnings: list[tuple[str, str]]) -> Text:
    """A report for people: what changed, what failed, what was read with a warning, what was left out."""
    names = ("added", "changed", "moved", "removed", "unchanged")
    counts = [f"{getattr(report, name)} {name}" for name in names if getattr(report, name)]
    if report.chunks and counts == [f"{report.unchanged} unchanged"]:
        counts.append("cut again")
    told = text(store, "bold")
    told.append(f"  {', '.join(counts) or 'nothing to do'}; {report.chunks} passages made", "not bold")
    told.append(f", {report.embedded} embedded; {report.seconds:.1f} s", "not bold")
    for label, style, rows in _troubles(report, warnings, store):
        told.append(f"\n{len(rows)} {label}", style)
        for uri, reason in rows[:SHOWN]:
            said = one_line(without_name(uri, reason), 300)
            told.append(f"\n  {one_line(uri)}", "bold").append(f"  {said}", "not bold")
        if len(rows) > SHOWN:
            told.append(f"\n  … and {len(rows) - SHOWN} more; --json lists all", "not bold dim")
    for said in report.fields:
        told.append(f"\n{one_line(said, 400)}", "yellow")
    if report.unread:
        kinds = ", ".join(f"{count} {one_line(suffix) or 'without suffix'}" for suffix, count in report.unread[:KINDS])
        rest = sum(count for _, count in report.unread[KINDS:])
        told.append(f"\nnot read: {kinds}{f', {rest} others' if rest else ''}", "not bold dim")
    return told


def without_name(uri: str, reason: str) -> str:
    """Why a file failed, without its name, which stands before it.

    >>> without_name("a.pdf", "a.pdf is locked."), without_name("a.pdf", "It is empty.")
    ('is locked.', 'It is empty.')
    >>> without_name("http://[::1]/", "http://[::1]/: ::1 is at ::1 (loopback).")
    '::1 is at ::1 (loopback).'
    """
    for mark in (": ", " "):
        if reason.startswith(uri + mark):
            return reason.removeprefix(uri + mark)
    return reason


def warnings_of(report: SyncReport, store: str) -> list[tuple[str, str]]:
    """What the store's documents were read with, by file: those without any text first."""
    if not report.warned:
        return []
    from spolia.indexing.sync.report import reports
    from spolia.stores.corpus import Corpus

    found = [(uri, " ".join(one.warnings), one.chunks) for uri, one in reports(Corpus(str(store))).items()]
    return [(uri, said) for uri, said, _ in sorted(found, key=lambda row: (row[2] > 0, row[0])) if said]


def _troubles(
    report: SyncReport, warnings: list[tuple[str, str]], store: str
) -> list[tuple[str, str, list[tuple[str, str]]]]:
    found = [
        ("damaged; write: spolia repair --store " + store, "bold red", [(said, "") for said in report.damaged]),
        ("failed:", "bold red", list(report.failed)),
        ("not in a group:", "bold red", [(lack.uri, f"{lack.group}: {lack.reason}") for lack in report.unmade]),
        ("not kept in step:", "bold red", [(f"group {group}", reason) for group, reason in report.behind]),
        ("read with a warning:", "yellow", warnings),
        ("left out:", "yellow", [(item.uri, item.reason) for item in report.skipped]),
    ]
    return [trouble for trouble in found if trouble[2]]
