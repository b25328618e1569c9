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
    announced,
    parts_over,
    real_model,
    refuse_misspelt,
    simulated_reader,
    with_profile_store,
)
from spolia.cli.flow_parts import Parts, parts_of, with_sources
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
from spolia.filters.text import named_fields
from spolia.flow_files.built_in_flows import found_by, within
from spolia.models.file_hash import cache_folder
from spolia.optimizer.budget import SECONDS, TuningBudget
from spolia.training.language_model import STEPS, Tuning, tune
from spolia.training.parts import trainer_of
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
    """All options of `spolia train`: those of a language model are taken by the part `lm` alone."""

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
    given: TrainOptions,
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
        return _language_model(given, out, steps)
    if data is None:
        raise DataError(f"The part {part} learns from questions. Write --data DATA.")

    screen, source = Screen(json=given.json), DataSet(str(data))
    refuse_misspelt(given)
    if source.columns:
        screen.say(source.columns)
    given = with_profile_store(given, source)
    items, apart = list(source.items(stored=given.store is not None)), _others(kept_apart, given.store)
    parts = parts_for(given, source, [*items, *(apart or ())], screen, web)
    runs.refuse_unpriced(given.budget_usd, [parts.llm])
    limit = runs.budget_of(given.budget_calls, given.budget_tokens, given.budget_usd)
    trainer = trainer_of(part, _context(parts, screen, given))
    asking = runs.recorded(parts.chunks.corpus.path, screen, budget=limit, share=True)
    log = announced(UsageLog.of_data(data, cache_folder(), marks_of(items)), screen)
    with log as usage_log, screen.progress(f"training: {part}") as progress, asking as run:
        found = trained(
            trainer,
            items,
            out,
            kept_apart=apart,
            steps=steps,
            budget_s=_seconds(budget),
            seed=given.seed,
            data=source.name,
            given=parts.given(),
            usage_log=usage_log,
            run=run,
            told=lambda step, of, loss, validation: progress(step, of, _curve(loss, validation)),
        )
    simulated = {"simulated": True} if given.llm == SIMULATED else {}
    screen.give(**simulated, sha256=found.sha256, card=found.card, flow=str(out / "flow.yaml"))
    held_out = [one for one in items if part_of(one.id) == REPORT]
    is_unseen = bool(held_out) and not any(found.weights.was_trained_on(one.question) for one in held_out)
    _show(screen, found.card, out, data, given.store, is_unseen)
    return Exit.DONE


def _language_model(given: TrainOptions, out: Path, steps: int | None) -> Exit:
    """Tune a language model on rows."""
    if given.rows is None or not given.base:
        raise DataError("A language model is tuned on rows. Write --rows FILE and --base DIR.")

    screen = Screen(json=given.json)
    tuning = Tuning(given.method or "sft", given.rank, given.rate, given.batch, given.accumulate)
    measure = answer_measure(parse_measure(given.reward)) if given.reward else None
    with screen.progress(f"training: {LM}") as progress:
        found = tune(
            given.rows, given.base, out, tuning, revision=given.revision, measure=measure, steps=steps or STEPS,
            seed=given.seed, told=lambda step, of, loss, _: progress(step, of, _curve(loss, None)),
        )  # fmt: skip
    card = found.card
    screen.give(sha256=card["sha256"], card=card, model=str(out))
    last = ", ".join(f"{name} {value:.4g}" for name, value in card["curve"][-1].items() if name != "step")
    screen.show(
        f"Trained: {LM} by {tuning.method}, on {card['data']['rows']} rows in {card['steps']['made']} steps; {last}."
    )
    for note in card["notes"]:
        screen.say(note)
    screen.say(f"Written: {out}. Use it: spolia ask QUESTION --llm {out} --store STORE")
    return Exit.DONE


def parts_for(
    given: QuestionOptions,
    data: "DataSet",
    items: "list[Item]",
    screen: Screen,
    web: Sequence[str] | None = None,
) -> "Parts":
    """The store, or the passages of the data; both sources, if a condition names the second; and the models."""
    llm = simulated_reader(given, data, items) if given.llm == SIMULATED else real_model(given)
    if given.store is not None:
        parts = parts_of(given.store, given, llm, known=given.known)
    else:
        with screen.progress(f"indexing {data.name}") as told:
            flows, fields = [given.retriever or EMBEDDING], named_fields(web or ())
            parts, _ = parts_over(data, flows, given, llm, told, say=screen.say, fields=fields)
    return with_sources(parts.but(retriever=given.retriever or DEFAULT), web)


def _context(parts: "Parts", screen: Screen, given: TrainOptions) -> "TrainingContext":
    """The context of the training; without an embedder, and with a message, where its vectors are missing."""
    group, embedder = parts.chunks, parts.embedder
    if parts.retriever == "bm25":
        embedder = None
    elif embedder is not None and not group.snapshot().manifest(group.name).embedded(embedder.name):
        screen.say("The store has no vectors: the part is trained without an embedder.", "yellow")
        embedder = None

    def search(top_k: int) -> "Retriever":
        found = found_by(parts.retriever, group, embedder, top_k, parts.scorer, parts.ranker)
        return found if parts.second is None else within(found, Not(parts.second))

    return TrainingContext(group, embedder, parts.llm, search, parts.web, given.base, given.method)


def _others(data: Path | None, store: str | None) -> "list[Item] | None":
    return None if data is None else list(DataSet(str(data)).items(stored=store is not None))


def _seconds(budget: str) -> float | None:
    if not budget:
        return None
    found = TuningBudget.parse(budget)
    if found.unit != SECONDS:
        raise DataError(f"--budget {budget} is not a time. Write 90s, 15m or 2h, or a number of steps: --steps N.")
    return found.amount


def _curve(loss: float, validation: float | None) -> str:
    return f"loss {loss:.4f}" + ("" if validation is None else f", validation {validation:.4f}")


def _show(screen: Screen, card: Any, out: Path, data: Path, store: str | None, is_unseen: bool) -> None:
    """Show the score and how to go on; `is_unseen`: no question of the part report was trained on."""
    asked = card["questions"]
    screen.show(
        f"Trained: {card['part']}, on {several(asked['train'], 'question')} in "
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
    how = f"Use it: spolia ask QUESTION --flow {flow} --store {store or 'STORE'}"
    if card["part"] == RANKER and store is None:
        how = f"It is for the passages of {data} alone; for a store, train with --store STORE."
        if is_unseen:
            how += f" Measure it: spolia eval {flow} --data {data} --split report"
    screen.say(f"Written: {flow}. {how}")
