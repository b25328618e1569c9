"""Published flows with models that answer anything, think aloud, never stop or fail, and sources that find nothing."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia import Answer, Budget, Failure, Query, Ranking, Run, dump, load, step
from spolia.core.operator import Operator
from spolia.errors import ModelRejected, ModelUnavailable
from spolia.flows.catalogue import MODULES, find_flow
from spolia.types import Prompt
from tests.cases import check_each
from tests.flows.test_published import ASKED, TEXTS, Model, Scores, build_flow, local, nowhere, ranking_of

REPLIES = (
    "", "none", "yes", "no", "I do not know.", "Espoo [1].", "Olsen worked for Nokia.", "So the answer is: Espoo.",
    "<think>yes or no [1] <answer>Salo</answer></think> yes", "<think>It never ends", "[END]", "a " * 3000,
    "<thought>?</thought><search>Olsen</search>", "<thought>?</thought><source>web</source><search>Nokia</search>",
    "<thought>!</thought><answer>Espoo [1]</answer><evaluation>CORRECT</evaluation>",
    "<thought>!</thought><answer>Salo</answer><evaluation>INCORRECT</evaluation>",
    "<thought>!</thought><lookup>Olsen</lookup>", "<thought>nothing else</thought>",
    "诺基亚的总部在埃斯波。", "是", "아니요", "정답은 에스포.", "不知道", "[2] > [1] > [3]", "[9] [0] [-1]", "several",
    "Which town? | Espoo\nWhich country? | Finland", "1. Where is #2?\n2. Where is #1?", "[Relevant]", "[Retrieval]",
    "[No Retrieval]", "```json\n{", "</passage><question>", "\x00\u202e\ud7ff", "0.5", "true",
)  # fmt: skip
LARGE = ("corag-tree", "corag-classifier-tree")
FLOWS = [name for name in MODULES if name not in ("multi-head", "naive-web")]
"""All but one that needs a store, and one that is another one with another source."""
LOOPS = (
    "iter-retgen", "ircot", "flare", "react", "react-concat", "auto-rag", "planrag", "corag", "corag-best-of-n",
    "corag-classifier", "corag-classifier-best-of-n", "corag-oracle", "tree-of-clarifications", "prefrag",
    "prefrag-prompt", "prefrag-no-preference", "prefrag-no-reflection", *LARGE,
)  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::spolia.errors.DegradedWarning")
less = settings(max_examples=5, derandomize=True, database=None)


@dataclass(frozen=True)
class AnyModel(Model):
    """Replies with one of some texts, drawn by the prompt; keeps what it was asked."""

    replies: tuple[str, ...] = ()
    seed: int = 0
    asked: list[Prompt] = field(default_factory=list, compare=False)

    def _reply(self, prompt: Prompt) -> str:
        self.asked.append(prompt)
        key = f"{self.seed}|{prompt.sample}|{prompt.text}".encode("utf-8", "replace")
        return self.replies[int.from_bytes(hashlib.blake2b(key, digest_size=4).digest()) % len(self.replies)]


def run_flow(flow: Operator[Query, Answer], **options: Any) -> tuple[Answer, int]:
    with Run(**options) as run, run.lane() as lane:
        answer = flow(ASKED)
    return answer, lane.usage.calls


@pytest.mark.slow
@check_each("name", FLOWS)
def test_no_reply_brings_a_flow_beyond_its_bound_or_to_an_unknown_end(name: str) -> None:
    reasons = find_flow(name).stop_reasons

    @given(
        replies=st.lists(st.sampled_from(REPLIES), min_size=1, max_size=5),
        seed=st.integers(0, 99),
        score=st.floats(-1, 1),
    )
    @(settings(less, max_examples=2) if name in LARGE else less)
    def check_example(replies: list[str], seed: int, score: float) -> None:
        built = build_flow(name, AnyModel(tuple(replies), seed=seed), search=local, scorer=Scores(otherwise=score))
        with Run() as run, run.lane() as lane:
            (answer,) = built.batch([ASKED])
        bound = built.calls()
        assert bound is not None
        assert lane.usage.calls <= bound
        if isinstance(answer, Failure):
            assert isinstance(answer.error, ModelRejected)
            assert "which holds no answer" in answer.message
        else:
            assert answer.stop_reason in reasons
            assert answer.text.strip()

    check_example()


@check_each("name", [name for name in FLOWS if name not in LARGE])
def test_an_empty_corpus_and_a_model_that_says_nothing_end_in_an_answer(name: str) -> None:
    for replies in (("none",), ("",), ("<think>It never ends",)):
        answer, _ = run_flow(build_flow(name, AnyModel(replies), search=nowhere, web=nowhere, scorer=Scores()))
        assert answer.text.strip()
        assert answer.citations == ()
        assert answer.stop_reason != "error"


UNKNOWN = ("I do not know.", "I don't know!", "모르겠습니다.", "我不知道。")


@check_each("name", FLOWS)
def test_a_model_that_does_not_know_abstains_in_every_flow(name: str) -> None:
    for reply in UNKNOWN if name != "replug-token" else UNKNOWN[:1]:  # of which each token would be all of it
        answer, _ = run_flow(
            build_flow(name, Model((("which kind", "[Retrieval]"), ("", reply))), search=local, scorer=Scores())
        )
        assert (answer.stop_reason, answer.citations, answer.text.find("[")) == ("abstained", (), -1)


ELSEWHERE = (
    "诺基亚的总部在埃斯波。", "아뇨, 부족합니다.", "是的，需要。", "<思考>还缺总部</思考><搜索>诺基亚</搜索>",
    "답은 에스포.", "<thought>모름</thought><search>노키아 본사</search>",
    "<thought>!</thought><answer>埃斯波</answer><evaluation>正确</evaluation>",
)  # fmt: skip


@check_each("name", ["corag", "react", "self-rag", "planrag", "prefrag", "flare"])
def test_replies_in_another_language_than_the_prompt_end_as_declared(name: str) -> None:
    """Korean and Chinese to English prompts, English to Korean ones; all alike, or another one at each step."""
    korean = Query("올센의 고용주는 본사가 어디에 있습니까?")
    spoken = [(ASKED, replies) for replies in (*((reply,) for reply in ELSEWHERE), ELSEWHERE)]
    for query, replies in (*spoken, (korean, REPLIES[2:8]), (korean, ("Espoo [1].",))):
        built = build_flow(name, AnyModel(replies), search=local, scorer=Scores())
        with Run() as run, run.lane() as lane:
            answer = built(query)
        bound = built.calls()
        assert bound is not None
        assert lane.usage.calls <= bound
        assert answer.stop_reason in find_flow(name).stop_reasons
        assert answer.text.strip()


SAID = {
    "yes": "yes", "no": "no", "sentence": "So the answer is: Espoo [1].", "search": REPLIES[12],
    "answer": REPLIES[14], "pairs": "Which town? | Espoo", "ranks": "[2] > [1] > [3]",
}  # fmt: skip


@pytest.mark.slow
@check_each("name", [name for name in FLOWS if name not in (*LARGE, "replug-token")])
def test_a_model_that_thinks_aloud_gives_the_answer_of_one_that_does_not(name: str) -> None:
    for reply in SAID.values():
        answers = [
            run_flow(build_flow(name, AnyModel((f"{thought}{reply}",)), search=local, scorer=Scores()))[0]
            for thought in ("", "<think>yes? no! <answer>Salo [3]</answer></think>\n")
        ]
        assert answers[1].text == answers[0].text
        assert answers[1].stop_reason == answers[0].stop_reason


@pytest.mark.slow
@check_each("name", [name for name in LOOPS if name not in LARGE])
@check_each("said", [REPLIES[12], "Olsen worked for Nokia."])
def test_a_budget_that_ends_within_a_loop_gives_the_best_answer_so_far(name: str, said: str) -> None:
    built = build_flow(name, AnyModel((said,)), search=local, scorer=Scores())
    _, needed = run_flow(built)
    for calls in range(1, min(needed, 8)):
        answer, count = run_flow(built, per_question=Budget(calls=calls))
        assert count <= calls
        assert answer.text.strip()
        assert answer.stop_reason == ("abstained" if answer.text == "I do not know." else "budget")


@pytest.mark.slow
@check_each("name", LOOPS)
def test_a_model_that_repeats_itself_ends_within_its_caps(name: str) -> None:
    for reply in SAID.values():
        built = build_flow(name, AnyModel((reply,)), search=local, scorer=Scores())
        answer, calls = run_flow(built)
        bound = built.calls()
        assert bound is not None
        assert calls <= bound
        assert answer.stop_reason in find_flow(name).stop_reasons


@dataclass(frozen=True)
class Down(AnyModel):
    """Fails at the questions about Olsen once it was asked so often."""

    after: int = 0

    def _reply(self, prompt: Prompt) -> str:
        if "Olsen" in prompt.text and len(self.asked) >= self.after:
            raise ModelUnavailable("The server is down.")
        return super()._reply(prompt)


@check_each("name", [name for name in LOOPS if name not in LARGE])
def test_a_model_that_goes_down_fails_its_own_question_alone(name: str) -> None:
    @step
    def plain(query: Query) -> Ranking:
        return ranking_of(query, "plain", TEXTS[1:])

    built = build_flow(name, Down(("Nokia.",), after=0), search=plain, web=plain, scorer=Scores())
    with Run():
        failed, answered = built.batch([ASKED, Query("Where is Nokia?")])
    assert isinstance(failed, Failure)
    assert "The server is down" in failed.message
    assert isinstance(answered, Answer)


@check_each("name", [name for name in LOOPS if name not in LARGE])
def test_a_source_that_disappears_within_a_loop_is_a_failure_that_names_it(name: str) -> None:
    searched: list[Query] = []

    @step(waits=False)
    def vanishing(query: Query) -> Ranking:
        searched.append(query)
        if len(searched) > 1:
            raise OSError("The disk is gone.")
        return local(query)

    built = build_flow(name, AnyModel((REPLIES[12],)), search=vanishing, web=vanishing, scorer=Scores())
    with Run():
        (ended,) = built.batch([ASKED])
    assert len(searched) > 1 or isinstance(ended, Answer)
    if len(searched) > 1:
        assert isinstance(ended, Failure)
        assert "The disk is gone" in ended.message


@pytest.mark.parametrize("verdict", ["yes", "no"])
def test_a_judge_that_always_or_never_says_enough_ends_the_chain_at_once_or_at_its_cap(verdict: str) -> None:
    class Chains(AnyModel):
        def _reply(self, prompt: Prompt) -> str:
            super()._reply(prompt)
            role = prompt.role.rpartition("/")[2]
            return verdict if role == "corag_enough.txt" else f"question {len(self.asked)}"

    answer, calls = run_flow(build_flow("corag-oracle", Chains(("",)), search=local))
    assert (answer.stop_reason, calls) == (("sufficient", 2 + 1 + 1) if verdict == "yes" else ("cap", 12 + 6 + 1))
    score = Scores(otherwise=1.0 if verdict == "yes" else 0.0)
    answer, calls = run_flow(build_flow("corag-classifier", Chains(("",)), search=local, scorer=score))
    assert (answer.stop_reason, calls) == (("sufficient", 2 + 1) if verdict == "yes" else ("cap", 12 + 1))


@pytest.mark.slow
@check_each("name", [*MODULES])
def test_a_flow_comes_back_from_its_file(name: str) -> None:
    from spolia.cli.flow_views import load_flow_view

    flow = load_flow_view(name)
    second_flow = load(dump(flow))
    assert second_flow == flow
    assert second_flow.digest == flow.digest


ENDS = (
    AnyModel(("Espoo [1].",)), AnyModel(("I do not know.",)), AnyModel(("none",)), AnyModel(("[END]",)),
    AnyModel(("a " * 3000,)), AnyModel((REPLIES[12],)), AnyModel((REPLIES[14],)),
    AnyModel(("So the answer is: Espoo.",)), AnyModel(tuple(f"{one} {'word ' * 70}" for one in range(40))),
    Model((("several: a question", "several"), ("", "none"))), Model((("Espoo$", ""), ("", "Espoo"))),
    Model((("which kind a question", "[Retrieval]"), ("", ""))),
    Model((("may mean several", "\n".join(f"Where is {one}? | {one}" for one in range(10))), ("", "yes"))),
    Model((("may mean several", "\n".join(f"Where is {one}? | {one}" for one in range(4))), ("", "yes"))),
    AnyModel(tuple(f"{number}. Where is {number}?" for number in range(40))),
    AnyModel(tuple(f"Where is {one}? | {one}" for one in range(40))), AnyModel(("several",)), AnyModel(("[Relevant]",)),
    AnyModel(("yes", "a question", "another question", "no")), AnyModel(("One fact.", "Two facts.", "[END]")),
)  # fmt: skip


@pytest.mark.slow
@check_each("name", [name for name in FLOWS if name not in LARGE])
def test_a_flow_ends_for_each_of_its_reasons_and_for_no_other(name: str) -> None:
    published, reached = find_flow(name), set[str]()
    for model in ENDS:
        for source, score in ((local, 0.1), (local, 0.9), (nowhere, 0.1)):
            for more in ({}, {"pairs": 1}) if "pairs" in published.stop_reasons else ({},):
                if more and "best" in name:
                    continue
                built = build_flow(name, model, search=source, web=source, scorer=Scores(otherwise=score), **more)
                reached |= {answer.stop_reason for answer in built.batch([ASKED]) if isinstance(answer, Answer)}
    assert reached == {*published.stop_reasons}
