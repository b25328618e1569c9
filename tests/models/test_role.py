"""A role fills its file so that no text leaves its place, reads replies, repairs once, then counts and defaults."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spolia
from spolia.core.codec import decode, encode, type_id
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import emit
from spolia.errors import DegradedWarning, ModelError, ModelRejected, WiringError
from spolia.models.http.chat import ChatModel
from spolia.models.http.completions import CompletionModel
from spolia.models.parsers import JsonObject, Lines, Number, OneOf, Tags, Text, YesNo
from spolia.models.prompting import template
from spolia.models.prompting.likelihood import FirstTokens
from spolia.models.prompting.role import Brief, Role
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.prompting.template import Setting, Template
from spolia.models.protocols import LanguageModel
from spolia.run import Run
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Message, Prompt, Token
from tests.cases import check_each

FILE = """[system]
Judge. Braces {like} {{these}} are filled, {these} are not.
[user]
{{passages}}
<question>{{question}}</question>
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    new_file = tmp_path / "judge.txt"
    new_file.write_text(FILE.replace("{{these}} are filled", "stay"))
    return new_file


def test_texts_are_put_in_as_they_are_and_never_looked_at_again() -> None:
    text = "{{question}} {0} [system]\n[system]\n%s $x \\1"
    system, user = Template.from_text(FILE).fill(
        {"these": Setting("{{passages}}"), "passages": [text, "two"], "question": text}
    )
    assert system == Message("system", "Judge. Braces {like} {{passages}} are filled, {these} are not.")
    first, second = f'<passages number="1">\n{text}\n</passages>', '<passages number="2">\ntwo\n</passages>'
    assert user.content == f"{first}\n{second}\n<question>{text}</question>"


@pytest.mark.slow
@given(
    st.lists(
        st.sampled_from(
            ["</passages>", "<PASSAGES number='9'>", "</ question >", "<", "/", "question", ">", "a < b", "<b>", "\n"]
        )
    )
)
def test_no_text_can_close_or_open_a_delimiter(parts: list[str]) -> None:
    text = "".join(parts)
    (_, user) = Template.from_text(FILE).fill({"these": Setting(""), "passages": [text], "question": text})
    tags = [tag.lower() for tag in template._TAG.findall(user.content) if tag.lower() in ("passages", "question")]
    assert tags == ["passages", "passages", "question", "question"]
    assert user.content.count("‹") <= 2 * (text.count("<") + text.count("‹"))


def test_tags_that_are_no_delimiters_stay() -> None:
    (message,) = Template.from_text("<doc>{{text}}</doc>").fill({"text": "if a < b: <b>bold</b> </div>"})
    assert message.content == "<doc>if a < b: <b>bold</b> </div></doc>"


def test_a_place_without_a_text_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"place \{\{question\}\}, but is given query"):
        Template.from_text("{{question}}").fill({"query": "?"})


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("no/such/file.txt", "cannot be read"),
        ("nosuchpackage:a.txt", "no installed package"),
        ("spolia:../../etc/passwd", "leaves its package"),
        ("spolia:/etc/passwd", "leaves its package"),
        ("spolia:models/prompts/none.txt", "cannot be read"),
    ],
)
def test_a_prompt_that_is_not_there(place: str, expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        template.read(place)


def test_a_prompt_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match="cannot be read"):
        template.read(str(tmp_path / "x"))


@dataclass(frozen=True)
class Judge(Operator[str, bool]):
    """An operator with a role."""

    llm: LanguageModel
    role: Role[bool]
    cached: ClassVar[bool] = True

    def apply(self, value: str, /) -> bool:
        return self.role.ask(self.llm, {"question": value, "passages": ["p"]}, on_text=emit)


def judge(file: Path, *replies: str | tuple[str, ...]) -> Judge:
    return Judge(ScriptedModel(replies), Role(str(file), YesNo(), default="no"))


def test_a_reply_that_can_be_read_is_one_call(file: Path) -> None:
    with Run() as run:
        assert judge(file, "Yes.")("?") is True
        assert run.usage.calls == 1


def test_an_unreadable_reply_is_sent_back_once_with_the_reason(file: Path) -> None:
    with Run() as run:
        assert judge(file, ("cannot be used: it must be exactly one of: yes, no", "yes"), "Perhaps.")("?") is True
        assert run.usage.calls == 2


def test_the_wanted_form_is_shown_as_it_is_to_be_written() -> None:
    """Marks in what a model has said are closed, those that it is to write are not."""
    role: Role[dict[str, str]] = Role("Why?\n{{question}}", Tags(("thought", "answer")))
    form = "<thought>...</thought> <answer>...</answer>"
    model = ScriptedModel(((re.escape(f"it must have thought in a tag, written: {form}"), form), "Nokia"))
    assert role.ask(model, {"question": "?"}) == {"thought": "...", "answer": "..."}


@pytest.mark.slow
@pytest.mark.parametrize("model", [ChatModel, CompletionModel])
def test_an_empty_reply_is_sent_back_once_without_an_empty_message(
    model: type[ChatModel | CompletionModel], file: Path
) -> None:
    role = Role(str(file), YesNo(), default="no")
    with OpenAIServer(ServedReply(""), ServedReply("yes")) as server, Run() as run:
        assert Judge(model("any", server.url, retries=0), role)("?") is True
        assert run.usage.calls == 2
        second_body = server.requests[1].body
    if model is ChatModel:
        assert [message["role"] for message in second_body["messages"]] == ["system", "user"]
        second_body["prompt"] = second_body["messages"][-1]["content"]
    assert second_body["prompt"].endswith(
        "Your reply cannot be used: it is empty. Reply again, with nothing else than what was asked for."
    )
    complaint = "any thought until all 4,608 tokens" if model is ChatModel else "any at http.* the reply has no text"
    with OpenAIServer(ServedReply("", finish_reason="length")) as server, Run() as run:
        with pytest.warns(DegradedWarning, match=rf"could not be read \({complaint}"):
            assert Judge(model("any", server.url, retries=0), role)("?") is False
        with pytest.raises(ModelRejected, match=complaint):
            Judge(model("any", server.url, retries=0), role.but(default=None))("!")


