"""Steps that write: a question of passages, a harder or shorter one, its answer."""

from dataclasses import dataclass
from typing import ClassVar

from spolia.core.type_compatibility import refuse_counts
from spolia.evaluation.creation.draft import ABSTENTION, CHARACTERS, DraftStep, Places, QuestionDraft, shown_passages
from spolia.evaluation.creation.replies import AnswerWithQuotes, HopQuestions, OneQuestion
from spolia.models.parsers import NOTHING
from spolia.models.prompting.role import Role
from spolia.models.protocols import LanguageModel
from spolia.types import SubQuestion


def _writing_role(file: str, default: str | None = None) -> Role[tuple[str, ...]]:
    return Role(f"spolia:evaluation/creation/prompts/{file}.txt", OneQuestion(), default)


FACTOID, CONCEPT, COMPARISON, UNANSWERABLE = map(_writing_role, ("factoid", "concept", "comparison", "unanswerable"))
"""What kinds of questions `WriteQuestion` can be asked for: a role each."""
EVOLUTIONS = {name: _writing_role(f"evolve_{name}", NOTHING) for name in ("reasoning", "conditional", "compress")}
"""How `Evolve` can change a question: a role each."""


@dataclass(frozen=True)
class WriteQuestion(DraftStep):
    """Write a question about the passages. It is dropped where the model finds nothing to ask.

    Args:
        llm: the language model.
        role: prompt with the place `{{passages}}`, reader and default. `spolia.evaluation.creation.writers` has
            `FACTOID`, `CONCEPT`, `COMPARISON` and `UNANSWERABLE`.
        characters: of each passage that are shown.
        max_tokens: longest reply.

    >>> from spolia import Node, ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> draft = QuestionDraft("factoid", (Node("n", "Clovis made Paris his capital in 508."),))
    >>> WriteQuestion(ScriptedModel(("When did Clovis make Paris his capital?",)))(draft).question
    'When did Clovis make Paris his capital?'
    """

    llm: LanguageModel
    role: Role[tuple[str, ...]] = FACTOID
    characters: int = CHARACTERS
    max_tokens: int = 256

    version: ClassVar[int] = 2
    prompts: ClassVar[tuple[str, ...]] = tuple(
        f"evaluation/creation/{name}" for name in ("factoid", "concept", "comparison", "unanswerable")
    )

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")
        self.role.refuse_without("passages")

    def revise(self, value: QuestionDraft, /) -> QuestionDraft:
        passages = shown_passages(value, self.characters)
        questions, noted = self.ask_model(value, self.llm, self.role, self.max_tokens, {"passages": passages})
        return noted.but(question=questions[0]) if questions else self.drop(noted, "the model found nothing to ask")

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


MULTI_HOP: Role[tuple[str, ...]] = Role("spolia:evaluation/creation/prompts/multi_hop.txt", HopQuestions())


@dataclass(frozen=True)
class WriteMultiHop(DraftStep):
    """Write a question that needs all passages: a simple question of each, joined by what the passages have in common.

    The simple questions with their answers become its hops. The model may go through the passages from the first to the
    last or the other way: the way is taken in which more of the answers occur in their passages.

    Args:
        llm: the language model.
        role: prompt with the places `{{passages}}` and `{{link}}`, reader and default.
        characters: of each passage that are shown.
        max_tokens: longest reply.

    Source: questions composed of simple ones, as in Trivedi et al., "MuSiQue", TACL 2022.

    >>> from spolia import Node, ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> model = ScriptedModel((
    ...     "First question: Where was Ann born?\\nFirst answer: Ulm\\nSecond question: Who is the mayor of Ulm?\\n"
    ...     "Second answer: Bo\\nQuestion: Who is the mayor of the town where Ann was born?",
    ... ))
    >>> passages = (Node("n", "Ann was born in Ulm.", "a"), Node("m", "Bo is the mayor of Ulm.", "b"))
    >>> found = WriteMultiHop(model)(QuestionDraft("multi-hop", passages, ("Ulm",)))
    >>> found.question, [hop.gold_id for hop in found.hops]
    ('Who is the mayor of the town where Ann was born?', ['a', 'b'])
    """

    llm: LanguageModel
    role: Role[tuple[str, ...]] = MULTI_HOP
    characters: int = CHARACTERS
    max_tokens: int = 512

    version: ClassVar[int] = 3

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")
        self.role.refuse_without("passages")

    def revise(self, value: QuestionDraft, /) -> QuestionDraft:
        places: Places = {"passages": shown_passages(value, self.characters), "link": value.links}
        texts, noted = self.ask_model(value, self.llm, self.role, self.max_tokens, places)
        if not texts:
            return self.drop(noted, "the model found no question that needs all passages")
        *simple, question = texts
        questions, answers = simple[::2], simple[1::2]
        if len(questions) != len(value.passages):
            reason = f"the model wrote {len(questions)} simple questions of {len(value.passages)} passages"
            return self.drop(noted, reason)
        directions = value.passages, value.passages[::-1]
        nodes = max(
            directions,
            key=lambda direction: sum(answer in node.text for answer, node in zip(answers, direction, strict=True)),
        )
        hops = map(SubQuestion, questions, answers, (node.document for node in nodes))
        return noted.but(question=question, hops=tuple(hops))

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


