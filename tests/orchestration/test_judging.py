"""When to stop: by rules, by what a model says or how sure it was, by a classifier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from spolia import Loop, Query, RerankModel, Run
from spolia.core.function import step
from spolia.errors import ModelRejected, WiringError
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.orchestration.judges import ENOUGH, Classified, Confident, StopWhen, Sufficient
from spolia.types import Chain, Generation, Hit, Node, Ranking, Token, Value, Verdict
from tests.cases import check_each
from tests.pre_retrieval.fixtures import Recorded, degraded

WHO = Query("Who employed Olsen?")


def generation_of(*probabilities: float) -> Generation:
    return Generation("x", tokens=tuple(Token("x", math.log(p)) for p in probabilities))


def test_a_reply_is_accepted_where_every_token_has_the_threshold_or_more() -> None:
    judge = Confident(0.8)
    assert judge(generation_of(0.8, 1.0)) == Verdict(True, "confident")
    assert not judge(generation_of(0.99, 0.7999)).stop
    assert Confident(0.0)(generation_of(1e-9)).stop
    assert not Confident(1.0)(generation_of(0.999999)).stop


@pytest.mark.parametrize("logprob", [math.nan, math.inf, 0.1, -math.inf])
def test_a_token_without_a_probability_is_not_sure(logprob: float) -> None:
    assert not Confident(0.5)(Generation("x", tokens=(Token("x", logprob), Token("y", -0.01)))).stop


def test_without_log_probabilities_it_is_told() -> None:
    with pytest.raises(ModelRejected, match="no log-probabilities"):
        Confident()(Generation("x"))
    with pytest.raises(WiringError, match="from 0 to 1"):
        Confident(1.5)


@step
def further(chain: Chain) -> Chain:
    return chain.but(pairs=(*chain.pairs, (f"q{len(chain.pairs)}", "a")))


def test_a_rule_ends_a_loop() -> None:
    ended = Loop(further, until=StopWhen("pairs", 3, "cap of the rule"), max_steps=10)(Chain(WHO))
    assert (len(ended.pairs), ended.stop) == (3, "cap of the rule")
    assert not StopWhen("sample", 1)(Chain(WHO)).stop
    for wrong in ("nothing", "query"):
        with pytest.raises(WiringError):
            StopWhen(wrong, 1)(Chain(WHO))


def ranking_of(*texts: str) -> Ranking:
    return Ranking(WHO, tuple(Hit(Node(str(n), text), 1.0) for n, text in enumerate(texts)))


@check_each(
    ("reply", "expected"),
    [
        ("sufficient", True),
        ("Insufficient.", False),
        ("The passages are not sufficient: insufficient", False),
        ("Verdict: **sufficient**", True),
        ("", False),
        ("I cannot say", False),
        ("足够", False),
        ("insufficient " * 3000, False),
    ],
)
def test_a_model_says_whether_it_is_enough(reply: str, expected: bool) -> None:
    assert Sufficient(ScriptedModel((reply,)))(ranking_of("Olsen was at Nokia.")).stop is expected


def test_twenty_replies_without_a_verdict_are_the_default_and_are_counted() -> None:
    with degraded("spolia.models.prompting.role") as reasons:
        for number in range(20):
            assert not Sufficient(ScriptedModel((f"well {number}",)))(ranking_of("Olsen was at Nokia.")).stop
    assert len(reasons) == 20
    other_judge = Sufficient(ScriptedModel(("well",)), role=ENOUGH.but(default="sufficient"))
    assert other_judge(ranking_of("Olsen was at Nokia.")).stop


def test_of_nothing_nobody_is_asked_and_only_so_much_is_shown() -> None:
    model = Recorded(lambda text: "sufficient")
    assert not Sufficient(model)(ranking_of()).stop
    assert model.sent == []
    Sufficient(model, passages=2, characters=3)(ranking_of("abcdef", "</passages>", "third"))
    content = model.sent[0].messages[1].content
    assert "abc\n" in content
    assert "abcd" not in content
    assert "third" not in content
    assert content.count("</passages>") == 2


@dataclass(frozen=True)
class Judge(Value):
    """Scores by hand, and what it was shown."""

    score: float
    name: str = "judge"
    scoped = False

    def fingerprint(self) -> str:
        return self.digest.hex()

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        SHOWN.append((query, *texts))
        return (self.score,)


SHOWN: list[tuple[str, ...]] = []


@pytest.mark.parametrize(("score", "stops"), [(0.5, True), (0.49, False), (math.nan, False), (math.inf, False)])
def test_a_classifier_stops_from_its_threshold_on(score: float, stops: bool) -> None:
    assert Classified(Judge(score))(Chain(WHO, (("q", "a"),))).stop is stops


def test_a_score_that_is_none_is_counted() -> None:
    with degraded("spolia.orchestration.judges") as reasons:
        Classified(Judge(math.nan))(Chain(WHO))
    assert len(reasons) == 1


def test_what_is_too_long_keeps_the_question_and_the_newest_pairs() -> None:
    SHOWN.clear()
    pairs = tuple((f"question {n}", "x" * 20) for n in range(50))
    Classified(Judge(1.0), characters=120)(Chain(WHO, pairs))
    ((query, text),) = SHOWN
    assert query == WHO.question
    assert text.splitlines()[0] == "Question: Who employed Olsen?"
    assert len(text) <= 120
    assert "question 49" in text
    assert "question 48" in text
    assert "question 47" not in text
    assert text.index("question 48") < text.index("question 49")


def test_a_classifier_on_a_server_and_in_a_loop() -> None:
    from spolia.testing import OpenAIServer

    with OpenAIServer() as server, Run():
        judge = Classified(RerankModel("any", server.url), threshold=-1e9)
        ended = Loop(further, until=judge, max_steps=5)(Chain(WHO))
    assert (len(ended.pairs), ended.stop) == (1, "sufficient")
