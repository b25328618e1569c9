"""What links the nodes of a graph: the same links always, both ways, as the formulas say."""

from __future__ import annotations

import math
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from spolia.core.function import step
from spolia.errors import GroupError, WiringError
from spolia.filters import Field
from spolia.indexing.sync.sync import sync
from spolia.indexing.transforms.rule_entities import RuleEntities
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.graph import links
from spolia.retrieval.graph.edges import Belonging, Edges, InOrder, SharedEntities, Similar
from spolia.retrieval.graph.links import Having, Links, NodePairs, link_sharing_nodes, nearest
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.graph.walk import Hops
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Part, Piece, Pieces
from spolia.stores.files import LINKS
from spolia.stores.vectors.placement import PlacedVectors
from spolia.testing import HashingEmbedder
from spolia.types import Query
from tests.group_fixtures import Cut, store_texts

EMBEDDER = HashingEmbedder(32)
Found = dict[tuple[str, str], float]


@step
def words(part: Part) -> Pieces:
    """Words in capitals, as entities."""
    names = dict.fromkeys(word.strip(".") for word in part.node.text.split() if word.isupper())
    return tuple(Piece(name, meta=(("entity", name.lower()),)) for name in names)


GROUPS = {
    "section": Definition(Cut("\n")),
    "chunk": Definition(Cut("|"), parent="section"),
    "entity": Definition(words, parent="chunk"),
}
TEXTS = {"a": "ROME built|PARIS and ROME\nlast line", "b": "PARIS sleeps|OSLO wakes|all wake"}


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    with tempfile.TemporaryDirectory() as folder:
        yield store_texts(Path(folder) / "s.spolia", TEXTS, GROUPS, EMBEDDER)


def links_by_texts(corpus: Corpus, *edges: Edges) -> Found:
    """The links by the texts of the nodes, each way."""
    snapshot = corpus.snapshot()
    links = NodeGraph(corpus.group("chunk"), edges).links(snapshot)
    texts = [node.text for node in snapshot.nodes(links.keys.tolist(), frozenset())]
    return {
        (texts[source], texts[target]): weight
        for source, target, weight in zip(links.sources, links.targets.tolist(), links.weights.tolist(), strict=True)
    }


@pytest.mark.slow
def test_nodes_follow_each_other_within_a_document(corpus: Corpus) -> None:
    pairs = [
        ("ROME built", "PARIS and ROME"), ("PARIS and ROME", "last line"),
        ("PARIS sleeps", "OSLO wakes"), ("OSLO wakes", "all wake"),
    ]  # fmt: skip
    assert links_by_texts(corpus, InOrder()) == dict.fromkeys([*pairs, *((b, a) for a, b in pairs)], 1.0)


def test_nodes_of_one_section_belong_together(corpus: Corpus) -> None:
    pairs = [("ROME built", "PARIS and ROME"), *combinations(TEXTS["b"].split("|"), 2)]
    assert links_by_texts(corpus, Belonging("section")) == dict.fromkeys([*pairs, *((b, a) for a, b in pairs)], 1.0)
    few = links_by_texts(corpus, Belonging("section", most=2))
    assert set(few) == {("ROME built", "PARIS and ROME"), ("PARIS and ROME", "ROME built")}
    assert len(links_by_texts(corpus, Belonging("document"))) == 6 + 6


def test_nodes_that_share_an_entity_are_linked_by_how_rare_it_is(corpus: Corpus) -> None:
    def idf(spread: int) -> float:
        return math.log(1 + (6 - spread + 0.5) / (spread + 0.5))

    rome, paris = idf(2) ** 2, idf(2) ** 2
    linked = links_by_texts(corpus, SharedEntities())
    assert linked[("ROME built", "PARIS and ROME")] == pytest.approx(rome / (idf(2) * math.sqrt(rome + paris)))
    assert set(linked) == {
        ("ROME built", "PARIS and ROME"), ("PARIS and ROME", "ROME built"),
        ("PARIS and ROME", "PARIS sleeps"), ("PARIS sleeps", "PARIS and ROME"),
    }  # fmt: skip
    assert links_by_texts(corpus, SharedEntities(most=1)) == {}
    assert links_by_texts(corpus, SharedEntities(field="person")) == {}


