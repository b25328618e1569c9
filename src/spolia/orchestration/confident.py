"""Whether a reply is certain enough to be used."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spolia.errors import ModelRejected, WiringError
from spolia.operator import Operator
from spolia.types import Generation, Verdict


@dataclass(frozen=True)
class Confident(Operator[Generation, Verdict]):
    """Accept a reply where each of its tokens has at least a probability: ∀t: p(t) ≥ τ.

    A token with exactly τ is accepted. One whose log-probability is NaN, or above 0, is not.

    Args:
        threshold: τ, from 0 to 1.

    Raises:
        WiringError: for another threshold.
        ModelRejected: when it runs: the reply has no log-probabilities.

    Source: Jiang et al., "Active retrieval augmented generation" (FLARE), EMNLP 2023, whose code retrieves at p = τ.

    >>> from spolia.types import Token
    >>> sure = Generation("Nokia in Salo", tokens=(Token("Nokia", -0.01), Token(" in Salo", math.log(0.8))))
    >>> Confident(0.8)(sure).stop, Confident(0.81)(sure).stop
    (True, False)
    """

    threshold: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= 1:
            raise WiringError(f"{self.short}: threshold is {self.threshold}. Write a probability, from 0 to 1.")

    def apply(self, value: Generation, /) -> Verdict:
        if not value.tokens:
            raise ModelRejected(
                "The reply has no log-probabilities to judge it by. Take a model with the capability 'logprobs', and "
                "ask it with logprobs=True."
            )
        least = math.log(self.threshold) if self.threshold else -math.inf
        return Verdict(all(least <= token.logprob <= 0 for token in value.tokens), "confident")
