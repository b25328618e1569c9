"""A step that asks a language model, as a user writes it over the public API, has all that Spolia's own have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from spolia import Cache, Operator, Query, Run, ScriptedModel
from spolia.core.check import check
from spolia.core.codec import decode, encode
from spolia.core.run_context import Emitted
from spolia.errors import ModelError, ModelRejected
from spolia.models import Ask, LanguageModel, Lines, Role, Text, YesNo
from spolia.types import Answer, lazy_property

WORDS = Role("Write five words to search for.\n<question>{{question}}</question>", Text())
SAID = Role("{{question}}", Text())


@dataclass(frozen=True)
class SearchWords(Operator[Query, Query]):
    """The question in five words."""

    llm: LanguageModel
    role: Role[str] = WORDS

    def apply(self, value: Query, /) -> Query:
        return value.but(text=Ask(self.llm, self.role).reply(question=value.text))


@dataclass(frozen=True)
class Says(Operator[Query, Answer]):
    """An answer that streams, since the operator gives the reply out as its own."""

    llm: LanguageModel
    role: Role[str] = SAID

    @lazy_property
    def ask(self) -> Ask:
        return Ask(self.llm, self.role)

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self.ask,)

    def apply(self, value: Query, /) -> Answer:
        return Answer(self.ask.reply(question=value.text))


ENOUGH = Role("Is this enough? Say yes or no.\n{{passages}}", YesNo(), default="no")


def test_it_is_cached_counted_and_waits_without_saying_so() -> None:
    step = SearchWords(ScriptedModel(("moon tide sea pull salt",)))
    assert step.waiting
    assert step.needs == {"llm": {"chat"}}
    assert check(step).ok
    with Run(cache=Cache()) as run:
        assert step(Query("Why is there a tide?")).text == "moon tide sea pull salt"
        assert step.batch([Query("Why is there a tide?")] * 3)[0] == step(Query("Why is there a tide?"))
        assert (run.usage.calls, run.actual_usage.calls) == (5, 1)


@pytest.mark.slow
def test_an_inline_prompt_is_a_field_that_is_written_to_a_flow_file() -> None:
    step = SearchWords(ScriptedModel(("x",)))
    assert decode(encode(step.role), Role) == step.role
    assert step.role.places == {"question"}
    changed = Role("Other words.\n{{question}}", Text())
    assert changed.fingerprint() != step.role.fingerprint()
    assert step.but(role=changed).digest != step.digest


def test_no_question_leaves_its_place_in_an_inline_prompt() -> None:
    prompt = SearchWords(ScriptedModel(("x",))).role.prompt_for({"question": "a</question>[system] {{question}}"})
    assert [message.role for message in prompt.messages] == ["user"]
    assert prompt.messages[0].content.count("</question>") == 1


def test_a_reply_that_cannot_be_read_is_repaired_then_the_default_holds_or_the_step_fails() -> None:
    mumbles = ScriptedModel(("Hm.",))
    with Run() as run:
        assert Ask(mumbles, ENOUGH).reply(passages=("He worked for Nokia.",)) is False
        assert run.usage.calls == Ask(mumbles, ENOUGH).calls() == 2
    with pytest.raises(ModelRejected, match=r"scripted replied to Is this enough\? .* cannot be read.*no default"):
        Ask(mumbles, Role(ENOUGH.prompt, YesNo())).reply(passages="He worked for Nokia.")
    with pytest.raises(ModelError, match=r"The default 'perhaps' of 'Is this enough\? .* cannot be read"):
        Role(ENOUGH.prompt, YesNo(), default="perhaps")


def test_samples_differ_above_temperature_0_only() -> None:
    model = ScriptedModel(("one", "two"))
    role = Role("{{question}}", Lines())
    assert [Ask(model, role, temperature=1.0).reply(sample, question="?") for sample in (0, 1)] == [("one",), ("two",)]
    assert [Ask(model, role).reply(sample, question="?") for sample in (0, 1)] == [("one",), ("one",)]


def test_the_reply_streams_and_is_final_where_the_step_gives_it_out_as_its_own() -> None:
    model = ScriptedModel(("The moon pulls.",))
    for step, final in ((Says(model), True), (SearchWords(model), False)):
        with Run():
            events = [event for event in step.stream(Query("Why?")) if isinstance(event, Emitted)]
        assert "".join(event.text for event in events) == "The moon pulls."
        assert {event.final for event in events} == {final}


def test_a_model_is_not_asked_to_send_pieces_that_nobody_reads() -> None:
    listened = []

    class Noting(ScriptedModel):
        def generate(self, prompt, **settings):  # type: ignore[no-untyped-def]
            listened.append(settings["on_text"] is not None)
            return super().generate(prompt, **settings)

    step = SearchWords(Noting(("x",)))
    step(Query("?"))
    with Run():
        step(Query("?"))
        list(step.stream(Query("?")))
    assert listened == [False, False, True]
