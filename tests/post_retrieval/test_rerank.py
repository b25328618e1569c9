"""Rerankers of the user: node to node, nothing or a score; lists to lists."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from spolia.errors import WiringError
from spolia.flow_files.files import dump, load
from spolia.journal import Cache
from spolia.post_retrieval.reranker import Reranker, reranker
from spolia.run import Run
from spolia.types import Hit, Node, Query, Ranking
from tests.cases import check_each


def ranking(*pairs: tuple[str, float]) -> Ranking:
    return Ranking(Query("red"), tuple(Hit(Node(id, f"text {id}"), score) for id, score in pairs), "bm25")


FOUND = ranking(("a", 4.0), ("b", 3.0), ("c", 3.0), ("d", 1.0))


def ids_and_scores(hits: Ranking) -> list[tuple[str, float]]:
    return [(hit.node.id, hit.score) for hit in hits.hits]


@reranker
def without(node: Node, *, id: str = "b") -> Node | None:
    return None if node.id == id else node


@reranker
def by_letter(node: Node, query: str) -> float | None:
    return None if node.id == "a" else float(ord("b") - ord(node.id)) if node.id != "c" else 0.0


@reranker(batch=True)
def backwards(nodes: list[Node], *, most: int = 9) -> list[Node]:
    return nodes[::-1][:most]


@reranker(batch=True)
def lengths(nodes: list[Node], query: str) -> Any:
    return (len(node.text) for node in nodes)


@reranker
def shouted(node: Node) -> Node:
    return node.but(text=node.text.upper())


def test_a_node_stays_or_is_dropped() -> None:
    assert ids_and_scores(without(FOUND)) == [("a", 4.0), ("c", 3.0), ("d", 1.0)]
    assert ids_and_scores(without.but(id="a")(FOUND)) == [("b", 3.0), ("c", 3.0), ("d", 1.0)]
    assert without(FOUND).source == "bm25"
    assert [node.text for node in shouted(FOUND).nodes] == ["TEXT A", "TEXT B", "TEXT C", "TEXT D"]


def test_new_scores_are_put_in_order_and_ties_stay_as_they_were() -> None:
    assert ids_and_scores(by_letter(FOUND)) == [("b", 0.0), ("c", 0.0), ("d", -2.0)]
    assert ids_and_scores(lengths(FOUND)) == [("a", 6.0), ("b", 6.0), ("c", 6.0), ("d", 6.0)]


def test_a_list_is_taken_in_its_order_with_scores_that_agree() -> None:
    assert ids_and_scores(backwards(FOUND)) == [("d", 1.0), ("c", 1 / 2), ("b", 1 / 3), ("a", 1 / 4)]
    assert ids_and_scores(backwards.but(most=1)(FOUND)) == [("d", 1.0)]

    @reranker(batch=True)
    def some(nodes: list[Node]) -> list[Node]:
        return [nodes[0], nodes[2], nodes[0]]

    assert ids_and_scores(some(FOUND)) == [("a", 4.0), ("c", 3.0)]


def test_nothing_in_nothing_out_and_the_function_is_not_called() -> None:
    @reranker(batch=True)
    def never(nodes: list[Node]) -> list[Node]:
        raise AssertionError

    empty = ranking()
    assert never(empty) == without(empty) == lengths(empty) == empty


def test_what_an_earlier_step_has_kept_of_a_hit_stays() -> None:
    hit = Hit(Node("a", "shown"), 1.0, (("bm25", 2.0),), (Node("a.1", "found"),))
    (reranked,) = by_score(Ranking(Query("?"), (hit,))).hits
    assert (reranked.score, reranked.parts, reranked.found) == (7.0, hit.parts, hit.found)


@reranker
def by_score(node: Node) -> float:
    return 7.0


def _returning(value: Any, **options: Any) -> Reranker:
    def odd(nodes: Any) -> Any:
        return value

    return reranker(**options)(odd)


@check_each(
    ("function", "message"),
    [
        (_returning(math.nan), "returned nan"),
        (_returning("text"), "returned 'text'"),
        (_returning(True), "returned True"),
        (_returning(Node("z", "other")), "Return nodes that it was given"),
        (_returning([1.0, 2.0], batch=True), "Return one score for each of the 4 nodes"),
        (_returning([Node("z", "other")], batch=True), "Return nodes that it was given"),
        (_returning(None, batch=True), "Return a list of nodes"),
        (_returning("four", batch=True), "Return a list of nodes"),
    ],
)
def test_what_is_no_judgement_is_refused_naming_the_function(function: Reranker, message: str) -> None:
    with pytest.raises(WiringError, match="The reranker odd") as refused:
        function(FOUND)
    assert message in str(refused.value)


def test_a_function_of_something_else_is_refused() -> None:
    with pytest.raises(WiringError, match="a reranker takes node, and query if it wants it"):
        reranker(lambda node, other_value: node)
    with pytest.raises(WiringError, match="takes nothing; a reranker takes nodes"):
        reranker(batch=True)(list)


def test_a_reranker_is_an_operator_like_any_other() -> None:
    flow = without >> backwards.but(most=2)
    assert ids_and_scores(flow(FOUND)) == [("d", 1.0), ("c", 0.5)]
    assert load(dump(flow), operators=(without, backwards)) == flow
    assert pickle.loads(pickle.dumps(flow)) == flow
    with pytest.raises(WiringError, match="no keyword argument 'least'"):
        backwards.but(least=1)


def test_results_are_kept_where_it_says_so() -> None:

    @reranker(cached=True, version=2)
    def slow(node: Node) -> float:
        _calls.append(node.id)
        return 1.0

    with Run(cache=Cache()):
        assert slow(FOUND) == slow(FOUND)
    assert _calls == ["a", "b", "c", "d"]


_calls: list[str] = []


def test_the_query_may_come_first_or_last() -> None:
    @reranker
    def before(query, node):  # type: ignore[no-untyped-def]
        return len(query) + len(node.text)

    @reranker
    def after(node, query):  # type: ignore[no-untyped-def]
        return len(query) + len(node.text)

    @reranker(batch=True)
    def together(query, nodes):  # type: ignore[no-untyped-def]
        return [len(query) + len(node.text) for node in nodes]

    @reranker
    def by_place(node, /, *, query):  # type: ignore[no-untyped-def]
        return len(query) + len(node.text)

    assert before(FOUND) == after(FOUND) == by_place(FOUND) == together(FOUND)
