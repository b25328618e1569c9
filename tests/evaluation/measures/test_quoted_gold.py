"""Gold that is quotes: measured the same whatever the documents are cut into."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Measure
from spolia.evaluation.measures.quote_places import GoldPlace
from spolia.evaluation.measures.registry import parse_measure
from spolia.indexing.splitters.sized_splitter import SlidingWindow, TokenWindow
from spolia.indexing.splitters.text_units import Paragraphs, RecursiveCharacters, Sentences
from spolia.stores.definition import Part, Splitter
from spolia.types import Answer, Citation, Document, Hit, Item, Node, Query, Quote, Ranking, Span
from tests.cases import check_each

TEXT = (
    "The tide rises twice a day. It is the moon that pulls the sea. Salt makes the water heavy.\n\n"
    "Builders took stones from older houses. They are called spolia. The arch of Constantine is full of them.\n\n"
    "Owls hunt by night. Their feathers make no sound. A mouse hears nothing until it is late."
)
QUOTES = (
    Quote("d", TEXT.index("It is the moon"), "It is the moon that pulls the sea. Salt makes the water heavy."),
    Quote("d", TEXT.index("They are called"), "They are called spolia. The arch of Constantine is full of them."),
)
ITEM = Item("q", "?", gold=tuple((quote,) for quote in QUOTES))
SPLITTERS: tuple[Splitter, ...] = (
    Sentences(),
    Paragraphs(),
    SlidingWindow(size=18, overlap=8),
    TokenWindow(size=7, overlap=0),
    RecursiveCharacters(size=20, overlap=0),
)
PERFECT_IS_ONE = (
    "R@9", "full@9", "Hit@9", "MRR", "MRR@9", "MAP", 'MAP(rule="ragas")', "nDCG@9", 'nDCG@9(rule="exponential")',
    "Rprec", "SetP", "SetR", "SetF1",
)  # fmt: skip


def of(text: str) -> Measure:
    measure = parse_measure(text)
    assert isinstance(measure, Measure)
    return measure


def nodes_of(splitter: Splitter, text: str = TEXT) -> list[Node]:
    part = Part(Node("d", text, "d", "document", Span(0, len(text))), Document("d", text))
    return [
        Node(f"n{number}", piece.text, "d", "x", Span(piece.start or 0, (piece.start or 0) + len(piece.text)))
        for number, piece in enumerate(splitter(part))
    ]


def ranking(nodes: Sequence[Node]) -> Ranking:
    return Ranking(Query("?"), tuple(Hit(node, 100.0 - rank) for rank, node in enumerate(nodes)))


def node_at(start: int, end: int, document: str = "d") -> Node:
    return Node(f"{document}{start}-{end}", "", document, span=Span(start, end))


def nodes_needed(nodes: Sequence[Node], quotes: Sequence[Quote]) -> list[Node]:
    """What a perfect retriever finds: for each quote in turn the nodes that add to it, and no other."""
    found_nodes: list[Node] = []
    for quote in quotes:
        unseen = {n for n in range(quote.start, quote.end) if not TEXT[n].isspace()}
        for node in nodes:
            assert node.span is not None
            newly_covered = unseen & set(range(node.span.start, node.span.end))
            if newly_covered and node not in found_nodes:
                found_nodes.append(node)
            unseen -= newly_covered
        assert not unseen
    return found_nodes


@check_each("written", PERFECT_IS_ONE)
@check_each("splitter", SPLITTERS)
def test_who_finds_exactly_the_gold_scores_1_whatever_it_was_cut_into(splitter: Splitter, written: str) -> None:
    for quotes in (QUOTES, QUOTES[:1], QUOTES[1:]):
        item = ITEM.but(gold=tuple((quote,) for quote in quotes))
        nodes = nodes_needed(nodes_of(splitter), quotes)
        assert of(written).score(ranking(nodes), item) == pytest.approx(1.0)


def test_the_splitters_cut_differently_and_through_the_quotes() -> None:
    cut = [[node.text for node in nodes_of(splitter)] for splitter in SPLITTERS]
    assert len({tuple(spans) for spans in cut}) == len(SPLITTERS)
    assert sum(len(nodes_needed(nodes_of(splitter), QUOTES)) > 2 for splitter in SPLITTERS) >= 3


QUOTE = Quote("d", 10, "abcd efgh")  # 10 to 19, eight letters and a blank
ONE = Item("q", "?", gold=((QUOTE,),))


@check_each(
    ("written", "found", "score"),
    [
        ("R@1", [node_at(10, 19)], 1.0),
        ("R@1", [node_at(0, 100)], 1.0),
        ("R@1", [node_at(10, 18)], 0.0),
        ("R@1", [node_at(10, 19, "other")], 0.0),
        ("R@2", [node_at(0, 14), node_at(14, 30)], 1.0),
        ("R@2", [node_at(0, 14), node_at(15, 30)], 1.0),  # what is between is a blank
        ("R@2", [node_at(0, 13), node_at(15, 30)], 0.0),
        ("R@1", [node_at(0, 14), node_at(14, 30)], 0.0),
        ("R@1(share=0.5)", [node_at(0, 14)], 1.0),
        ("R@1(share=0.5)", [node_at(0, 13)], 0.0),
        ("R@1(share=0)", [node_at(18, 30)], 1.0),
        ("R@1(share=0)", [node_at(19, 30)], 0.0),
        ("R@1(share=0)", [node_at(14, 15)], 0.0),  # a blank is nothing
        ("MRR", [node_at(50, 60), node_at(10, 19)], 1 / 2),
        ("MRR", [node_at(0, 14), node_at(50, 60), node_at(14, 30)], 1 / 2),  # the first part takes no place of its own
        ("MRR", [node_at(0, 14), node_at(50, 60)], 0.0),
        ("MRR@2", [node_at(0, 14), node_at(50, 60), node_at(14, 30)], 0.0),
        ("MRR", [node_at(0, 14), node_at(0, 14), node_at(14, 30)], 1 / 2),  # the same again keeps its place
        ("P@2", [node_at(10, 19), node_at(10, 19)], 1 / 2),
        ("SetP", [node_at(0, 14), node_at(14, 19)], 1.0),
        ("Hit@1", [node_at(9, 20)], 1.0),
        ("MAP", [node_at(0, 14), node_at(14, 19), node_at(50, 60)], 1.0),
    ],
)
def test_by_hand(written: str, found: list[Node], score: float) -> None:
    assert of(written).score(ranking(found), ONE) == pytest.approx(score)


def test_one_node_may_hold_two_quotes() -> None:
    item = Item("q", "?", gold=((Quote("d", 0, "abc"),), (Quote("d", 10, "xyz"),)))
    assert of("R@1").score(ranking([node_at(0, 20)]), item) == 1.0
    assert of("nDCG@5").score(ranking([node_at(0, 20)]), item) == 1.0
    assert of("R@1").score(ranking([node_at(0, 12)]), item) == 0.5


def test_any_quote_of_a_group_will_do_and_passages_may_stand_beside_them() -> None:
    item = Item("q", "?", gold=((Quote("d", 0, "abc"), Quote("e", 5, "abc")), ("p",)))
    assert of("R@1").score(ranking([node_at(5, 8, "e")]), item) == 0.5
    assert of("full@2").score(ranking([node_at(5, 8, "e"), node_at(0, 1, "p")]), item) == 1.0


def test_grades_are_those_of_the_quotes() -> None:
    first, second = Quote("d", 0, "abc"), Quote("d", 10, "xyz")
    item = Item("q", "?", gold=((first,), (second,)), grades=((str(first), 3.0), (str(second), 1.0)))
    by_id = Item("q", "?", gold=(("a",), ("b",)), grades=(("a", 3.0), ("b", 1.0)))
    nodes, ids = [node_at(10, 13), node_at(0, 3)], [node_at(0, 1, "b"), node_at(0, 1, "a")]
    assert of("nDCG@5").score(ranking(nodes), item) == of("nDCG@5").score(ranking(ids), by_id) != 1.0


def test_a_text_without_a_place_counts_where_it_holds_the_quote() -> None:
    node = Node("n", "… abcd efgh …", "d")
    assert of("R@1").score(ranking([node]), ONE) == 1.0
    assert of("R@1").score(ranking([Node("n", "abcd", "d")]), ONE) == 0.0


def test_citations_are_places_too() -> None:
    def citing(*spans: tuple[int, int]) -> Answer:
        return Answer("…", tuple(Citation("1", "n", "d", "d.txt", "", Span(*span)) for span in spans))

    assert of("CiteP").score(citing((10, 14), (15, 19)), ONE) == 1.0
    assert of("CiteP").score(citing((10, 19), (40, 50)), ONE) == 0.5
    assert of("CiteR").score(citing((10, 14)), ONE) == 0.0
    assert of("CiteR(share=0.5)").score(citing((10, 14)), ONE) == 1.0
    assert of("R@1").score(citing((10, 19)), ONE) == 1.0


THREE = tuple(Quote("d", start, text) for start, text in ((0, "a" * 50), (50, "b" * 50), (200, "c" * 50)))
OF_RANKS = ("MRR", "MAP", "nDCG@5", 'nDCG@5(rule="exponential")', "Rprec", "SetP", "SetF1", "P@3", "R@9", "full@9")


@check_each("written", OF_RANKS)
@check_each("before", [[], [node_at(300, 350)]])
@check_each("grades", [(), (1.0, 3.0, 2.0)])
def test_a_node_that_holds_two_quotes_is_worth_two_that_hold_one_each(
    written: str, before: list[Node], grades: tuple[float, ...]
) -> None:
    item = Item("q", "?", gold=tuple((quote,) for quote in THREE))
    item = item.but(grades=tuple(zip(map(str, THREE), grades, strict=True) if grades else ()))
    best_first = [node_at(50, 100), node_at(0, 50)] if grades else [node_at(0, 50), node_at(50, 100)]
    for later_nodes in ([], [node_at(200, 250)]):
        quote, two = ([*before, *nodes, *later_nodes] for nodes in ([node_at(0, 100)], best_first))
        assert of(written).score(ranking(quote), item) == pytest.approx(of(written).score(ranking(two), item))


def test_what_is_all_in_the_first_k_nodes_is_found_there() -> None:
    item = Item("q", "?", gold=tuple((entry,) for entry in THREE))
    assert [of(entry).score(ranking([node_at(0, 250)]), item) for entry in ("R@1", "full@1", "Hit@1")] == [
        1.0,
        1.0,
        1.0,
    ]


def test_quotes_of_one_group_in_one_node_are_one_place() -> None:
    moons = tuple(Quote("d", 10 * n, "moon") for n in range(5))
    item = Item("q", "?", gold=(moons, (Quote("d", 100, "sun"),)))
    assert of("nDCG@5").score(ranking([node_at(0, 60), node_at(90, 110)]), item) == 1.0
    assert of("P@5").score(ranking([node_at(0, 60), node_at(90, 110)]), item) == 2 / 5


def test_wrong_citations_count_one_by_one() -> None:
    cited = tuple(Citation("1", "n", "d", "d.txt", "", Span(*span)) for span in ((10, 19), (40, 50), (60, 70)))
    assert of("CiteP").score(Answer("…", cited), ONE) == pytest.approx(1 / 3)


def test_a_ranking_is_looked_through_once_for_all_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_nodes = list[Node]()
    found_ranking = ranking([node_at(0, 14), node_at(50, 60), node_at(14, 30)])

    def looked_at(hit: Hit) -> GoldPlace:
        seen_nodes.append(hit.node)
        return GoldPlace(hit.node.document, hit.node.span)

    monkeypatch.setattr(GoldPlace, "from_hit", looked_at)
    for measure_name in (*PERFECT_IS_ONE, *OF_RANKS):
        of(measure_name).score(found_ranking, ONE)
    assert len(seen_nodes) == len(found_ranking)


@check_each("share", ["1.5", "2"])
@check_each("name", ["R@5", "MRR", "Rprec", "CiteP"])
def test_a_share_that_cannot_be_is_refused(name: str, share: str) -> None:
    with pytest.raises(MeasureError, match="Write a number from 0 to 1"):
        parse_measure(f"{name}(share={share})")


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), max_size=8), st.integers(1, 5))
def test_more_places_never_find_less(spans: list[tuple[int, int]], k: int) -> None:
    found_ranking = ranking([node_at(start, start + length) for start, length in spans])
    item = ONE.but(gold=((QUOTE,), (Quote("d", 25, "later"),)))
    fewer, more = (of(measure_name).score(found_ranking, item) for measure_name in (f"R@{k}", f"R@{k + 1}"))
    assert fewer is not None
    assert more is not None
    assert fewer <= more
    for measure_name in ("MRR", "MAP", "nDCG@3", "Rprec", "SetF1", "P@4"):
        score = of(measure_name).score(found_ranking, item)
        assert score is not None
        assert 0 <= score <= 1