def test_whole_documents_that_share_an_entity_are_linked(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name, text in {"a": "Carsten Olsen built.", "b": "It was Carsten Olsen.", "c": "Nobody."}.items():
        (tmp_path / "docs" / f"{name}.txt").write_text(text)
    corpus = Corpus(str(tmp_path / "s.spolia"))
    sync(tmp_path / "docs", corpus)
    corpus.group("entity", Definition(RuleEntities()))
    flow = BM25(corpus.group("document")) >> Hops(NodeGraph(corpus.group("document"), (SharedEntities(),)))
    ranking = flow(Query("built"))  # the groups are built at their first use
    assert [hit.node.text for hit in ranking.hits] == ["Carsten Olsen built.", "It was Carsten Olsen."]


def test_similar_nodes_are_linked_by_the_cosine_of_their_vectors(corpus: Corpus) -> None:
    texts = [text for lines in TEXTS.values() for line in lines.split("\n") for text in line.split("|")]
    vectors = EMBEDDER.embed(texts, kind="passage").astype(float)
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -1)
    expected = {}
    for row in range(len(texts)):
        for other_row in np.argsort(-cosines[row], kind="stable")[:2].tolist():
            if cosines[row, other_row] > 0:
                expected[texts[row], texts[other_row]] = expected[texts[other_row], texts[row]] = cosines[
                    row, other_row
                ]
    assert links_by_texts(corpus, Similar(neighbours=2)) == pytest.approx(expected, abs=1e-6)
    threshold = np.mean(sorted(set(expected.values()))[1:3])
    assert links_by_texts(corpus, Similar(neighbours=2, at_least=float(threshold))) == pytest.approx(
        {pair: cosine for pair, cosine in expected.items() if cosine >= threshold}, abs=1e-6
    )


def test_links_of_several_kinds_add_up(corpus: Corpus) -> None:
    several = links_by_texts(corpus, InOrder(weight=0.25), Belonging("section", weight=2.0))
    assert several[("ROME built", "PARIS and ROME")] == 2.25
    assert several[("PARIS and ROME", "last line")] == 0.25
    assert several[("PARIS sleeps", "all wake")] == 2.0


def test_every_link_goes_both_ways_with_one_weight(corpus: Corpus) -> None:
    for edges in ((Similar(1),), (SharedEntities(neighbours=1),), (Belonging("section", neighbours=1),), (InOrder(),)):
        links = links_by_texts(corpus, *edges)
        assert links
        assert links == {(target, source): weight for (source, target), weight in links.items()}


# --------------------------------------------------------------------------------------------------------- the parts


@pytest.mark.slow
@settings(max_examples=60)
@given(
    vectors=arrays(np.float32, st.tuples(st.integers(1, 30), st.just(4)), elements=st.integers(-3, 3).map(float)),
    neighbours=st.integers(1, 6),
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
)
def test_the_nearest_neighbours_do_not_depend_on_the_blocks(
    vectors: np.ndarray[Any, Any], neighbours: int, rows: int, columns: int
) -> None:
    placed = PlacedVectors(np.arange(len(vectors)) * 3, [vectors[::2], vectors[1::2]], _interleaved(len(vectors)))
    lengths = np.linalg.norm(vectors.astype(float), axis=1)
    products = vectors.astype(float) @ vectors.astype(float).T
    cosines = products / np.where(np.outer(lengths, lengths) > 0, np.outer(lengths, lengths), 1)
    np.fill_diagonal(cosines, -np.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "ROWS", rows)
        patch.setattr(links, "COLUMNS", columns)
        pairs = nearest(placed, placed.keys, neighbours).pairs(0.0)
    weights = dict(
        zip(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True), pairs.weight.tolist(), strict=True)
    )
    assert len(weights) == len(pairs.first)
    for row in range(len(vectors)):
        best = sorted(cosines[row][cosines[row] > 1e-9].tolist(), reverse=True)[:neighbours]
        mine = sorted((w for (source, _), w in weights.items() if source == row), reverse=True)
        assert mine == pytest.approx(best, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=150)
