"""`spolia trace`: the steps of recorded runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from spolia.cli.exit_codes import Exit
from spolia.cli.model_profile import load_profile
from spolia.cli.options import AllowEnv, AsJson, Known, MaybeStore, ProfileFile
from spolia.cli.parameters import argument, option
from spolia.cli.run_text import build_tree, format_differences, replay_step
from spolia.cli.screen import Screen, one_line, table
from spolia.errors import QueryError, StoreError
from spolia.evaluation.data.json_lines import replace_files
from spolia.journal import Journal, Runs
from spolia.journal.run_view import RunView, compare_runs, format_unkept, render_page, view_run
from spolia.stores.corpus import Corpus

LATEST = "last"


def trace(
    run: Annotated[str, argument("RUN", "Id of a run, its beginning, or `last`.")] = "",
    store: MaybeStore = None,
    journal: Annotated[Path | None, option("--journal FILE", "Instead of a store: any file of traces.")] = None,
    limit: Annotated[int, option("--limit", "How many runs, or questions of a run, to show.", min=1)] = 20,
    documents: Annotated[
        int, option("--documents", "How many passages to show of each step, with how they moved.", min=0)
    ] = 5,
    html: Annotated[Path | None, option("--html FILE", "Write the run as one page that needs nothing else.")] = None,
    diff: Annotated[str, option("--diff RUN", "Show how the run differs from this one.")] = "",
    replay: Annotated[
        int | None,
        option("--replay STEP", "Run a step again with its recorded input: 3 for the one shown as #3.", min=1),
    ] = None,
    input_text: Annotated[
        str,
        option(
            "--input TEXT", "For --replay: another input, as a question, or as JSON (or a .json file) like `input`."
        ),
    ] = "",
    assignments: Annotated[
        list[str] | None,
        option("--set FIELD=VALUE", "For --replay: a field of the step with another value, as top_k=3; repeatable."),
    ] = None,
    access: Annotated[
        list[str] | None,
        option("--access PRINCIPAL", "The user or group who looks; repeatable. Values need all principals of the run."),
    ] = None,
    modules: Known = None,
    allow_env: AllowEnv = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Show the latest runs, or the steps of one: passages before and after, time, cost, prompts, results.

    Inputs, operators' fields and prompts are shown if the run kept them, and to those only who may read what the asker
    could (`--access`).
    """
    if journal is None:
        store = store or load_profile(profile_file).store or None
    screen, path = Screen(json=json), find_journal(store, journal)
    if not run and (html or diff or replay is not None):
        raise QueryError("No run is named. Write its id, or `last`: spolia trace last --html run.html.")
    if input_text and replay is None:
        raise QueryError("--input is the input of a step. Name the step too: --replay 3.")
    if assignments and replay is None:
        raise QueryError("--set changes a step. Name the step too: --replay 3.")
    with Runs(path) as runs:
        if damaged_copy := runs.database.damaged:
            screen.say(f"{path} was damaged. It is now {damaged_copy}; `spolia repair` does the same.", "yellow")
        if not run:
            return _list_runs(screen, runs.journal, limit, store, frozenset(access or ()))
        principals = frozenset(access or ())
        view = view_run(runs.journal, _full_id(runs.journal, run), principals)
        if diff:
            return _show_difference(screen, view_run(runs.journal, _full_id(runs.journal, diff), principals), view)
        if replay is not None:
            return replay_step(screen, runs.journal, view, replay, input_text, assignments or (), access or (), modules)
        if html is not None:
            return _write_page(screen, view, html)
        return _show_run(screen, view, limit, documents)


def find_journal(store: str | None, journal: Path | None) -> Path:
    """Return the file of traces that the options name; raise if it does not exist."""
    if (store is None) == (journal is None):
        raise QueryError("Name a store with --store PATH, or a file of traces with --journal FILE, and not both.")
    if journal is not None:
        if not journal.is_file():
            raise StoreError(f"Journal not found: {journal} does not exist.")
        return journal
    corpus = Corpus(str(store))
    path = corpus.backend.folder / "runs.db"
    if not path.is_file():
        problem = "it has no runs.db yet. Search or ask first." if corpus.exists() else "the store does not exist."
        raise StoreError(f"No runs are recorded in {store}: {problem}")
    return path


