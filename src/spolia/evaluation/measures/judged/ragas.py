"""Faithfulness."""

from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer_text import said
from spolia.evaluation.measures.judged.judge import (
    Decisions,
    JudgedMeasure,
    Statements,
    judgements,
    judging_role,
    passages,
)
from spolia.evaluation.measures.measure import Result, checked_item
from spolia.evaluation.measures.rank_measures import mean_precision
from spolia.indexing.transforms.llm_transform import Questions
from spolia.models.parsers import YesNo
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import Embedder, LanguageModel
from spolia.types import Item

STATED: Role[tuple[str, ...] | None] = judging_role("statements", Statements())
BACKED: Role[tuple[bool | None, ...] | None] = judging_role("backed", Decisions())


@dataclass(frozen=True)
class Faithfulness(JudgedMeasure):
    """Share of the answer's statements that the passages shown to the reader support; the gold does not matter.

    Two calls: what the answer states, then which statements follow from the passages. An abstention, and an answer
    that states nothing, is undetermined, and so is one with an undetermined statement; without any passage nothing is
    supported.

    Args:
        llm: the judge.
        stated: prompt file with the places `{{question}}` and `{{answer}}`; its reply is read as a list.
        backed: prompt file with the places `{{passages}}` and `{{statements}}`; its reply has a verdict for each.
        max_tokens: longest reply. Statements beyond it are not judged, which the trace notes.

    Source: Es et al. 2024 (RAGAS).

    >>> from spolia import Answer, Hit, Node, Query, Ranking, ScriptedModel
    >>> shown = Ranking(Query("?"), (Hit(Node("n", "He worked for Nokia."), 1.0),))
    >>> model = ScriptedModel((("<statements", "1: yes\\n2: no"), ("", "He worked for Nokia.\\nHe lived in Salo.")))
    >>> Faithfulness(model).score(Answer("He worked for Nokia in Salo.", evidence=shown), Item("q", "Who is he?"))
    0.5
    """

    llm: LanguageModel
    stated: Role[tuple[str, ...] | None] = STATED
    backed: Role[tuple[bool | None, ...] | None] = BACKED
    max_tokens: int = 4096

    called: ClassVar[str] = "Faithfulness"

    def score(self, result: Result, item: Item) -> float | None:
        answer, shown = said(result), passages(result)
        if not answer.strip():
            return None
        (statements,) = judgements(
            Ask(self.llm, self.stated, self.max_tokens), [Brief.of(question=item.question, answer=answer)]
        )
        if not statements:
            return None
        if not shown:
            return 0.0
        (verdicts,) = judgements(
            Ask(self.llm, self.backed, self.max_tokens), [Brief.of(passages=shown, statements=statements)]
        )
        if verdicts is None or None in verdicts or len(verdicts) != len(statements):
            return None
        return float(sum(verdicts) / len(verdicts))


ASKED: Role[tuple[str, ...] | None] = judging_role("asked", Questions())


@dataclass(frozen=True)
class AnswerRelevancy(JudgedMeasure):
    """Whether the answer is one to the question that was asked, right or wrong.

    A model writes the questions that the answer would answer; the measure is their mean cosine with the question, from
    -1 to 1. An abstention, or an answer that the model calls non-committal, scores 0. One call.

    Args:
        llm: writes the questions.
        embedder: compares them; numbers of different embedders do not compare.
        questions: how many to ask for (`{{questions}}`); the rest is left out.
        role: prompt file with the places `{{answer}}` and `{{questions}}`; its reply is read as a list, `none` for a
            non-committal answer.

    Source: Es et al. 2024 (RAGAS), with its three questions.

    >>> from spolia import Answer, ScriptedModel
    >>> from spolia.testing import HashingEmbedder
    >>> measure = AnswerRelevancy(ScriptedModel(("Who employed him?\\nWho employed him?",)), HashingEmbedder())
    >>> round(measure.score(Answer("Nokia did."), Item("q", "Who employed him?")), 4)
    1.0
    """

    llm: LanguageModel
    embedder: Embedder
    questions: int = 3
    role: Role[tuple[str, ...] | None] = ASKED

    called: ClassVar[str] = "AnswerRelevancy"
    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def score(self, result: Result, item: Item) -> float | None:
        answer = said(result)
        if not answer.strip():
            return 0.0
        brief = Brief.of(answer=answer, questions=Setting(self.questions))
        (found,) = judgements(Ask(self.llm, self.role), [brief])
        if not found:
            return None if found is None else 0.0
        own, *others = self.embedder.embed([item.question, *found[: self.questions]], kind="query")
        return float(sum(own @ other for other in others) / len(others))


USEFUL: Role[bool | None] = judging_role("useful", YesNo())


@dataclass(frozen=True)
class ContextPrecision(JudgedMeasure):
    """Whether useful passages rank above useless ones, as a model judges each by the accepted answers.

    Sum over k of P@k · v_k / sum of v_k, v_k = 1 if passage k is useful, P@k = useful ones in the first k / k; 0 when
    none is. It does not see what was not found. One call for each passage; one undetermined verdict makes the question
    undetermined. With the gold's ids in place of a judge: `MAP(rule="ragas")`.

    Args:
        llm: the judge.
        role: prompt file with the places `{{question}}`, `{{answers}}`, `{{passage}}`, and the reader of the reply.

    Source: Es et al. 2024 (RAGAS), as used by Kim et al. 2024 (AutoRAG).

    >>> from spolia import Hit, Node, Query, Ranking, ScriptedModel
    >>> found = Ranking(Query("?"), tuple(Hit(Node(text, text), 1.0) for text in ("the moon", "salt", "moonlight")))
    >>> measure = ContextPrecision(ScriptedModel((("<passage>salt", "no"), ("", "yes"))))
    >>> str(measure), round(measure.score(found, Item("q", "?", answers=("moon",))), 4)  # (1 + 2/3) / 2
    ('ContextPrecision(llm="scripted")', 0.8333)
    """

    llm: LanguageModel
    role: Role[bool | None] = USEFUL

    called: ClassVar[str] = "ContextPrecision"

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        checked_item(self, item)
        briefs = [
            Brief.of(question=item.question, answers=item.answers, passage=passage) for passage in passages(result)
        ]
        verdicts = judgements(Ask(self.llm, self.role), briefs)
        useful = [rank for rank, verdict in enumerate(verdicts, start=1) if verdict]
        return None if None in verdicts else mean_precision(useful)


CORRECT: Role[bool | None] = judging_role("correct", YesNo())


@dataclass(frozen=True)
class Correctness(JudgedMeasure):
    """1 if the answer says the same as an accepted one, whatever its words, else 0. An abstention scores 0. One call.

    How far the judge can be believed: `agreement` of its verdicts with people's.

    Args:
        llm: the judge.
        role: prompt file with the places `{{question}}`, `{{answers}}` and `{{answer}}`, and the reader of the reply.

    Source: reference-guided grading, Zheng et al. 2023.

    >>> from spolia import Answer, ScriptedModel
    >>> measure = Correctness(ScriptedModel(("Yes.",)))
    >>> measure.score(Answer("It was Nokia Oyj."), Item("q", "Who employed him?", answers=("Nokia",)))
    1.0
    """

    llm: LanguageModel
    role: Role[bool | None] = CORRECT

    called: ClassVar[str] = "Correctness"

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        checked_item(self, item)
        answer = said(result)
        if not answer.strip():
            return 0.0
        brief = Brief.of(question=item.question, answers=item.answers, answer=answer)
        (correct,) = judgements(Ask(self.llm, self.role), [brief])
        return None if correct is None else float(correct)
