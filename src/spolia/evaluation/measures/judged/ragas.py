"""Measures of RAGAS: faithfulness, answer relevancy and context precision; and correctness by a judge."""

from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer_text import extract_text
from spolia.evaluation.measures.judged.judge import (
    Decisions,
    JudgedMeasure,
    Statements,
    judgements,
    judging_role,
    passages,
)
from spolia.evaluation.measures.measure import Result, check_item
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
    >>> answer = Answer("He worked for Nokia in Salo.", evidence=shown)
    >>> Faithfulness(model).score(answer, Item("q", "Who is he?"))
    0.5
    """

    llm: LanguageModel
    stated: Role[tuple[str, ...] | None] = STATED
    backed: Role[tuple[bool | None, ...] | None] = BACKED
    max_tokens: int = 4096

    notation: ClassVar[str] = "Faithfulness"

    def score(self, result: Result, item: Item) -> float | None:
        answer, evidence = extract_text(result), passages(result)
        if not answer.strip():
            return None
        (statements,) = judgements(
            Ask(self.llm, self.stated, self.max_tokens), [Brief.from_texts(question=item.question, answer=answer)]
        )
        if not statements:
            return None
        # Without a passage nothing is supported, so the second call is saved.
        if not evidence:
            return 0.0
        (verdicts,) = judgements(
            Ask(self.llm, self.backed, self.max_tokens), [Brief.from_texts(passages=evidence, statements=statements)]
        )
        # With a verdict too few or too many nobody knows which statement it belongs to.
        if verdicts is None or None in verdicts or len(verdicts) != len(statements):
            return None
        return float(sum(verdicts) / len(verdicts))


ASKED: Role[tuple[str, ...] | None] = judging_role("asked", Questions())


@dataclass(frozen=True)
class AnswerRelevancy(JudgedMeasure):
    """Similarity of the question to the questions that the answer would answer, whether it is right or wrong.

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

    notation: ClassVar[str] = "AnswerRelevancy"
    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def score(self, result: Result, item: Item) -> float | None:
        answer = extract_text(result)
        if not answer.strip():
            return 0.0
        brief = Brief.from_texts(answer=answer, questions=Setting(self.questions))
        (questions,) = judgements(Ask(self.llm, self.role), [brief])
        if not questions:
            return None if questions is None else 0.0
        # Models may write more than they are asked for.
        question_vector, *vectors = self.embedder.embed([item.question, *questions[: self.questions]], kind="query")
        return float(sum(question_vector @ vector for vector in vectors) / len(vectors))


USEFUL: Role[bool | None] = judging_role("useful", YesNo())


@dataclass(frozen=True)
class ContextPrecision(JudgedMeasure):
    """Average precision of the useful passages, as a model judges each by the accepted answers.

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

    notation: ClassVar[str] = "ContextPrecision"

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        check_item(self, item)
        briefs = [
            Brief.from_texts(question=item.question, answers=item.answers, passage=passage)
            for passage in passages(result)
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

    notation: ClassVar[str] = "Correctness"

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        check_item(self, item)
        answer = extract_text(result)
        if not answer.strip():
            return 0.0
        brief = Brief.from_texts(question=item.question, answers=item.answers, answer=answer)
        (correct,) = judgements(Ask(self.llm, self.role), [brief])
        return None if correct is None else float(correct)
