"""What a part needs so that it can be trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spolia.core.operator import Operator
from spolia.models.trained_weights import TrainedWeights
from spolia.types import Item

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
