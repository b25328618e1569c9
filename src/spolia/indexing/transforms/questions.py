"""Questions as nodes, so that a question finds a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spolia.indexing.transforms.llm_transform import CHARACTERS, NOTHING, LLMTransform, Questions, QuestionsWithAnswers
from spolia.models.prompting.role import Role
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Part, Piece

Pairs: TypeAlias = tuple[tuple[str, str], ...]

ANSWERED: Role[Pairs] = Role("spolia:indexing/prompts/question_answers.txt", QuestionsWithAnswers(), default=NOTHING)
ASKED: Role[tuple[str, ...]] = Role("spolia:indexing/prompts/hypothetical_questions.txt", Questions(), default=NOTHING)


@dataclass(frozen=True)
class QuestionAnswers(LLMTransform[Pairs]):
    """One node for each question that a text answers: the question is searched, question and answer are shown.

    Args:
        llm: the language model.
        pairs: which the model is told (`{{pairs}}`); further ones are left out.
        role: prompt, reader and default (`LLMTransform`).
        characters: of a text that are shown at most.
        max_tokens: longest reply.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> from spolia.types import Document, Node
    >>> text = "The tide is caused by the pull of the moon."
    >>> model = ScriptedModel(("Q: What causes the tide?\\nA: The pull of the moon.",))
    >>> (piece,) = QuestionAnswers(model)(Part(Node("d", text), Document("d", text)))
    >>> piece.search_text, piece.text
    ('What causes the tide?', 'What causes the tide?\\nThe pull of the moon.')
    """

    llm: LanguageModel
    pairs: int = 3
    role: Role[Pairs] = ANSWERED
    characters: int = CHARACTERS
    max_tokens: int = 1024

    version: ClassVar[int] = 2
    counts: ClassVar[tuple[str, ...]] = ("pairs", "characters", "max_tokens")

    def places(self) -> Mapping[str, str]:
        return {"pairs": str(self.pairs)}

    def pieces(self, reply: Pairs, part: Part, /) -> Iterator[Piece]:
        for question, answer in reply[: self.pairs]:
            yield Piece(f"{question}\n{answer}", search_text=question)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.pairs


@dataclass(frozen=True)
class HypotheticalQuestions(LLMTransform[tuple[str, ...]]):
    """Reverse HyDE: questions that a text would answer are searched, the text itself is shown and cited.

    Each question is a node, so a text can be found several times; map the hits to the parent to have it once, with its
    best score.

    Args:
        llm: the language model.
        questions: which the model is told (`{{questions}}`); further ones are left out.
        role: prompt, reader and default (`LLMTransform`).
        characters: of a text that are shown at most.
        max_tokens: longest reply.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> from spolia.types import Document, Node
    >>> text = "The tide is caused by the pull of the moon."
    >>> model = ScriptedModel(("What causes the tide?\\nWhat does the moon do?",))
    >>> found = HypotheticalQuestions(model)(Part(Node("d", text), Document("d", text)))
    >>> [piece.search_text for piece in found], found[1].text == text
    (['What causes the tide?', 'What does the moon do?'], True)
    """

    llm: LanguageModel
    questions: int = 4
    role: Role[tuple[str, ...]] = ASKED
    characters: int = CHARACTERS
    max_tokens: int = 512

    version: ClassVar[int] = 2
    counts: ClassVar[tuple[str, ...]] = ("questions", "characters", "max_tokens")

    def places(self) -> Mapping[str, str]:
        return {"questions": str(self.questions)}

    def pieces(self, reply: tuple[str, ...], part: Part, /) -> Iterator[Piece]:
        for question in reply[: self.questions]:
            yield Piece(part.node.text, start=0, search_text=question)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.questions
