"""A question on its way from passages to a data set, and the steps that it goes through."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from spolia.core.operator import Operator
from spolia.errors import ModelRejected
from spolia.models.prompting import template
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.prompting.template import Setting, shorten
from spolia.models.protocols import LanguageModel
from spolia.types import Node, Quote, SubQuestion, Value
from spolia.types.outcomes import require_successes

T = TypeVar("T")
Places: TypeAlias = Mapping[str, str | tuple[str, ...]]
"""The texts that fill the places of a prompt."""
UNUSABLE = "the model gave no reply that can be used"
"""Why a question is dropped that a server refused, or whose replies cannot be read."""
CHARACTERS = 8_000
"""Of each passage that are shown to a model, by default."""


@dataclass(frozen=True)
class SampleRange(Value):
    """Range of places in a sampler's order: from `start`, up to and without `stop`."""

    start: int
    stop: int


@dataclass(frozen=True)
class PromptUse(Value):
    """Use of a prompt by a step that made or judged a question.

    Args:
        step: the operator.
        model: its name.
        prompt: the file, or the beginning of an inline prompt.
        sha: the beginning of the hash of the prompt in the language in which it was asked.
    """

    step: str
    model: str
    prompt: str
    sha: str


@dataclass(frozen=True)
class QuestionDraft(Value):
    """A question in the making.

    Args:
        type: factoid, concept, multi-hop, comparison or unanswerable.
        passages: it is made of these; all of them are needed.
        links: what each passage has in common with the next one; none for a single passage.
        question: its text.
        answers: the main one first.
        evidence: words that the model copied from the passages.
        quotes: where these stand, by the ids of the documents.
        hops: the simpler questions of which it is composed.
        evolved_from: the question before it was evolved.
        made_by: prompts that it went through, in order.
        passed: filters that it passed, in order.
        dropped_by: the step that dropped it; empty as long as it is kept.
        reason: why that step dropped it.
    """

    type: str
    passages: tuple[Node, ...]
    links: tuple[str, ...] = ()
    question: str = ""
    answers: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    quotes: tuple[Quote, ...] = ()
    hops: tuple[SubQuestion, ...] = ()
    evolved_from: str = ""
    made_by: tuple[PromptUse, ...] = ()
    passed: tuple[str, ...] = ()
    dropped_by: str = ""
    reason: str = ""

    @property
    def is_kept(self) -> bool:
        """Return whether no step has dropped it."""
        return not self.dropped_by

    def traced(self) -> dict[str, Any]:
        """Return what a trace shows of it."""
        summary = {"type": self.type, "passages": [node.id for node in self.passages], "question": self.question}
        return summary | ({} if self.is_kept else {"dropped_by": self.dropped_by, "reason": self.reason[:1000]})


class DraftStep(Operator[QuestionDraft, QuestionDraft]):
    """Base of the steps that write or judge a question. A question that was dropped passes through unchanged.

    A step sees one question and nothing of the others, so that the result for a row does not depend on its neighbours.
    A question to which a model gives no reply that can be read is dropped; a server that cannot be reached is an error.
    """

    def apply(self, value: QuestionDraft, /) -> QuestionDraft:
        if not value.is_kept:
            return value
        try:
            return self.revise(value)
        except ModelRejected as error:
            return self.drop(value, f"{UNUSABLE}: {error}")

    @abstractmethod
    def revise(self, value: QuestionDraft, /) -> QuestionDraft:
        """Return the question after this step."""

    def drop(self, value: QuestionDraft, reason: str) -> QuestionDraft:
        """Drop the question by this step, and note why."""
        return value.but(dropped_by=type(self).__name__, reason=reason)

    def ask_model(
        self, value: QuestionDraft, llm: LanguageModel, role: Role[T], max_tokens: int, places: Places
    ) -> tuple[T, QuestionDraft]:
        """Ask a model; return the parsed reply, and the question with a note of the prompt."""
        (reply,), noted = self.ask_model_batch(value, llm, role, max_tokens, [places])
        return reply, noted

    def ask_model_batch(
        self,
        value: QuestionDraft,
        llm: LanguageModel,
        role: Role[T],
        max_tokens: int,
        briefs: Sequence[Places],
    ) -> tuple[list[T], QuestionDraft]:
        """Ask as `ask_model` does, with several prompts at the same time."""
        replies = Ask(llm, role, max_tokens).batch([Brief.from_texts(0, **places) for places in briefs])
        digests = (template.read_translated(role.prompt, places, role.language).digest.hex()[:12] for places in briefs)
        uses = (PromptUse(type(self).__name__, llm.name, role.title, digest) for digest in dict.fromkeys(digests))
        return require_successes(replies), value.but(made_by=(*value.made_by, *uses))


class DraftFilter(DraftStep):
    """Base of the steps that only keep a question or drop it."""

    def revise(self, value: QuestionDraft, /) -> QuestionDraft:
        reason, noted = self.judge(value)
        if reason:
            return self.drop(noted, reason)
        return noted.but(passed=(*noted.passed, type(self).__name__))

    @abstractmethod
    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        """Return why the question is dropped, empty to keep it; and the question with a note of the prompts."""


def shown_passages(value: QuestionDraft, characters: int) -> tuple[str, ...]:
    """Return the passages as a model sees them: with their headings, long ones shortened in the middle."""
    return tuple(shorten(node.shown_text, characters) for node in value.passages)


ABSTENTION = Setting("I do not know.")
