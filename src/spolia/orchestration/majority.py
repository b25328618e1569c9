"""Several answers become the one that most of them give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spolia.errors import StepFailed
from spolia.models.parsers.same import plain_words
from spolia.operator import Operator
from spolia.types import Answer


@dataclass(frozen=True)
class MajorityVote(Operator[Sequence[Answer], Answer]):
    """The answer that comes most often, as its first voice says it; of equally many the one that comes first.

    Answers are the same where their words are: case, width, punctuation, citation markers and how an accent is written
    do not matter. All that abstain are of one voice.

    Raises:
        StepFailed: when there is no answer.

    Source: Wang et al., "Self-consistency improves chain of thought reasoning in language models", ICLR 2023.

    >>> MajorityVote()((Answer("Salo"), Answer("Nokia, [1]"), Answer("nokia"))).text
    'Nokia, [1]'
    """

    def apply(self, value: Sequence[Answer], /) -> Answer:
        if not value:
            raise StepFailed("There is no answer to choose from: every arm before the vote failed or was dropped.")
        voices = [(answer.abstained, "" if answer.abstained else plain_words(answer.text)) for answer in value]
        counts = Counter(voices)
        return value[max(range(len(value)), key=lambda at: (counts[voices[at]], -at))]
