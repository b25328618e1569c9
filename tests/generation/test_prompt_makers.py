"""Prompts of passages by a text of the user."""

from __future__ import annotations

import pytest

from spolia.errors import ModelError, WiringError
from spolia.flow_files.files import dump, load
from spolia.generation.prompt import FString, Generate, LongContextReorder
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.types import Hit, Node, Query, Ranking

CHAT = "[system]\nBe brief.\n[user]\n{{passages}}\n[assistant]\nI have read them.\n[user]\n{{question}}"


def ranking_of(*texts: str) -> Ranking:
    return Ranking(Query("Why {0} {{x}}?"), tuple(Hit(Node(text, text), 1.0) for text in texts))


def test_braces_are_plain_characters() -> None:
    prompt = FString()(ranking_of("{question} {{question}} {0!r:>{1}} %s"))
    assert "[1] {question} {{question}} {0!r:>{1}} %s" in prompt.text
    assert prompt.text.endswith("<question>Why {0} {{x}}?</question>")


def test_a_chat_has_its_messages() -> None:
    prompt = FString(CHAT)(ranking_of("a"))
    assert [message.role for message in prompt.messages] == ["system", "user", "assistant", "user"]
    assert prompt.messages[-1].content == "Why {0} {{x}}?"


def test_the_best_comes_first_and_the_last_goes_where_there_is_no_room() -> None:
    prompt = FString(max_characters=9)(ranking_of("aaaa", "bbbb", "cccc")).text
    assert prompt.index("[1] aaaa") < prompt.index("[2] bbbb")
    assert "cccc" not in prompt
    assert "bbbb" not in FString(max_passages=1)(ranking_of("aaaa", "bbbb")).text


def test_the_best_stands_at_both_ends_with_one_number() -> None:
    prompt = LongContextReorder()(ranking_of("aaaa", "bbbb", "cccc")).text
    assert [prompt.count(text) for text in ("[1] aaaa", "[2] bbbb", "[3] cccc")] == [2, 1, 1]
    assert prompt.rindex("[1] aaaa") > prompt.index("[3] cccc")
    assert LongContextReorder()(ranking_of("aaaa")).text.count("aaaa") == 1


def test_a_reader_asks_with_it_and_cites() -> None:
    reader = Reader(ScriptedModel((("Be brief", "For [2]."),)), maker=LongContextReorder(CHAT))
    answer = reader(ranking_of("aaaa", "bbbb"))
    assert [citation.quote for citation in answer.citations] == ["bbbb"]
    assert reader.reads(ranking_of("aaaa")) != reader.but(maker=FString()).reads(ranking_of("aaaa"))
    assert load(dump(reader)) == reader
    assert (FString() >> Generate(ScriptedModel(("Reply.",))))(ranking_of("a")).text == "Reply."


@pytest.mark.parametrize("template", ["{{passages}}", "{{question}}", "", "{{passages}} {{question}} {{more}}"])
def test_a_text_without_its_places_is_refused(template: str) -> None:
    with pytest.raises(WiringError, match=r"lacks|unknown"):
        FString(template)


def test_passages_have_no_place_in_a_systems_message() -> None:
    with pytest.raises(ModelError, match="in a system's message"):
        FString("[system]\n{{passages}}\n[user]\n{{question}}")(ranking_of("a"))
