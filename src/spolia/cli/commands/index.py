"""`spolia index`: folders of documents and other sources into a store."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spolia.cli.exit_codes import Exit
from spolia.cli.options import WAIT_S, AsJson, Wait, option
from spolia.cli.screen import Screen
from spolia.cli.store_options import StoreOptions

if TYPE_CHECKING:
    from spolia.stores.backends.rows import Unmade

SYNC = """Keep a store in step with a folder or other sources: with --watch as long as it runs, else once.

    It does what `spolia index` does, and takes the same options.
    """


def index(
    making: StoreOptions,
    rebuild: Annotated[
        bool, option("--rebuild", "Rebuild groups whose definition has changed; retry files that failed.")
    ] = False,
    documents: Annotated[
        bool, option("--report", "List every document: pages, characters, passages, passages without vectors.")
    ] = False,
    watch: Annotated[bool, option("--watch", "Stay, and follow all of it until you press Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", min=0.05, help="With --watch: seconds between checks, without file events.")
    ] = 2.0,
    wait: Wait = WAIT_S,
    json: AsJson = False,
) -> Exit:
    """Update a store from a folder or other sources; Spolia reads only new and changed documents.

    A document that cannot be read does not stop the others; it is listed, and the exit code is 5.
    """
    from spolia.cli import ingest

    screen, places, store = Screen(json=json), making.places(), making.store
    run = partial(ingest.index_folder, screen, making, wait_s=wait)
    report, chosen = run(rebuild=rebuild)
    screen.say(chosen)
    warnings = ingest.warnings_of(report, store)
    listed = {"documents": ingest.document_data(store)} if documents else {}
    name = ", ".join(str(place) if isinstance(place, Path) else place.id for place in places)
    screen.give(folder=name, store=store, chosen=chosen, **ingest.report_data(report, warnings), **listed)
    screen.show(ingest.report_text(report, store, warnings))
    if documents:
        from spolia.cli.documents import reported

        screen.show(reported(ingest.reports_of(store), screen.width))
    if watch:
        from spolia.cli.user_modules import readers_of
        from spolia.cli.watch import Watch

        beside = [path for path in (making.readers, making.groups) if path is not None]
        read = readers_of(making.known, making.redact)
        return Watch(screen, places, run, every, beside, follow_links=making.follow_links, readers=read).go_on(report)
    return Exit.DONE if report.is_in_step else Exit.PARTLY


def unmade_data(unmade: "Iterable[Unmade]") -> list[dict[str, str]]:
    """Which groups could not be made of which documents, as plain data."""
    return [{"uri": lack.uri, "group": lack.group, "reason": lack.reason} for lack in unmade]
