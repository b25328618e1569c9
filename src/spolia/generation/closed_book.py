"""A language model answers from what it remembers."""

from dataclasses import dataclass
from typing import Any

from spolia.core.operator import Operator
from spolia.core.wiring import refuse_counts
from spolia.models.parsers import Text
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query, kept

ABSTENTION = "I do not know."
REMEMBERED: Role[str] = Role("spolia:generation/prompts/closed_book.txt", Text(), default=ABSTENTION)


@dataclass(frozen=True)
class ClosedBook(Operator[Query, Answer]):
    """Answer a question without any document: an arm for what needs no retrieval, a draft to be verified.

    There are no citations. A reply that says that it does not know is an abstention.

    Args:
        llm: the language model.
        abstention: the sentence by which the model says that it does not know.
        role: prompt, with the places `{{question}}` and, if it asks for one, `{{abstention}}`, reader and default.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Source: Jeong et al., "Adaptive-RAG: learning to adapt retrieval-augmented large language models through question
    complexity", NAACL 2024, strategy A.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> book = ClosedBook(ScriptedModel((("Emma", "Jane Austen."), ("", "I do not know."))))
    >>> book(Query("Who wrote Emma?")).text, book(Query("Who am I?")).abstained
    ('Jane Austen.', True)
    """

    llm: LanguageModel
    abstention: str = ABSTENTION
    role: Role[str] = REMEMBERED
    max_tokens: int = 256
    temperature: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "max_tokens")

    def apply(self, value: Query, /) -> Answer:
        text = self._ask.reply(value.sample, question=value.question, abstention=Setting(self.abstention))
        is_abstention = text.rstrip(".") == self.abstention.rstrip(".")
        return Answer(text, stop_reason="abstained" if is_abstention else "answered")

    def calls(self, rows: int | None = None, /) -> int | None:
        return self._ask.calls()

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self._ask,)

    @kept
    def _ask(self) -> Ask:
        return Ask(self.llm, self.role, self.max_tokens, self.temperature)
