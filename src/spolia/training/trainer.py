"""Protocol of trainers, and the context that they are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from spolia.core.operator import Operator, Retriever
from spolia.errors import DataError
from spolia.models.protocols import Embedder, LanguageModel
from spolia.models.trained_weights import TrainedWeights
from spolia.stores.corpus import NodeGroup
from spolia.types import Item, Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Arrays = Mapping[str, "npt.NDArray[np.generic]"]


class Trainer(Protocol):
    """Part in training. `train` calls `prepare` once, then `step` as often as it may, then `weights`.

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
        """Return what decides the weights besides the questions and the seed, as plain data for the card."""
        ...

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        """Compute what the steps need of the questions; DataError if nothing can be learned from them."""
        ...

    def step(self, done: float) -> float:
        """Make one step and return the loss before it. `done` is the share of steps made; rates fall with it."""
        ...

    def validate(self) -> float | None:
        """Return the loss on the validation questions; None without validation questions."""
        ...

    def state(self) -> Arrays:
        """Return the state to continue from after this step, without what `prepare` computes."""
        ...

    def restore(self, state: Arrays) -> None:
        """Continue from a state that an equal training saved."""
        ...

    def weights(self) -> Mapping[str, Any]:
        """Return plain data, to be written as JSON, or float32 arrays by name, to be written as safetensors."""
        ...

    def untrained(self) -> Operator[Any, Any]:
        """Return the flow without the part, with which the trained one is compared."""
        ...

    def trained(self, weights: TrainedWeights) -> Operator[Any, Any]:
        """Return the flow with the part."""
        ...


@dataclass(frozen=True)
class TrainingContext(Value):
    """Resources for the trainer of a part.

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

    def require_llm(self, part: str) -> tuple[LanguageModel, Callable[[int], Retriever]]:
        """Return the language model and the retriever of the flow; DataError if one is missing."""
        if self.llm is None or self.search is None:
            raise DataError(f"The part {part} needs the language model of its flow. Name it: --llm URL --model NAME.")
        return self.llm, self.search