@given(
    vectors=arrays(np.float32, st.tuples(st.integers(2, 24), st.just(3)), elements=st.integers(-2, 2).map(float)),
    neighbours=st.integers(1, 4),
    gone=st.sets(st.integers(0, 23), max_size=6),
    born=st.integers(0, 8),
    block=st.integers(1, 9),
    spare=st.integers(0, 9),
)
def test_neighbours_that_are_followed_are_those_that_are_found_anew(
    vectors: np.ndarray[Any, Any], neighbours: int, gone: set[int], born: int, block: int, spare: int
) -> None:
    """Vectors of few different numbers: many cosines are equal, and equal ones go by key."""

    def placed(rows: list[int]) -> PlacedVectors:
        return PlacedVectors(np.array(rows, dtype=np.int64) * 7, [vectors], np.array(rows, dtype=np.int64))

    first = placed(list(range(max(1, len(vectors) - born))))
    then = placed([row for row in range(len(vectors)) if row not in gone] or [0])
    previous_neighbours = nearest(first, first.keys, neighbours + spare)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "ROWS", block)
        patch.setattr(links, "COLUMNS", block + 1)
        followed = nearest(then, then.keys, neighbours, previous_neighbours)
    anew = nearest(then, then.keys, neighbours)
    for name in ("keys", "near", "cosines"):
        assert getattr(followed, name).tobytes() == getattr(anew, name).tobytes(), name


def _interleaved(count: int) -> np.ndarray[Any, Any]:
    """Rows of two segments put one below the other, in the order of the vectors."""
    even = (count + 1) // 2
    return np.array([row // 2 if row % 2 == 0 else even + row // 2 for row in range(count)], dtype=np.int64)


@pytest.mark.slow
@settings(max_examples=100)
@given(sets=st.lists(st.frozensets(st.integers(0, 6), max_size=4), min_size=1, max_size=12), most=st.integers(1, 6))
def test_sharing_is_the_cosine_of_the_sets(sets: list[frozenset[int]], most: int) -> None:
    nodes = np.array([node for node, labels in enumerate(sets) for _ in labels], dtype=np.int64)
    labels = np.array([label for labels_of_node in sets for label in sorted(labels_of_node)], dtype=np.int64)
    pairs = link_sharing_nodes(Having(nodes, labels), len(sets), 99, most)
    got = dict(zip(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True), pairs.weight.tolist(), strict=True))
    spread = {label: sum(label in labels_of_node for labels_of_node in sets) for label in range(7)}
    kept_labels = [{label for label in labels_of_node if spread[label] <= most} for labels_of_node in sets]
    square = {label: math.log1p((len(sets) - n + 0.5) / (n + 0.5)) ** 2 for label, n in spread.items()}
    expected = {}
    for source, target in combinations(range(len(sets)), 2):
        if both_have := kept_labels[source] & kept_labels[target]:
            lengths = [math.sqrt(sum(square[label] for label in kept_labels[node])) for node in (source, target)]
            expected[source, target] = expected[target, source] = sum(map(square.__getitem__, both_have)) / math.prod(
                lengths
            )
    assert got == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.125, 2, width=32)), max_size=20),
    allowed=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_links_are_symmetric_and_those_of_hidden_nodes_are_gone(
    pairs: list[tuple[int, int, float]], allowed: list[bool]
) -> None:
    columns = [list(column) for column in zip(*pairs, strict=True)] or [[], [], []]
    given_pairs = NodePairs(
        np.array(columns[0], dtype=np.int64), np.array(columns[1], dtype=np.int64), np.array(columns[2], np.float32)
    )
    links = Links.from_pairs(np.arange(6) * 10, [given_pairs])
    expected: dict[tuple[int, int], float] = {}
    for source, target, weight in pairs:
        if source != target:
            for pair in ((source, target), (target, source)):
                expected[pair] = max(weight, expected.get(pair, 0.0))
    assert _by_pair(links) == expected
    mask = np.array(allowed)
    restricted = links.restrict_to(mask)
    assert _by_pair(restricted) == {pair: w for pair, w in expected.items() if mask[pair[0]] and mask[pair[1]]}
    front = np.array([4, 1])
    places, targets, weights = restricted.of_nodes(front)
    assert {
        (int(front[place]), int(to)): w for place, to, w in zip(places, targets, weights.tolist(), strict=True)
    } == {pair: w for pair, w in _by_pair(restricted).items() if pair[0] in (1, 4)}


