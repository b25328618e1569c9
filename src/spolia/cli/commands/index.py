"""`spolia index`: folders of documents and other sources into a store. `spolia plan` says what that would do."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from spolia.cli import ingest
from spolia.cli.documents import report_table
from spolia.cli.exit_codes import Exit
from spolia.cli.ingest import build_sync_arguments, format_command
from spolia.cli.options import WAIT_S, AsJson, Wait
from spolia.cli.parameters import described, option
from spolia.cli.readers import build_readers
from spolia.cli.screen import Renderable, Screen, one_line, text
from spolia.cli.store_options import StoreOptions
from spolia.cli.watch import Watch
from spolia.errors import strip_name
from spolia.indexing.sync.dry_run import GroupPlan, SyncPlan, planned
from spolia.stores.corpus import Corpus

if TYPE_CHECKING:
    from spolia.indexing.sync.report import Progress

SHOWN = 10


def index(
    options: StoreOptions,
    rebuild: Annotated[
        bool, option("--rebuild", "Rebuild groups whose definition has changed; retry files that failed.")
    ] = False,
    documents: Annotated[
        bool, option("--report", "List every document: pages, characters, passages, passages without vectors.")
    ] = False,
    watch: Annotated[bool, option("--watch", "Keep running and index each change, until you press Ctrl-C.")] = False,
    interval_s: Annotated[
        float, option("--every", "With --watch: seconds between checks, without file events.", min=0.05)
    ] = 2.0,
    wait: Wait = WAIT_S,
    json: AsJson = False,
) -> Exit:
    """Update a store from a folder or other sources; Spolia reads only new and changed documents.

    A document that cannot be read does not stop the others; it is listed, and the exit code is 5.
    """
    screen, places, store = Screen(json=json), options.places(), options.store
    run = partial(ingest.index_folder, screen, options, wait_s=wait)
    report, chosen = run(rebuild=rebuild)
    screen.say(chosen)
    warnings = ingest.list_warnings(report, store)
    listed = {"documents": ingest.document_data(store)} if documents else {}
    name = ", ".join(str(place) if isinstance(place, Path) else place.id for place in places)
    screen.give(folder=name, store=store, chosen=chosen, **ingest.report_data(report, warnings), **listed)
    screen.show(ingest.format_report(report, store, warnings))
    if documents:
        screen.show(report_table(ingest.reports_of(store), screen.width))
    if watch:
        description_files = [path for path in (options.readers, options.groups) if path is not None]
        file_readers = build_readers(options.modules, options.redact)
        return Watch(
            screen, places, run, interval_s, description_files, follow_links=options.follow_links, readers=file_readers
        ).follow(report)
    return Exit.DONE if report.is_in_step else Exit.PARTLY


sync = described(
    index,
    """Keep a store in step with a folder or other sources: with --watch as long as it runs, else once.

    It does what `spolia index` does, and takes the same options.
    """,
)


def plan(
    options: StoreOptions,
    rebuild: Annotated[bool, option("--rebuild", "Plan a full rebuild.")] = False,
    fast: Annotated[bool, option("--fast", "Read no file, ask no source: compare sizes and times only.")] = False,
    json: AsJson = False,
) -> Exit:
    """Show what `spolia sync` with the same options would do: files, groups, passages, texts to embed, model calls.

    Writes nothing and asks no language model. New and changed documents are read and cut in memory, so the
    numbers are exact.
    """
    screen, corpus = Screen(json=json), Corpus(options.store)
    arguments, chosen = build_sync_arguments(screen, options, corpus, rebuild=rebuild)
    with screen.progress("reading") as on_progress:

        def progress(now: Progress) -> None:
            on_progress(now.done, now.total)

        sync_plan = planned(**arguments, corpus=corpus, progress=progress, rebuild=rebuild, fast=fast, timed=True)
    screen.say(chosen)
    advice = format_command("sync", options) + (" --rebuild" if rebuild or _needs_rebuild(sync_plan) else "")
    failed = [{"uri": uri, "reason": reason} for uri, reason in sync_plan.failed]
    screen.give(
        folder=", ".join(options.sources or ()),
        store=options.store,
        command=advice,
        **asdict(sync_plan) | {"failed": failed},
    )
    screen.show(*_format_plan(sync_plan, options.store))
    files = (sync_plan.new, sync_plan.changed, sync_plan.moved, sync_plan.gone, sync_plan.again)
    if any(files) or any(
        group_plan.change != "kept" or group_plan.nodes or group_plan.texts or group_plan.pictures
        for group_plan in sync_plan.groups
    ):
        screen.say(
            f"To do it: {advice}" + ("; until then, the present index serves." if _needs_rebuild(sync_plan) else "")
        )
    return Exit.DONE


def _needs_rebuild(sync_plan: SyncPlan) -> bool:
    return sync_plan.rebuild or any(group_plan.change == "rebuilt" for group_plan in sync_plan.groups)


def _format_plan(sync_plan: SyncPlan, store: str) -> list[Renderable]:
    uris_by_kind = [(name, getattr(sync_plan, name)) for name in ("new", "changed", "moved", "gone")]
    uris_by_kind.append(
        ("failed", [f"{uri}: {one_line(strip_name(uri, reason), 300)}" for uri, reason in sync_plan.failed])
    )
    counts = [f"{len(uris)} {name}" for name, uris in uris_by_kind if uris]
    plain_counts = (("made again", sync_plan.again), ("unchanged", sync_plan.unchanged))
    counts += [f"{count} {name}" for name, count in plain_counts if count]
    summary = text(store, "bold").append(f"  {', '.join(counts) or 'nothing to do'}", "not bold")
    if sync_plan.seconds is not None:
        summary.append(f"; about {sync_plan.seconds:.1f} s", "not bold")
    for name, uris in uris_by_kind:
        for uri in uris[:SHOWN]:
            summary.append(f"\n  {name:8}", "not bold dim").append(f" {one_line(uri)}", "not bold")
        if len(uris) > SHOWN:
            summary.append(f"\n  … and {len(uris) - SHOWN} more {name}; --json lists all", "not bold dim")
    if sync_plan.unasked:
        summary.append(f"\n  not asked without reading: {', '.join(map(one_line, sync_plan.unasked))}", "not bold dim")
    for note in sync_plan.fields:
        summary.append(f"\n  {one_line(note, 300)}", "not bold yellow")
    return [summary, *map(_format_group, sync_plan.groups)]


def _format_model_use(group_plan: GroupPlan) -> str:
    if group_plan.prompts == 0 and group_plan.calls == 0:
        return ""
    calls = "calls without a known bound" if group_plan.calls is None else f"{group_plan.calls:,} calls at most"
    if group_plan.prompts is None:
        return f", model {calls}"
    tokens = f"about {group_plan.input_tokens:,} tokens, replies of at most {group_plan.output_tokens:,}"
    cost = "no price stated" if group_plan.cost_usd is None else f"at most ${group_plan.cost_usd:,.2f}"
    return f", {group_plan.prompts:,} prompts to models: {tokens}, {cost} ({calls}, with retries)"


def _format_group(group_plan: GroupPlan) -> Renderable:
    style = {"kept": "", "new": "green", "rebuilt": "bold yellow", "embedded": "yellow"}[group_plan.change]
    line = text("group ").append(group_plan.group, "bold").append(f"  {group_plan.change}", style)
    nodes = "passages not counted" if group_plan.nodes is None else f"{group_plan.nodes} passages to cut"
    texts = "texts to embed not counted" if group_plan.texts is None else f"{group_plan.texts} texts to embed"
    texts += f" of about {group_plan.text_tokens:,} tokens" if group_plan.texts else ""
    if group_plan.pictures != 0:
        texts += (
            ", pictures not counted" if group_plan.pictures is None else f", {group_plan.pictures} pictures to embed"
        )
    reused_note = f" ({group_plan.known} are embedded already)" if group_plan.known else ""
    line.append(f"  {nodes}, {texts}{reused_note}{_format_model_use(group_plan)}")
    for reason in group_plan.why:
        line.append(f"\n  since {one_line(reason, 300)}", "dim")
    return line
