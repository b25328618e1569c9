"""`spolia ask`: an answer with citations."""

from pathlib import Path
from typing import Annotated

from spolia.cli import estimates, options, results, runs
from spolia.cli.destinations import print_flow_servers
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import (
    add_second_source,
    build_parts,
    build_query,
    ensure_answer,
    load_flow,
    refuse_unused_sources,
)
from spolia.cli.ingest import index_folder
from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_language_model
from spolia.cli.parameters import argument
from spolia.cli.screen import Screen
from spolia.cli.store_options import StoreOptions
from spolia.errors import QueryError, strip_name
from spolia.run.lane import UNPLANNED_ENDS
from spolia.server.replies import answer_reply
from spolia.stores.corpus import Corpus

FAULTS = {
    "uncited": "The answer cites none of the passages that the model was shown. Check it against them.",
    "unknown": "The model cited a passage that it was not shown; that mark was taken out.",
}
Folder = Annotated[Path | None, argument("DIR", "Index this folder first, into a store in the cache directory.")]


def ask(
    search_options: options.SearchOptions,
    folder: Folder = None,
    store: options.MaybeStore = None,
    vectors: options.Vectors = None,
    flow: options.FlowName = "naive",
    web: options.Web = None,
    llm: options.ModelUrl = "",
    model: options.ModelName = "",
    think: options.Think = 0,
    budget_calls: options.BudgetCalls = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    estimate: options.Estimated = False,
    live_markdown: options.LiveMarkdown = False,
) -> Exit:
    """Answer a question from a store or a folder, with citations; abstain if no passage answers it.

    Without a language model the answer quotes sentences of the documents.
    """
    refuse_unused_sources(flow, web)
    profile = load_profile(search_options.profile_file)
    screen, reader, has_new_failures = (
        Screen(json=search_options.json),
        load_language_model(llm, model, profile, think),
        False,
    )
    store_path = store or (runs.store_for(folder) if folder is not None else profile.store)
    if not store_path:
        raise QueryError("Nothing to ask: name a store with --store PATH, or a folder: spolia ask QUESTION DIR.")
    if folder is not None and not folder.exists():
        raise QueryError(
            f"There is no folder {str(folder)!r}. Write the path of one; and a question of several words in quotes."
        )
    if folder is not None:
        has_new_failures = _index_folder(screen, folder, store_path, search_options, vectors)
    limit = runs.budget_of(budget_calls, budget_tokens, budget_usd)
    with runs.record_run(
        store_path, screen, search_options.access, budget=limit, values=search_options.keep_values
    ) as run:
        parts = add_second_source(
            build_parts(
                store_path, search_options, reader, search_options.group, search_options.modules, search_options.prompts
            ),
            web,
            search_options.access or (),
        )
        first_uses = results.FirstUses(parts.chunks.corpus)
        query = build_query(search_options.question, search_options.conditions, parts)
        loaded_flow, chosen = load_flow(flow, parts)
        if chosen:
            screen.say(f"Searching with {chosen}")
        answering_flow = ensure_answer(loaded_flow, parts)
        asks_model = print_flow_servers(screen, answering_flow, reader, estimate)
        runs.refuse_unpriced(budget_usd, answering_flow.resources)
        if estimate:
            estimates.print_estimates(
                screen, {flow: estimates.estimate(answering_flow, [query], search_options.access or (), 1)}, 1
            )
            return Exit.DONE
        with run.lane() as lane:
            answer = results.print_answer(
                screen, answering_flow, query, streams=asks_model, live_markdown=live_markdown
            )
        first_uses.update()
        if search_options.json:
            corpus = parts.chunks.corpus
            reply = answer_reply(answer, corpus, run, lane, answering_flow, question=search_options.question, name=flow)
            screen.give(**reply, chosen=chosen, store=store_path, **first_uses.data())
        screen.show(*results.format_citations(answer))
    first_uses.tell(screen)
    results.print_degraded(screen, lane, answering_flow)
    if answer.abstained:
        return Exit.NOTHING
    for fault in answer.faults:
        screen.say(FAULTS[fault], "yellow")
    if answer.stop_reason in UNPLANNED_ENDS or (
        answer.stop_reason == "cap" and "cap" not in lane.ends
    ):  # a reply was cut
        screen.say(
            f"The answer may be incomplete: the flow ended by {answer.stop_reason!r}. See: spolia trace last", "yellow"
        )
    return Exit.PARTLY if has_new_failures or first_uses.missing_nodes else Exit.DONE


def _index_folder(screen: Screen, folder: Path, store: str, models: options.ModelOptions, vectors: bool | None) -> bool:
    """Index a folder, print what changed, and return whether documents failed that had not failed before."""
    old_failures = _read_failures(store)
    model_options = {name: getattr(models, name) for name in ("embedder", "embed_model", "profile_file", "weights")}
    report, chosen = index_folder(screen, StoreOptions(store, [str(folder)], vectors=vectors, **model_options))
    new = report.added + report.changed + report.moved + report.removed
    screen.say(f"{folder} is indexed in {store}: {new} file{'' if new == 1 else 's'} new or changed, {chosen}")
    for uri, reason in report.failed:
        screen.say(f"failed: {reason if strip_name(uri, reason) != reason else f'{uri}: {reason}'}", "yellow")
    # A file that failed before, with the same size and time, is no news and does not change the exit code.
    old = {uri for uri, *_ in old_failures & _read_failures(store)}
    return any(uri not in old for uri, _ in report.failed)


def _read_failures(store: str) -> set[tuple[str, int, int]]:
    """Return the sources that could not be read, each with its size and time."""
    corpus = Corpus(store)
    rows = corpus.snapshot().sources().values() if corpus.exists() else ()
    return {(row.uri, row.size, row.mtime_ns) for row in rows if row.status == "failed"}
