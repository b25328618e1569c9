"""The flow patterns of Modular RAG: which operators run, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spolia import Answer, Hit, Node, Query, Ranking, Run, Runs, check, dump, load, step
from spolia.core.operator import Operator
from spolia.flows.patterns import (
    Action,
    Rounds,
    adaptive,
    conditional,
    iterative,
    linear,
    post_retrieval_branching,
    pre_retrieval_branching,
    recursive,
)
from tests.cases import check_each


@step
def rewrite(query: Query) -> Query:
    return query.rewritten(f"{query.text}!")


@step
def search(query: Query) -> Ranking:
    return Ranking(
        query, tuple(Hit(Node(f"{query.text}{index}", f"{query.text} {index}"), 1 / index) for index in (1, 2)), "words"
    )


@step
def rerank(found: Ranking) -> Ranking:
    return found.cut(1)


@step
def read(found: Ranking) -> Answer:
    return Answer("+".join(found.texts) or "nothing", evidence=found)


@step
def sub_queries(query: Query) -> tuple[Query, ...]:
    return (query.rewritten("a"), query.rewritten("b"))


@step
def merge(answers: Sequence[Answer]) -> Answer:
    return Answer(" | ".join(answer.text for answer in answers))


@step
def route(query: Query) -> str:
    return "search" if "?" in query.text else "greet"


@step
def greet(query: Query) -> Answer:
    return Answer("Hello.")


@step(calls=0)
def enough(rounds: Rounds) -> bool:
    return len(rounds.answers) == 2


@step(calls=0)
def never(rounds: Rounds) -> bool:
    return False


@step(calls=0)
def first_time(rounds: Rounds) -> Action:
    return "answer" if rounds.found.hits else "retrieve"


@step(calls=0)
def further(answer: Answer) -> tuple[Query, ...]:
    """Two sub-queries, one of which is always the same in other letters."""
    assert answer.evidence is not None
    query = answer.evidence.query
    return (query.asking(f"{query.text}x"), query.asking("COMMON"), query.asking("common"))


OWN: Any = (rewrite, search, rerank, read, sub_queries, merge, route, greet, enough, never, first_time, further)
PATTERNS: dict[str, tuple[Operator[Query, Answer], str, str]] = {
    "linear, naive": (linear(search, read), "search read", "q 1+q 2"),
    "linear, advanced": (linear(search, read, rewrite, rerank), "rewrite search rerank read", "q! 1"),
    "conditional": (
        conditional(route, {"search": linear(search, read), "greet": greet}, "search"), "route greet", "Hello.",
    ),
    "branching before the retrieval": (
        pre_retrieval_branching(sub_queries, search, read, merge),
        "sub_queries search search read read merge", "a 1+a 2 | b 1+b 2",
    ),
    "branching after the retrieval": (
        post_retrieval_branching(search, read, merge), "search apart read read merge", "q 1 | q 2",
    ),
    "loop, iterative": (
        iterative(search, read, enough, max_steps=5),
        "begin iterate search read enough iterate search read enough last_answer", "q q 1+q 2 1+q q 1+q 2 2",
    ),
    "loop, recursive": (
        recursive(search, read, further, merge, max_depth=3),
        "root descend search read further descend search read further descend search read further "
        "descend search read descend search read every_answer merge",
        "q 1+q 2 | qx 1+qx 2 | COMMON 1+COMMON 2 | qxx 1+qxx 2 | COMMONx 1+COMMONx 2",
    ),
    "loop, adaptive": (
        adaptive(first_time, search, read, enough),
        "begin act first_time search read enough act first_time read enough last_answer", "q 1+q 2",
    ),
}  # fmt: skip
KINDS = frozenset(("Then", "Each", "Loop", "Route", "Explore", "Branch"))


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_runs_its_operators_in_the_order_of_its_algorithm(name: str, tmp_path: Path) -> None:
    flow, trace, expected = PATTERNS[name]
    with Runs(tmp_path / "runs.db") as runs:
        with Run(journal=runs.journal) as run:
            answer = flow(Query("q"))
        runs.journal.flush()
        steps = [span.step.rpartition(":")[2].rpartition(".")[2] for span in runs.journal.spans(run.id)]
    assert [step for step in steps if step not in KINDS] == trace.split()
    assert answer.text == expected


@check_each("name", PATTERNS)
def test_a_pattern_is_a_flow_that_can_be_checked_and_written(name: str) -> None:
    flow, _, _ = PATTERNS[name]
    assert check(flow, takes=Query, gives=Answer).problems == ()
    assert flow.calls() == 0
    assert load(dump(flow), operators=OWN) == flow


def test_a_loop_ends_at_its_cap_where_no_judge_accepts() -> None:
    assert iterative(search, read, max_steps=3)(Query("q")).stop_reason == "cap"
    ended = adaptive(first_time, search, read, never, max_steps=4)(Query("q"))
    assert (ended.stop_reason, ended.text) == ("cap", "q 1+q 2")


def test_a_question_that_finds_nothing_is_read_once_without_passages() -> None:
    @step
    def nowhere(query: Query) -> Ranking:
        return Ranking(query, ())

    assert post_retrieval_branching(nowhere, read, merge)(Query("q")).text == "nothing"
    assert iterative(nowhere, read)(Query("q")).text == "nothing"


def test_a_recursion_asks_no_more_queries_than_its_width_and_depth_allow() -> None:
    @step
    def many(answer: Answer) -> tuple[Query, ...]:
        return tuple(Query(f"{answer.text} {number}") for number in range(50))

    flow = recursive(search, read, many, merge, max_depth=3, width=2)
    assert flow(Query("q")).text.count("|") == 1 + 2 + 4 - 1


def test_patterns_compose() -> None:
    inner = iterative(search, read, enough)
    flow = conditional(route, {"search": inner, "greet": greet}, "greet")
    assert flow(Query("q?")).text == inner(Query("q?")).text
