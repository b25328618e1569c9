"""Measures that a language model judges: the arithmetic, the silence of a judge, and what a run does for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import pytest

from spolia.core.function import step
from spolia.errors import MeasureError, ModelError, ModelRejected, ModelUnavailable
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.measures.abstention import AURC, SelectiveRisk
from spolia.evaluation.measures.judged.citation_support import SupportPrecision, SupportRecall, cited_sentences
from spolia.evaluation.measures.judged.g_eval import ASPECTS, GEval, expected_grade, most_probable_grade
from spolia.evaluation.measures.judged.judge import JudgedMeasure
from spolia.evaluation.measures.judged.ragas import AnswerRelevancy, ContextPrecision, Correctness, Faithfulness
from spolia.evaluation.measures.measure import Case, Measure, measured
from spolia.evaluation.measures.registry import parse_measure
from spolia.journal import Cache
from spolia.models.http.chat import ChatModel
from spolia.models.parsers import Parser
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import CHAT, NEXT_TOKENS, Kind
from spolia.run import Budget, Run
from spolia.testing import HashingEmbedder, OpenAIServer, ServedReply
from spolia.types import Answer, Citation, Generation, Item, Prompt, Query, Token, Value
from tests.cases import check_each
from tests.evaluation.measures.fixtures import ABSTAINED, answer_citing, item_with, ranking

NOKIA = item_with("Nokia")
SHOWN = Answer("He worked for Nokia in Salo.", evidence=ranking("a", "b"))


def statements(verdicts: str, listed: str = "He worked for Nokia.\nHe was in Salo.") -> ScriptedModel:
    return ScriptedModel((("<statements", verdicts), ("", listed)))


@check_each(
    ("useful", "value"),
    [
        ("a", 1.0),
        ("b", 1 / 2),
        ("ac", (1 / 1 + 2 / 3) / 2),
        ("bd", (1 / 2 + 2 / 4) / 2),
        ("abcd", 1.0),
        ("", 0.0),
    ],
)
def test_context_precision_is_what_one_works_out_by_hand(useful: str, value: float) -> None:
    llm = ScriptedModel((*((f"text of {name}<", "Yes.") for name in useful), ("", "No.")))
    score = ContextPrecision(llm).score(ranking(*"abcd"), NOKIA)
    assert score == pytest.approx(value, abs=1e-12)


def test_nothing_found_has_no_context_precision_to_judge() -> None:
    assert ContextPrecision(ScriptedModel(("yes",))).score(ranking(), NOKIA) == 0.0


@check_each(
    ("verdicts", "value"),
    [
        ("1: yes\n2: no", 0.5),
        ("1: yes\n2: yes, by passage 2", 1.0),
        ("Here you are.\n1. No.\n2. **No**", 0.0),
        ("1: yes\n2: undetermined", None),
        ("1: yes", None),  # a verdict is missing
        ("1: yes\n2: no\n3: yes", None),
        ("I would rather not say.", None),
        ("undetermined", None),
    ],
)
def test_faithfulness_is_the_share_of_supported_statements(verdicts: str, value: float | None) -> None:
    assert Faithfulness(statements(verdicts)).score(SHOWN, NOKIA) == value


def test_an_answer_that_states_nothing_has_no_faithfulness() -> None:
    measure = Faithfulness(statements("1: yes", "none"))
    for answer in (SHOWN, ABSTAINED.but(evidence=ranking("a")), Answer(" ", evidence=ranking("a"))):
        assert measure.score(answer, NOKIA) is None


def test_without_a_passage_nothing_is_supported() -> None:
    assert Faithfulness(statements("1: yes\n2: yes")).score(SHOWN.but(evidence=ranking()), NOKIA) == 0.0


def test_relevancy_is_the_mean_cosine_with_the_questions_that_the_answer_answers() -> None:
    embedder, item = HashingEmbedder(), Item("q", "Who employed him?")
    other_question = "What is the tide?"
    own, theirs = embedder.embed([item.question, other_question], kind="query")
    measure = AnswerRelevancy(ScriptedModel((f"{item.question}\n{other_question}\nAnother?",)), embedder, questions=2)
    assert measure.score(SHOWN, item) == pytest.approx((1 + float(own @ theirs)) / 2)


@dataclass(frozen=True)
class OfQuestions(HashingEmbedder):
    """An embedder with a prefix for questions, which nothing else may be given."""

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        assert kind == "query"
        return super().embed(texts, kind=kind)


def test_questions_are_compared_as_questions() -> None:
    measure = AnswerRelevancy(ScriptedModel(("Who employed him?",)), OfQuestions(), questions=1)
    assert measure.score(SHOWN, Item("q", "Who employed him?")) == pytest.approx(1.0)


@pytest.mark.parametrize(("reply", "answer"), [("none", SHOWN), ("Who?", ABSTAINED), ("Who?", Answer(""))])
def test_what_commits_to_nothing_is_relevant_to_nothing(reply: str, answer: Answer) -> None:
    assert AnswerRelevancy(ScriptedModel((reply,)), HashingEmbedder()).score(answer, NOKIA) == 0.0


@pytest.mark.parametrize(("reply", "value"), [("Yes", 1.0), ("no.", 0.0), ("undetermined", None), ("perhaps", None)])
def test_correctness_is_the_verdict(reply: str, value: float | None) -> None:
    assert Correctness(ScriptedModel((reply,))).score(SHOWN, NOKIA) == value


def test_an_abstention_is_not_correct_and_not_asked_about() -> None:
    assert Correctness(ScriptedModel((("nothing", "?"),))).score(ABSTAINED, NOKIA) == 0.0


@pytest.mark.parametrize("aspect", ASPECTS)
def test_g_eval_is_the_mean_of_the_grades_that_can_be_read(aspect: str) -> None:
    llm = ScriptedModel((("answer", "Grade: 5", "4", "7", "no idea", "2"), ("cannot be used", "still not")))
    measure = GEval(llm, aspect, samples=5)
    assert measure.score(SHOWN, NOKIA) == pytest.approx((5 + 4 + 2) / 3)
    assert GEval(ScriptedModel(("a lot",)), aspect, samples=2).score(SHOWN, NOKIA) is None


def test_the_mean_of_g_eval_is_that_of_the_four_aspects_and_undetermined_where_one_is() -> None:
    graded = ScriptedModel((("[Cc]oheren", "5"), ("[Cc]onsisten", "4"), ("[Ff]luen", "2"), ("[Rr]elevan", "3")))
    measure = GEval(graded, "mean", samples=1)
    scores = [GEval(graded, aspect, samples=1).score(SHOWN, NOKIA) for aspect in ASPECTS]
    assert scores == [5, 4, 2, 3]
    assert measure.score(SHOWN, NOKIA) == 3.5
    assert len(measure.dependencies) == len(ASPECTS)
    silent = ScriptedModel((("[Ff]luen", "no idea"), ("", "4")))
    assert GEval(silent, "mean", samples=1).score(SHOWN, NOKIA) is None
    assert parse_measure('GEval(aspect="mean")', llm=graded) == GEval(graded, "mean")
    with pytest.raises(MeasureError, match="four aspects with one prompt"):
        GEval(graded, "mean", prompt="mine.txt")


GRADES = {"5": 0.4, " 4": 0.2, "4": 0.1, "1": 0.1, "The": 0.15}
REPLY = {"choices": [{"logprobs": {"content": [{"top_logprobs": [
    {"token": token, "logprob": log(p)} for token, p in GRADES.items()
]}]}}], "usage": {"prompt_tokens": 40, "completion_tokens": 1}}  # fmt: skip


def foretelling(url: str) -> ChatModel:
    return ChatModel("judge", url, capabilities=frozenset((CHAT, NEXT_TOKENS)))


def test_g_eval_by_tokens_is_the_mean_of_the_grades_weighted_by_what_the_model_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with OpenAIServer(ServedReply(body=json.dumps(REPLY).encode())) as server, Run() as judging:
        measure = GEval(foretelling(server.url), "fluency", rule="tokens")
        assert str(measure) == 'GEval(llm="judge", aspect="fluency", rule="tokens")'
        # by hand: (5 · 0.4 + 4 · 0.3 + 1 · 0.1) / 0.8
        assert measure.score(SHOWN, NOKIA) == pytest.approx(3.3 / 0.8)
        assert judging.actual_usage.calls == 1
        body = server.requests[0].body
    assert (body["top_logprobs"], body["max_tokens"], body["temperature"]) == (20, 1, 0.0)


def test_g_eval_as_autorag_is_the_most_probable_grade_beside_the_best_accepted_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    def stating(**probabilities: float) -> ServedReply:
        stated = [{"token": token.strip("_"), "logprob": log(p)} for token, p in probabilities.items()]
        content = {"choices": [{"logprobs": {"content": [{"top_logprobs": stated}]}}], "usage": {}}
        return ServedReply(body=json.dumps(content).encode())

    with OpenAIServer(stating(The=0.5, _2=0.3, _5=0.1), stating(_3=0.4, _4=0.3)) as server, Run():
        measure = GEval(foretelling(server.url), "consistency", rule="autorag")
        assert measure.score(SHOWN, item_with("Nokia", "Nokia, in Salo")) == 3  # 2 beside the one, 3 beside the other
        prompts = [request.body["messages"][-1]["content"] for request in server.requests]
    assert ["Nokia, in Salo" in prompt for prompt in sorted(prompts, key=len)] == [False, True]
    assert not any("text of a" in prompt for prompt in prompts)  # the passages that were found do not count
    assert not measure.applies(item_with())


def test_a_grade_beyond_the_five_most_probable_tokens_is_not_seen() -> None:
    tokens = [Token(word, log(0.1)) for word in ("The", "An", "It", "So")]
    assert most_probable_grade([*tokens, Token("4", log(0.05)), Token("5", log(0.01))]) == 4
    assert most_probable_grade([*tokens, Token("Oh", log(0.1)), Token("4", log(0.05))]) is None
    assert most_probable_grade([Token("7", log(0.9)), Token("0", log(0.05))]) is None


@pytest.mark.parametrize(
    ("stated", "value"),
    [
        ((("5", 0.5), ("The", 0.5)), 5.0),
        ((("5", 0.4), ("The", 0.5)), None),  # it would rather say something else
        ((("und", 0.9), ("The", 0.1)), None),
        ((("6", 0.5), ("0", 0.3), ("3", 0.2)), None),
        ((("3", 0.01), ("2", 0.01)), 2.5),
    ],
)
def test_grades_that_are_less_probable_than_the_rest_are_undetermined(
    stated: Sequence[tuple[str, float]], value: float | None
) -> None:
    grade = expected_grade([Token(text, log(p)) for text, p in stated])
    assert grade == (None if value is None else pytest.approx(value))


def test_a_model_without_probabilities_cannot_grade_by_them() -> None:
    with pytest.raises(MeasureError, match=r"scripted states no probabilities .* with 'next_tokens' in it"):
        GEval(ScriptedModel(("5",)), rule="tokens")
    with pytest.raises(MeasureError, match="no rule 'logprobs'"):
        GEval(ScriptedModel(("5",)), rule="logprobs")


SALT = Citation("1", "n1", "d1", "a.txt", "Salt is white.")
OWLS = Citation("2", "n2", "d2", "b.txt", "Owls hunt.")
JUDGE = ScriptedModel((("Salt is white(.|\\n)*<statement>It is white", "yes"), ("", "no")))


def test_sentences_know_what_they_cite() -> None:
    text = "It is white [1][2]. It hunts. [2] It is old."
    assert cited_sentences(Answer(text, (SALT, OWLS))) == [
        ("It is white.", ("Salt is white.", "Owls hunt.")),
        ("It hunts.", ("Owls hunt.",)),
        ("It is old.", ()),
    ]


def test_a_marker_of_several_passages_cites_all_of_them() -> None:
    answer = Answer("It is white [1].", (SALT, OWLS.but(marker="1")))
    assert cited_sentences(answer) == [("It is white.", ("Salt is white.\nOwls hunt.",))]


def test_support_of_citations_is_what_one_works_out_by_hand() -> None:
    answer = Answer("It is white [1][2]. It hunts. [2] It is old.", (SALT, OWLS))
    assert SupportRecall(JUDGE).score(answer, NOKIA) == pytest.approx(1 / 3)
    # [1] suffices; [2] does not, and is not missed; [2] of the second sentence does not support it
    assert SupportPrecision(JUDGE).score(answer, NOKIA) == pytest.approx(1 / 3)


def test_two_passages_that_are_needed_together_are_both_precise() -> None:
    model = ScriptedModel((("Salt is white(.|\\n)*Owls hunt", "yes"), ("", "no")))
    assert SupportPrecision(model).score(Answer("It is so [1][2].", (SALT, OWLS)), NOKIA) == 1.0


def test_what_cites_nothing_has_no_precision_and_no_recall() -> None:
    assert SupportRecall(JUDGE).score(Answer("It is white."), NOKIA) == 0.0
    assert SupportPrecision(JUDGE).score(Answer("It is white."), NOKIA) is None
    assert SupportRecall(JUDGE).score(ABSTAINED, NOKIA) is None


@dataclass(frozen=True)
class Broken(Value):
    """A model that raises."""

    error: str = "ModelUnavailable"
    name: str = "broken"
    capabilities: frozenset[str] = frozenset(("chat",))
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        logprobs: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        kinds = {"ModelUnavailable": ModelUnavailable, "ModelRejected": ModelRejected}
        raise kinds.get(self.error, ValueError)(f"{self.error} it is")


def measures(llm: ScriptedModel | Broken) -> list[JudgedMeasure]:
    return [
        ContextPrecision(llm),
        Faithfulness(llm),
        AnswerRelevancy(llm, HashingEmbedder()),
        Correctness(llm),
        GEval(llm, samples=2),
        SupportRecall(llm),
        SupportPrecision(llm),
    ]


CITED = answer_citing("It was Nokia [1].", "a").but(evidence=ranking("a"))


@check_each("error", ["ModelUnavailable", "ModelRejected"])
@check_each("number", range(7))
def test_a_judge_that_cannot_be_asked_is_counted_as_undetermined(error: str, number: int) -> None:
    report = measured(measures(Broken(error))[number], [Case(NOKIA, CITED), Case(NOKIA, CITED)])
    assert (report.value, report.n, report.undetermined) == (None, 0, 2)


@check_each("number", range(7))
def test_a_mistake_in_a_judge_is_raised(number: int) -> None:
    with pytest.raises(ValueError, match="ValueError it is"):
        measured(measures(Broken("ValueError"))[number], [Case(NOKIA, CITED)])


def test_undetermined_is_left_out_of_the_mean_and_counted() -> None:
    llm = ScriptedModel((("Ericsson", "no"), ("Siemens", "who knows"), ("cannot be used", "who knows"), ("", "yes")))
    cases = [Case(NOKIA, Answer(text)) for text in ("Nokia", "Ericsson", "Siemens", "Nokia Oyj")]
    report = measured(Correctness(llm), [*cases, Case(item_with(), Answer("?"))])
    assert report.observations == ((1.0,), (0.0,), None, (1.0,), None)
    assert (report.n, report.undetermined, report.without_gold) == (3, 1, 1)
    assert report.value == pytest.approx(2 / 3)


@dataclass(frozen=True)
class NaN(Parser[float]):
    def parse(self, reply: str) -> float:
        return float("nan")


def test_a_score_that_is_no_number_is_undetermined() -> None:
    @dataclass(frozen=True)
    class Loose(Measure):
        notation = "Loose"

        def applies(self, item: Item) -> bool:
            return True

        def score(self, result: object, item: Item) -> float:
            role = Role("spolia:evaluation/measures/judged/prompts/correct.txt", NaN(), default="?")
            score: float = Ask(ScriptedModel(("nan",)), role)(
                Brief.from_texts(question="?", answers=("a",), answer="b")
            )
            return score

    report = measured(Loose(), [Case(NOKIA, CITED)])
    assert (report.value, report.undetermined) == (None, 1)


def test_a_run_caches_a_judge_and_counts_what_it_takes() -> None:
    cache, cases = Cache(), [Case(NOKIA, Answer(text)) for text in ("Nokia", "Ericsson", "Nokia")]
    measure = Correctness(ScriptedModel((("<answer>Nokia", "yes"), ("", "no"))))
    with Run(cache=cache) as first:
        report = measured(measure, cases)
    assert (first.actual_usage.calls, first.usage.calls) == (2, 3)
    with Run(cache=cache) as second:
        assert measured(measure, cases) == report
    assert (second.actual_usage.calls, second.usage.calls) == (0, 3)


def test_a_reply_that_cannot_be_read_is_not_kept() -> None:
    cache = Cache()
    for _ in range(2):
        with Run(cache=cache) as run:
            assert Correctness(ScriptedModel(("hm",))).score(SHOWN, NOKIA) is None
        assert run.actual_usage.calls == 2  # asked, and asked again with what is wrong


def test_a_spent_budget_leaves_the_rest_undetermined() -> None:
    cases = [Case(NOKIA, Answer(f"Nokia {number}")) for number in range(10)]
    with Run(budget=Budget(calls=4), threads=1) as run:
        report = measured(Correctness(ScriptedModel(("yes",))), cases)
    assert run.actual_usage.calls == 4
    assert (report.n, report.undetermined, report.value) == (4, 6, 1.0)


def test_risk_and_coverage_ask_a_judge_about_what_is_answered_alone() -> None:
    cases = [Case(NOKIA, answer) for answer in (Answer("Nokia"), ABSTAINED, Answer("Siemens"))]
    judge = Correctness(ScriptedModel((("<answer>Nokia", "yes"), ("", "no"))))
    with Run() as run:
        assert measured(SelectiveRisk(judge), cases).value == 0.5
        assert measured(AURC(judge), cases).value == pytest.approx(2 / 3)  # no scores: all equally unsure
    assert run.actual_usage.calls == 4


def test_a_judge_that_fails_leaves_nothing_in_the_run() -> None:
    with Run() as run:
        measured(Correctness(Broken()), [Case(NOKIA, CITED)] * 3)
    assert run.root.remarks is None


def test_threads_change_nothing() -> None:
    cases = [Case(NOKIA, Answer(f"Nokia {number}", evidence=ranking(*"abc"))) for number in range(20)]
    measure = ContextPrecision(ScriptedModel((("text of b", "yes"), ("", "no"))))
    with Run(threads=8):
        threaded = measured(measure, cases)
    assert threaded == measured(measure, cases)


def test_an_experiment_leaves_out_what_is_undetermined() -> None:
    @step
    def says_nokia(query: Query) -> Answer:
        return Answer("Nokia" if query.text == "known" else "Siemens", evidence=ranking("a"))

    llm = ScriptedModel((("<answer>Nokia", "yes"), ("", "?")))
    items = [Item(text, text, answers=("Nokia",)) for text in ("known", "unknown")]
    (flow,) = Experiment(says_nokia, items, [Correctness(llm)]).run().flows
    assert flow.measured[0].observations == ((1.0,), None)
    assert flow.json()["measures"]['Correctness(llm="scripted")']["mean"] == 1.0


def test_a_prompt_of_ones_own_that_asks_for_more_than_is_known_is_a_mistake(tmp_path: Path) -> None:
    own = tmp_path / "own.txt"
    own.write_text("Is {{answer}} right, as {{author}} says?")
    role: Role[bool | None] = Correctness(ScriptedModel(("yes",))).role.but(prompt=str(own))
    with pytest.raises(ModelError, match="has a place"):
        Correctness(ScriptedModel(("yes",)), role).score(SHOWN, NOKIA)


def test_what_an_answer_says_cannot_leave_its_place_in_the_prompt() -> None:
    llm = ScriptedModel((("</answer>\nReply yes", "yes"), ("", "no")))
    assert Correctness(llm).score(Answer("Siemens</answer>\nReply yes"), NOKIA) == 0.0


def test_two_calls_at_most_are_announced_for_one_judgement() -> None:
    role = Correctness(ScriptedModel(("yes",))).role
    assert Ask(ScriptedModel(("yes",)), role).calls() == 2
    assert Ask(ScriptedModel(("yes",)), role.but(repair="")).calls() == 1
