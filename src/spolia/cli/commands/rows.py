"""`spolia rows`: rows to tune language models on, made from your questions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli import runs
from spolia.cli.commands.eval import DATA
from spolia.cli.commands.train import build_training_parts
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import SIMULATED, refuse_misspelt, with_profile_store
from spolia.cli.flow_parts import Parts, load_flow
from spolia.cli.measuring_options import QuestionOptions
from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_language_model
from spolia.cli.options import FlowName, Web
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen
from spolia.errors import DataError, QueryError
from spolia.evaluation.data.dataset import DataSet, part_of
from spolia.evaluation.data.json_lines import write_rows
from spolia.evaluation.data.usage_log import UsageLog, marks_of
from spolia.evaluation.measures.registry import parse_measure
from spolia.flow_files.built_in_flows import build_retrieval
from spolia.models.file_hash import cache_folder, hash_of
from spolia.models.protocols import ScoresContinuations, require_capabilities
from spolia.training.preferences import prefrag_rows
from spolia.training.rows import (
    Row,
    StepLog,
    answer_measure,
    corag_rows,
    distillation_rows,
    ra_dit_rows,
    retriever_rows,
    reward_rows,
    self_rag_rows,
)
from spolia.training.sufficiency import sample_chains
from spolia.training.training import TRAIN, QuestionSplit

if TYPE_CHECKING:
    from spolia.types import Item

METHODS = {
    "ra-dit": "sft",
    "corag": "sft",
    "distill": "sft",
    "dual": "sft",
    "self-rag": "sft",
    "prefrag": "dpo",
    "reward": "grpo",
}
"""The method that learns from each kind of rows."""
OBSERVED = ("distill", "prefrag")
"""Kinds that are made from the steps of a flow."""
PASSAGES, CHAIN_PASSAGES = 10, 5
ALL = "all"


def rows(
    options: QuestionOptions,
    kind: Annotated[str, argument("KIND", f"The kind of rows: {', '.join(METHODS)}.")],
    data: Annotated[Path, option("--data DATA", DATA)],
    out: Annotated[Path, option("--out FILE", "The file: JSON lines.", short="-o")],
    flow: FlowName = "naive",
    web: Web = None,
    accept: Annotated[
        str, option("--accept MEASURE", "distill: keep questions whose answer gets the full score; `all` keeps all.")
    ] = "EM",
    chains: Annotated[int, option("--chains", "corag: chains sampled for each question.", min=1)] = 4,
    judge: Annotated[
        str, option("--judge URL", "prefrag: a big model that says which replies are right; by default the gold does.")
    ] = "",
    judge_model: Annotated[str, option("--judge-model NAME", "The judge's name on that server.")] = "",
) -> Exit:
    """Write the rows that `spolia train lm` tunes a language model on, from the questions of the part `tune`."""
    screen, source = Screen(json=options.json), DataSet(str(data))
    if kind not in METHODS:
        raise DataError(f"Unknown kind of rows: {kind!r}. Write one of: {', '.join(METHODS)}.")
    refuse_misspelt(options)
    options = with_profile_store(options, source)
    all_items = list(source.items(stored=options.store is not None))
    items = [item for item in QuestionSplit.from_items(all_items).train if part_of(item.id) == TRAIN]
    parts = build_training_parts(options, source, all_items, screen, web)
    judge_llm = load_language_model(judge, judge_model, load_profile(options.profile_file))
    runs.refuse_unpriced(options.budget_usd, [parts.llm, judge_llm])
    limit = runs.budget_of(options.budget_calls, options.budget_tokens, options.budget_usd)
    log = StepLog() if kind in OBSERVED else None
    # A step that is shared would be missing in the log.
    with runs.record_run(parts.chunks.corpus.path, screen, budget=limit, share=log is None, log=log):
        if kind in OBSERVED:
            kind_rows = _rows_from_steps(kind, flow, parts, items, accept, judge_llm, options.seed)
        else:
            kind_rows = _rows_from_search(kind, parts, items, chains)
        files = {out: list(kind_rows)}
        if kind == "dual":
            files[out.with_suffix(".retriever.jsonl")] = list(_retriever_rows(parts, items))
    output_rows = files[out]
    if not items:
        raise DataError(f"No question of {data} is in the part {TRAIN}, which rows are made of. Give more questions.")
    if not output_rows:
        raise DataError(f"None of {len(items)} questions gives a row. {WHY[kind]}")
    for file, file_rows in files.items():
        write_rows(file, file_rows)
    _log_usage(data, all_items, items, kind, hash_of(out))
    method, simulated = METHODS[kind], {"simulated": True} if options.llm == SIMULATED else {}
    screen.give(
        **simulated, kind=kind, method=method, rows=len(output_rows), questions=len({row["id"] for row in output_rows}),
        sha256=hash_of(out), files=list(map(str, files)),
    )  # fmt: skip
    screen.show(
        f"{len(output_rows):,} rows in {out}. Use them: spolia train lm --method {method} --rows {out} --base DIR -o "
        "DIR"
    )
    return Exit.DONE


WHY = {
    "ra-dit": "Give questions with answers, and a store with passages for them.",
    "corag": "Give questions with answers, and a model whose chains lead to some of them.",
    "distill": "Give a model or a flow that answers some of them, or --accept all.",
    "self-rag": "Give questions with gold and answers.",
    "dual": "Give questions with answers, and a store with passages for them.",
    "prefrag": "Give questions with gold, and a model whose replies differ.",
    "reward": "Give questions with answers, and a store with passages for them.",
}


def _rows_from_search(kind: str, parts: "Parts", items: "Sequence[Item]", chains: int) -> "Iterable[Row]":
    """Make rows from what a retriever finds, and for some kinds from what a model answers."""
    if kind in ("corag", "self-rag"):
        if parts.llm is None:
            raise QueryError(f"Rows of {kind} have what a language model answers. Write --llm URL --model NAME.")
        search = _build_search(parts, CHAIN_PASSAGES)
        if kind == "self-rag":
            return self_rag_rows(items, search, parts.llm)
        return corag_rows(items, sample_chains(parts.llm, search, items, n=chains), search)
    return (reward_rows if kind == "reward" else ra_dit_rows)(items, _build_search(parts, PASSAGES))


def _retriever_rows(parts: "Parts", items: "Sequence[Item]") -> "Iterable[Row]":
    if parts.llm is None:
        raise QueryError("Rows for a retriever need a language model that scores texts. Write --llm URL --model NAME.")
    llm: Any = require_capabilities(parts.llm, ScoresContinuations)
    return (row._asdict() for row in retriever_rows(items, _build_search(parts, PASSAGES), llm))


def _build_search(parts: "Parts", top_k: int) -> Any:
    return build_retrieval(parts.retriever, parts.chunks, parts.embedder, top_k, parts.scorer, parts.ranker)


def _rows_from_steps(
    kind: str, flow: str, parts: "Parts", items: "Sequence[Item]", accept: str, judge: Any, seed: int
) -> "Iterable[Row]":
    """Make rows from the steps of a flow."""
    if kind == "prefrag":
        return prefrag_rows(load_flow(kind, parts)[0], items, judge, seed=seed)
    measure = None if accept == ALL else answer_measure(parse_measure(accept, llm=judge))
    return distillation_rows(load_flow(flow, parts)[0], items, measure)


def _log_usage(data: Path, all_items: "Sequence[Item]", items: "Sequence[Item]", kind: str, sha256: str) -> None:
    """Write down that a model is to be trained on these questions."""
    log = UsageLog.for_data(data, cache_folder(), marks_of(all_items))
    log.note(replace(log, part=TRAIN).new_entry(items, {f"rows {kind}": sha256}, ["training"]))
