"""What a model thinks before its reply counts neither for tags nor for confidences."""

from __future__ import annotations

import pytest

from spolia import ScriptedModel
from spolia.generation.prompt import Generate
from spolia.models.parsers import Tags
from spolia.types import Message, Prompt

TAGS = Tags(("thought",), ("search", "answer"))


@pytest.mark.parametrize("mark", ["think", "thinking", "reasoning", "THINK"])
def test_tags_within_a_thought_are_not_read_where_the_prompt_asks_for_thoughts_of_another_name(mark: str) -> None:
    reply = f"<{mark}>Maybe <answer>Salo</answer></{mark}>\n<thought>No.</thought><search>Olsen</search>"
    assert TAGS.parse(reply) == {"thought": "No.", "search": "Olsen"}
    unopened = f"Maybe <answer>Salo</answer></{mark}>\n<thought>No.</thought><search>Olsen</search>"
    assert TAGS.parse(unopened) == {"thought": "No.", "search": "Olsen"}


def test_a_thought_that_the_prompt_asks_for_is_read() -> None:
    assert TAGS.parse("<thought>Known.</thought><answer>Espoo</answer>") == {"thought": "Known.", "answer": "Espoo"}
    with pytest.raises(ValueError, match="it must have thought"):
        TAGS.parse("<think>It never ends <thought>Known.</thought>")


@pytest.mark.parametrize(
    ("reply", "tokens"),
    [
        ("<think>Salo? no</think> In Espoo.", ["In ", "Espoo."]),
        ("In Espoo.", ["In ", "Espoo."]),
        ("<think>Salo? no", []),
    ],
)
def test_the_tokens_of_a_reply_are_those_of_what_it_says(reply: str, tokens: list[str]) -> None:
    model = ScriptedModel((reply,), frozenset(("chat", "logprobs")))
    found = Generate(model, logprobs=True)(Prompt((Message("user", "Where?"),)))
    assert "".join(token.text for token in found.tokens) == found.text
    assert [token.text for token in found.tokens] == tokens
