"""Spaces with readers: what is free comes first, and what is shown twice is asked once."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from spolia.core.combinators import Choice, Identity
from spolia.core.combinators.space import Space
from spolia.core.operator import Operator
from spolia.generation.reader import Reader
from spolia.journal import Runs
from spolia.journal.cache import Cache
from spolia.models.http.chat import ChatModel
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.contexts import Contexts
from spolia.optimizer.progress import StudyProgress
from spolia.optimizer.score_board import Board, ScoreRequest, ScoreRows
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.optimizer.tuning import tune
from spolia.post_retrieval.selection import Cut
from spolia.run import Run
from spolia.testing.server import OpenAIServer, ServedReply
from spolia.types import Item, Query

from .finds import MODEL, Finds, questions


def space(model: Any) -> Operator[Query, Any]:
    """Flows that show many of the same passages, by readers of other settings too."""
    search = Finds().vary("skill", skill=[0, 1, 2, 3]).vary("luck", luck=[0, 1])
    cut = Choice(Identity(), Cut(3), Cut(2), name="cut")
    return search >> cut >> Reader(model).vary("shown", max_passages=(1, 2, 3))


def prompts_of(flows: list[Operator[Query, Any]], items: list[Item]) -> set[str]:
    """What all flows would send."""
    prompts = set()
    for flow in flows:
        *free, reader = flow.steps  # type: ignore[attr-defined]
        for item in items:
            value: Any = Query(item.question)
            for step in free:
                value = step(value)
            prompts.add(reader.build_prompt(value.cut(reader.max_passages)).text)
    return prompts


class Waits(ScriptedModel):
    """As one that is on a server."""

    waits: ClassVar[bool] = True


@pytest.mark.slow
def test_a_server_is_asked_each_rendered_context_once_whichever_flows_and_readers_show_it() -> None:
    items = questions(8)
    with OpenAIServer(ServedReply("gold")) as server:
        tuned_flow = tune(space(ChatModel("m", server.url)), items, "EM")
        request_count = len(server.requests)
    flows = FlowTable(Space(space(MODEL)))
    distinct = prompts_of([flows.flows[flow] for flow in flows.all_flows], items)
    assert tuned_flow.rows == tuned_flow.flows * len(items)
    assert tuned_flow.spent.calls == request_count == len(distinct) < 0.2 * tuned_flow.rows
    assert tuned_flow.finalists[0].calls == 1.0


def test_contexts_are_numbered_by_what_would_be_sent() -> None:
    items, candidates = questions(5), FlowTable(Space(space(MODEL)))
    contexts = Contexts(candidates, lambda flow: items, len(items), Run(share=True))
    flows = list(candidates.all_flows)
    numbers = contexts.numbers(flows)
    for index, item in enumerate(items):
        prompts = [prompts_of([candidates.flows[flow]], [item]) for flow in flows]
        for left, right in ((0, 1), (0, len(flows) - 1), (3, 4), (2, 20)):
            assert (numbers[left, index] == numbers[right, index]) == (prompts[left] == prompts[right])
    assert contexts.total == len(prompts_of([candidates.flows[flow] for flow in flows], items))


def test_a_context_that_was_shown_is_free_for_the_budget() -> None:
    items, candidates = questions(5), FlowTable(Space(space(MODEL)))
    contexts = Contexts(candidates, lambda flow: items, len(items), Run(share=True))
    flows = list(candidates.all_flows)
    board = Board(candidates, len(items), 1000, contexts=contexts)

    def source(flows: Any, asked: range) -> ScoreRows:
        return ScoreRows(np.zeros((len(flows), len(asked))), np.zeros((len(flows), 2)))

    whole = board.cost(flows, 5)
    assert whole == contexts.total
    board.fill(ScoreRequest(flows[:9], 5), source)
    first = len(np.unique(contexts.numbers(flows[:9])))
    assert (board.rows_spent, board.left) == (first, 1000 - first)
    assert board.cost(flows, 5) == whole - first
    assert board.affordable_questions(flows[:9], 0) == 5
    assert board.affordable_questions(flows, whole - first) == 5
    assert board.affordable_questions(flows, 0) < 5


def test_what_readers_are_shown_tells_the_scores_of_questions_that_were_not_asked() -> None:
    items, candidates = questions(40), FlowTable(Space(space(MODEL)))
    contexts = Contexts(candidates, lambda flow: items, len(items), Run(share=True))
    flows = list(candidates.all_flows)
    scores = 0.2 + 0.6 * contexts.quality(flows)

    def source(flows: Any, asked: range) -> ScoreRows:
        return ScoreRows(scores[list(flows), asked.start : asked.stop], np.zeros((len(flows), 2)))

    def off(board: Board) -> float:
        board.fill(ScoreRequest(flows, 8), source)
        return float(np.abs(board.means(flows, 8) - scores.mean(axis=1)).max())

    assert off(Board(candidates, len(items), 1000, contexts=contexts)) < 0.01 < off(Board(candidates, 40, 10**4))


def test_a_search_begins_with_flows_whose_contexts_hold_the_gold_and_others_as_they_are_drawn() -> None:
    items, candidates = questions(40), FlowTable(Space(space(MODEL)))
    contexts = Contexts(candidates, lambda flow: items, len(items), Run(share=True))
    flows = list(candidates.all_flows)
    quality = contexts.quality(flows).mean(axis=1)
    best = Board(candidates, 40, 1000, contexts=contexts).draw_promising(5)
    assert sorted(quality[best], reverse=True) == sorted(quality, reverse=True)[:5]
    assert sorted(Board(candidates, 40, 1000).draw_promising(5)) != sorted(best)
    contexts._quality[contexts._compute_rows(flows[::2])] = np.nan  # flows of another kind
    drawn_flows, mixed = (
        Board(candidates, 40, 1000).draw_promising(6),
        Board(candidates, 40, 1000, contexts=contexts).draw_promising(6),
    )
    assert [flow for flow in mixed if flow in flows[::2]] == [flow for flow in drawn_flows if flow in flows[::2]]


@pytest.mark.slow
def test_a_study_ends_the_same_with_any_number_of_workers_and_after_it_broke_off(tmp_path: Path) -> None:
    def study(workers: int, name: str, ends_after: float = float("inf")) -> TunedFlow:
        def break_off(progress: StudyProgress) -> None:
            if progress.done > ends_after:
                raise RuntimeError("broken off")

        options: dict[str, Any] = {"budget": "50%", "seed": 3, "path": tmp_path / name, "on_progress": break_off}
        return tune(space(Waits(MODEL.replies)), questions(40), "EM", run=Run(share=True, threads=workers), **options)

    single, three = study(1, "one"), study(3, "three")
    assert single.score.mean < 1
    assert (three.point, three.score, three.finalists) == (single.point, single.score, single.finalists)
    assert (three.rows, three.spent.calls) == (single.rows, single.spent.calls)
    with pytest.raises(RuntimeError):
        study(3, "broken", 200)
    rest = study(1, "broken")
    assert 0 < rest.spent.calls < single.spent.calls
    assert (rest.point, rest.score, rest.finalists) == (single.point, single.score, single.finalists)


@pytest.mark.slow
def test_a_share_of_a_space_with_readers_is_one_of_its_calls() -> None:
    tuned_flow = tune(space(MODEL), questions(40), "EM", budget="50%", seed=3)
    grid = prompts_of([*_flows()], questions(40))
    assert tuned_flow.spent.calls <= 0.5 * len(grid)
    assert 0 < tuned_flow.share <= 0.5
    assert tuned_flow.point["skill"] == 3
    assert tuned_flow.rows > tuned_flow.spent.calls


def _flows() -> list[Operator[Query, Any]]:
    candidates = FlowTable(Space(space(MODEL)))
    return [candidates.flows[flow] for flow in candidates.all_flows]


class Killed(BaseException):
    """What no step catches."""


class Dies(ScriptedModel):
    """Ends the process, as it were, with a call."""

    calls_left: ClassVar[float] = float("inf")

    def generate(self, prompt: Any, **how: Any) -> Any:
        Dies.calls_left -= 1
        if Dies.calls_left < 0:
            raise Killed
        return super().generate(prompt, **how)


@pytest.mark.slow
def test_a_kill_between_two_calls_loses_no_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def study(name: str) -> TunedFlow:
        return tune(space(Dies(MODEL.replies)), questions(6), "EM", path=tmp_path / name)

    whole = study("whole")
    monkeypatch.setattr(Dies, "calls_left", 10)
    with pytest.raises(Killed):
        study("killed")
    monkeypatch.setattr(Dies, "calls_left", float("inf"))
    rest = study("killed")
    assert rest.spent.calls == whole.spent.calls - 10
    assert (rest.rows + 10, rest.point, rest.score) == (whole.rows, whole.point, whole.score)


@pytest.mark.slow
def test_replies_that_a_killed_study_has_paid_are_not_asked_again(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs") as runs:
        first = tune(space(MODEL), questions(6), "EM", run=Run(cache=runs.cache))
    with Runs(tmp_path / "runs") as runs:
        second_tuned_flow = tune(space(MODEL), questions(6), "EM", run=Run(cache=runs.cache))
    assert first.spent.calls > 0
    assert (second_tuned_flow.rows, second_tuned_flow.spent.calls, second_tuned_flow.point) == (
        first.rows,
        0,
        first.point,
    )


def test_a_run_that_keeps_replies_asks_equal_prompts_once_and_counts_what_they_cost_alone() -> None:
    ranking = Finds(skill=5)(Query("?"))
    with Run(replies=Cache()) as run:
        readers = [Reader(MODEL, max_passages=6), Reader(MODEL, max_passages=7), Reader(MODEL, max_passages=1)]
        answers = [reader(ranking) for reader in readers]
    assert [answer.text for answer in answers] == ["gold", "gold", "gold"]
    assert (run.actual_usage.calls, run.usage.calls) == (2, 3)
