"""Citations, costs, likeness of meaning, answers in passages, and what is made of many cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytest

from spolia.errors import MeasureError
from spolia.evaluation.experiment.score_store import ANSWER, ScoreStore
from spolia.evaluation.measures.answers.embedding_similarity import BERTScore, SemScore
from spolia.evaluation.measures.answers.ngrams import BLEU
from spolia.evaluation.measures.costs import AverageTokens, DocumentsShown, RetrievalCalls, UsedCalls
from spolia.evaluation.measures.measure import Case, SetMeasure, measured
from spolia.evaluation.measures.registry import parse_measure
from spolia.models.protocols import Kind
from spolia.models.vectors import TokenVectors
from spolia.run import Run
from spolia.testing import HashingEmbedder
from spolia.types import Answer, Failure, Hit, Item, Node, Query, Ranking, Usage, Value
from tests.cases import check_each
from tests.evaluation.measures.fixtures import ABSTAINED, answer_citing, item_with, measure_of, ranking
from tests.tree import classes

TWO = item_with(gold=(("a", "A"), ("b",)))


@check_each(
    ("cited", "precision", "recall"),
    [
        ("a b", 1.0, 1.0),
        ("a", 1.0, 1 / 2),
        ("a x", 1 / 2, 1 / 2),
        ("a A", 1.0, 1 / 2),
        ("a a x", 1 / 2, 1 / 2),  # a document counts once
        ("x", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_citations_are_what_one_works_out_by_hand(cited: str, precision: float, recall: float) -> None:
    answer = answer_citing("so", *cited.split())
    assert (measure_of("CiteP").score(answer, TWO), measure_of("CiteR").score(answer, TWO)) == (precision, recall)


def test_only_an_answer_has_citations() -> None:
    with pytest.raises(MeasureError, match="A Ranking is not an answer"):
        measure_of("CiteP").score(ranking("a"), TWO)


LOCAL, WEB, AGAIN = (
    ranking("l1", "l2", source="local"),
    ranking("w1", "w2", source="web"),
    ranking("l1", source="local"),
)
SHOWN = Ranking(Query("?"), (*LOCAL.hits[1:], Hit(Node("parent", ""), 1.0, found=(WEB.nodes[0],))))
FOUND = Case(TWO, Answer("so", evidence=SHOWN), Usage(3, 1000, 50), (LOCAL, WEB, AGAIN))


@check_each(
    ("measure", "value"),
    [
        (AverageTokens(), 1050),
        (RetrievalCalls(), 3),
        (RetrievalCalls("local"), 2),
        (RetrievalCalls("web"), 1),
        (RetrievalCalls("mail"), 0),
        (UsedCalls(), 2),  # of AGAIN nothing is shown
        (UsedCalls("local"), 1),
        (UsedCalls("web"), 1),  # by the parent of what was found
        (DocumentsShown(), 2),
        (DocumentsShown("local"), 1),
        (DocumentsShown("web"), 1),
    ],
)
def test_costs_are_what_one_counts_by_hand(measure: SetMeasure, value: float) -> None:
    assert measure.observe(FOUND) == (value,)
    assert measure.applies(Item("q", "?"))


def test_a_ranking_that_a_loop_discarded_is_not_used_though_its_passages_are_shown() -> None:
    first, second_ranking, web = (
        ranking(*names, source=source).but(query=Query(text))
        for names, source, text in ((["a", "b"], "local", "Who?"), (["a"], "local", "Where?"), (["w"], "web", "Where?"))
    )
    nothing = Ranking(Query("question"), ())
    for rankings, local in (((first, web), 1), ((first, second_ranking, web), 2)):
        merged = reduce(Ranking.extended, rankings, nothing)
        case = Case(TWO, Answer("so", evidence=merged), retrievals=(first, second_ranking, web))
        assert [UsedCalls(source).observe(case) for source in ("local", "web", "")] == [(local,), (1,), (local + 1,)]
    assert merged.merged == (("local", "Who?"), ("local", "Where?"), ("web", "Where?"))
    cut = Case(TWO, Answer("so", evidence=merged.cut(2)), retrievals=(first, second_ranking, web))
    assert UsedCalls("web").observe(cut) == (0,)
    with ScoreStore() as store:
        store.write_answer(1, 1, case, usage=Usage(), spent=Usage(), cached=False, opening=0.0, seconds=0.0)
        saved = store.case(store.columns(ANSWER)[0], TWO).result
        assert isinstance(saved, Answer)
        assert saved.evidence is not None
        assert saved.evidence.merged == merged.merged


def test_a_failure_costs_what_it_took_and_used_nothing() -> None:
    failed = FOUND.but(result=Failure("ModelUnavailable", "gone"))
    costs = (AverageTokens(), RetrievalCalls(), UsedCalls(), DocumentsShown())
    assert [measure.observe(failed) for measure in costs] == [(1050,), (3,), (0,), (0,)]
    assert measured(AverageTokens(), [FOUND, failed.but(usage=Usage())]).value == 525


def test_a_flow_that_ends_with_a_ranking_shows_it() -> None:
    assert DocumentsShown("web").observe(Case(TWO, WEB, retrievals=(LOCAL, WEB))) == (2,)


def test_an_answer_that_stands_in_a_passage_is_found_there() -> None:
    found_ranking = Ranking(Query("?"), tuple(Hit(Node(text, text), 1.0) for text in ("The moons.", "It is the Moon!")))
    item = item_with("moon")
    assert [measure_of(f"AnswerHit@{k}").score(found_ranking, item) for k in (1, 2)] == [0.0, 1.0]
    assert measure_of("AnswerHit@2").score(Answer("so", evidence=found_ranking), item) == 1.0
    with pytest.raises(MeasureError, match="without evidence"):
        measure_of("AnswerHit@2").score(Answer("so"), item)


def test_likeness_is_that_of_the_nearest_answer() -> None:
    embedder = HashingEmbedder()
    own, near_vector, far_vector = embedder.embed(["the moon", "a moon", "tax"], kind="passage")
    score = SemScore(embedder).score_text("the moon", ["a moon", "tax"])
    assert score == pytest.approx(max(float(own @ near_vector), float(own @ far_vector)))
    assert SemScore(embedder).score(ABSTAINED, item_with("the moon")) == 0.0
    assert (
        SemScore(embedder).score(Answer("moon " * 300), item_with("the moon")) is None
    )  # its end would not be compared
    with Run() as run:
        SemScore(embedder).score_text("the moon", ["a moon", "tax"])
    assert run.usage.embedded == 3


@dataclass(frozen=True)
class Tokens(Value):
    """Words as vectors in a plane, by hand."""

    name: str = "plane"
    dimension: int = 2
    window: int = 512
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        angle = {"moon": 0.0, "lune": np.pi / 3, "tax": np.pi / 2}
        rows = [[(np.cos(angle[word]), np.sin(angle[word])) for word in text.split()] for text in texts]
        return TokenVectors.from_vectors(rows, dimension=2)


@pytest.mark.parametrize(
    ("text", "answers", "value"),
    [
        ("moon", ["moon"], 1.0),
        ("moon", ["lune"], 1 / 2),  # cos 60°
        ("moon tax", ["moon"], 2 * (1 / 2) * 1 / (1 / 2 + 1)),  # P (1 + 0) / 2, R 1
        ("moon", ["tax", "lune moon"], 2 * 1 * (3 / 4) / (1 + 3 / 4)),  # P 1, R (1/2 + 1) / 2
        ("", ["moon"], 0.0),
    ],
)
def test_bert_score_is_what_one_works_out_by_hand(text: str, answers: list[str], value: float) -> None:
    assert BERTScore(Tokens()).score_text(text, answers) == pytest.approx(value, abs=1e-6)


def test_a_text_beyond_the_window_has_no_bert_score() -> None:
    @dataclass(frozen=True)
    class Counting(Tokens):
        def tokens(self, texts: Sequence[str]) -> list[int]:
            return [len(text.split()) for text in texts]

    assert BERTScore(Counting(window=2)).score_text("moon tax", ["moon"]) is not None
    assert BERTScore(Counting(window=2)).score_text("moon tax lune", ["moon"]) is None
    assert BERTScore(Counting(window=2)).score_text("moon", ["tax", "moon tax lune"]) is None


def test_bert_score_needs_the_vectors_of_tokens() -> None:
    embedder: Any = HashingEmbedder()
    with pytest.raises(MeasureError, match="is not a token embedder: it lacks embed_tokens"):
        BERTScore(embedder)


def test_a_summary_says_how_many_it_is_made_of() -> None:
    cases = [
        Case(item_with("a"), Answer("a")),
        Case(item_with("a"), Failure("ValueError", "no")),
        Case(item_with(), Answer("a")),
    ]
    report = measured(parse_measure("EM"), cases)
    assert (report.value, report.n, report.failed, report.undetermined, report.without_gold) == (0.5, 2, 1, 0, 1)
    assert str(report) == "EM 0.5 of 2, 1 failed, 1 without gold"
    assert report.observations == ((1.0,), (0.0,), None)
    assert str(measured(BLEU(), [])) == "BLEU nothing of 0"


@check_each("written", ["R@5", "nDCG@10", "MAP", "CiteR", "EM", "F1", "ROUGE-L", "AnswerHit@5"])
def test_to_score_an_item_without_gold_is_refused(written: str) -> None:
    with pytest.raises(MeasureError, match=f"{written} does not apply to the item 'q'.*Ask applies"):
        measure_of(written).score(Answer("so", evidence=ranking("a")), Item("q", "?"))


def test_what_is_better_is_said() -> None:
    lower = {cls.notation for cls in classes(SetMeasure) if cls.lower_is_better}
    assert lower == {"ATC", "USD", "Seconds", "Calls", "UsedCalls", "DocsShown", "Risk", "AURC"}


BADLY_ANSWERED = [
    "",
    " \n\t",
    "的月亮引起潮汐",
    "القمر يسبب المد",
    "🙂" * 10,
    "\ud800",
    "\0",
    "a" * 100_000,
    "[1]" * 1000,
]
LONG = 200_000
LONG_TEXTS = {
    "words": "the moon pulls " * (LONG // 15),
    "one word": "a" * LONG,
    "blanks": " " * LONG,
    "marks": "[(.," * (LONG // 4),
    "lines": "a\n" * (LONG // 2),
    "Chinese": "月が引く" * (LONG // 4),
    "the word of the gold": "moon " * (LONG // 5),
}
OF_ANSWERS = [
    "EM", "F1", 'F1(words="unicode")', "Acc", 'Acc(rule="flashrag")', 'Acc(rule="prefrag")', 'Acc(rule="bioasq")',
    "PrefRAG-Avg", "ROUGE-1", "ROUGE-2", "ROUGE-L", 'ROUGE-L(words="characters")', "METEOR-no-synonyms", "BLEU",
]  # fmt: skip


def test_a_class_of_measures_may_have_the_former_names_of_what_it_defines() -> None:
    with pytest.warns(DeprecationWarning, match="is (notation|observe) now") as warned:

        @dataclass(frozen=True)
        class Longest(SetMeasure):
            called = "Longest"

            def applies(self, item: Item) -> bool:
                return True

            def seen(self, case: Case) -> tuple[float, ...] | None:
                return (float(len(case.item.question)),)

            def total(self, seen: Sequence[tuple[float, ...]]) -> float:
                return max(seen)[0]

    assert ["called is notation" in str(one.message) for one in warned] == [True, False]
    measure: Any = Longest
    found = measured(measure(), [Case(Item("q", "How?"), Failure("StepFailed", "no"))])
    assert (found.measure, found.value) == ("Longest", 4.0)


@check_each("written", OF_ANSWERS)
@check_each("text", BADLY_ANSWERED)
def test_nothing_that_an_answer_may_say_breaks_a_measure(written: str, text: str) -> None:
    report = measured(parse_measure(written), [Case(item_with("the moon pulls the sea", ""), answer_citing(text, "a"))])
    assert report.n == 1
    assert report.value is not None
    assert 0 <= report.value <= 1


@pytest.mark.slow
@pytest.mark.timeout(60)
@check_each("written", OF_ANSWERS)
@check_each("kind", LONG_TEXTS)
def test_hundreds_of_thousands_of_characters_are_measured(written: str, kind: str) -> None:
    """What takes quadratic time here would take many minutes."""
    answer = answer_citing(LONG_TEXTS[kind], "a")
    report = measured(parse_measure(written), [Case(item_with("the moon pulls the sea", "moon " * 50), answer)])
    assert report.value is not None
    assert 0 <= report.value <= 1
