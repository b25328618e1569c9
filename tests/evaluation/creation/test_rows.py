"""A row's question depends on nothing but its passages: not on order, batch, threads, slow replies or a kill before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia import ChatModel, Corpus, Run, Runs
from spolia.evaluation.creation.draft import QuestionDraft, SampleRange
from spolia.evaluation.creation.recipes import Recipe, recipe
from spolia.indexing import temporary
from spolia.testing import OpenAIServer, ServedReply
from spolia.testing.server import ReceivedRequest
from spolia.types import Failure, Message, Prompt

from .test_world import WORLD
from .world_model import WorldModel

pytestmark = pytest.mark.slow


class Uneven(OpenAIServer):
    """Replies as the model of the world, some requests late; it notes whatever a request holds of others."""

    model = WorldModel(errs=0.3)

    def next_reply(self, request: ReceivedRequest) -> ServedReply:
        super().next_reply(request)
        messages = tuple(Message(message["role"], message["content"]) for message in request.body["messages"])
        time.sleep(Random(str(messages)).choice((0.0, 0.0, 0.004)))
        return ServedReply(self.model.generate(Prompt(messages)).text)


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    texts = {document["title"]: document["text"] for document in list(WORLD.documents())[:24]}
    with temporary(texts) as new_corpus:
        yield new_corpus


@pytest.fixture(scope="module")
def server() -> Iterator[Uneven]:
    with Uneven() as uneven_server:
        yield uneven_server


@pytest.fixture(scope="module")
def flow_and_drafts(corpus: Corpus, server: Uneven) -> tuple[Recipe, dict[str, QuestionDraft]]:
    """A recipe, and what each row becomes by itself."""
    flow = recipe("factoid", corpus.group(), ChatModel("m", server.url, api_key_env=""), evolve=("compress",))
    drafts = flow.sample(SampleRange(0, 12))
    assert len(drafts) == 12
    return flow, {draft.passages[0].id: flow.body(draft) for draft in drafts}


@settings(max_examples=3)
@given(
    seed=st.integers(0, 10**6), batch=st.integers(1, 9), threads=st.sampled_from((1, 3, 16)), kept=st.integers(0, 30)
)
def test_a_row_gives_the_same_question_in_any_order_batch_and_number_of_threads_and_after_a_kill(
    flow_and_drafts: tuple[Recipe, dict[str, QuestionDraft]],
    tmp_path: Path,
    seed: int,
    batch: int,
    threads: int,
    kept: int,
) -> None:
    flow, expected = flow_and_drafts
    drafts = list(flow.sample(SampleRange(0, 12)))
    Random(seed).shuffle(drafts)
    path = tmp_path / f"{seed}-{batch}-{threads}-{kept}.db"
    with Runs(path) as runs, Run(cache=runs.cache, threads=threads):
        for start in range(0, kept % len(drafts), batch):  # what was done before a kill is in the cache
            flow.body.batch(drafts[start : start + batch])
    results: dict[str, QuestionDraft | Failure] = {}
    with Runs(path) as runs, Run(cache=runs.cache, threads=threads):
        for start in range(0, len(drafts), batch):
            rows = drafts[start : start + batch]
            results |= {draft.passages[0].id: result for draft, result in zip(rows, flow.body.batch(rows), strict=True)}
    assert results == expected


def test_no_request_holds_a_passage_of_another_row(corpus: Corpus, server: Uneven) -> None:
    """AutoRAG's writers append to one list of messages, so that each request carries all rows before it."""
    flow = recipe("factoid", corpus.group(), ChatModel("m", server.url, api_key_env=""))
    drafts = flow.sample(SampleRange(0, 12))
    server.requests.clear()
    flow.body.batch(drafts)
    texts = [draft.passages[0].text for draft in drafts]
    prompts = ["\n".join(message["content"] for message in request.body["messages"]) for request in server.requests]
    assert {sum(text in prompt for text in texts) for prompt in prompts} <= {0, 1}
    assert {len(request.body["messages"]) for request in server.requests} <= {2, 4}  # asked, or asked once again
