"""`spolia plan`: what `spolia index` would do, before it is done."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spolia.cli.exits import Exit
from spolia.cli.index import FollowLinks, Vectors
from spolia.cli.options import AsJson, Readers, StorePath, Weights
from spolia.cli.plain import one_line
from spolia.cli.screen import Screen

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spolia.indexing.planning import GroupPlan, Plan
    from spolia.indexing.report import Progress

SHOWN = 10


def plan(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with documents.", show_default=False)],
    store: StorePath,
    vectors: Vectors = None,
    readers: Readers = None,
    weights: Weights = "",
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads for the embedder.")] = 1,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="As if everything were indexed again.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Read no file: tell them apart by size and time, and count no passages.")
    ] = False,
    follow_links: FollowLinks = False,
    json: AsJson = False,
) -> Exit:
    """Show what `spolia index` with the same arguments would do: files, groups, passages, texts to embed, model calls.

    Nothing is written, and no language model is asked. Files that seem new or changed are read and cut in memory, so
    that the numbers are exact.
    """
    from dataclasses import asdict

    from spolia.cli.indexing import GROUP, why_none
    from spolia.cli.reader_lists import access_of
    from spolia.indexing.planning import planned
    from spolia.models.minilm import MiniLM
    from spolia.stores.corpus import Corpus

    screen, corpus, embedder = Screen(json=json), Corpus(str(store)), MiniLM(weights, threads)
    why = "" if vectors else why_none(corpus, folder, embedder, vectors, weights, rebuild)
    with screen.progress("reading") as told:

        def progress(now: Progress) -> None:
            told(now.done, now.total)

        found = planned(
            folder,
            corpus,
            embedder=None if why else embedder,
            group=GROUP,
            access=access_of(readers),
            progress=progress,
            follow_links=follow_links,
            rebuild=rebuild,
            fast=fast,
            timed=True,
        )
    screen.say(f"without vectors: {why}" if why else f"with vectors of {embedder.name}")
    screen.give(folder=str(folder), store=str(store), **asdict(found))
    screen.show(*_report(found, store))
    if found.rebuild and not rebuild:
        screen.say(f"To do it: spolia index {folder} --store {store} --rebuild; until then, what is there serves.")
    return Exit.DONE


def _report(found: Plan, store: str) -> list[RenderableType]:
    from rich.text import Text

    named = [(name, getattr(found, name)) for name in ("new", "changed", "moved", "gone", "failed")]
    counts = [f"{len(uris)} {name}" for name, uris in named if uris]
    also = (("read again", found.again), ("unchanged", found.unchanged))
    counts += [f"{count} {name}" for name, count in also if count]
    text = Text(f"{store}", "bold").append(f"  {', '.join(counts) or 'nothing to do'}", "not bold")
    if found.seconds is not None:
        text.append(f"; about {found.seconds:.1f} s", "not bold")
    for name, uris in named:
        for uri in uris[:SHOWN]:
            text.append(f"\n  {name:8}", "not bold dim").append(f" {one_line(uri)}", "not bold")
        if len(uris) > SHOWN:
            text.append(f"\n  … and {len(uris) - SHOWN} more {name}; --json lists all", "not bold dim")
    return [text, *map(_group, found.groups)]


def _asked(one: GroupPlan) -> str:
    """What models would be asked for, in words."""
    if one.prompts == 0 and one.calls == 0:
        return ""
    calls = "calls without a known bound" if one.calls is None else f"{one.calls:,} calls at most"
    if one.prompts is None:
        return f", model {calls}"
    tokens = f"about {one.input_tokens:,} tokens, replies of at most {one.output_tokens:,}"
    cost = "no price stated" if one.cost_usd is None else f"at most ${one.cost_usd:,.2f}"
    return f", {one.prompts:,} prompts to models: {tokens}, {cost} ({calls}, with those that are sent back)"


def _group(one: GroupPlan) -> RenderableType:
    from rich.text import Text

    style = {"kept": "", "new": "green", "rebuilt": "bold yellow", "dropped": "bold red"}[one.change]
    text = Text("group ").append(one.group, "bold").append(f"  {one.change}", style)
    if one.change != "dropped":
        nodes = "passages not counted" if one.nodes is None else f"{one.nodes} passages to cut"
        texts = "texts to embed not counted" if one.texts is None else f"{one.texts} texts to embed"
        known = f" ({one.known} are embedded already)" if one.known else ""
        tokens = f" of about {one.text_tokens:,} tokens" if one.texts else ""
        text.append(f"  {nodes}, {texts}{tokens}{known}{_asked(one)}")
    for reason in one.why:
        text.append(f"\n  since {one_line(reason, 300)}", "dim")
    return text
