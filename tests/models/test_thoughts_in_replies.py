"""What a model thinks before its reply counts neither for tags nor for confidences."""

from __future__ import annotations

import pytest

from spolia import ScriptedModel
from spolia.generation.prompt import Generate
from spolia.models.parsers import Tags
from spolia.models.parsers.parser import prepend_thought
from spolia.types import Message, Prompt

TAGS = Tags((), ("thought",), ("search", "answer"))


@pytest.mark.parametrize("mark", ["think", "thinking", "reasoning", "THINK"])
def test_tags_within_a_thought_are_not_read_where_the_prompt_asks_for_thoughts_of_another_name(mark: str) -> None:
    reply = f"<{mark}>Maybe <answer>Salo</answer></{mark}>\n<thought>No.</thought><search>Olsen</search>"
    assert TAGS.parse(reply) == {"thought": "No.", "search": "Olsen"}
    unopened = f"Maybe <answer>Salo</answer></{mark}>\n<thought>No.</thought><search>Olsen</search>"
    assert TAGS.parse(unopened) == {"thought": "No.", "search": "Olsen"}


def test_a_thought_that_the_prompt_asks_for_is_read() -> None:
    assert TAGS.parse("<thought>Known.</thought><answer>Espoo</answer>") == {"thought": "Known.", "answer": "Espoo"}
    for thought in ("<think>It never ends <thought>Known.</thought>", "<thought>Known.</thought><answer></answer>"):
        with pytest.raises(ValueError, match="it must have search or answer in a tag"):
            TAGS.parse(thought)


@pytest.mark.parametrize(
    "reply",
    [
        "<think>Known.</think><answer>Espoo</answer>",
        "Known.</think><answer>Espoo</answer>",
        "<think>Known.</think>\n<thought></thought><answer>Espoo</answer>",
        "<|channel|>analysis<|message|>Known.<|end|><|start|>assistant<|channel|>final<|message|><answer>Espoo</answer>",
        prepend_thought("<answer>Espoo</answer>", "Known."),
    ],
)
def test_a_thought_in_another_place_than_its_tag_is_the_thought(reply: str) -> None:
    assert TAGS.parse(reply) == {"thought": "Known.", "answer": "Espoo"}


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
    generation = Generate(model, logprobs=True)(Prompt((Message("user", "Where?"),)))
    assert "".join(token.text for token in generation.tokens) == generation.text
    assert [token.text for token in generation.tokens] == tokens
