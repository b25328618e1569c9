"""Rows for language models: what they hold, whose questions they are, and how PrefRAG's preferences are chosen."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spolia.core.function import step
from spolia.errors import DataError
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.measures.answers.string_match import ExactMatch
from spolia.flows.auto_rag import auto_rag
from spolia.flows.corag import corag
from spolia.flows.prefrag import HELPS, prefrag
from spolia.models.prompting.role import Ask, Brief
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.run import Run
from spolia.training.preferences import DRAWS, Decision, prefrag_rows
from spolia.training.rows import (
    corag_rows,
    distillation_rows,
    message_rows,
    observe_flow,
    preference_row,
    ra_dit_rows,
    read_rows,
    retriever_rows,
    reward_rows,
    self_rag_rows,
)
from spolia.training.sufficiency import sample_chains
from spolia.types import Generation, Hit, Item, Message, Node, Prompt, Query, Ranking
from tests.post_retrieval.compression.scorer import Scorer

TUNE = [name for name in (f"q{at}" for at in range(40)) if part_of(name) == "tune"]


@step
def search(query: Query) -> Ranking:
    """Three passages for whatever is asked; the second one says where Olsen worked."""
    texts = ("The tide rose.", "Nokia employed Olsen.", f"On: {query.text}")
    return Ranking(
        query, tuple(Hit(Node(f"{index}", text, document=f"d{index}"), 3.0 - index) for index, text in enumerate(texts))
    )


def question(id: str, answer: str = "Nokia", gold: str = "d1") -> Item:
    return Item(id, f"Who employed the Olsen of {id}?", (answer,), ((gold,),))


def test_a_row_for_each_question_and_passage_cites_only_what_holds_the_answer() -> None:
    rows = list(ra_dit_rows([question(TUNE[0]), question(TUNE[1]), Item(TUNE[2], "Unanswered?")], search))
    assert Counter(row["id"] for row in rows) == {TUNE[0]: 3, TUNE[1]: 3}
    assert [row["completion"][0]["content"] for row in rows[:3]] == ["Nokia", "Nokia [1]", "Nokia"]
    assert all(sum(text in row["prompt"][1]["content"] for text in ("tide", "Nokia", "On:")) == 1 for row in rows)


def test_questions_of_the_part_report_are_refused(tmp_path: Path) -> None:
    reported_id = next(name for name in map(str, range(99)) if part_of(name) == "report")
    with pytest.raises(DataError, match="1 question of the part report cannot be trained on"):
        list(ra_dit_rows([question(TUNE[0]), question(reported_id)], search))
    file = tmp_path / "rows.jsonl"
    file.write_text(
        json.dumps({"id": reported_id, "prompt": [{"role": "user", "content": "?"}], "completion": "Nokia"})
    )
    with pytest.raises(DataError, match="part report"):
        read_rows(file, "sft")


def test_rows_of_self_rag_follow_the_gold() -> None:
    @step
    def finds(query: Query) -> Ranking:
        texts = {"p1": "Ann Lee of Oslo.", "p2": "Bo Ray [Relevant] of Bergen.", "p3": "No one."}
        return Ranking(query, tuple(Hit(Node(id, text, document=id), 1.0) for id, text in texts.items()))

    knows = "from what you know(?s:.*)"
    model = ScriptedModel((
        (f"{knows}{TUNE[0]}", "Nokia."), (knows, "Nothing."), ("Oslo", "Ann Lee [1]."), ("Bergen", "Bo Ray of Nokia."),
        ("", "I do not know."),
    ))  # fmt: skip
    rows = list(self_rag_rows([question(TUNE[0]), question(TUNE[1], gold="p2")], finds, model))
    assert [(row["id"] == TUNE[0], row["completion"][0]["content"]) for row in rows] == [
        (True, "[No Retrieval]"),
        (True, "Nokia.[Utility:5]"),
        (False, "[Retrieval]"),
        (False, "[Irrelevant]Ann Lee.[Fully supported][Utility:1]"),
        (False, "[Relevant]Bo Ray of Nokia.[Partially supported][Utility:5]"),
        (False, "[Irrelevant]I do not know.[No support / Contradictory][Utility:2]"),
    ]
    assert "Bo Ray ⟦Relevant] of Bergen" in rows[4]["prompt"][-1]["content"]


CHAINS = ScriptedModel((
    ("You answer a question by a chain(?s:.*)Q: Who was he", "Whom did he work for?"),
    ("You answer a question by a chain", "Who was he?"),
    ("<question>Who was he", "A painter"),
    ("<question>Whom", "Nokia"),
    ("Answer the first question of the chain(?s:.*)Q: Whom did he", "Nokia [2]"),
    ("Answer the first question", "I do not know."),
))  # fmt: skip


def test_rows_of_corag_are_what_the_flow_asks_along_an_accepted_chain() -> None:
    items = [question(TUNE[0]), question(TUNE[1], "Siemens")]
    with Run(share=True):
        chains = list(sample_chains(CHAINS, search, items, steps=3, n=1))
    rows = list(corag_rows(items, chains, search))
    assert [(row["kind"], row["completion"][0]["content"]) for row in rows] == [
        ("corag sub-question", "Who was he?"),
        ("corag sub-answer", "A painter"),
        ("corag sub-question", "Whom did he work for?"),
        ("corag sub-answer", "Nokia"),
        ("corag answer", "Nokia [2]"),
    ]
    assert {row["id"] for row in rows} == {TUNE[0]}  # no chain of the other question leads to its answer
    ((_, _, steps),) = observe_flow(corag(CHAINS, search, steps=2), items[:1])
    assert [row["prompt"] for row in rows] == [
        message_rows(exchange.prompt) for chain_step in steps for exchange in chain_step.exchanges
    ]


def test_a_dialogue_is_distilled_by_turns_and_what_could_not_be_read_is_not_learned() -> None:
    llm = ScriptedModel((
        (f"search: Olsen(?s:.*){TUNE[1]}", "<thought>No.</thought><answer>Sony</answer>"),
        ("search: Olsen", "<thought>Yes.</thought><answer>Nokia</answer>"),
        ("must have search or answer in a tag", "<thought>Who?</thought><search>Olsen</search>"),
        ("searching as often", "Let me see."),
    ))  # fmt: skip
    flow, items = auto_rag(llm, search, turns=2, recalls=1), [question(TUNE[0]), question(TUNE[1])]
    rows = list(distillation_rows(flow, items, ExactMatch()))
    replies = ["<thought>Who?</thought><search>Olsen</search>", "<thought>Yes.</thought><answer>Nokia</answer>"]
    assert [row["completion"][0]["content"] for row in rows] == replies
    assert all([message["role"] for message in row["prompt"]] == ["system", "user"] for row in rows)
    assert {row["id"] for row in rows} == {TUNE[0]}  # the other answer is wrong
    assert len(list(distillation_rows(flow, items))) == 4
    with Run(), pytest.raises(DataError, match="StepLog"):
        list(observe_flow(flow, items))


DRAWN: list[tuple[float, float, str]] = []


@dataclass(frozen=True)
class Deciding(ScriptedModel):
    """Says yes where it draws from little, and no elsewhere; two replies have no status."""

    top_p: float = 1.0

    def generate(self, prompt: Prompt, *, temperature: float = 0.0, **more: Any) -> Generation:
        if "Compare the new passages" not in prompt.text or not temperature:
            return super().generate(prompt, temperature=temperature, **more)
        DRAWN.append((temperature, self.top_p, prompt.text))
        if self.top_p == 0.5 and temperature > 0.1:
            return Generation("Perhaps.")
        status = "yes" if self.top_p < 0.5 else "no"
        return Generation(f"{status}: {temperature:g} {self.top_p:g}")


SMALL = Deciding((
    ("Compare the new passages", "yes"),
    ("(?:local|web): two", "<thought>t</thought><answer>Nokia</answer><evaluation>CORRECT</evaluation>"),
    ("local: one", "<thought>t</thought><source>local</source><search>two</search>"),
    ("Answer a question by searching", "<thought>t</thought><source>local</source><search>one</search>"),
))  # fmt: skip


def is_helped(id: str) -> bool:
    """Whether the second search of a question finds its gold: of four in five."""
    return TUNE.index(id) % 5 > 0


@step
def local(query: Query) -> Ranking:
    return Ranking(query, (Hit(Node(query.text, f"On {query.text}.", document=f"d {query.text}"), 1.0),))


def preferences(judge: ScriptedModel | None = None, seed: int = 0) -> list[dict[str, Any]]:
    DRAWN.clear()
    flow = prefrag(SMALL, local, local)
    return prefrag_rows(
        flow, [question(id, gold="d two" if is_helped(id) else "d three") for id in TUNE], judge, seed=seed
    )


@pytest.mark.slow
def test_preferences_of_prefrag_are_of_nine_candidates_whose_status_differs_three_to_one() -> None:
    rows = preferences()
    draws_by_prompt = {
        prompt: {(warm, top_p) for warm, top_p, drawn_prompt in DRAWN if drawn_prompt == prompt}
        for _, _, prompt in DRAWN
    }
    assert len(draws_by_prompt) == len(TUNE)
    assert all(draws == set(DRAWS) for draws in draws_by_prompt.values())
    assert Counter(row["status"] for row in rows) == {True: 12, False: 4}
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert row["status"] is is_helped(row["id"])
        assert row["chosen"][0]["content"].startswith("yes" if row["status"] else "no")
        assert row["rejected"][0]["content"].startswith("no" if row["status"] else "yes")
        assert f"of {row['id']}?" in row["prompt"][1]["content"]
        assert "On two." in row["prompt"][1]["content"]  # the first retrieval of a question is not compared
    assert preferences() == rows
    assert preferences(seed=1) != rows


def test_a_decision_is_read_with_its_analysis() -> None:
    ask = Ask(SMALL, HELPS)
    decision = Decision(question(TUNE[0]), ask, Brief.from_texts(), Ranking(Query("?"), ()))
    reply = "<analysis>Not yes, since nothing is new.</analysis><verdict>no</verdict>"
    assert [decision.read_status(text) for text in (reply, "yes", "Perhaps.")] == [False, True, None]


@pytest.mark.slow
def test_the_best_positive_is_the_one_that_the_judge_names() -> None:
    ids = "|".join(f"of {id}\\?" for id in TUNE if not is_helped(id))
    judge = ScriptedModel((
        ("Compare the new passages", "yes: as it is"), ("<reference>yes: as it is</reference>", "[2]"),
    ))  # fmt: skip
    unsure = ScriptedModel(((f"Compare the new passages(?s:.*)(?:{ids})", "no: 0.9 0.9"), *judge.replies, "none"))
    rows = preferences(unsure)
    chosen = {row["status"]: row["chosen"][0]["content"] for row in rows}
    assert chosen == {True: "yes: 0.5 0.1", False: "no: 0.9 0.9"}  # the second one; where it names none, the nearest
    with pytest.raises(DataError, match="cannot be balanced 3:1"):
        preferences(judge)  # which says that all of them help


def test_a_retriever_learns_from_the_passages_that_could_be_scored() -> None:
    rows = list(retriever_rows([question(TUNE[0])], search, Scorer(hints=(("Nokia", "Nokia"),), window=12)))
    (row,) = rows
    assert [passage["id"] for passage in row.passages] == ["0", "1"]  # the third one does not fit into the window
    assert row.logprobs == [-1.0, -0.5]


def test_people_write_preferences_as_texts(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Who employed Olsen?"}]
    prompt = Prompt((Message("user", "Who employed Olsen?"),))
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({"prompt": messages, "chosen": "Nokia", "rejected": "Sony", "source": "ann"}))
    (row,) = read_rows(file, "dpo")
    assert row == {key: value for key, value in preference_row("", prompt, "Nokia", "Sony", "ann").items() if value}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "Who?", "chosen": "a", "rejected": "b"}, "no messages in 'prompt'"),
        ({"prompt": [{"role": "user"}], "chosen": "a", "rejected": "b"}, "no messages in 'prompt'"),
        ({"prompt": [{"role": "user", "content": "?"}], "chosen": "a"}, "no messages in 'rejected'"),
        ({"prompt": [{"role": "user", "content": "?"}], "chosen": "a", "rejected": "a"}, "prefers a reply to itself"),
    ],
)
def test_rows_that_are_none_are_refused(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row))
    with pytest.raises(DataError, match=f"line 1 .*{said}"):
        read_rows(file, "dpo")
    file.write_text("")
    with pytest.raises(DataError, match="has no rows"):
        read_rows(file, "dpo")


def test_prompts_for_rewards_hold_what_measures_take() -> None:
    (row,) = reward_rows([question(TUNE[0])], search)
    assert row["gold"] == [["d1"]]
    assert [passage["document"] for passage in row["passages"]] == ["d0", "d1", "d2"]
