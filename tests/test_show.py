"""A flow is drawn with its types, as text and as a diagram that a Mermaid parser takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

from spolia.core.combinators import Branch, Choice, Each, Explore, Guard, Identity, Loop, Route, Samples
from spolia.core.draw import draw_graph, escaped, id_of, mermaid, title, tree
from spolia.core.draw_svg import svg
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.types import Query, State, Value
from tests.cases import check_each


@dataclass(frozen=True)
class Search(Operator[Query, str]):
    top_k: int = 10
    words: tuple[str, ...] = ()

    def apply(self, value: Query, /) -> str:
        return value.text


@dataclass(frozen=True)
class Twice(Operator[str, str]):
    """Inner operators in a field, as adaptive flows have them."""

    body: Operator[str, str]
    note: str = ""

    def apply(self, value: str, /) -> str:
        return self.body(self.body(value))


@dataclass(frozen=True)
class Long(Value):
    text: str = "x" * 100


@dataclass(frozen=True)
class Hold(Operator[str, str]):
    long: Long = Long("y" * 100)
    text: str = ""

    def apply(self, value: str, /) -> str:
        return value


@step
def language(query: Query) -> str:
    return "en"


@step
def lowered(text: str) -> str:
    return text.lower()


@step
def hopped(state: State) -> State:
    return state


@step
def grown(state: State) -> tuple[State, ...]:
    return (state,)


FLOWS: list[Operator[Any, Any]] = [
    Identity(),
    Search(5, ("a", '"b" <c> #1 `d` |e|\n')),
    Route(language, {"en": Search() >> lowered, "end": Search(3), 'a "b"': Search(4)}, default="end"),
    Branch(Search(), Search(3) >> lowered >> Twice(lowered >> lowered)) >> Each(lowered),
    Choice(Search(), Search(3)) >> Guard(lowered, fallback=Twice(lowered), max_calls=2) >> Guard(lowered, max_calls=1),
    Loop(hopped >> hopped, max_steps=3) >> Explore(grown, max_depth=2),
    Samples[Query](3) >> Each(Search().vary(top_k=(1, 2)) >> Branch(lowered, Branch(lowered, lowered))),
    Hold(Long("a"), "b" * 100),
]


def test_the_tree_shows_each_step_with_the_types_that_reach_it() -> None:
    flow = Samples[Query](3) >> Each(Branch(Search(5), Search() >> lowered, Identity[Query]() >> Search(2)))
    assert tree(flow).splitlines() == [
        "Then: anything → tuple[tuple[str, ...], ...]",
        "├─ Samples(n=3): anything → tuple[anything, ...]",
        "└─ Each: tuple[anything, ...] → tuple[tuple[str, ...], ...]",
        "   └─ arm: Branch: Query → tuple[str, ...]",
        "      ├─ arms.0: Search(top_k=5): Query → str",
        "      ├─ arms.1: Then: Query → str",
        "      │  ├─ Search: Query → str",
        "      │  └─ lowered: str → str",
        "      └─ arms.2: Then: Query → str",
        "         ├─ Identity: Query → Query",
        "         └─ Search(top_k=2): Query → str",
    ]


@check_each("flow", FLOWS)
def test_the_tree_has_one_line_for_each_operator(flow: Operator[Any, Any]) -> None:
    def count(op: Operator[Any, Any]) -> int:
        return 1 + sum(count(inner) for _, inner in op.inner())

    assert len(tree(flow).splitlines()) == count(flow)


def test_titles_show_what_is_not_default_and_keep_short() -> None:
    assert title(Search()) == "Search"
    assert title(Search(5)) == "Search(top_k=5)"
    assert title(Hold(Long("z" * 100), "b" * 100)) == f"Hold(long=Long(…), text='{'b' * 56}…)"
    assert title(lowered) == "lowered"


LABEL = r'"[^"<>`|\\\n]*"'
NODE = re.compile(rf"(\w+)(?:\[{LABEL}\]|\(\[{LABEL}\]\)|\{{{LABEL}\}}|\{{\{{{LABEL}\}}\}}|\(\({LABEL}\)\))")
EDGE = re.compile(rf"(\w+) (?:-->|-\.->)(?:\|{LABEL}\|)? (\w+)")
FRAME = re.compile(rf"subgraph (\w+)\[{LABEL}\]")


@check_each("flow", FLOWS)
def test_the_diagram_follows_the_grammar_and_joins_what_it_draws(flow: Operator[Any, Any]) -> None:
    first, *lines = mermaid(flow).splitlines()
    assert first == "flowchart TD"
    nodes: set[str] = set()
    edges: list[tuple[str, str]] = []
    frames = 0
    for line in map(str.strip, lines):
        if node := NODE.fullmatch(line):
            assert node[1] not in nodes
            nodes.add(node[1])
        elif edge := EDGE.fullmatch(line):
            edges.append((edge[1], edge[2]))
        elif frame := FRAME.fullmatch(line):
            assert frame[1] not in nodes
            frames += 1
        else:
            assert line == "end", line
            frames -= 1
            assert frames >= 0
    assert frames == 0
    assert {name for edge in edges for name in edge} == nodes
    assert _reachable_from("taken", edges) == nodes


def _reachable_from(start: str, edges: list[tuple[str, str]]) -> set[str]:
    reached, open_ = {start}, [start]
    while open_:
        here = open_.pop()
        for a, b in edges:
            if a == here and b not in reached:
                reached.add(b)
                open_.append(b)
    return reached


SPACE = "{http://www.w3.org/2000/svg}"


def _boxes(picture: str, kind: str) -> list[tuple[float, float, float, float]]:
    rects = [
        rect
        for rect in ElementTree.fromstring(picture).iter(f"{SPACE}rect")
        if (rect.get("class") == "frame") == (kind == "frame")
    ]
    return [tuple(float(rect.get(name, "")) for name in ("x", "y", "width", "height")) for rect in rects]  # type: ignore[misc]


@check_each("flow", FLOWS)
def test_the_picture_draws_what_the_diagram_draws_without_overlaps(flow: Operator[Any, Any]) -> None:
    picture, graph = svg(flow), draw_graph(flow)
    nodes, frames, root = _boxes(picture, "node"), _boxes(picture, "frame"), ElementTree.fromstring(picture)
    assert len(nodes) == len(graph.nodes)
    assert len(frames) == mermaid(flow).count("subgraph")
    assert len([item for item in root.iter(f"{SPACE}path") if item.get("class")]) == len(graph.edges)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for x, y, w, h in (*nodes, *frames):
        assert x >= 0 <= y
        assert x + w <= width
        assert y + h <= height
    for item, other_box in combinations(nodes, 2):
        assert _are_apart(item, other_box)
    for frame in frames:  # a node is in a frame or beside it
        for node in nodes:
            inside = frame[0] <= node[0] and node[0] + node[2] <= frame[0] + frame[2]
            assert _are_apart(node, frame) or (
                inside and frame[1] <= node[1] and node[1] + node[3] <= frame[1] + frame[3]
            )


def _are_apart(box: tuple[float, float, float, float], other_box: tuple[float, float, float, float]) -> bool:
    (x, y, w, h), (a, b, c, d) = box, other_box
    return x + w <= a or a + c <= x or y + h <= b or b + d <= y


def test_a_title_cannot_act_in_a_picture() -> None:
    picture = svg(Search(5, ("</text><script>alert(1)</script>",)))
    assert "<script" not in picture
    assert "\x1b" not in svg(Hold(text="\x1b[31m"))


def test_ids_stay_when_other_parts_change_and_differ_between_places() -> None:
    diagram, other_diagram = mermaid(Branch(Search(), Search(3))), mermaid(Branch(Search(), Search(4) >> lowered))
    assert "n_arms_0[" in diagram
    assert "n_arms_0[" in other_diagram
    assert len({id_of(place) for place in ("a.b", "a_b", "a b", "ab", "a.b.")}) >= 4
    assert escaped('"') == "#34;"
