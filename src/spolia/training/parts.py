"""The parts that can be trained, by name, and what a part needs so that it can be."""

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


def _ranker(context: TrainingContext) -> Trainer:
    if context.base not in ("", "trees"):
        raise DataError(f"A ranker has linear weights, or trees, not {context.base!r}. Write --base trees.")
    return RankerTrainer(context.group, context.embedder, trees=bool(context.base))


def _reader(context: TrainingContext) -> Trainer:
    return training.span_reader.SpanReaderTrainer(context.group, context.embedder)


def _sufficiency(context: TrainingContext) -> Trainer:
    llm, search = context.asked("sufficiency")
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


def _router(context: TrainingContext) -> Trainer:
    llm, search = context.asked("router")
    return RouterTrainer(llm, search(15), context.embedder)


def _evaluator(context: TrainingContext) -> Trainer:
    llm, search = context.asked("evaluator")
    if context.web is None:
        raise DataError("The flow of an evaluator (CRAG) searches a second source. Name it: --web source=web.")
    return EvaluatorTrainer(llm, search(10), context.web, context.embedder)


def _pairs(context: TrainingContext) -> Trainer:
    llm, search = context.asked("pairs")
    return PairTrainer(llm, search(5))


def _verifier(context: TrainingContext) -> Trainer:
    llm, search = context.asked("verifier")
    return VerifierTrainer(llm, search(5), context.embedder)


def _teacher(context: TrainingContext, part: str) -> Teacher:
    if context.embedder is None:
        raise DataError(f"An {part} moves the questions of an embedder. Name a store with vectors.")
    scores = isinstance(context.llm, ScoresContinuations)  # RA-DIT's second half
    return Teacher(context.group, context.embedder, context.llm, context.method or ("lsr" if scores else "gold"))


def _adapter(context: TrainingContext) -> Trainer:
    return AdapterTrainer(_teacher(context, "adapter"))


def _embedder(context: TrainingContext) -> Trainer:
    if not isinstance(context.embedder, MiniLM):
        raise DataError("The part embedder trains MiniLM. Name a store with its vectors; `adapter` moves any embedder.")
    return training.fine_tuning.EmbedderTrainer(_teacher(context, "embedder"))


def _reranker(context: TrainingContext) -> Trainer:
    return training.fine_tuning.RerankerTrainer(context.group, context.embedder)


def _bi_encoder(context: TrainingContext) -> Trainer:
    if not isinstance(context.embedder, MiniLM):
        raise DataError("The part bi-encoder trains MiniLM. Name a store with its vectors.")
    return training.encoders.BiEncoderTrainer(context.group, context.embedder)


def _sentences(context: TrainingContext) -> Trainer:
    llm, search = context.asked("context")
    return training.encoders.ContextTrainer(llm, search(5))


def _rewriter(context: TrainingContext) -> Trainer:
    return TermWeightsTrainer(context.group, context.llm)


PARTS: Mapping[str, Callable[[TrainingContext], Trainer]] = {
    "ranker": _ranker,
    "reader": _reader,
    "reranker": _reranker,
    "embedder": _embedder,
    "bi-encoder": _bi_encoder,
    "context": _sentences,
    "sufficiency": _sufficiency,
    "router": _router,
    "evaluator": _evaluator,
    "pairs": _pairs,
    "verifier": _verifier,
    "adapter": _adapter,
    "rewriter": _rewriter,
}


TAKEN = {"base": ("ranker", "sufficiency"), "method": ("adapter", "embedder")}
"""The parts that take an option which the others do not."""


def trainer_of(name: str, context: TrainingContext) -> Trainer:
    """The part of this name; DataError for an unknown name, or where something is missing that it needs.

    >>> from spolia import Corpus
    >>> trainer_of("ranker", TrainingContext(Corpus("notes.spolia").group())).measure
    'R@5'
    """
    if name not in PARTS:
        near = get_close_matches(name, PARTS, 1)
        nearest = f" Did you mean {near[0]}?" if near else ""
        raise DataError(f"There is no part {name!r} to train.{nearest} Write one of: {', '.join(PARTS)}.")
    for option, parts in TAKEN.items():
        if getattr(context, option) and name not in parts:
            raise DataError(f"The part {name} takes no --{option}; {' and '.join(parts)} do. Leave it out.")
    return PARTS[name](context)
