"""A prompt of passages, by a text that says where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.generation.passages import fitting, numbered
from spolia.models.template import Template
from spolia.operator import Operator
from spolia.types import Prompt, Ranking
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class FString(Operator[Ranking, Prompt]):
    """Put the passages and the question where a text says, best passage first, each numbered between tags.

    A text with lines `[system]`, `[user]`, `[assistant]` is a chat of as many messages, else it is one user's message
    (`spolia.models.template`). Braces in passages or questions mean nothing. Passages for which there is no room are
    left out, the last first.

    Args:
        template: with the places `{{passages}}` and `{{question}}`, which may not stand in a system's message.
        max_passages: the best so many are shown.
        max_characters: of all passages together.

    Raises:
        WiringError: the text lacks a place, or has an unknown one.
        ModelError: when it runs, for a place in a system's message.

    Source: `fstring` and `chat_fstring` in Kim et al., "AutoRAG: Automated Framework for optimization of Retrieval
    Augmented Generation Pipeline", 2024.

    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("Why {x}?"), (Hit(Node("n", "For {y}."), 1.0),))
    >>> FString("Read. {{passages}} Then say: {{question}}")(found).text
    'Read. <passages number="1">\\n[1] For {y}.\\n</passages> Then say: Why {x}?'
    """

    template: str = "{{passages}}\n\n<question>{{question}}</question>"
    max_passages: int = 5
    max_characters: int = 20_000

    def __post_init__(self) -> None:
        refuse_counts(self, "max_passages", "max_characters")
        wanted, found = {"passages", "question"}, Template.of(self.template).places
        if odd := sorted(wanted ^ found):
            said = "lacks" if odd[0] in wanted else "has the unknown"
            raise WiringError(
                f"The template of {type(self).__name__} {said} {{{{{odd[0]}}}}}. Write {{{{passages}}}} and "
                "{{question}} where they are to stand, and no other."
            )

    def apply(self, value: Ranking, /) -> Prompt:
        shown = fitting(value, self.max_passages, self.max_characters)
        passages = [numbered(number, node, self.max_characters) for number, node in enumerate(shown.nodes, 1)]
        parts = {"passages": self.arranged(passages), "question": value.query.question}
        return Prompt(Template.of(self.template).filled(parts), value.query.sample)

    def arranged(self, passages: Sequence[str]) -> Sequence[str]:
        """The passages in the order in which they stand."""
        return passages
