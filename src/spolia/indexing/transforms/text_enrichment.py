"""Nodes that a language model writes about a text: keywords, questions, summaries, entities."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spolia.core.run_context import note
from spolia.indexing.transforms.function import TextPlaces
from spolia.indexing.transforms.llm_transform import (
    CHARACTERS,
    LLMTransform,
    NamesWithKinds,
    Phrases,
    Questions,
    QuestionsWithAnswers,
)
from spolia.indexing.transforms.rule_entities import Mention, make_entities
from spolia.models.parsers import NOTHING, Text, says_nothing
from spolia.models.prompting.role import Role
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Part, Piece

KEYWORDS: Role[tuple[str, ...]] = Role("spolia:indexing/prompts/keywords.txt", Phrases(), default=NOTHING)


@dataclass(frozen=True)
class Keywords(LLMTransform[tuple[str, ...]]):
    """One node with the keywords of a text, or one for each keyword; each is in the metadata too, as `keyword`.

    Args:
        at_most: keywords; the prompt has the number (`{{at_most}}`), and the rest is left out.
        each: one node for each keyword, so that each is found on its own.
        role: prompt, reader and default (`LLMTransform`).
        llm, characters, max_tokens: as for every `LLMTransform`.

    >>> from spolia import Document, Node, ScriptedModel
    >>> text = "The tide is caused by the pull of the moon."
    >>> Keywords(ScriptedModel(("tide\\nmoon",)))(Part(Node("d", text), Document("d", text)))[0].meta
    (('keyword', 'tide'), ('keyword', 'moon'))
    """

    llm: LanguageModel
    at_most: int = 10
    each: bool = False
    role: Role[tuple[str, ...]] = KEYWORDS
    characters: int = CHARACTERS
    max_tokens: int = 256

    version: ClassVar[int] = 3  # 3: refusals and announcements are no results
    limit: ClassVar[str] = "at_most"

    def pieces(self, reply: tuple[str, ...], part: Part, /) -> Iterator[Piece]:
        keywords = reply[: self.at_most]
        if self.each:
            places = TextPlaces(part.node.text)
            yield from (Piece(word, places.find_start(word), meta=(("keyword", word),)) for word in keywords)
        elif keywords:
            yield Piece(", ".join(keywords), meta=tuple(("keyword", word) for word in keywords))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return self.at_most if self.each else 1


Pairs: TypeAlias = tuple[tuple[str, str], ...]

QUESTION_ANSWERS: Role[Pairs] = Role(
    "spolia:indexing/prompts/question_answers.txt", QuestionsWithAnswers(), default=NOTHING
)
HYPOTHETICAL_QUESTIONS: Role[tuple[str, ...]] = Role(
    "spolia:indexing/prompts/hypothetical_questions.txt", Questions(), default=NOTHING
)


@dataclass(frozen=True)
class QuestionAnswers(LLMTransform[Pairs]):
    """One node for each question that a text answers: the question is searched, question and answer are shown.

    Args:
        pairs: at most; the prompt has the number (`{{pairs}}`), and the rest is left out.
        role: prompt, reader and default (`LLMTransform`).
        llm, characters, max_tokens: as for every `LLMTransform`.

    >>> from spolia import Document, Node, ScriptedModel
    >>> text = "The tide is caused by the pull of the moon."
    >>> model = ScriptedModel(("Q: What causes the tide?\\nA: The pull of the moon.",))
    >>> (piece,) = QuestionAnswers(model)(Part(Node("d", text), Document("d", text)))
    >>> piece.search_text, piece.text
    ('What causes the tide?', 'What causes the tide?\\nThe pull of the moon.')
    """

    llm: LanguageModel
    pairs: int = 3
    role: Role[Pairs] = QUESTION_ANSWERS
    characters: int = CHARACTERS
    max_tokens: int = 1024

    version: ClassVar[int] = 6  # 6: questions that the model did not answer are left out
    limit: ClassVar[str] = "pairs"

    def pieces(self, reply: Pairs, part: Part, /) -> Iterator[Piece]:
        for question, answer in reply[: self.pairs]:
            yield Piece(f"{question}\n{answer}", search_text=question)


@dataclass(frozen=True)
class HypotheticalQuestions(LLMTransform[tuple[str, ...]]):
    """Reverse HyDE: questions that a text would answer are searched, the text itself is shown and cited.

    Each question is a node, so a text can be found several times; map the hits to the parent to have it once, with its
    best score.

    Args:
        questions: at most; the prompt has the number (`{{questions}}`), and the rest is left out.
        role: prompt, reader and default (`LLMTransform`).
        llm, characters, max_tokens: as for every `LLMTransform`.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024.

    >>> from spolia import Document, Node, ScriptedModel
    >>> text = "The tide is caused by the pull of the moon."
    >>> model = ScriptedModel(("What causes the tide?\\nWhat does the moon do?",))
    >>> found = HypotheticalQuestions(model)(Part(Node("d", text), Document("d", text)))
    >>> [piece.search_text for piece in found], found[1].text == text
    (['What causes the tide?', 'What does the moon do?'], True)
    """

    llm: LanguageModel
    questions: int = 4
    role: Role[tuple[str, ...]] = HYPOTHETICAL_QUESTIONS
    characters: int = CHARACTERS
    max_tokens: int = 512

    version: ClassVar[int] = 5  # 5: more forms of questions are read in a reply
    limit: ClassVar[str] = "questions"

    def pieces(self, reply: tuple[str, ...], part: Part, /) -> Iterator[Piece]:
        for question in reply[: self.questions]:
            yield Piece(part.node.text, start=0, search_text=question)


SUMMARY: Role[str] = Role("spolia:indexing/prompts/summary.txt", Text(), default=NOTHING)


@dataclass(frozen=True)
class Summary(LLMTransform[str]):
    """One node for each: what its text says, in few words.

    Args:
        max_words: of the summary; the prompt has the number (`{{max_words}}`).
        role: prompt, reader and default (`LLMTransform`).
        llm, characters, max_tokens: as for every `LLMTransform`.

    >>> from spolia import Document, Node, ScriptedModel
    >>> text = "The tide is caused by the pull of the moon. Ships wait for it."
    >>> Summary(ScriptedModel(("The moon makes the tide.",)))(Part(Node("d", text), Document("d", text)))[0].text
    'The moon makes the tide.'
    """

    llm: LanguageModel
    max_words: int = 60
    role: Role[str] = SUMMARY
    characters: int = CHARACTERS
    max_tokens: int = 512

    limit: ClassVar[str] = "max_words"

    def pieces(self, reply: str, part: Part, /) -> Iterator[Piece]:
        if not says_nothing(reply):
            yield Piece(reply)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1


OTHER = "other"
ENTITIES: Role[Pairs] = Role("spolia:indexing/prompts/entities.txt", NamesWithKinds(), default=NOTHING)


@dataclass(frozen=True)
class LLMEntities(LLMTransform[Pairs]):
    """One node for each distinct entity that a language model finds in a text; metadata as `RuleEntities` has them.

    A name that does not occur in the text, with any case and any blanks, is dropped and recorded.

    Args:
        kinds: of which an entity may be (`{{kinds}}`); any other is taken for `other`.
        at_most: entities; the prompt has the number (`{{at_most}}`), and the rest is left out.
        role: prompt, reader and default (`LLMTransform`).
        llm, characters, max_tokens: as for every `LLMTransform`.

    >>> from spolia import Document, Node, ScriptedModel
    >>> text = "Clovis made Paris his capital."
    >>> model = ScriptedModel(("Clovis | person\\nparis | place",))
    >>> found = LLMEntities(model)(Part(Node("d", text), Document("d", text)))
    >>> [(piece.text, piece.start, piece.meta) for piece in found]  # doctest: +NORMALIZE_WHITESPACE
    [('Clovis', 0, (('entity', 'clovis'), ('type', 'person'))),
     ('Paris', 12, (('entity', 'paris'), ('type', 'place')))]
    """

    llm: LanguageModel
    kinds: tuple[str, ...] = ("person", "organisation", "place", "event", "work", "product", "time", OTHER)
    at_most: int = 30
    role: Role[Pairs] = ENTITIES
    characters: int = CHARACTERS
    max_tokens: int = 1024

    version: ClassVar[int] = 3  # 3: refusals and announcements are no results
    limit: ClassVar[str] = "at_most"

    def places(self) -> Mapping[str, str]:
        return {"kinds": ", ".join(self.kinds), **super().places()}

    def pieces(self, reply: Pairs, part: Part, /) -> Iterator[Piece]:
        kinds = ((name, kind if kind in self.kinds else OTHER) for name, kind in reply[: self.at_most])
        mentions = [(name, _find_mention(part.node.text, name, kind)) for name, kind in kinds]
        if absent := [name for name, mention in mentions if mention is None]:
            note(f"Named by the model, but not in the text, and left out: {', '.join(absent)}.")
        yield from make_entities(mention for _, mention in mentions if mention is not None)


def _find_mention(text: str, name: str, kind: str) -> Mention | None:
    """Find where a name stands first: as a word of its own, or, in scripts without blanks, anywhere."""
    pattern = r"\s+".join(map(re.escape, name.split()))
    for expression in (rf"(?<!\w){pattern}(?!\w)", pattern):
        if match := re.search(expression, text, re.IGNORECASE):
            return Mention(match.start(), match[0], kind)
    return None