@dataclass(frozen=True)
class Evolve(DraftStep):
    """Rewrite a question: harder, under a condition, or shorter. Where the model finds no better one, it stays.

    Args:
        llm: the language model.
        role: prompt with the places `{{passages}}` and `{{question}}`, reader and default. `EVOLUTIONS` of
            `spolia.evaluation.creation.writers` has `reasoning`, `conditional` and `compress`.
        characters: of each passage that are shown.
        max_tokens: longest reply.

    Source: Xu et al., "WizardLM: Empowering large language models to follow complex instructions", ICLR 2024; for
    questions of documents as in AutoRAG and ragas.

    >>> from spolia import Node, ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> draft = QuestionDraft("factoid", (Node("n", "Clovis made Paris his capital in 508."),), question="When was it?")
    >>> found = Evolve(ScriptedModel(("How old was the capital Paris in 608?",)))(draft)
    >>> found.question, found.evolved_from
    ('How old was the capital Paris in 608?', 'When was it?')
    """

    llm: LanguageModel
    role: Role[tuple[str, ...]] = EVOLUTIONS["reasoning"]
    characters: int = CHARACTERS
    max_tokens: int = 256

    version: ClassVar[int] = 2
    prompts: ClassVar[tuple[str, ...]] = tuple(f"evaluation/creation/evolve_{name}" for name in EVOLUTIONS)

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")
        self.role.refuse_without("passages", "question")

    def revise(self, value: QuestionDraft, /) -> QuestionDraft:
        places: Places = {"passages": shown_passages(value, self.characters), "question": value.question}
        questions, noted = self.ask_model(value, self.llm, self.role, self.max_tokens, places)
        return (
            noted.but(question=questions[0], evolved_from=value.evolved_from or value.question) if questions else noted
        )

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


ANSWER: Role[tuple[str, tuple[str, ...]]] = Role(
    "spolia:evaluation/creation/prompts/answer_with_quotes.txt", AnswerWithQuotes()
)


@dataclass(frozen=True)
class WriteAnswer(DraftStep):
    """Answer a question from its passages, with the words that say so; `KeepAnswered` drops questions without one.

    Args:
        llm: the language model.
        role: prompt with the places `{{passages}}` and `{{question}}`, and `{{abstention}}` if it asks for one, reader
            and default.
        characters: of each passage that are shown.
        max_tokens: longest reply.

    >>> from spolia import Node, ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> draft = QuestionDraft("factoid", (Node("n", "Clovis made Paris his capital in 508."),), question="When?")
    >>> found = WriteAnswer(ScriptedModel(("Answer: 508\\nQuotes:\\nClovis made Paris his capital in 508.",)))(draft)
    >>> found.answers, found.evidence
    (('508',), ('Clovis made Paris his capital in 508.',))
    """

    llm: LanguageModel
    role: Role[tuple[str, tuple[str, ...]]] = ANSWER
    characters: int = CHARACTERS
    max_tokens: int = 512

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")
        self.role.refuse_without("passages", "question")

    def revise(self, value: QuestionDraft, /) -> QuestionDraft:
        passages = shown_passages(value, self.characters)
        places: Places = {"passages": passages, "question": value.question, "abstention": ABSTENTION}
        (answer, evidence), noted = self.ask_model(value, self.llm, self.role, self.max_tokens, places)
        return noted.but(answers=(answer,), evidence=evidence)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls
