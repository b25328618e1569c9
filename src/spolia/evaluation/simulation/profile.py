"""Profiles of a simulated reader: how often it errs."""

import hashlib
from dataclasses import dataclass, fields

from spolia.errors import WiringError
from spolia.types import Value


@dataclass(frozen=True)
class Profile(Value):
    """Probabilities of mistakes, each from 0 to 1; all 0 for the ideal reader.

    Args:
        know: answers a hop from memory.
        miss: overlooks a passage that states it.
        lure: takes a name from another passage instead of abstaining.
        drift: asks the question itself again instead of the next sub-question.
        dup: repeats an earlier sub-question.
        format: writes a reply that cannot be read.
        judge_fp: a judge says yes where it should say no.
        judge_fn: a judge says no where it should say yes.
        over: declares an answer correct without proof.
    """

    know: float = 0.0
    miss: float = 0.0
    lure: float = 0.0
    drift: float = 0.0
    dup: float = 0.0
    format: float = 0.0
    judge_fp: float = 0.0
    judge_fn: float = 0.0
    over: float = 0.0

    def __post_init__(self) -> None:
        for knob in fields(self):
            if not 0 <= (share := getattr(self, knob.name)) <= 1:
                raise WiringError(f"Profile has {knob.name}={share!r}. Write a number from 0 to 1.")

    def happens(self, knob: str, *key: object) -> bool:
        """Return whether a mistake is made: the same for the same key."""
        share: float = getattr(self, knob)
        return share > 0 and draw(knob, *key) < share


def draw(*key: object) -> float:
    """Return a number from 0 to below 1 that depends on the key alone."""
    # A hash and no random generator, so that neither the order of calls nor threads change a mistake.
    digest = hashlib.blake2b("|".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (1 << 64)


PROFILES = {
    "ideal": Profile(),
    "noisy": Profile(0.02, 0.1, 0.2, 0.3, 0.1, 0.05, 0.1, 0.1, 0.05),
}
"""By name: `noisy` drifts in three of ten sub-questions, since gold decompositions make every planner perfect."""


def profile_named(name: str) -> Profile:
    """Return the profile of a name; raise WiringError for an unknown name."""
    if name not in PROFILES:
        raise WiringError(f"There is no profile {name!r}. Write one of: {', '.join(PROFILES)}.")
    return PROFILES[name]
