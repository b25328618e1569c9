"""Rewriting of a question for search engines."""

from dataclasses import dataclass
from typing import ClassVar

from spolia.core.run_context import degrade
from spolia.core.type_compatibility import refuse_numbers
from spolia.errors import WiringError
from spolia.models.parsers import NOTHING
from spolia.models.prompting.role import Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import OneText, QueryLLM, Searches, normalize_text
from spolia.types import Queries, Query

REWRITTEN: Role[str] = Role("spolia:pre_retrieval/prompts/rewrite.txt", OneText(), default=NOTHING)


@dataclass(frozen=True)
class Rewrite(QueryLLM[Query]):
    """The query in words that a search finds better: q → q′. The reader still answers the original question.

    A rewriting that is empty, or longer than `longest` times the query, is not used: the query goes on as it was, and
    the result is counted as degraded. A model that was trained to rewrite takes the place of `llm`.

    Args:
        longest: characters of a rewriting, as a multiple of those of the query.
        llm, role, max_tokens, temperature: as for every `QueryLLM`.

    Raises:
        WiringError: where `longest` is below 1.

    Source: Ma et al., "Query rewriting in retrieval-augmented large language models", EMNLP 2023.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> found = Rewrite(ScriptedModel(("Emma novel author",)))(Query("hey, do you happen to know who wrote Emma?"))
    >>> found.text, found.question
    ('Emma novel author', 'hey, do you happen to know who wrote Emma?')
    """

    llm: LanguageModel
    longest: float = 4.0
    role: Role[str] = REWRITTEN
    max_tokens: int = 128
    temperature: float = 0.0

    version: ClassVar[int] = 5  # 3: a refusal is no query; 5: a thought is no part of a reply

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.longest >= 1:
            raise WiringError(f"{self.short}: longest is {self.longest}. Write how many times as long, at least 1.")

    def apply(self, value: Query, /) -> Query:
        text = self.read_reply(value)
        if not normalize_text(text):
            degrade("There is no rewriting; the query stays as it is.")
            return value
        if len(text) > self.longest * len(value.text):
            degrade(
                f"The rewriting has {len(text)} characters, more than {self.longest} times the query's "
                f"{len(value.text)}; the query stays as it is."
            )
            return value
        return value.rewritten(text)


STEPPED_BACK: Role[str] = Role("spolia:pre_retrieval/prompts/step_back.txt", OneText(), default=NOTHING)


@dataclass(frozen=True)
class StepBack(QueryLLM[Queries]):
    """The query, and the question of principle behind it: q → (q, abstract q).

    Both are searched and the rankings are fused; what is answered is the question as it was asked. Where the model
    sees no question behind it, or says the same, the query is alone.

    Args:
        llm, role, max_tokens, temperature: as for every `QueryLLM`.

    Source: Zheng et al., "Take a step back: evoking reasoning via abstraction in large language models", ICLR 2024.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> asked = StepBack(ScriptedModel(("How do tides arise?",)))(Query("Why is low water at noon in Brest today?"))
    >>> [query.text for query in asked], asked[1].question
    (['Why is low water at noon in Brest today?', 'How do tides arise?'], 'Why is low water at noon in Brest today?')
    """

    llm: LanguageModel
    role: Role[str] = STEPPED_BACK
    max_tokens: int = 128
    temperature: float = 0.0

    version: ClassVar[int] = 5  # 3: a refusal is no query; 5: a thought is no part of a reply

    def apply(self, value: Query, /) -> Queries:
        text = self.read_reply(value)
        return (value,) if normalize_text(text) in ("", normalize_text(value.text)) else (value, value.rewritten(text))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 2


REWORDED: Role[tuple[str, ...]] = Role("spolia:pre_retrieval/prompts/multi_query.txt", Searches(), default=NOTHING)


@dataclass(frozen=True)
class MultiQuery(QueryLLM[Queries]):
    """The query, and the same question in other words: q → (q, q_1 … q_n).

    Each is searched and the rankings are fused; the hits of a rewording count `weight` times those of the query (with
    `ReciprocalRankFusion`, which has the number of hits that remain). Rewordings that repeat the query or each other
    but for case and punctuation are left out. A reply that cannot be read leaves the query alone.

    Args:
        queries: rewordings, at most; the prompt has the number (`{{queries}}`).
        weight: of a rewording, where the query has 1.
        llm, role, max_tokens, temperature: as for every `QueryLLM`.

    Raises:
        WiringError: for a weight below 0.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059).

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> model = ScriptedModel(("1. author of Emma\\n2. Who wrote Emma?\\n3. Emma novelist",))
    >>> [(query.text, query.weight) for query in MultiQuery(model)(Query("Who wrote Emma?"))]
    [('Who wrote Emma?', 1.0), ('author of Emma', 0.5), ('Emma novelist', 0.5)]
    """

    llm: LanguageModel
    queries: int = 3
    weight: float = 0.5
    role: Role[tuple[str, ...]] = REWORDED
    max_tokens: int = 256
    temperature: float = 0.0

    version: ClassVar[int] = 3  # 2: a refusal is no query; 3: items are read whole
    counts: ClassVar[tuple[str, ...]] = ("queries", "max_tokens")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_numbers(self, "a number of at least 0", "weight")

    def apply(self, value: Query, /) -> Queries:
        texts = self.read_reply(value, queries=Setting(self.queries))
        new = [text for text in texts if normalize_text(text) != normalize_text(value.text)][: self.queries]
        return (value, *(value.rewritten(text).but(weight=self.weight * value.weight) for text in new))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1 + self.queries


CONDENSED: Role[str] = Role("spolia:pre_retrieval/prompts/condense.txt", OneText(), default=NOTHING)


@dataclass(frozen=True)
class Condense(QueryLLM[Query]):
    """A follow-up question with what its conversation says: (history, q) → q′, which is searched and answered.

    Put it first in a chat. A query without `history` goes on as it is, and no model is asked. If the model says
    nothing, the query goes on as it was, and the result is counted as degraded.

    Args:
        messages: how many of the newest messages are shown.
        characters: of each message that are shown, at most.
        role: prompt, with the places `{{history}}` and `{{question}}`, reader and default.
        llm, max_tokens, temperature: as for every `QueryLLM`.

    Source: Anantha et al., "Open-domain question answering goes conversational via question rewriting" (QReCC),
    NAACL 2021.

    >>> from spolia import Message, ScriptedModel
    >>> said = (Message("user", "Who employs Olsen?"), Message("assistant", "Nokia."))
    >>> condense = Condense(ScriptedModel(("Where does Nokia have its largest plant?",)))
    >>> condense(Query("And where is its largest plant?", history=said)).question
    'Where does Nokia have its largest plant?'
    """

    llm: LanguageModel
    messages: int = 8
    characters: int = 2_000
    role: Role[str] = CONDENSED
    max_tokens: int = 128
    temperature: float = 0.0

    version: ClassVar[int] = 4  # 2: a refusal is no query; 4: a thought is no part of a reply
    counts: ClassVar[tuple[str, ...]] = ("messages", "characters", "max_tokens")
    shows: ClassVar[tuple[str, ...]] = ("question", "history")

    def apply(self, value: Query, /) -> Query:
        if not value.history:
            return value
        newest = value.history[-self.messages :]
        text = self.read_reply(
            value, history=tuple(f"{message.role}: {message.content[: self.characters]}" for message in newest)
        )
        if not normalize_text(text):
            degrade("The follow-up question could not be condensed; it stays as it is.")
            return value
        return value.condensed(text)
