"""A prompt with the best passage at both ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.generation.f_string import FString


@dataclass(frozen=True)
class LongContextReorder(FString):
    """`FString` with the best passage a second time after all others, since what stands in the middle is overlooked.

    Its number is the same both times, so that citations mean the same.

    Args:
        template: with the places `{{passages}}` and `{{question}}`, which may not stand in a system's message.
        max_passages: the best so many are shown, the one that comes twice counted once.
        max_characters: of all passages together, the one that comes twice counted once.

    Source: `long_context_reorder` in Kim et al., "AutoRAG", 2024; Liu et al., "Lost in the middle: How language models
    use long contexts", TACL 2024.

    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("Why?"), tuple(Hit(Node(text, text), 1.0) for text in ("Best.", "Next.")))
    >>> LongContextReorder("{{passages}} {{question}}")(found).text.count("[1] Best.")
    2
    """

    def arranged(self, passages: Sequence[str]) -> Sequence[str]:
        return [*passages, *passages[:1]] if len(passages) > 1 else passages
