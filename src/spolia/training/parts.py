"""The parts that can be trained, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from spolia.core.operator import Retriever
from spolia.errors import DataError
from spolia.models.protocols import Embedder, LanguageModel
from spolia.stores.corpus import NodeGroup
from spolia.training.flow_classifiers import EvaluatorTrainer, PairTrainer, RouterTrainer, VerifierTrainer
from spolia.training.query_adapter import AdapterTrainer
from spolia.training.ranker import RankerTrainer
from spolia.training.sufficiency import SufficiencyTrainer
from spolia.training.trainer import Trainer
from spolia.types import Value


@dataclass(frozen=True)
class TrainingContext(Value):
    """What a part in training has to work with.

    Args:
        group: the nodes that are searched.
        embedder: one that the group was built with.
        llm: the language model of the flow.
        search: its retriever, for a number of passages.
        web: its second source.
    """

    group: NodeGroup
    embedder: Embedder | None = None
    llm: LanguageModel | None = None
    search: Callable[[int], Retriever] | None = None
    web: Retriever | None = None

    def asked(self, part: str) -> tuple[LanguageModel, Callable[[int], Retriever]]:
        """The language model and the retriever of a flow that is trained with its own answers."""
        if self.llm is None or self.search is None:
            raise DataError(
                f"A {part} classifier needs the language model of its flow. Name it: --llm URL --model NAME."
            )
        return self.llm, self.search


def _ranker(context: TrainingContext) -> Trainer:
    return RankerTrainer(context.group, context.embedder)


def _reader(context: TrainingContext) -> Trainer:
    from spolia.training.span_reader import SpanReaderTrainer  # needs torch

    return SpanReaderTrainer(context.group, context.embedder)


def _sufficiency(context: TrainingContext) -> Trainer:
    llm, search = context.asked("sufficiency")
    return SufficiencyTrainer(llm, search(5))


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


def _adapter(context: TrainingContext) -> Trainer:
    if context.embedder is None:
        raise DataError("An adapter moves the questions of an embedder. Name a store with vectors.")
    return AdapterTrainer(context.group, context.embedder)


PARTS: Mapping[str, Callable[[TrainingContext], Trainer]] = {
    "ranker": _ranker,
    "reader": _reader,
    "sufficiency": _sufficiency,
    "router": _router,
    "evaluator": _evaluator,
    "pairs": _pairs,
    "verifier": _verifier,
    "adapter": _adapter,
}


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
    return PARTS[name](context)
