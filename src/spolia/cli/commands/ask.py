"""`spolia ask`: an answer with citations."""

from pathlib import Path
from typing import Annotated

from spolia.cli import estimates, options, results, runs
from spolia.cli.destinations import tell_of_models
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import answering, flow_of, parts_of, query_of, refuse_unused_sources, with_sources
from spolia.cli.ingest import index_folder
from spolia.cli.model_profile import profile_of
from spolia.cli.models import model_at
from spolia.cli.parameters import argument
from spolia.cli.screen import Screen
from spolia.cli.store_options import StoreOptions
from spolia.errors import QueryError, without_name
from spolia.run.lane import CUT_SHORT
from spolia.server.replies import answer_reply
from spolia.stores.corpus import Corpus

FAULTS = {
    "uncited": "The answer cites none of the passages that the model was shown. Check it against them.",
    "unknown": "The model cited a passage that it was not shown; that mark was taken out.",
}
Folder = Annotated[Path | None, argument("DIR", "Index this folder first, into a store in the cache directory.")]


def ask(
    given: options.SearchOptions,
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
    profile = profile_of(given.profile_file)
    screen, reader, partly = Screen(json=given.json), model_at(llm, model, profile, think), False
    at = store or (runs.store_for(folder) if folder is not None else profile.store)
    if not at:
        raise QueryError("Nothing to ask: name a store with --store PATH, or a folder: spolia ask QUESTION DIR.")
    if folder is not None and not folder.exists():
        raise QueryError(
            f"There is no folder {str(folder)!r}. Write the path of one; and a question of several words in quotes."
        )
    if folder is not None:
        partly = _indexed(screen, folder, at, given, vectors)
    limit = runs.budget_of(budget_calls, budget_tokens, budget_usd)
    with runs.recorded(at, screen, given.access, budget=limit, values=given.keep_values) as run:
        parts = with_sources(
            parts_of(at, given, reader, given.group, given.known, given.prompts), web, given.access or ()
        )
        first = results.FirstUses(parts.chunks.corpus)
        query = query_of(given.question, given.where, parts)
        running, chosen = flow_of(flow, parts)
        if chosen:
            screen.say(f"Searching with {chosen}")
        whole = answering(running, parts)
        asked = tell_of_models(screen, whole, reader, estimate)
        runs.refuse_unpriced(budget_usd, whole.resources)
        if estimate:
            estimates.tell_estimates(screen, {flow: estimates.estimate(whole, [query], given.access or (), 1)}, 1)
            return Exit.DONE
        with run.lane() as lane:
            answer = results.answered(screen, whole, query, streams=asked, live_markdown=live_markdown)
        first.look()
        if given.json:
            corpus = parts.chunks.corpus
            reply = answer_reply(answer, corpus, run, lane, whole, question=given.question, name=flow)
            screen.give(**reply, chosen=chosen, store=at, **first.data())
        screen.show(*results.citation_lines(answer))
    first.tell(screen)
    results.tell_of_degraded(screen, lane, whole)
    if answer.abstained:
        return Exit.NOTHING
    for fault in answer.faults:
        screen.say(FAULTS[fault], "yellow")
    if answer.stop_reason in CUT_SHORT or (answer.stop_reason == "cap" and "cap" not in lane.ends):  # a reply was cut
        screen.say(
            f"The answer may be incomplete: the flow ended by {answer.stop_reason!r}. See: spolia trace last", "yellow"
        )
    return Exit.PARTLY if partly or first.unmade else Exit.DONE


def _indexed(screen: Screen, folder: Path, store: str, models: options.ModelOptions, vectors: bool | None) -> bool:
    """Bring the store in step with the folder, and say what happened; whether documents failed that had not before."""
    before = _failures(store)
    named = {name: getattr(models, name) for name in ("embedder", "embed_model", "profile_file", "weights")}
    report, chosen = index_folder(screen, StoreOptions(store, [str(folder)], vectors=vectors, **named))
    new = report.added + report.changed + report.moved + report.removed
    screen.say(f"{folder} is indexed in {store}: {new} file{'' if new == 1 else 's'} new or changed, {chosen}")
    for uri, reason in report.failed:
        screen.say(f"failed: {reason if without_name(uri, reason) != reason else f'{uri}: {reason}'}", "yellow")
    old = {uri for uri, *_ in before & _failures(store)}
    return any(uri not in old for uri, _ in report.failed)


def _failures(store: str) -> set[tuple[str, int, int]]:
    """The sources that could not be read, each with its size and time."""
    corpus = Corpus(store)
    rows = corpus.snapshot().sources().values() if corpus.exists() else ()
    return {(row.uri, row.size, row.mtime_ns) for row in rows if row.status == "failed"}
