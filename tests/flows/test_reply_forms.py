"""Every published flow × every form of a reply: an answer that is there is never lost, else there is a reason.

A flow is found in the catalogue, and the reply of each of its roles by the role's parser: the next flow is covered, and
the next parser fails here until it has a reply below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from spolia import Answer, Corpus, Failure, Run, add_texts
from spolia.core.operator import walk_values
from spolia.errors import EmptyReply, ModelRejected
from spolia.flows.catalogue import MODULES, find_flow
from spolia.models.parsers import AnswerText, Lines, OneOf, Order, Parser, Reasoned, Tags, Text, YesNo
from spolia.models.prompting.role import Role
from spolia.pre_retrieval.query_llm import OneText
from spolia.testing import HashingEmbedder
from spolia.types import Generation, Prompt
from tests.flows.test_published import ASKED, TEXTS, Model, Scores, local, web

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")]
SECRET = "Is it Zanzibar?"
"""A thought, no word of which may be in an answer."""
FEW = {"steps": 2, "turns": 3, "recalls": 1, "expansions": 2, "n": 2, "max_sentences": 2}
"""Parameters of flows: short ones show the same."""


@dataclass(frozen=True)
class Wording:
    """Replies that say the same to one kind of role: as it is asked for, with labels, in another language."""

    plain: str
    labelled: str
    foreign: str


SEARCH, ANSWER = "<search>Nokia</search>", "<answer>Espoo</answer><evaluation>CORRECT</evaluation>"
SPEECH = Wording("Espoo [1].", "```\nEspoo [1].\n```", "诺基亚的总部在埃斯波。")
WORDINGS: Mapping[type[Parser[Any]], Wording] = {
    Text: SPEECH,
    AnswerText: SPEECH,
    OneText: Wording("Where is Nokia?", "Here it is:\n**Question 2:** Where is Nokia?", "诺基亚在哪里？"),
    Lines: Wording(
        "Where is it? | Espoo", "Sure:\n\n1. Where is it? | Espoo\n\nHope this helps!", "它在哪里？ | 埃斯波"
    ),
    YesNo: Wording("yes", "**Verdict:** Yes.", "是的。"),
    Reasoned: Wording("<analysis>It helps.</analysis><verdict>yes</verdict>", "Verdict: yes", "是的。"),
    Order: Wording("[1] > [2] > [3]", "Ranking: 1. [1] 2. [2] 3. [3]", "[1] > [2] > [3]。"),
    Tags: Wording(ANSWER, f"Sure! Here it is:\n```xml\n{ANSWER}\n```", "<答案>埃斯波</答案>"),
}


@dataclass(frozen=True)
class FormedModel(Model):
    """Replies to each role as its parser wants it, in one of the forms."""

    form: Callable[[Wording], tuple[str, str]] = field(default=lambda said: (said.plain, ""), compare=False)
    parsers: Mapping[str, Parser[Any]] = field(default_factory=dict, compare=False)

    def _wording(self, prompt: Prompt) -> Wording:
        parser = self.parsers.get(prompt.role)
        if isinstance(parser, OneOf):
            return Wording(*(parser.options[0],) * 3)
        wording = WORDINGS[type(parser)] if parser is not None else SPEECH
        if isinstance(parser, Tags) and not any(text in prompt.text for text in TEXTS):
            return Wording(
                *(text.replace(ANSWER, SEARCH) for text in (wording.plain, wording.labelled, wording.foreign))
            )
        return wording

    def _reply(self, prompt: Prompt) -> str:
        return self._wording(prompt).plain

    def generate(self, prompt: Prompt, **settings: Any) -> Generation:
        text, thoughts = self.form(self._wording(prompt))
        if not text:
            raise EmptyReply("The reply has no text.")
        return Model((text,)).generate(prompt, **settings).but(thoughts=thoughts)


THERE: Mapping[str, Callable[[Wording], tuple[str, str]]] = {
    "inline thought": lambda said: (f"<think>{SECRET}</think>\n{said.plain}", ""),
    "thought begun in the prompt": lambda said: (f"{SECRET}</think>\n{said.plain}", ""),
    "thought in its field": lambda said: (said.plain, SECRET),
    "labels, fences, preamble": lambda said: (said.labelled, ""),
}
ABSENT: Mapping[str, Callable[[Wording], tuple[str, str]]] = {
    "unclosed thought": lambda said: (f"<think>{SECRET} {said.plain}", ""),
    "thought only": lambda _: (f"<think>{SECRET}</think>", ""),
    "empty": lambda _: ("", SECRET),
    "refusal": lambda _: ("I'm sorry, but I can't help with that.", ""),
    "another language": lambda said: (said.foreign, ""),
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What flows are made of; nothing is found in the order of its score."""
    corpus = Corpus(tmp_path_factory.mktemp("store"))
    add_texts(corpus, {f"{number}.txt": text for number, text in enumerate(TEXTS)}, embedder=HashingEmbedder())
    return {
        "search": local, "web": web, "scorer": Scores(otherwise=1.0), "group": corpus.group(),
        "embedder": HashingEmbedder(), **FEW,
    }  # fmt: skip


def answer_in_form(name: str, parts: Mapping[str, Any], form: Callable[[Wording], tuple[str, str]]) -> Answer | Failure:
    published = find_flow(name)
    silent = published.build_flow({"llm": Model(("",)), **parts})
    parsers_by_title = {role.title: role.parser for role in walk_values(silent) if isinstance(role, Role)}
    with Run(cache=None):
        (answer,) = published.build_flow(
            {"llm": FormedModel(("",), form=form, parsers=parsers_by_title), **parts}
        ).batch([ASKED])
    return answer


@pytest.mark.parametrize("name", MODULES)
def test_no_form_of_a_reply_loses_an_answer_that_is_there(name: str, parts: dict[str, Any]) -> None:
    plain = answer_in_form(name, parts, lambda message: (message.plain, ""))
    assert isinstance(plain, Answer)
    assert "Espoo" in plain.text
    for form, reply in THERE.items():
        answer = answer_in_form(name, parts, reply)
        assert isinstance(answer, Answer), form
        assert "Espoo" in answer.text, form
        assert "Zanzibar" not in answer.text, form
        assert answer.stop_reason == plain.stop_reason, form
        assert len(answer.citations) == len(plain.citations), form


@pytest.mark.parametrize("name", [name for name in MODULES if name != "replug-token"])  # which asks for tokens alone
def test_a_reply_without_an_answer_ends_with_a_reason(name: str, parts: dict[str, Any]) -> None:
    reasons = find_flow(name).stop_reasons
    for form, reply in ABSENT.items():
        answer = answer_in_form(name, parts, reply)
        if isinstance(answer, Failure):
            assert isinstance(answer.error, ModelRejected), form
            assert answer.message, form
            continue
        assert answer.stop_reason in reasons, form
        assert answer.text.strip(), form
        assert not any(part in answer.text for part in ("Zanzibar", "<", "Espoo")), form
        assert answer.abstained or form == "another language", form
