"""`spolia questions`: questions with gold made of the documents of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli import estimates, options, runs
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import Parts, from_file
from spolia.cli.measured_destinations import tell_of_measured
from spolia.cli.model_profile import profile_of
from spolia.cli.models import NEEDS_BOTH, model_at
from spolia.cli.parameters import option
from spolia.cli.runs import FEEDBACK
from spolia.cli.screen import Screen, table
from spolia.core.plurals import several
from spolia.errors import DataError, QueryError
from spolia.evaluation.creation.creation import CreatedQuestions, create, estimate
from spolia.evaluation.creation.feedback import FeedbackQueue, drafts_of
from spolia.evaluation.creation.items import dropped_row, item_of, reviewed, tuning_item, write_review
from spolia.evaluation.creation.recipes import Recipe, recipe
from spolia.evaluation.data.formats.native import item_in, item_row
from spolia.evaluation.data.json_lines import rows, write_rows
from spolia.flow_files.prompts import overridden
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.training.rows import feedback_rows
from spolia.types import Item, Usage

if TYPE_CHECKING:
    from spolia.models.protocols import LanguageModel
    from spolia.run import Run

QUESTIONS, REVIEW, DROPPED = "questions.jsonl", "review.csv", "dropped.jsonl"
PREFERENCES = "preferences.jsonl"
BEFORE = "before_review.jsonl"
"""The questions as they were made, so that a review can be changed and taken over again."""
KINDS = "factoid, concept, multi-hop, 3-hop, 4-hop, comparison, unanswerable"
EXAMPLE = "factoid=60,multi-hop=20,unanswerable=20"
WHY = {
    "passages": "all passages are used; write more --types, or index more documents",
    "links": "no more passages of different documents name the same thing; write fewer of this type",
    "tries": "the filters dropped more than three of four; dropped.jsonl has them",
    "model": "the model gave no reply that can be used; dropped.jsonl has what was wrong",
    "budget": "the budget is spent; the same command with a larger one goes on",
}


def questions(
    out: Annotated[Path, option("-o DIR", "Where to write questions.jsonl, review.csv and dropped.jsonl.")],
    store: options.MaybeStore = None,
    n: Annotated[int, option("--n", "How many questions.", min=1)] = 100,
    types: Annotated[str, option("--types LIST", f"Of {KINDS}, with numbers or without: {EXAMPLE}.")] = "factoid",
    recipe: Annotated[
        Path | None,
        option("--recipe FILE", "A flow file of your own that makes them, in place of --types, --evolve, --unknown."),
    ] = None,
    evolve: Annotated[
        list[str] | None, option("--evolve HOW", "Rewrite them: reasoning, conditional or compress; repeatable.")
    ] = None,
    unknown: Annotated[
        bool, option("--unknown", "Also drop questions that the model answers without documents.")
    ] = False,
    seed: Annotated[int, option("--seed", "Seed for drawing passages.", min=0)] = 0,
    group: Annotated[str, option("--group NAME", "The node group of the passages.")] = "chunk",
    access: options.Access = None,
    llm: options.ModelUrl = "",
    model: options.ModelName = "",
    think: options.Think = 0,
    profile_file: options.ProfileFile = None,
    prompts: options.OwnPrompts = None,
    language: Annotated[
        str, option("--language CODE", "Language of the prompts: en, zh, ko or ja. Default: that of each passage.")
    ] = "",
    allow_env: options.AllowEnv = None,
    budget_calls: options.BudgetCalls = None,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    estimate: options.Estimated = False,
    feedback: Annotated[
        bool,
        option(
            "--feedback",
            "Make them from the feedback of `spolia serve` users; asks no model. Corrected answers also go to "
            "preferences.jsonl, as rows for `dpo`. Needs the questions: sent with the feedback, or kept by "
            "--keep-values of `spolia serve`.",
        ),
    ] = False,
    review: Annotated[Path | None, option("--review FILE", "Apply the edits in review.csv; asks no model.")] = None,
    json: options.AsJson = False,
) -> Exit:
    """Make questions with answers and gold of the documents of a store, to measure flows on.

    A language model writes each question from passages, filters drop those that measure nothing, and people can review
    the rest. After a kill, run the same command again: it continues, and asks nothing twice.
    """
    screen = Screen(json=json)
    if review is not None:
        return _take_over(screen, review, out)

    profile = profile_of(profile_file)
    at = store or profile.store
    if not at:
        raise QueryError("Questions are made of the documents of a store: --store STORE, which `spolia index` makes.")
    if not estimate:
        _refuse_others_work(out)
    if feedback:
        return _from_feedback(screen, out, Corpus(at), frozenset(access or ()))
    asked = model_at(llm, model, profile, think)
    if asked is None:
        raise QueryError(NEEDS_BOTH)
    how: dict[str, Any] = {"seed": seed, "evolve": evolve or (), "unknown": unknown}
    wanted = _recipes(Corpus(at).group(group), asked, recipe, types, n, how)
    wanted = {one.in_language(language) if language else one: number for one, number in wanted.items()}
    if prompts is not None:
        wanted = {one.but(body=overridden(one.body, prompts)): number for one, number in wanted.items()}
    limit = runs.budget_of(budget_calls, budget_tokens, budget_usd)
    with runs.recorded(at, screen, access, budget=limit) as run:
        tell_of_measured(screen, [made.flow for made in wanted], (), estimate=estimate)
        runs.refuse_unpriced(budget_usd, [one for made in wanted for one in made.flow.resources])
        return _tell_estimates(screen, wanted) if estimate else _made(screen, out, wanted, run)


def _from_feedback(screen: Screen, out: Path, corpus: Corpus, access: frozenset[str]) -> Exit:
    said = FeedbackQueue(corpus.backend.folder / FEEDBACK).read().values()
    if not said:
        raise QueryError(f"{corpus.path} has no feedback yet. Users send it to /v1/feedback of `spolia serve`.")
    seen = sorted({id for one in said for id in (*one.cited, *one.found)})
    nodes = corpus.snapshot().nodes_of_ids(seen, access)
    latest = {draft.question: draft for draft in drafts_of(said, nodes)}.values()
    if preferred := list(feedback_rows(said, nodes)):
        out.mkdir(parents=True, exist_ok=True)
        write_rows(out / PREFERENCES, preferred)
        screen.say(f"{several(len(preferred), 'corrected answer')} in {out / PREFERENCES}, for spolia train lm.")
    if unasked := sum(bool(one.corrected) and not one.question for one in said):
        screen.say(
            f"{several(unasked, 'corrected answer')} without a question: no row can be made. Send the question with "
            "the feedback, or serve with --keep-values.",
            "yellow",
        )
    kept, dropped = (tuple(one for one in latest if one.is_kept is kept) for kept in (True, False))
    return _written(screen, out, CreatedQuestions(kept, dropped, {}, {}), Usage(), "", for_tuning=True)


def _recipes(
    chunks: NodeGroup, llm: LanguageModel, file: Path | None, types: str, n: int, how: Mapping[str, Any]
) -> dict[Recipe, int]:
    """How many questions by each recipe: by the one of a file, or by one for each type."""
    if file is not None:
        return {Recipe.of(from_file(str(file), Parts(chunks, llm=llm))): n}
    return {recipe(type, chunks, llm, **how): number for type, number in shares(types, n).items()}


def _tell_estimates(screen: Screen, wanted: Mapping[Recipe, int]) -> Exit:
    found = {made.type: estimate(made, number) for made, number in wanted.items()}
    note = "A question that is dropped costs up to as much again, since another one is made in its place."
    estimates.tell_estimates(screen, found, sum(wanted.values()), [note], "no question is dropped")
    return Exit.DONE


def _made(screen: Screen, out: Path, wanted: Mapping[Recipe, int], run: Run) -> Exit:
    with run.lane() as lane, screen.progress("writing questions") as told:
        created = create(wanted, told=told)
    return _written(screen, out, created, lane.spent, run.id)


def _refuse_others_work(out: Path) -> None:
    """Refuse to replace questions that people have reviewed, or that this command has not made."""
    if not (out / QUESTIONS).exists():
        return

    if (out / REVIEW).exists() and not (out / BEFORE).exists():
        found = reviewed(out / REVIEW, [item_in(place, row) for place, row in rows(out / QUESTIONS)])
        if not (found.accepted or found.changed or found.rejected):
            return
    raise DataError(
        f"{out / QUESTIONS} is there already, and was reviewed or is not of this command. Name another folder with -o, "
        "or move the file away."
    )


def shares(types: str, n: int) -> dict[str, int]:
    """How many questions of each type.

    >>> shares("factoid=3,multi-hop=1", 100), shares("factoid,concept,multi-hop", 100)
    ({'factoid': 3, 'multi-hop': 1}, {'factoid': 34, 'concept': 33, 'multi-hop': 33})
    """
    named = [part.strip().partition("=") for part in types.split(",") if part.strip()]
    if not named or len({name for name, *_ in named}) < len(named):
        raise QueryError(f"--types {types!r} names a type twice, or none. Write for example --types {EXAMPLE}.")
    if any(mark for _, mark, _ in named):
        if wrong := [name for name, _, number in named if not number.isdecimal() or int(number) < 1]:
            raise QueryError(f"--types says no number for {wrong[0]!r}. Write for example --types {EXAMPLE}.")
        return {name: int(number) for name, _, number in named}
    each, more = divmod(n, len(named))
    return {name: each + (at < more) for at, (name, *_) in enumerate(named) if each + (at < more)}


def write_created(out: Path, created: CreatedQuestions, for_tuning: bool = False) -> list[Item]:
    """Write the accepted questions, a table to review them, and the dropped ones.

    Args:
        for_tuning: none of them is in the part `report`.
    """
    items = [(tuning_item if for_tuning else item_of)(draft) for draft in created.kept]
    if items:
        write_rows(out / QUESTIONS, map(item_row, items))
        write_review(out / REVIEW, items, created.kept)
    if items or created.dropped:
        write_rows(out / DROPPED, map(dropped_row, created.dropped))
    return items


def _written(
    screen: Screen, out: Path, created: CreatedQuestions, spent: Usage, run: str, for_tuning: bool = False
) -> Exit:
    items = write_created(out, created, for_tuning)
    usage = {"calls": spent.calls, "tokens": spent.input_tokens + spent.output_tokens, "cost_usd": spent.cost_usd}
    screen.give(
        path=str(out),
        questions=len(items),
        types=dict(Counter(item.type for item in items)),
        dropped=created.counts,
        missing=dict(created.missing),
        stopped=dict(created.stopped),
        spent=usage,
        run=run,
    )
    screen.show(f"{several(len(items), 'question')} in {out / QUESTIONS}, with {several(spent.calls, 'call')}.")
    if created.dropped:
        rows = [(step, reason, f"{number:,}") for step, why in created.counts.items() for reason, number in why.items()]
        screen.show(f"{several(len(created.dropped), 'question')} dropped:", table(rows, "filter", "why", ""))
    if items:
        screen.show(f"Review them in {out / REVIEW}, then: spolia questions -o {out} --review {out / REVIEW}")
    for type, number in created.missing.items():
        screen.say(f"{several(number, 'question')} of type {type} missing: {WHY[created.stopped[type]]}.", "yellow")
    if not items:
        return Exit.MODEL if "model" in created.stopped.values() else Exit.NOTHING
    return Exit.PARTLY if created.missing else Exit.DONE


def _take_over(screen: Screen, review: Path, out: Path) -> Exit:
    before = out / BEFORE if (out / BEFORE).exists() else out / QUESTIONS
    if not before.exists():
        raise DataError(f"There is no {before}. Name the folder that the questions were written to: -o DIR.")
    items = [item_in(place, row) for place, row in rows(before)]
    found = reviewed(review, items)
    if before.name == QUESTIONS:
        write_rows(out / BEFORE, map(item_row, items))
    part = out / f".{QUESTIONS}.part"
    write_rows(part, map(item_row, found.items))
    part.replace(out / QUESTIONS)
    counts: dict[str, Any] = {"accepted": found.accepted, "changed": found.changed, "rejected": found.rejected}
    screen.give(path=str(out), questions=len(found.items), **counts)
    told = ", ".join(f"{number:,} {name}" for name, number in counts.items())
    screen.show(f"{several(len(found.items), 'question')} in {out / QUESTIONS}: {told}.")
    return Exit.DONE
