"""`spolia train`: a part of a flow, fitted to your own questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli import runs
from spolia.cli.commands.eval import DATA
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import (
    DEFAULT,
    SIMULATED,
    announce_log,
    build_data_parts,
    build_simulated_reader,
    load_real_model,
    refuse_misspelt,
    with_profile_store,
)
from spolia.cli.flow_parts import Parts, add_second_source, build_parts
from spolia.cli.measuring_options import QuestionOptions
from spolia.cli.options import Web
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet, part_of
from spolia.evaluation.data.usage_log import REPORT, UsageLog, marks_of
from spolia.evaluation.measures.registry import parse_measure
from spolia.filters import Not
from spolia.filters.text import list_fields
from spolia.flow_files.built_in_flows import add_condition, build_retrieval
from spolia.models.file_hash import cache_folder
from spolia.optimizer.budget import SECONDS, TuningBudget
from spolia.training.language_model import STEPS, Tuning, tune
from spolia.training.parts import make_trainer
from spolia.training.rows import answer_measure
from spolia.training.trainer import TrainingContext
from spolia.training.training import points_of
from spolia.training.training import train as trained

if TYPE_CHECKING:
    from spolia.core.operator import Retriever
    from spolia.types import Item

LM, RANKER = "lm", "ranker"
EMBEDDING = "hybrid"
"""The passages of the data have vectors, unless a retriever is named that has no use for them."""


@dataclass(frozen=True)
class TrainOptions(QuestionOptions):
    """Options of `spolia train`; those of a language model apply to the part `lm` alone."""

    rows: Annotated[Path | None, option("--rows FILE", "lm: the training rows, written by `spolia rows`.")] = None
    base: Annotated[
        str,
        option(
            "--base DIR",
            "lm: the folder of the model to tune; with --revision a repository of the hub. sufficiency: vectors, "
            "minilm, or the folder of a checkpoint, such as FLAN-T5; by default features. ranker: trees.",
        ),
    ] = ""
    revision: Annotated[str, option("--revision COMMIT", "lm: the commit in that repository.")] = ""
    method: Annotated[
        str, option("--method NAME", "lm: sft, dpo or grpo. adapter, embedder: gold, lsr, aar or reward.")
    ] = ""
    reward: Annotated[str, option("--reward MEASURE", "lm: the measure that grpo raises: EM, F1, CiteP, CiteR.")] = ""
    rank: Annotated[int, option("--rank", "lm: rank of LoRA; 0 tunes all weights.", min=0)] = 16
    rate: Annotated[float, option("--rate", "lm: the learning rate; by default the method's own.", min=0)] = 0.0
    batch: Annotated[int, option("--batch", "lm: rows in a step.", min=1)] = 8
    accumulate: Annotated[
        int,
        option("--accumulate", "lm: parts that a batch is split into, to save memory.", min=1),
    ] = 1


def train(
    options: TrainOptions,
    part: Annotated[
        str,
        argument(
            "PART",
            "The part: ranker, reader, reranker, embedder, bi-encoder, adapter, rewriter; with --llm context, "
            "sufficiency, router, evaluator, pairs, verifier; or lm.",
        ),
    ],
    out: Annotated[
        Path,
        option("--out DIR", "Folder for weights, card.json and flow.yaml.", short="-o"),
    ],
    data: Annotated[Path | None, option("--data DATA", f"{DATA} Every part but lm needs it.")] = None,
    web: Web = None,
    steps: Annotated[
        int | None, option("--steps", "Maximum number of steps; by default as many as the part needs.", min=1)
    ] = None,
    budget: Annotated[
        str, option("--budget TIME", "Time for the steps, such as 15m, in place of their number; a pilot converts it.")
    ] = "",
    kept_apart: Annotated[
        Path | None,
        option(
            "--kept-apart DATA",
            "Questions of the same store for the score; training then uses all of --data. By default the part report.",
        ),
    ] = None,
) -> Exit:
    """Train a part of a flow on your own questions, and score it on questions that it was not trained on.

    Questions of the part `tune` are trained on, `select` validates, `report` gives the score. After a kill, the same
    command continues, and gives the same weights. The part `lm` learns from rows instead (TRL).
    """
    if part == LM:
        return _tune_language_model(options, out, steps)
    if data is None:
        raise DataError(f"The part {part} learns from questions. Write --data DATA.")

    screen, source = Screen(json=options.json), DataSet(str(data))
    refuse_misspelt(options)
    if source.columns:
        screen.say(source.columns)
    options = with_profile_store(options, source)
    items, other_items = list(source.items(stored=options.store is not None)), _read_items(kept_apart, options.store)
    parts = build_training_parts(options, source, [*items, *(other_items or ())], screen, web)
    runs.refuse_unpriced(options.budget_usd, [parts.llm])
    limit = runs.budget_of(options.budget_calls, options.budget_tokens, options.budget_usd)
    trainer = make_trainer(part, _build_context(parts, screen, options))
    recorded_run = runs.record_run(parts.chunks.corpus.path, screen, budget=limit, share=True)
    log = announce_log(UsageLog.for_data(data, cache_folder(), marks_of(items)), screen)
    with log as usage_log, screen.progress(f"training: {part}") as progress, recorded_run as run:
        result = trained(
            trainer,
            items,
            out,
            kept_apart=other_items,
            steps=steps,
            budget_s=_parse_seconds(budget),
            seed=options.seed,
            data=source.name,
            objects=parts.by_name(),
            usage_log=usage_log,
            run=run,
            on_progress=lambda step, total, loss, validation: progress(step, total, _curve(loss, validation)),
        )
    simulated = {"simulated": True} if options.llm == SIMULATED else {}
    screen.give(**simulated, sha256=result.sha256, card=result.card, flow=str(out / "flow.yaml"))
    held_out = [item for item in items if part_of(item.id) == REPORT]
    is_unseen = bool(held_out) and not any(result.weights.was_trained_on(item.question) for item in held_out)
    _show_result(screen, result.card, out, data, options.store, is_unseen)
    return Exit.DONE


def _tune_language_model(options: TrainOptions, out: Path, steps: int | None) -> Exit:
    """Tune a language model on rows."""
    if options.rows is None or not options.base:
        raise DataError("A language model is tuned on rows. Write --rows FILE and --base DIR.")

    screen = Screen(json=options.json)
    tuning = Tuning(options.method or "sft", options.rank, options.rate, options.batch, options.accumulate)
    measure = answer_measure(parse_measure(options.reward)) if options.reward else None
    with screen.progress(f"training: {LM}") as progress:
        tuned_model = tune(
            options.rows, options.base, out, tuning, revision=options.revision, measure=measure, steps=steps or STEPS,
            seed=options.seed, on_progress=lambda step, total, loss, _: progress(step, total, _curve(loss, None)),
        )  # fmt: skip
    card = tuned_model.card
    screen.give(sha256=card["sha256"], card=card, model=str(out))
    last = ", ".join(f"{name} {value:.4g}" for name, value in card["curve"][-1].items() if name != "step")
    screen.show(
        f"Trained: {LM} by {tuning.method}, on {card['data']['rows']} rows in {card['steps']['made']} steps; {last}."
    )
    for note in card["notes"]:
        screen.say(note)
    screen.say(f"Written: {out}. Use it: spolia ask QUESTION --llm {out} --store STORE")
    return Exit.DONE


def build_training_parts(
    options: QuestionOptions,
    data: "DataSet",
    items: "list[Item]",
    screen: Screen,
    web: Sequence[str] | None = None,
) -> "Parts":
    """Build parts from the store or the data's passages, with the models and, if a condition names one, the second
    source."""
    llm = build_simulated_reader(options, data, items) if options.llm == SIMULATED else load_real_model(options)
    if options.store is not None:
        parts = build_parts(options.store, options, llm, modules=options.known)
    else:
        with screen.progress(f"indexing {data.name}") as on_progress:
            flows, fields = [options.retriever or EMBEDDING], list_fields(web or ())
            parts, _ = build_data_parts(data, flows, options, llm, on_progress, say=screen.say, fields=fields)
    return add_second_source(parts.but(retriever=options.retriever or DEFAULT), web)


def _build_context(parts: "Parts", screen: Screen, options: TrainOptions) -> "TrainingContext":
    """Build the training context; without an embedder, and with a message, if its vectors are missing."""
    group, embedder = parts.chunks, parts.embedder
    if parts.retriever == "bm25":
        embedder = None
    elif embedder is not None and not group.snapshot().manifest(group.name).find_embedding(embedder.name):
        screen.say("The store has no vectors: the part is trained without an embedder.", "yellow")
        embedder = None

    def search(top_k: int) -> "Retriever":
        retriever = build_retrieval(parts.retriever, group, embedder, top_k, parts.scorer, parts.ranker)
        return retriever if parts.second_condition is None else add_condition(retriever, Not(parts.second_condition))

    return TrainingContext(group, embedder, parts.llm, search, parts.web, options.base, options.method)


def _read_items(data: Path | None, store: str | None) -> "list[Item] | None":
    return None if data is None else list(DataSet(str(data)).items(stored=store is not None))


def _parse_seconds(budget: str) -> float | None:
    if not budget:
        return None
    time_budget = TuningBudget.parse(budget)
    if time_budget.unit != SECONDS:
        raise DataError(f"--budget {budget} is not a time. Write 90s, 15m or 2h, or a number of steps: --steps N.")
    return time_budget.amount


def _curve(loss: float, validation: float | None) -> str:
    return f"loss {loss:.4f}" + ("" if validation is None else f", validation {validation:.4f}")


def _show_result(screen: Screen, card: Any, out: Path, data: Path, store: str | None, is_unseen: bool) -> None:
    """Show the score and how to go on; `is_unseen`: no question of the part report was trained on."""
    question_counts = card["questions"]
    screen.show(
        f"Trained: {card['part']}, on {several(question_counts['train'], 'question')} in "
        f"{several(card['steps']['made'], 'step')}, "
        f"{card['cost']['prepare_cpu_s'] + card['cost']['steps_cpu_s']:.1f} CPU-s."
    )
    if (score := card["score"]) is not None:
        trained, untrained = (f"{100 * score[flow]['mean']:.1f}" for flow in ("trained", "untrained"))
        measured = f"{score['measure']} on {several(score['n'], 'other question')}"
        screen.show(f"{measured}: {trained}, untrained {untrained}; difference {points_of(score['difference'])}")
    for note in card["notes"]:
        screen.say(note, "yellow" if note.startswith("Warning") else "dim")
    flow = out / "flow.yaml"
    advice = f"Use it: spolia ask QUESTION --flow {flow} --store {store or 'STORE'}"
    if card["part"] == RANKER and store is None:
        advice = f"It is for the passages of {data} alone; for a store, train with --store STORE."
        if is_unseen:
            advice += f" Measure it: spolia eval {flow} --data {data} --split report"
    screen.say(f"Written: {flow}. {advice}")