def _by_pair(links: Links) -> dict[tuple[int, int], float]:
    sources, targets = links.sources.tolist(), links.targets.tolist()
    return dict(zip(zip(sources, targets, strict=True), links.weights.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------------- the file


ALL = (Similar(2), SharedEntities(), Belonging(), InOrder())


def files(corpus: Corpus) -> list[Path]:
    return sorted((Path(corpus.path) / LINKS).glob("*/*"))


def content(corpus: Corpus, edges: tuple[Edges, ...] = ALL) -> tuple[bytes, ...]:
    snapshot = corpus.snapshot()
    snapshot.derived.clear()
    links = NodeGraph(corpus.group("chunk"), edges).links(snapshot)
    return tuple(np.asarray(part).tobytes() for part in (links.keys, links.starts, links.targets, links.weights))


@pytest.mark.slow
def test_the_same_generation_gives_the_same_file(tmp_path: Path) -> None:
    corpus = store_texts(tmp_path / "s.spolia", TEXTS, GROUPS, EMBEDDER)
    first = content(corpus)
    (path,) = files(corpus)
    path.unlink()
    assert content(corpus) == first
    assert files(corpus) == [path]
    content(corpus, (InOrder(),))
    assert len(files(corpus)) == 2


@pytest.mark.slow
def test_a_graph_is_read_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = store_texts(tmp_path / "s.spolia", TEXTS, GROUPS, EMBEDDER)
    first = content(corpus)
    monkeypatch.setattr("spolia.retrieval.graph.build.GraphBuild.links", lambda *_: pytest.fail("built again"))
    assert content(corpus) == first


HEADERS = {
    "8 TB": "{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,)}",
    "nested": "(" * 9_000,
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
}


ODD: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "words as weights": ("weights", lambda links: np.full(len(links), "a" * 100)),
    "no numbers as weights": ("weights", lambda links: np.full_like(links, np.nan)),
    "links to nowhere": ("targets", lambda links: links + 10**6),
    "links from the end": ("targets", lambda links: -links - 1),
    "keys without order": ("keys", lambda links: links[::-1]),
}


def array_with_header(header: str) -> bytes:
    """An array whose header says this."""
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header.encode() + bytes(64)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut off", "changed", "empty", "text", "other sizes", "compressed", *HEADERS, *ODD])
def test_a_damaged_file_is_built_again(tmp_path: Path, damage: str) -> None:
    corpus = store_texts(tmp_path / "s.spolia", TEXTS, GROUPS, EMBEDDER)
    first = content(corpus)
    (path,) = files(corpus)
    whole = path.read_bytes()
    if damage in HEADERS:
        with zipfile.ZipFile(path, "w") as file:
            for name in ("keys", "starts", "targets", "weights"):
                file.writestr(f"{name}.npy", array_with_header(HEADERS[damage]))
    elif damage in ODD:
        with np.load(path) as parts:
            arrays = dict(parts)
        name, change = ODD[damage]
        np.savez(path, **{**arrays, name: change(arrays[name])})
    elif damage == "compressed":
        with np.load(path) as parts:
            arrays = {name: np.tile(parts[name], 9) for name in parts}
        np.savez_compressed(path, **arrays)
    elif damage == "other sizes":
        with np.load(path) as parts:
            np.savez(path, **{name: parts[name][:-1] for name in parts})
    else:
        middle = len(whole) // 2
        changed = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
        path.write_bytes({"cut off": whole[:middle], "changed": changed, "empty": b"", "text": b"links"}[damage])
    assert content(corpus) == first
    assert path.read_bytes() == whole


@pytest.mark.slow
def test_a_later_generation_compares_what_is_new_and_is_as_if_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {f"{number}": f"STONE {number} of ROME|WALL {number % 5} and SEA" for number in range(30)}
    corpus = store_texts(tmp_path / "s.spolia", texts, GROUPS, EMBEDDER)
    content(corpus)
    compared: list[int] = []
    exactly = links._exact_cosines

    def counting(mine: Any, my_rows: Any, theirs: Any, their_rows: Any) -> Any:
        compared.append(len(mine) * len(theirs))
        return exactly(mine, my_rows, theirs, their_rows)

    with corpus.writer() as writer:
        writer.remove("7.txt")
    monkeypatch.setattr(links, "_exact_cosines", counting)
    followed, compared_count = content(corpus), sum(compared)
    for path in files(corpus):
        path.unlink()
    compared.clear()
    assert content(corpus) == followed
    assert 0 < compared_count < sum(compared) / 2


@pytest.mark.slow
def test_a_later_generation_has_its_own_graph_and_the_old_file_goes(tmp_path: Path) -> None:
    corpus = store_texts(tmp_path / "s.spolia", TEXTS, GROUPS, EMBEDDER)
    content(corpus, (InOrder(),))
    (old,) = files(corpus)
    for uri in ("a.txt", "b.txt"):
        with corpus.writer() as writer:
            writer.remove(uri)
        corpus.snapshot()  # from now on nobody looks at the one before
    with corpus.writer() as writer:
        writer.declare((Field("lang"),))
    assert links_by_texts(corpus, InOrder()) == {}
    assert old not in files(corpus)
    assert len(files(corpus)) == 1


@pytest.mark.slow
def test_a_store_that_cannot_be_written_is_searched_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = store_texts(tmp_path / "s.spolia", TEXTS, GROUPS, EMBEDDER)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spolia.retrieval.array_files.fsync", full)
    first = content(corpus)
    assert files(corpus) == []
    monkeypatch.undo()
    assert content(corpus) == first


# ------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.slow
def test_what_cannot_be_linked_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    chunks = corpus.group("chunk")
    with pytest.raises(GroupError, match="'section' is not made from 'chunk'"):
        NodeGraph(chunks, (SharedEntities(group="section"),)).links(corpus.snapshot())
    with pytest.raises(GroupError, match="'chunk' is not made from 'entity'"):
        NodeGraph(chunks, (Belonging("entity"),)).links(corpus.snapshot())
    plain = store_texts(tmp_path / "s.spolia", TEXTS, GROUPS)
    with pytest.raises(WiringError, match="has no vectors"):
        NodeGraph(plain.group("chunk"), (Similar(),)).links(plain.snapshot())
    with pytest.raises(WiringError, match="without edges"):
        NodeGraph(chunks, ())
    for bad in (lambda: Similar(neighbours=0), lambda: InOrder(weight=0), lambda: SharedEntities(most=0)):
        with pytest.raises(WiringError):
            bad()


def test_an_address_names_its_store(corpus: Corpus) -> None:
    graph = NodeGraph(corpus.group("chunk"), (InOrder(),))
    assert graph.scoped
    assert graph.fingerprint() == corpus.fingerprint()
    with Run():
        assert graph.links(corpus.snapshot()) is graph.links(corpus.snapshot())
