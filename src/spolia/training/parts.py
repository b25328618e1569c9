"""The parts that can be trained, by name, and what a part needs so that it can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

from spolia.core.operator import Operator, Retriever
from spolia.errors import DataError
from spolia.models.onnx.minilm import MiniLM
from spolia.models.protocols import Embedder, LanguageModel, ScoresContinuations
from spolia.models.trained_weights import TrainedWeights
from spolia.stores.corpus import NodeGroup
from spolia.training.flow_classifiers import EvaluatorTrainer, PairTrainer, RouterTrainer, VerifierTrainer
from spolia.training.query_adapter import AdapterTrainer, Teacher
from spolia.training.ranker import RankerTrainer
from spolia.training.sufficiency import SufficiencyTrainer
from spolia.training.term_weights import TermWeightsTrainer
from spolia.types import Item, Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Arrays = Mapping[str, "npt.NDArray[np.generic]"]


class Trainer(Protocol):
    """A part in training. `train` calls `prepare` once, then `step` as often as it may, then `weights`.

    Attributes:
        part: what it is called on the command line and in the card: `ranker`.
        version: counts up when the same questions give other weights.
        steps: how many are made where nobody says how many.
        measure: what the untrained and the trained flow are compared by, `R@5`.
        converged: further steps change nothing.
        notes: what the user has to know of the training, in whole sentences; the card has them.
    """

    @property
    def part(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def measure(self) -> str: ...

    @property
    def converged(self) -> bool: ...

    @property
    def notes(self) -> Sequence[str]: ...

    def settings(self) -> Mapping[str, Any]:
        """All that decides the weights beside the questions and the seed, as plain data for the card."""
        ...

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        """Compute what steps read of the questions. DataError where nothing can be learned from them."""
        ...

    def step(self, done: float) -> float:
        """Make one step; the loss before it. `done` is the share of all steps that are made: rates fall by it."""
        ...

    def validate(self) -> float | None:
        """The loss on the validation questions; None without any."""
        ...

    def state(self) -> Arrays:
        """All that going on after this step needs, beside what `prepare` computes."""
        ...

    def restore(self, state: Arrays) -> None:
        """Go on from a state that an equal training has kept."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Plain data, written as JSON; or float32 arrays by name, written as safetensors."""
        ...

    def untrained(self) -> Operator[Any, Any]:
        """The flow without the part, with which the trained one is compared."""
        ...

    def trained(self, weights: TrainedWeights) -> Operator[Any, Any]:
        """The flow with the part."""
        ...


@dataclass(frozen=True)
class TrainingContext(Value):
    """What a part in training has to work with.

    Args:
        group: the nodes that are searched.
        embedder: one that the group was built with.
        llm: the language model of the flow.
        search: its retriever, for a number of passages.
        web: its second source.
        base: what the part is made of. A ranker: linear weights, or `trees`. A classifier of sufficiency: features, or
            `vectors`, `minilm`, or the folder of a checkpoint.
        method: how a retriever is taught (`Teacher`); empty for `lsr` with a model that scores texts, else `gold`.
    """

    group: NodeGroup
    embedder: Embedder | None = None
    llm: LanguageModel | None = None
    search: Callable[[int], Retriever] | None = None
    web: Retriever | None = None
    base: str = ""
    method: str = ""

    def asked(self, part: str) -> tuple[LanguageModel, Callable[[int], Retriever]]:
        """The language model and the retriever of a flow that is trained with its own answers."""
        if self.llm is None or self.search is None:
            raise DataError(f"The part {part} needs the language model of its flow. Name it: --llm URL --model NAME.")
        return self.llm, self.search


def _ranker(context: TrainingContext) -> Trainer:
    if context.base not in ("", "trees"):
        raise DataError(f"A ranker has linear weights, or trees, not {context.base!r}. Write --base trees.")
    return RankerTrainer(context.group, context.embedder, trees=bool(context.base))


def _reader(context: TrainingContext) -> Trainer:
    from spolia.training.span_reader import SpanReaderTrainer  # needs torch

    return SpanReaderTrainer(context.group, context.embedder)


def _sufficiency(context: TrainingContext) -> Trainer:
    llm, search = context.asked("sufficiency")
    if not context.base:
        return SufficiencyTrainer(llm, search(5))
    if context.base == "vectors":
        if context.embedder is None:
            raise DataError("--base vectors needs an embedder. Name a store with vectors.")
        return SufficiencyTrainer(llm, search(5), context.embedder)
    from spolia.training.fine_tuning import CheckpointSufficiency, MiniLMSufficiency  # needs torch

    chains = SufficiencyTrainer(llm, search(5))
    return MiniLMSufficiency(chains) if context.base == "minilm" else CheckpointSufficiency(chains, context.base)


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
    from spolia.training.fine_tuning import EmbedderTrainer  # needs torch

    if not isinstance(context.embedder, MiniLM):
        raise DataError("The part embedder trains MiniLM. Name a store with its vectors; `adapter` moves any embedder.")
    return EmbedderTrainer(_teacher(context, "embedder"))


def _reranker(context: TrainingContext) -> Trainer:
    from spolia.training.fine_tuning import RerankerTrainer  # needs torch

    return RerankerTrainer(context.group, context.embedder)


def _bi_encoder(context: TrainingContext) -> Trainer:
    from spolia.training.encoders import BiEncoderTrainer  # needs torch

    if not isinstance(context.embedder, MiniLM):
        raise DataError("The part bi-encoder trains MiniLM. Name a store with its vectors.")
    return BiEncoderTrainer(context.group, context.embedder)


def _sentences(context: TrainingContext) -> Trainer:
    from spolia.training.encoders import ContextTrainer  # needs torch

    llm, search = context.asked("context")
    return ContextTrainer(llm, search(5))


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
