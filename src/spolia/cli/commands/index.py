"""`spolia index`: folders of documents and other sources into a store. `spolia plan` says what that would do."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from spolia.cli import ingest
from spolia.cli.documents import reported
from spolia.cli.exit_codes import Exit
from spolia.cli.ingest import command, parts
from spolia.cli.options import WAIT_S, AsJson, Wait
from spolia.cli.parameters import described, option
from spolia.cli.readers import readers_of
from spolia.cli.screen import Renderable, Screen, one_line, text
from spolia.cli.store_options import StoreOptions
from spolia.cli.watch import Watch
from spolia.errors import without_name
from spolia.indexing.sync.dry_run import GroupPlan, SyncPlan, planned
from spolia.stores.corpus import Corpus

if TYPE_CHECKING:
    from spolia.indexing.sync.report import Progress

SHOWN = 10


def index(
    making: StoreOptions,
    rebuild: Annotated[
        bool, option("--rebuild", "Rebuild groups whose definition has changed; retry files that failed.")
    ] = False,
    documents: Annotated[
        bool, option("--report", "List every document: pages, characters, passages, passages without vectors.")
    ] = False,
    watch: Annotated[bool, option("--watch", "Keep running and index each change, until you press Ctrl-C.")] = False,
    every: Annotated[
        float, option("--every", "With --watch: seconds between checks, without file events.", min=0.05)
    ] = 2.0,
    wait: Wait = WAIT_S,
    json: AsJson = False,
) -> Exit:
    """Update a store from a folder or other sources; Spolia reads only new and changed documents.

    A document that cannot be read does not stop the others; it is listed, and the exit code is 5.
    """
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
        screen.show(reported(ingest.reports_of(store), screen.width))
    if watch:
        beside = [path for path in (making.readers, making.groups) if path is not None]
        read = readers_of(making.known, making.redact)
        return Watch(screen, places, run, every, beside, follow_links=making.follow_links, readers=read).go_on(report)
    return Exit.DONE if report.is_in_step else Exit.PARTLY


sync = described(
    index,
    """Keep a store in step with a folder or other sources: with --watch as long as it runs, else once.

    It does what `spolia index` does, and takes the same options.
    """,
)


def plan(
    making: StoreOptions,
    rebuild: Annotated[bool, option("--rebuild", "Plan a full rebuild.")] = False,
    fast: Annotated[bool, option("--fast", "Read no file, ask no source: compare sizes and times only.")] = False,
    json: AsJson = False,
) -> Exit:
    """Show what `spolia sync` with the same options would do: files, groups, passages, texts to embed, model calls.

    Writes nothing and asks no language model. New and changed documents are read and cut in memory, so the
    numbers are exact.
    """
    screen, corpus = Screen(json=json), Corpus(making.store)
    given, chosen = parts(screen, making, corpus, rebuild=rebuild)
    with screen.progress("reading") as told:

        def progress(now: Progress) -> None:
            told(now.done, now.total)

        found = planned(**given, corpus=corpus, progress=progress, rebuild=rebuild, fast=fast, timed=True)
    screen.say(chosen)
    advice = command("sync", making) + (" --rebuild" if rebuild or _needs_rebuild(found) else "")
    failed = [{"uri": uri, "reason": reason} for uri, reason in found.failed]
    screen.give(
        folder=", ".join(making.sources or ()), store=making.store, command=advice, **asdict(found) | {"failed": failed}
    )
    screen.show(*_report(found, making.store))
    files = (found.new, found.changed, found.moved, found.gone, found.again)
    if any(files) or any(one.change != "kept" or one.nodes or one.texts or one.pictures for one in found.groups):
        screen.say(f"To do it: {advice}" + ("; until then, the present index serves." if _needs_rebuild(found) else ""))
    return Exit.DONE


def _needs_rebuild(found: SyncPlan) -> bool:
    return found.rebuild or any(one.change == "rebuilt" for one in found.groups)


def _report(found: SyncPlan, store: str) -> list[Renderable]:
    named = [(name, getattr(found, name)) for name in ("new", "changed", "moved", "gone")]
    named.append(("failed", [f"{uri}: {one_line(without_name(uri, reason), 300)}" for uri, reason in found.failed]))
    counts = [f"{len(uris)} {name}" for name, uris in named if uris]
    also = (("made again", found.again), ("unchanged", found.unchanged))
    counts += [f"{count} {name}" for name, count in also if count]
    told = text(store, "bold").append(f"  {', '.join(counts) or 'nothing to do'}", "not bold")
    if found.seconds is not None:
        told.append(f"; about {found.seconds:.1f} s", "not bold")
    for name, uris in named:
        for uri in uris[:SHOWN]:
            told.append(f"\n  {name:8}", "not bold dim").append(f" {one_line(uri)}", "not bold")
        if len(uris) > SHOWN:
            told.append(f"\n  … and {len(uris) - SHOWN} more {name}; --json lists all", "not bold dim")
    if found.unasked:
        told.append(f"\n  not asked without reading: {', '.join(map(one_line, found.unasked))}", "not bold dim")
    for said in found.fields:
        told.append(f"\n  {one_line(said, 300)}", "not bold yellow")
    return [told, *map(_group, found.groups)]


def _asked(one: GroupPlan) -> str:
    if one.prompts == 0 and one.calls == 0:
        return ""
    calls = "calls without a known bound" if one.calls is None else f"{one.calls:,} calls at most"
    if one.prompts is None:
        return f", model {calls}"
    tokens = f"about {one.input_tokens:,} tokens, replies of at most {one.output_tokens:,}"
    cost = "no price stated" if one.cost_usd is None else f"at most ${one.cost_usd:,.2f}"
    return f", {one.prompts:,} prompts to models: {tokens}, {cost} ({calls}, with retries)"


def _group(one: GroupPlan) -> Renderable:
    style = {"kept": "", "new": "green", "rebuilt": "bold yellow", "embedded": "yellow"}[one.change]
    told = text("group ").append(one.group, "bold").append(f"  {one.change}", style)
    nodes = "passages not counted" if one.nodes is None else f"{one.nodes} passages to cut"
    texts = "texts to embed not counted" if one.texts is None else f"{one.texts} texts to embed"
    texts += f" of about {one.text_tokens:,} tokens" if one.texts else ""
    if one.pictures != 0:
        texts += ", pictures not counted" if one.pictures is None else f", {one.pictures} pictures to embed"
    known = f" ({one.known} are embedded already)" if one.known else ""
    told.append(f"  {nodes}, {texts}{known}{_asked(one)}")
    for reason in one.why:
        told.append(f"\n  since {one_line(reason, 300)}", "dim")
    return told
