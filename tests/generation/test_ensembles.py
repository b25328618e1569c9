"""REPLUG, at the level of answers and of tokens. Weights are written by hand from the formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import ModelRejected, WiringError
from spolia.generation.ensemble import AnswerEnsemble, TokenEnsemble, heaviest, weights
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import Capabilities
from spolia.run import Run
from spolia.run.lane import count_reasons
from spolia.types import Answer, Generation, Hit, Node, Prompt, Query, Ranking, Token
from tests.cases import check_each
from tests.degradation import degraded

ABLE = Capabilities(("chat", "logprobs"))
NAN, INF = math.nan, math.inf


def ranking_of(*scored: tuple[str, float]) -> Ranking:
    return Ranking(Query("Who?"), tuple(Hit(Node(text, f"It was {text}."), score) for text, score in scored))


def model(*rows: tuple[str, ...]) -> ScriptedModel:
    return ScriptedModel(rows, ABLE)


# ---------------------------------------------------------------------------------------------------------- weights


@check_each(
    ("scores", "temperature", "shares"),
    [
        ((0.0, 0.0), 1.0, (0.5, 0.5)),
        ((math.log(3), 0.0), 1.0, (0.75, 0.25)),
        ((2 * math.log(3), 0.0), 2.0, (0.75, 0.25)),
        ((NAN, 0.0), 1.0, (0.0, 1.0)),
        ((NAN, NAN), 1.0, (0.5, 0.5)),
        ((INF, 1.0, INF), 1.0, (0.5, 0.0, 0.5)),
        ((-INF, -INF), 1.0, (0.5, 0.5)),
        ((INF, -INF), 0.1, (1.0, 0.0)),
    ],
)
def test_weights_are_a_softmax(scores: tuple[float, ...], temperature: float, shares: tuple[float, ...]) -> None:
    assert weights(scores, temperature) == pytest.approx(list(shares))


@pytest.mark.slow
@given(st.lists(st.floats(), min_size=1, max_size=20), st.floats(0.01, 100))
def test_weights_sum_to_one_whatever_the_scores(scores: list[float], temperature: float) -> None:
    assert math.fsum(weights(scores, temperature)) == pytest.approx(1.0)


# ---------------------------------------------------------------------------------------------------------- answers


def test_equal_answers_add_up() -> None:
    # exp(mean ln p) is the same for all; shares 0.5, 0.3, 0.2: two that agree outweigh the one, if their sum is larger
    ranking = ranking_of(("Sony", math.log(0.4)), ("Nokia", math.log(0.3)), ("NOKIA", math.log(0.3)))
    rows = (("Sony", "Sony [1]"), ("Nokia", "Nokia! [1]"), ("NOKIA", "nokia"))
    answer = AnswerEnsemble(model(*rows))(ranking)
    assert answer.text == "Nokia! [1]"
    assert [citation.node for citation in answer.citations] == ["Nokia"]
    assert answer.evidence == ranking
    heavy = ranking_of(("Sony", math.log(0.7)), ("Nokia", math.log(0.15)), ("NOKIA", math.log(0.15)))
    assert AnswerEnsemble(model(*rows))(heavy).text == "Sony [1]"


@pytest.mark.parametrize(("other", "winner"), [(0.59, "Nokia [1]"), (0.61, "Sony [1]")])
def test_a_reply_counts_by_the_geometric_mean_of_its_probabilities(other: float, winner: str) -> None:
    # both passages weigh 1/2; "Nokia [1]" counts sqrt(0.9 * 0.4) = 0.6, where a product has 0.36 and a mean 0.65
    probabilities = {"Nokia": (0.9, 0.4), "Sony": (other, other)}

    @dataclass(frozen=True)
    class Stated(ScriptedModel):
        def generate(self, prompt: Prompt, **how: Any) -> Generation:
            name = next(name for name in probabilities if name in prompt.text)
            return Generation(f"{name} [1]", tokens=tuple(Token("x", math.log(p)) for p in probabilities[name]))

    assert AnswerEnsemble(Stated((), ABLE))(ranking_of(("Nokia", 1.0), ("Sony", 1.0))).text == winner


def test_a_confident_reply_weighs_more() -> None:
    assert heaviest([(Answer("a"), 0.2, 0.6), (Answer("b"), 0.9, 0.4)]).text == "b"
    assert heaviest([(Answer("a"), 0.5, 0.5), (Answer("b"), 0.5, 0.5)]).text == "a"


def test_one_passage_is_plain_reading() -> None:
    ranking, llm = ranking_of(("Nokia", 1.0)), model(("Nokia", "Nokia [1]"))
    assert AnswerEnsemble(llm)(ranking) == Reader(llm, "brief")(ranking)


def test_replies_that_abstain_count_where_all_do() -> None:
    ranking = ranking_of(("Sony", 5.0), ("Nokia", 1.0))
    assert AnswerEnsemble(model(("Sony", "I do not know."), ("", "Nokia")))(ranking).text == "Nokia"
    assert AnswerEnsemble(model(("", "I do not know.")))(ranking).abstained
    assert AnswerEnsemble(model())(ranking_of()).abstained


def test_a_passage_that_fails_is_left_out_but_not_all() -> None:
    with degraded() as reasons:
        assert (
            AnswerEnsemble(model(("Nokia", "Nokia [1]")))(ranking_of(("Sony", 9.0), ("Nokia", 1.0))).text == "Nokia [1]"
        )
    assert len(reasons) == 1
    with pytest.raises(ModelRejected, match="no reply to this prompt"):
        AnswerEnsemble(model(("Sanyo", "x")))(ranking_of(("Sony", 9.0), ("Nokia", 1.0)))


def test_no_log_probabilities_where_they_were_promised() -> None:
    for logprob in (NAN, 0.5):
        with pytest.raises(ModelRejected, match="states no log-probabilities"):
            AnswerEnsemble(ScriptedModel(("Nokia",), ABLE, logprob=logprob))(ranking_of(("Nokia", 1.0)))
    with pytest.raises(ModelRejected, match="was not given 'logprobs'"):
        AnswerEnsemble(ScriptedModel(("Nokia",)))(ranking_of(("Nokia", 1.0)))


# ----------------------------------------------------------------------------------------------------------- tokens


@dataclass(frozen=True)
class Foreteller(ScriptedModel):
    """Next tokens by the first text of a row that is in the prompt, and by what is written so far."""

    replies: tuple[str, ...] = ()
    capabilities: frozenset[str] = Capabilities(("next_tokens",))
    rows: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = ()
    tells: tuple[str, ...] = ()

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        for text, chances in self.rows:
            if text in prompt.messages[1].content and not prompt.messages[-1].content:
                return tuple(Token(token, math.log(chance)) for token, chance in chances[:top])
            if text in prompt.messages[1].content:
                return (Token("</s>", math.log(0.9)),)
        raise ModelRejected("it is out of order. Wait.")


TWO = Foreteller(
    rows=(
        ("Sony", (("A", 0.6), ("B", 0.3), ("C", 0.1))),
        ("Nokia", (("B", 0.8), ("C", 0.15), ("A", 0.05))),
    )
)


@pytest.mark.parametrize(
    ("share", "token"),
    [(0.5, "B"), (0.9, "A"), (0.1, "B")],  # A: 0.6 s + 0.05 (1 - s); B: 0.3 s + 0.8 (1 - s); equal at s = 5 / 7
)
def test_a_mixture_chooses_the_token(share: float, token: str) -> None:
    ranking = ranking_of(("Sony", math.log(share)), ("Nokia", math.log(1 - share)))
    answer = TokenEnsemble(TWO)(ranking)
    assert (answer.text, answer.stop_reason) == (token, "answered")
    assert [citation.node for citation in answer.citations] == ["Sony", "Nokia"]


def test_the_argmax_of_one_passage_is_plain_generation() -> None:
    assert TokenEnsemble(TWO)(ranking_of(("Sony", 0.3))).text == "A"
    assert TokenEnsemble(TWO, top=1)(ranking_of(("Sony", 0.0), ("Nokia", 0.0))).text == "B"  # A 0.3, B 0.4


def test_a_reply_that_goes_on_for_ever_is_cut() -> None:
    @dataclass(frozen=True)
    class Endless(Foreteller):
        def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
            return (Token(" no", 0.0),)

    flow = TokenEnsemble(Endless(), max_tokens=5)
    with Run() as run, run.lane() as lane:
        answer = flow(ranking_of(("Sony", 1.0)))
    assert (answer.text, answer.stop_reason) == ("no no no no no", "cap")
    assert count_reasons(lane.count_calls(flow)) == {"TokenEnsemble": {"The answer was cut off at max_tokens=5.": 1}}


@pytest.mark.parametrize("told", [(), (Token("x", NAN),), (Token("x", 1000.0),)])
def test_a_model_that_foretells_nothing_is_told(told: tuple[Token, ...]) -> None:
    @dataclass(frozen=True)
    class Silent(Foreteller):
        def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
            return told

    with pytest.raises(ModelRejected, match="foretells no token"):
        TokenEnsemble(Silent())(ranking_of(("Sony", 1.0)))


def test_a_passage_that_fails_is_left_out_of_the_mixture() -> None:
    with degraded() as reasons:
        assert TokenEnsemble(TWO)(ranking_of(("Sanyo", 9.0), ("Sony", 1.0))).text == "A"
    assert reasons
    with pytest.raises(ModelRejected, match="out of order"):
        TokenEnsemble(TWO)(ranking_of(("Sanyo", 9.0)))
    with pytest.raises(ModelRejected, match="has no 'next_tokens'"):
        TokenEnsemble(ScriptedModel(("x",)))(ranking_of(("Sony", 1.0)))  # type: ignore[arg-type]
    assert TokenEnsemble(TWO)(ranking_of()).abstained


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: AnswerEnsemble(model(), temperature=0.0),
        lambda: TokenEnsemble(TWO, temperature=NAN),
        lambda: TokenEnsemble(TWO, top=0),
        lambda: AnswerEnsemble(model(), max_passages=0),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(WiringError):
        wrong()
