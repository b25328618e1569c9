"""`spolia trace`: what the flows did, step by step."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from json import loads
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spolia.cli.exit_codes import Exit
from spolia.cli.options import AsJson, StorePath, argument
from spolia.cli.screen import Renderable, Screen, one_line, table, text
from spolia.errors import QueryError, StoreError

if TYPE_CHECKING:
    from spolia.journal import Journal, TraceSpan

LATEST = "last"


def trace(
    store: StorePath,
    run: Annotated[str, argument("RUN", "Id of a run, its beginning, or `last`.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many runs, or questions of a run, to show.")] = 20,
    json: AsJson = False,
) -> Exit:
    """Show the latest runs, or the steps of one: time, cost, what came out."""
    from spolia.journal import Runs
    from spolia.stores.corpus import Corpus

    screen, corpus = Screen(json=json), Corpus(store)
    path = corpus.backend.folder / "runs.db"
    if not path.is_file():
        there = "it has no runs.db yet. Search or ask first." if corpus.exists() else "there is no such store."
        raise StoreError(f"No runs are recorded in {store}: {there}")
    with Runs(path) as runs:
        if not run:
            return _list_runs(screen, runs.journal, limit, store)
        return _show_run(screen, runs.journal.spans(_full_id(runs.journal, run)), limit)


def _list_runs(screen: Screen, journal: Journal, limit: int, store: str) -> Exit:
    found = [
        {"run": run, "started": began, "questions": lanes, "question": journal.question(run)}
        for run, began, lanes in journal.runs(limit)
    ]
    screen.give(runs=found)
    if not found:
        screen.say("No runs are recorded yet. Search or ask first.")
        return Exit.NOTHING
    screen.show(table(map(_run_row, found), "run", "started", "questions", "the first"))
    screen.say(f"The latest in full: spolia trace last --store {shlex.quote(str(store))}")
    return Exit.DONE


def _full_id(journal: Journal, given: str) -> str:
    known = [run for run, _, _ in journal.runs(10_000)]
    matches = known[:1] if given == LATEST else [run for run in known if run.startswith(given)]
    if len(matches) == 1:
        return matches[0]
    there = f"{len(matches)} runs begin like this" if matches else f"there are {len(known)} runs, none begins like this"
    raise QueryError(f"No run {given!r}: {there}. Write `spolia trace` without a run to see their ids.")


def _show_run(screen: Screen, spans: Sequence[TraceSpan], limit: int) -> Exit:
    asked = _questions(spans)
    screen.give(run=spans[0].run, questions=list(asked.values()), spans=[_plain(span) for span in spans])
    if not screen.json:
        roots = [span for span in spans if not span.parent]
        for root in roots[:limit]:
            if root.lane in asked:
                screen.show(f"“{one_line(asked[root.lane], 300)}”")
            screen.show(_tree(root, spans))
        if len(roots) > limit:
            screen.say(f"... and {len(roots) - limit} more questions; --limit {len(roots)} shows them all.")
    return Exit.DONE


def _questions(spans: Sequence[TraceSpan]) -> dict[int, str]:
    """What was asked, by the lane in which it was answered: it stands beside the rankings that were made for it."""
    found: dict[int, str] = {}
    for span in spans:
        result = loads(span.result) if span.result else None
        if isinstance(result, dict) and "query" in result:
            found.setdefault(span.lane, result["query"])
    return found


def _plain(span: TraceSpan) -> dict[str, Any]:
    usage = {name: getattr(span.usage, name) for name in type(span.usage).__dataclass_fields__}
    names = ("span", "parent", "lane", "step", "started", "seconds", "cached", "error", "notes")
    return {name: getattr(span, name) for name in names} | {"usage": usage, "result": loads(span.result)}


def _run_row(row: dict[str, Any]) -> tuple[str, ...]:
    began = datetime.fromtimestamp(row["started"]).strftime("%Y-%m-%d %H:%M:%S")
    return row["run"], began, str(row["questions"]), one_line(row["question"], 80)


def _tree(root: TraceSpan, spans: Sequence[TraceSpan]) -> Renderable:
    from rich.tree import Tree

    below: dict[int, list[TraceSpan]] = {}
    for span in spans:
        below.setdefault(span.parent, []).append(span)

    def label(span: TraceSpan) -> Renderable:
        found = text(span.step, "bold")
        found.append(f"  {span.seconds * 1000:.1f} ms", style="not bold cyan")
        for part in _remarks(span):
            found.append(f"  {part}", style="not bold dim")
        for note in span.notes:
            found.append(f"\n{one_line(note, 200)}", style="not bold yellow")
        if span.error:
            found.append(f"\n{one_line(span.error, 200)}", style="not bold red")
        return found

    def grow(tree: Tree, span: TraceSpan) -> Renderable:
        for inner in below.get(span.span, ()):
            grow(tree.add(label(inner)), inner)
        return tree

    return grow(Tree(label(root), guide_style="dim"), root)


def _remarks(span: TraceSpan) -> list[str]:
    usage, result = span.usage, loads(span.result) if span.result else None
    counts = [
        (usage.calls, "calls"),
        (usage.input_tokens + usage.output_tokens, "tokens"),
        (usage.embedded, "embedded"),
    ]
    found = [f"{count} {name}" for count, name in counts if count]
    if span.cached:  # what it cost when it was computed, and now did not
        found = [f"cached ({', '.join(found)})" if found else "cached"]
    if isinstance(result, dict) and "hits" in result:
        found.append(f"{len(result['hits'])} hits")
    if isinstance(result, dict) and "answer" in result:
        found.append(f"“{one_line(result['answer'], 60)}”")
    return found