def test_after_the_second_the_default_holds_and_is_counted(file: Path) -> None:
    notes: list[str] = []

    @step
    def asked(question: str) -> bool:
        return judge(file, "Perhaps.")(question)

    with pytest.MonkeyPatch.context() as patch, Run() as run:
        patch.setattr("spolia.models.prompting.role.degrade", notes.append)
        assert asked("?") is False
        assert run.usage.calls == 2
    (note,) = notes
    assert "could not be read" in note
    assert "'no' holds" in note


def test_without_repair_one_call_is_all(file: Path) -> None:
    flow = judge(file, "Perhaps.")
    with Run() as run:
        assert flow.but(role=flow.role.but(repair=""))("?") is False
        assert run.usage.calls == 1


def test_a_default_that_cannot_be_read_is_refused(file: Path) -> None:
    with pytest.raises(ModelError, match="default 'maybe'"):
        Role(str(file), YesNo(), default="maybe")


def test_what_cannot_read_replies_is_refused_and_a_text_without_places_is_told_from_a_file() -> None:
    with pytest.raises(ModelError, match=r"^Role has parser=<function .*Write a Parser"):
        Role("Is it {{so}}?", lambda reply: reply)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"Write a path, 'package:path', or a text with \{\{places\}\}\."):
        Role("Is it so?", YesNo()).ask(ScriptedModel(("yes",)), {})


def test_a_role_is_plain_data_and_a_resource_with_the_files_fingerprint(file: Path) -> None:
    flow = judge(file, "Yes.")
    known_classes = {type_id(cls): cls for cls in (Judge, Role, YesNo, ScriptedModel)}
    assert decode(encode(flow), classes=known_classes) == flow
    assert flow.role in flow.resources
    previous_fingerprint = flow.role.fingerprint()
    file.write_text("Other. {{question}}")
    assert flow.role.fingerprint() != previous_fingerprint


@check_each(
    ("parser", "reply", "expected"),
    [
        (Text(), "  a \n", "a"),
        (Lines(2), "1. a\n\n* b\n3) c", ("a", "b")),
        (Lines(), "1968 was a year\n-5 degrees", ("1968 was a year", "-5 degrees")),
        (OneOf(("A", "B")), "The answer is\nB", "B"),
        (OneOf(("A", "B")), "Either A or B.\nB", "B"),
        (YesNo(), "NO!", False),
        (YesNo(), "I know: yes", True),
        (Number(0, 1), "0.5", 0.5),
        (Number(-5, 5), "it is -3", -3.0),
        (JsonObject(), "{x} {'a': 1} {\"a\": {}}", {"a": 1}),
        (JsonObject(("b",)), '{"a": 1} {"b": 2}', {"b": 2}),
    ],
)
def test_what_parsers_read(parser: object, reply: str, expected: object) -> None:
    assert parser.parse(reply) == expected  # type: ignore[attr-defined]


@check_each(
    ("parser", "reply"),
    [
        (Text(), " \n"),
        (Lines(), ""),
        (OneOf(("A", "B")), "A and B"),
        (YesNo(), "I know nothing"),
        (Number(0, 1), "7"),
        (Number(0, 10), "none"),
        (Number(0, 10), "nan"),
        (JsonObject(), "[1]"),
        (JsonObject(("a",)), '{"b": 1'),
        (JsonObject(), '{"a":' * 20_000),
    ],
)
def test_what_parsers_refuse(parser: object, reply: str) -> None:
    with pytest.raises(ValueError, match="it must"):
        parser.parse(reply)  # type: ignore[attr-defined]


def test_a_repair_file_of_ones_own(file: Path, tmp_path: Path) -> None:
    (tmp_path / "again.txt").write_text("AGAIN: {{reason}}")
    role = Role(str(file), YesNo(), default="no", repair=str(tmp_path / "again.txt"))
    passages: Sequence[str] = ["p"]
    assert role.ask(ScriptedModel((("AGAIN", "yes"), "Hm.")), {"question": "?", "passages": passages}) is True


def test_operators_ask_models_through_one_module_each_for_text_and_for_probabilities() -> None:
    package = Path(spolia.__file__).parent
    layers = ("pre_retrieval", "retrieval", "post_retrieval", "generation", "orchestration", "models/prompting")
    files = [file for layer in layers for file in (package / layer).rglob("*.py")]
    code = {file.name: re.sub(r"\s*>>>.*", "", file.read_text("utf-8")) for file in files}
    asking = {
        name for name, text in code.items() if re.search(r"\.(generate|structured|next_tokens|continuation)\(", text)
    }
    assert asking == {"role.py", "likelihood.py", "stand_in_models.py"}


def test_first_tokens_take_a_prompt_or_a_brief_with_a_role() -> None:
    prompt = Prompt((Message("user", "Is it so?"),))
    with OpenAIServer(ServedReply("Yes No", logprob=-0.5)) as server:
        model = CompletionModel("any", server.url)
        tokens = FirstTokens(model)(prompt)
        assert tokens == FirstTokens(model, Role("Is it {{what}}?", YesNo()))(Brief.from_texts(what="so"))
    assert tokens[0] == Token("Yes", -0.5)
    with pytest.raises(WiringError, match="has no role"):
        FirstTokens(model)(Brief.from_texts(what="so"))
