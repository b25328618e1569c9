"""A scripted model is a language model in all but its words."""

from __future__ import annotations

import pytest

from spolia.core.codec import decode, encode
from spolia.core.function import step
from spolia.errors import BudgetSpent, ModelRejected
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.run import Budget, Run
from spolia.testing import check_language_model
from spolia.types import Generation, Message, Prompt


def prompt_of(text: str, sample: int = 0) -> Prompt:
    return Prompt((Message("user", text),), sample)


MODEL = ScriptedModel((("France", "Paris."), ("(?i)dice", "one", "two"), ("", "I do not know.")))


def test_it_keeps_the_contract_of_language_models() -> None:
    check_language_model(MODEL)
    check_language_model(MODEL.but(capabilities=frozenset({"chat", "logprobs"})))


def test_the_first_pattern_that_is_found_replies() -> None:
    assert MODEL.generate(prompt_of("Capital of France?")).text == "Paris."
    assert MODEL.generate(prompt_of("Capital of Spain?")).text == "I do not know."


def test_samples_differ() -> None:
    assert [MODEL.generate(prompt_of("Throw the dice.", sample)).text for sample in range(3)] == ["one", "two", "one"]
    assert [ScriptedModel(("a", "b")).generate(prompt_of("?", sample)).text for sample in range(2)] == ["a", "b"]


def test_replies_end_at_stops_and_limits() -> None:
    model = ScriptedModel(("one two\nthree",))
    assert model.generate(prompt_of("?"), max_tokens=2) == Generation("one two\n", "length")
    assert model.generate(prompt_of("?"), stop=("\n", "e t")).text == "on"


def test_what_it_was_not_given_it_cannot() -> None:
    with pytest.raises(ModelRejected, match="was not given 'logprobs'"):
        MODEL.generate(prompt_of("?"), logprobs=True)
    with pytest.raises(ModelRejected, match=r"was not given 'chat'. Write capabilities=\{'chat', 'stream'\}"):
        MODEL.but(capabilities=frozenset({"stream"})).generate(prompt_of("?"))
    pieces: list[str] = []
    ScriptedModel(("a b",), capabilities=frozenset({"chat"})).generate(prompt_of("?"), on_text=pieces.append)
    assert pieces == ["a b"]


def test_a_prompt_without_a_reply_is_shown() -> None:
    with pytest.raises(ModelRejected, match="no reply to this prompt: 'Spain"):
        ScriptedModel((("France", "Paris."),)).generate(prompt_of("Spain?"))


@pytest.mark.parametrize("wrong", ["Paris.", (("France",),), (("(", "x"),)])
def test_scripts_that_are_none_are_refused(wrong: object) -> None:
    with pytest.raises(ModelRejected, match="Write"):
        ScriptedModel(wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_it_is_plain_data() -> None:
    assert decode(encode(MODEL)) == MODEL == eval(repr(MODEL))
    assert MODEL.fingerprint() != MODEL.but(name="other").fingerprint()


@step
def reply_to(text: str) -> str:
    return MODEL.generate(prompt_of(text)).text


def test_it_costs_what_it_says() -> None:
    with Run(budget=Budget(calls=1)) as run:
        reply_to("Capital of Spain?")
        assert (run.usage.calls, run.usage.input_tokens, run.usage.output_tokens) == (1, 3, 4)
        with pytest.raises(BudgetSpent):
            reply_to("again")


@pytest.mark.slow
def test_a_pattern_that_would_take_for_ever_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spolia.models.prompting.stand_in_models._MATCH_S", 0.2)
    model = ScriptedModel((("(a+)+$", "never"),))
    with pytest.raises(ModelRejected, match=r"regular expression '\(a\+\)\+\$' .* took longer"):
        model.generate(prompt_of("a" * 40 + "!"))
