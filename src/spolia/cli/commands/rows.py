"""`spolia rows`: what language models are tuned on, made from your questions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli import runs
from spolia.cli.commands.eval import DATA
from spolia.cli.commands.train import parts_for
from spolia.cli.exit_codes import Exit
from spolia.cli.experiments import SIMULATED, refuse_misspelt, with_profile_store
from spolia.cli.flow_parts import Parts, flow_of
from spolia.cli.measuring_options import QuestionOptions
from spolia.cli.model_profile import profile_of
from spolia.cli.models import model_at
from spolia.cli.options import FlowName, Web
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen
from spolia.errors import DataError, QueryError
from spolia.evaluation.data.dataset import DataSet, part_of
from spolia.evaluation.data.json_lines import write_rows
from spolia.evaluation.data.usage_log import UsageLog, marks_of
from spolia.evaluation.measures.registry import parse_measure
from spolia.flow_files.built_in_flows import found_by
from spolia.models.file_hash import cache_folder, hash_of
from spolia.models.protocols import ScoresContinuations, able_to
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
    given: QuestionOptions,
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
    screen, source = Screen(json=given.json), DataSet(str(data))
    if kind not in METHODS:
        raise DataError(f"Unknown kind of rows: {kind!r}. Write one of: {', '.join(METHODS)}.")
    refuse_misspelt(given)
    given = with_profile_store(given, source)
    every = list(source.items(stored=given.store is not None))
    items = [item for item in QuestionSplit.of(every).train if part_of(item.id) == TRAIN]
    parts = parts_for(given, source, every, screen, web)
    judging = model_at(judge, judge_model, profile_of(given.profile_file))
    runs.refuse_unpriced(given.budget_usd, [parts.llm, judging])
    limit = runs.budget_of(given.budget_calls, given.budget_tokens, given.budget_usd)
    log = StepLog() if kind in OBSERVED else None
    with runs.recorded(parts.chunks.corpus.path, screen, budget=limit, share=log is None, log=log):
        if kind in OBSERVED:
            found = _observed(kind, flow, parts, items, accept, judging, given.seed)
        else:
            found = _searched(kind, parts, items, chains)
        files = {out: list(found)}
        if kind == "dual":
            files[out.with_suffix(".retriever.jsonl")] = list(_retriever(parts, items))
    made = files[out]
    if not items:
        raise DataError(f"No question of {data} is in the part {TRAIN}, which rows are made of. Give more questions.")
    if not made:
        raise DataError(f"None of {len(items)} questions gives a row. {WHY[kind]}")
    for file, written in files.items():
        write_rows(file, written)
    _note(data, every, items, kind, hash_of(out))
    method, simulated = METHODS[kind], {"simulated": True} if given.llm == SIMULATED else {}
    screen.give(
        **simulated, kind=kind, method=method, rows=len(made), questions=len({row["id"] for row in made}),
        sha256=hash_of(out), files=list(map(str, files)),
    )  # fmt: skip
    screen.show(
        f"{len(made):,} rows in {out}. Use them: spolia train lm --method {method} --rows {out} --base DIR -o DIR"
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


def _searched(kind: str, parts: "Parts", items: "Sequence[Item]", chains: int) -> "Iterable[Row]":
    """Rows that are made of what a retriever finds; some also of what a model answers."""
    if kind in ("corag", "self-rag"):
        if parts.llm is None:
            raise QueryError(f"Rows of {kind} have what a language model answers. Write --llm URL --model NAME.")
        search = _search(parts, CHAIN_PASSAGES)
        if kind == "self-rag":
            return self_rag_rows(items, search, parts.llm)
        return corag_rows(items, sample_chains(parts.llm, search, items, n=chains), search)
    return (reward_rows if kind == "reward" else ra_dit_rows)(items, _search(parts, PASSAGES))


def _retriever(parts: "Parts", items: "Sequence[Item]") -> "Iterable[Row]":
    if parts.llm is None:
        raise QueryError("Rows for a retriever need a language model that scores texts. Write --llm URL --model NAME.")
    llm: Any = able_to(parts.llm, ScoresContinuations)
    return (row._asdict() for row in retriever_rows(items, _search(parts, PASSAGES), llm))


def _search(parts: "Parts", top_k: int) -> Any:
    return found_by(parts.retriever, parts.chunks, parts.embedder, top_k, parts.scorer, parts.ranker)


def _observed(
    kind: str, flow: str, parts: "Parts", items: "Sequence[Item]", accept: str, judge: Any, seed: int
) -> "Iterable[Row]":
    """Rows that are made of the steps of a flow."""
    if kind == "prefrag":
        return prefrag_rows(flow_of(kind, parts)[0], items, judge, seed=seed)
    measure = None if accept == ALL else answer_measure(parse_measure(accept, llm=judge))
    return distillation_rows(flow_of(flow, parts)[0], items, measure)


def _note(data: Path, every: "Sequence[Item]", items: "Sequence[Item]", kind: str, sha256: str) -> None:
    """Write down that a model is to be trained on these questions."""
    log = UsageLog.of_data(data, cache_folder(), marks_of(every))
    log.note(replace(log, part=TRAIN).at(items, {f"rows {kind}": sha256}, ["training"]))
