"""`spolia questions`: questions with gold made of the documents of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli import estimates, options, runs
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import Parts, load_flow_file
from spolia.cli.measured_destinations import print_measured_servers
from spolia.cli.model_profile import load_profile
from spolia.cli.models import NEEDS_BOTH, load_language_model
from spolia.cli.parameters import option
from spolia.cli.runs import FEEDBACK
from spolia.cli.screen import Screen, table
from spolia.core.plurals import several
from spolia.errors import DataError, QueryError
from spolia.evaluation.creation.creation import CreatedQuestions, create, estimate
from spolia.evaluation.creation.feedback import FeedbackQueue, drafts_of
from spolia.evaluation.creation.items import apply_review, dropped_row, item_of, tuning_item, write_review
from spolia.evaluation.creation.recipes import Recipe, recipe
from spolia.evaluation.data.formats.native import item_row, parse_item
from spolia.evaluation.data.json_lines import read_rows, write_rows
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
        return _apply_review(screen, review, out)

    profile = load_profile(profile_file)
    store_path = store or profile.store
    if not store_path:
        raise QueryError("Questions are made of the documents of a store: --store STORE, which `spolia index` makes.")
    if not estimate:
        _refuse_overwriting(out)
    if feedback:
        return _create_from_feedback(screen, out, Corpus(store_path), frozenset(access or ()))
    writer_model = load_language_model(llm, model, profile, think)
    if writer_model is None:
        raise QueryError(NEEDS_BOTH)
    recipe_options: dict[str, Any] = {"seed": seed, "evolve": evolve or (), "unknown": unknown}
    recipe_counts = _choose_recipes(Corpus(store_path).group(group), writer_model, recipe, types, n, recipe_options)
    recipe_counts = {
        question_recipe.in_language(language) if language else question_recipe: number
        for question_recipe, number in recipe_counts.items()
    }
    if prompts is not None:
        recipe_counts = {
            question_recipe.but(body=overridden(question_recipe.body, prompts)): number
            for question_recipe, number in recipe_counts.items()
        }
    limit = runs.budget_of(budget_calls, budget_tokens, budget_usd)
    with runs.record_run(store_path, screen, access, budget=limit) as run:
        print_measured_servers(
            screen, [question_recipe.flow for question_recipe in recipe_counts], (), estimate=estimate
        )
        runs.refuse_unpriced(
            budget_usd, [resource for question_recipe in recipe_counts for resource in question_recipe.flow.resources]
        )
        return (
            _print_estimates(screen, recipe_counts) if estimate else _create_questions(screen, out, recipe_counts, run)
        )


def _create_from_feedback(screen: Screen, out: Path, corpus: Corpus, access: frozenset[str]) -> Exit:
    records = FeedbackQueue(corpus.backend.folder / FEEDBACK).read().values()
    if not records:
        raise QueryError(f"{corpus.path} has no feedback yet. Users send it to /v1/feedback of `spolia serve`.")
    node_ids = sorted({id for record in records for id in (*record.cited, *record.found)})
    nodes = corpus.snapshot().nodes_of_ids(node_ids, access)
    # Of several on one question the last one holds.
    latest = {draft.question: draft for draft in drafts_of(records, nodes)}.values()
    if preferred := list(feedback_rows(records, nodes)):
        out.mkdir(parents=True, exist_ok=True)
        write_rows(out / PREFERENCES, preferred)
        screen.say(f"{several(len(preferred), 'corrected answer')} in {out / PREFERENCES}, for spolia train lm.")
    if unasked := sum(bool(record.corrected) and not record.question for record in records):
        screen.say(
            f"{several(unasked, 'corrected answer')} without a question: no row can be made. Send the question with "
            "the feedback, or serve with --keep-values.",
            "yellow",
        )
    accepted, rejected = (tuple(draft for draft in latest if draft.is_kept is is_kept) for is_kept in (True, False))
    return _report_created(screen, out, CreatedQuestions(accepted, rejected, {}, {}), Usage(), "", for_tuning=True)


def _choose_recipes(
    chunks: NodeGroup, llm: LanguageModel, file: Path | None, types: str, n: int, recipe_options: Mapping[str, Any]
) -> dict[Recipe, int]:
    """Return how many questions each recipe writes: one recipe from a file, or one for each type."""
    if file is not None:
        return {Recipe.from_flow(load_flow_file(str(file), Parts(chunks, llm=llm))): n}
    return {recipe(type, chunks, llm, **recipe_options): number for type, number in shares(types, n).items()}


def _print_estimates(screen: Screen, recipe_counts: Mapping[Recipe, int]) -> Exit:
    estimates_by_type = {recipe.type: estimate(recipe, number) for recipe, number in recipe_counts.items()}
    note = "A question that is dropped costs up to as much again, since another one is made in its place."
    estimates.print_estimates(screen, estimates_by_type, sum(recipe_counts.values()), [note], "no question is dropped")
    return Exit.DONE


def _create_questions(screen: Screen, out: Path, recipe_counts: Mapping[Recipe, int], run: Run) -> Exit:
    with run.lane() as lane, screen.progress("writing questions") as on_progress:
        created = create(recipe_counts, on_progress=on_progress)
    return _report_created(screen, out, created, lane.spent, run.id)


def _refuse_overwriting(out: Path) -> None:
    """Refuse to replace questions that people have reviewed, or that this command has not made."""
    if not (out / QUESTIONS).exists():
        return

    # BEFORE exists once a review was applied: then the questions are the work of people.
    if (out / REVIEW).exists() and not (out / BEFORE).exists():
        review_result = apply_review(
            out / REVIEW, [parse_item(place, row) for place, row in read_rows(out / QUESTIONS)]
        )
        if not (review_result.accepted or review_result.changed or review_result.rejected):
            return
    raise DataError(
        f"{out / QUESTIONS} is there already, and was reviewed or is not of this command. Name another folder with -o, "
        "or move the file away."
    )


def shares(types: str, n: int) -> dict[str, int]:
    """Return how many questions each type gets.

    >>> shares("factoid=3,multi-hop=1", 100), shares("factoid,concept,multi-hop", 100)
    ({'factoid': 3, 'multi-hop': 1}, {'factoid': 34, 'concept': 33, 'multi-hop': 33})
    """
    entries = [part.strip().partition("=") for part in types.split(",") if part.strip()]
    if not entries or len({name for name, *_ in entries}) < len(entries):
        raise QueryError(f"--types {types!r} names a type twice, or none. Write for example --types {EXAMPLE}.")
    if any(mark for _, mark, _ in entries):
        if wrong := [name for name, _, number in entries if not number.isdecimal() or int(number) < 1]:
            raise QueryError(f"--types says no number for {wrong[0]!r}. Write for example --types {EXAMPLE}.")
        return {name: int(number) for name, _, number in entries}
    base_count, remainder = divmod(n, len(entries))
    return {
        name: base_count + (index < remainder)
        for index, (name, *_) in enumerate(entries)
        if base_count + (index < remainder)
    }


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


def _report_created(
    screen: Screen, out: Path, created: CreatedQuestions, model_usage: Usage, run: str, for_tuning: bool = False
) -> Exit:
    items = write_created(out, created, for_tuning)
    usage_data = {
        "calls": model_usage.calls,
        "tokens": model_usage.input_tokens + model_usage.output_tokens,
        "cost_usd": model_usage.cost_usd,
    }
    screen.give(
        path=str(out),
        questions=len(items),
        types=dict(Counter(item.type for item in items)),
        dropped=created.counts,
        missing=dict(created.missing),
        stopped=dict(created.stopped),
        spent=usage_data,
        run=run,
    )
    screen.show(f"{several(len(items), 'question')} in {out / QUESTIONS}, with {several(model_usage.calls, 'call')}.")
    if created.dropped:
        rows = [
            (step, reason, f"{number:,}")
            for step, counts in created.counts.items()
            for reason, number in counts.items()
        ]
        screen.show(f"{several(len(created.dropped), 'question')} dropped:", table(rows, "filter", "why", ""))
    if items:
        screen.show(f"Review them in {out / REVIEW}, then: spolia questions -o {out} --review {out / REVIEW}")
    for type, number in created.missing.items():
        screen.say(f"{several(number, 'question')} of type {type} missing: {WHY[created.stopped[type]]}.", "yellow")
    if not items:
        return Exit.MODEL if "model" in created.stopped.values() else Exit.NOTHING
    return Exit.PARTLY if created.missing else Exit.DONE


def _apply_review(screen: Screen, review: Path, out: Path) -> Exit:
    original_file = out / BEFORE if (out / BEFORE).exists() else out / QUESTIONS
    if not original_file.exists():
        raise DataError(f"There is no {original_file}. Name the folder that the questions were written to: -o DIR.")
    items = [parse_item(place, row) for place, row in read_rows(original_file)]
    review_result = apply_review(review, items)
    # The first review keeps the questions as written, and a later review starts from them again.
    if original_file.name == QUESTIONS:
        write_rows(out / BEFORE, map(item_row, items))
    part = out / f".{QUESTIONS}.part"
    write_rows(part, map(item_row, review_result.items))
    # The file is replaced in one step, so a kill leaves the old or the new questions.
    part.replace(out / QUESTIONS)
    counts: dict[str, Any] = {
        "accepted": review_result.accepted,
        "changed": review_result.changed,
        "rejected": review_result.rejected,
    }
    screen.give(path=str(out), questions=len(review_result.items), **counts)
    summary = ", ".join(f"{number:,} {name}" for name, number in counts.items())
    screen.show(f"{several(len(review_result.items), 'question')} in {out / QUESTIONS}: {summary}.")
    return Exit.DONE