def _list_runs(screen: Screen, journal: Journal, limit: int, store: str | None, principals: frozenset[str]) -> Exit:
    def first_question(run: str) -> dict[str, str]:
        if not principals.issuperset(journal.askers(run) or ()):
            return {"question": "", "searched": ""}
        return {"question": next(iter(journal.questions(run, 1).values()), ""), "searched": journal.first_search(run)}

    runs = [
        {"run": run, "started": began, "questions": lanes, **first_question(run)}
        for run, began, lanes in journal.runs(limit)
    ]
    screen.give(runs=runs)
    if not runs:
        screen.say("No runs are recorded yet. Search or ask first.")
        return Exit.NOTHING
    screen.show(table(map(_format_run, runs), "run", "started", "questions", "the first"))
    store_option = f"--store {shlex.quote(store)}" if store else f"--journal {shlex.quote(str(journal.database.path))}"
    screen.say(f"The latest in full: spolia trace last {store_option}")
    return Exit.DONE


def _full_id(journal: Journal, prefix: str) -> str:
    # A run may be named by its beginning, so the latest 10,000 are compared.
    run_ids = [run for run, _, _ in journal.runs(10_000)]
    matches = run_ids[:1] if prefix == LATEST else [run for run in run_ids if run.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    problem = (
        f"{len(matches)} runs begin like this" if matches else f"there are {len(run_ids)} runs, none begins like this"
    )
    raise QueryError(f"No run {prefix!r}: {problem}. Write `spolia trace` without a run to see their ids.")


def _show_run(screen: Screen, view: RunView, limit: int, documents: int) -> Exit:
    roots = view.roots
    screen.give(
        run=view.run,
        questions=list(view.questions.values()),
        lost=view.lost,
        spans=[step.to_plain() for step in view.steps],
    )
    for root in [] if screen.json else roots[:limit]:
        if heading := view.heading(root.span.lane):
            screen.show(one_line(heading, 300))
        screen.show(build_tree(root, documents))
    if len(roots) > limit:
        screen.say(f"... and {len(roots) - limit} more questions; --limit {len(roots)} shows them all.")
    if view.lost:
        screen.say(view.lost)
    return Exit.DONE


def _write_page(screen: Screen, view: RunView, path: Path) -> Exit:
    with replace_files(path) as (part,):
        part.write_text(render_page(view), "utf-8")
    screen.give(run=view.run, html=str(path), lost=view.lost)
    screen.say(f"Written: {path}")
    if view.lost:
        screen.say(view.lost)
    return Exit.DONE


def _show_difference(screen: Screen, first_view: RunView, second_view: RunView) -> Exit:
    differences = compare_runs(first_view, second_view)
    sums = {view.run: _sum_usage(view) for view in (first_view, second_view)}
    lost = " ".join(dict.fromkeys(filter(None, (first_view.lost, second_view.lost))))
    screen.give(before=first_view.run, after=second_view.run, steps=differences, totals=sums, lost=lost)
    names = ("run", "steps", "calls", "tokens", "USD", "ms", "cached")
    screen.show(table([(run, *(f"{number:.6g}" for number in row.values())) for run, row in sums.items()], *names))
    screen.show(*format_differences(differences))
    if not differences:
        screen.say("The steps, what they gave and what they cost are the same.")
    if lost:
        screen.say(lost)
    return Exit.DONE


def _sum_usage(view: RunView) -> dict[str, Any]:
    roots: Sequence[dict[str, Any]] = [asdict(step.span.usage) for step in view.roots]
    return {
        "steps": len(view.steps),
        "calls": sum(usage["calls"] for usage in roots),
        "tokens": sum(usage["input_tokens"] + usage["output_tokens"] for usage in roots),
        "cost_usd": sum(usage["cost_usd"] for usage in roots),
        "ms": sum(step.span.seconds for step in view.roots) * 1000,
        "cached": sum(step.span.cached for step in view.steps),
    }


def _format_run(row: dict[str, Any]) -> tuple[str, ...]:
    began = datetime.fromtimestamp(row["started"]).strftime("%Y-%m-%d %H:%M:%S")
    return row["run"], began, str(row["questions"]), one_line(row["question"] or format_unkept(row["searched"]), 80)
