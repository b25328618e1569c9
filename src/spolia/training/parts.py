"""Trainers of the parts that can be trained, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from spolia import training
from spolia.errors import DataError
from spolia.models.onnx.minilm import MiniLM
from spolia.models.protocols import ScoresContinuations
from spolia.training.flow_classifiers import EvaluatorTrainer, PairTrainer, RouterTrainer, VerifierTrainer
from spolia.training.query_adapter import AdapterTrainer, Teacher
from spolia.training.ranker import RankerTrainer
from spolia.training.sufficiency import SufficiencyTrainer
from spolia.training.term_weights import TermWeightsTrainer
from spolia.training.trainer import Trainer, TrainingContext

if TYPE_CHECKING:
    pass


def _make_ranker(context: TrainingContext) -> Trainer:
    if context.base not in ("", "trees"):
        raise DataError(f"A ranker has linear weights, or trees, not {context.base!r}. Write --base trees.")
    return RankerTrainer(context.group, context.embedder, trees=bool(context.base))


def _make_reader(context: TrainingContext) -> Trainer:
    return training.span_reader.SpanReaderTrainer(context.group, context.embedder)


def _make_sufficiency(context: TrainingContext) -> Trainer:
    llm, search = context.require_llm("sufficiency")
    if not context.base:
        return SufficiencyTrainer(llm, search(5))
    if context.base == "vectors":
        if context.embedder is None:
            raise DataError("--base vectors needs an embedder. Name a store with vectors.")
        return SufficiencyTrainer(llm, search(5), context.embedder)

    chains = SufficiencyTrainer(llm, search(5))
    return (
        training.fine_tuning.MiniLMSufficiency(chains)
        if context.base == "minilm"
        else training.fine_tuning.CheckpointSufficiency(chains, context.base)
    )


def _make_router(context: TrainingContext) -> Trainer:
    llm, search = context.require_llm("router")
    return RouterTrainer(llm, search(15), context.embedder)


def _make_evaluator(context: TrainingContext) -> Trainer:
    llm, search = context.require_llm("evaluator")
    if context.web is None:
        raise DataError("The flow of an evaluator (CRAG) searches a second source. Name it: --web source=web.")
    return EvaluatorTrainer(llm, search(10), context.web, context.embedder)


def _make_pairs(context: TrainingContext) -> Trainer:
    llm, search = context.require_llm("pairs")
    return PairTrainer(llm, search(5))


def _make_verifier(context: TrainingContext) -> Trainer:
    llm, search = context.require_llm("verifier")
    return VerifierTrainer(llm, search(5), context.embedder)


def _make_teacher(context: TrainingContext, part: str) -> Teacher:
    if context.embedder is None:
        raise DataError(f"An {part} moves the questions of an embedder. Name a store with vectors.")
    has_scores = isinstance(context.llm, ScoresContinuations)  # RA-DIT's second half
    return Teacher(context.group, context.embedder, context.llm, context.method or ("lsr" if has_scores else "gold"))


def _make_adapter(context: TrainingContext) -> Trainer:
    return AdapterTrainer(_make_teacher(context, "adapter"))


def _make_embedder(context: TrainingContext) -> Trainer:
    if not isinstance(context.embedder, MiniLM):
        raise DataError("The part embedder trains MiniLM. Name a store with its vectors; `adapter` moves any embedder.")
    return training.fine_tuning.EmbedderTrainer(_make_teacher(context, "embedder"))


def _make_reranker(context: TrainingContext) -> Trainer:
    return training.fine_tuning.RerankerTrainer(context.group, context.embedder)


def _make_bi_encoder(context: TrainingContext) -> Trainer:
    if not isinstance(context.embedder, MiniLM):
        raise DataError("The part bi-encoder trains MiniLM. Name a store with its vectors.")
    return training.encoders.BiEncoderTrainer(context.group, context.embedder)


def _make_context(context: TrainingContext) -> Trainer:
    llm, search = context.require_llm("context")
    return training.encoders.ContextTrainer(llm, search(5))


def _make_rewriter(context: TrainingContext) -> Trainer:
    return TermWeightsTrainer(context.group, context.llm)


PARTS: Mapping[str, Callable[[TrainingContext], Trainer]] = {
    "ranker": _make_ranker,
    "reader": _make_reader,
    "reranker": _make_reranker,
    "embedder": _make_embedder,
    "bi-encoder": _make_bi_encoder,
    "context": _make_context,
    "sufficiency": _make_sufficiency,
    "router": _make_router,
    "evaluator": _make_evaluator,
    "pairs": _make_pairs,
    "verifier": _make_verifier,
    "adapter": _make_adapter,
    "rewriter": _make_rewriter,
}


PART_OPTIONS = {"base": ("ranker", "sufficiency"), "method": ("adapter", "embedder")}
"""The parts that take an option which the others do not."""


def make_trainer(name: str, context: TrainingContext) -> Trainer:
    """Make the trainer of a part; DataError for an unknown name, or if the context lacks something that it needs.

    >>> from spolia import Corpus
    >>> make_trainer("ranker", TrainingContext(Corpus("notes.spolia").group())).measure
    'R@5'
    """
    if name not in PARTS:
        matches = get_close_matches(name, PARTS, 1)
        suggestion = f" Did you mean {matches[0]}?" if matches else ""
        raise DataError(f"There is no part {name!r} to train.{suggestion} Write one of: {', '.join(PARTS)}.")
    for option, parts in PART_OPTIONS.items():
        if getattr(context, option) and name not in parts:
            raise DataError(f"The part {name} takes no --{option}; {' and '.join(parts)} do. Leave it out.")
    return PARTS[name](context)
