"""Search by words among some nodes: whichever way it is done, what is found is what is left of the whole ranking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from spolia.stores import files
from spolia.stores.access.allowed_nodes import Allowed, Mask
from spolia.stores.lexical import asker_bm25, index, index_writer
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.lexical.index import Lexical
from spolia.stores.lexical.index_writer import freeze

NODES, TOP_K = 6_000, 10
KEYS = np.arange(NODES, dtype=np.int64) * 3 + 7
QUESTIONS = ("w1", "w2 w40", "w300 w2 w7", "w90 w91 w92 w93", "nowhere", "w0 w0 w700")


def drawn_texts(draw: np.random.Generator, lengths: tuple[int, int]) -> list[str]:
    """Texts of so many words, of which some are in most of them and most in hardly any."""
    term_rows = np.minimum(draw.zipf(1.3, (NODES, lengths[1] - 1)) - 1, 999)
    ends = draw.integers(*lengths, NODES)
    return [" ".join(f"w{term}" for term in terms[:end]) for terms, end in zip(term_rows, ends, strict=True)]


@pytest.fixture(scope="module")
def lexical(tmp_path_factory: pytest.TempPathFactory) -> Lexical:
    draw = np.random.default_rng(0)
    texts = drawn_texts(draw, lengths=(12, 13))
    nodes = zip(KEYS.tolist(), texts, strict=True)
    folder = tmp_path_factory.mktemp("store") / "lexical" / "chunk" / "g1"
    freeze(folder, None, (), nodes, Analyzer(""))
    return Lexical(folder, Analyzer(""))


def masks() -> dict[str, Mask]:
    draw, positions = np.random.default_rng(1), np.arange(NODES)
    shares = {f"{share:.1%} of all": draw.random(NODES) < share for share in (0.9, 0.2, 0.06, 0.01, 0.001)}
    return shares | {
        "one run": (positions >= 1_000) & (positions < 4_000),
        "first and last": (positions < 500) | (positions == NODES - 1),
        "as many runs as can be": (positions % 1_000 < 700),
        "all": positions >= 0,
        "none": positions < 0,
    }


def expected(lexical: Lexical, question: str, mask: npt.NDArray[np.bool_]) -> list[tuple[int, float]]:
    allowed = set(KEYS[mask].tolist())
    return [pair for pair in lexical.search(question, NODES) if pair[0] in allowed][:TOP_K]


@pytest.mark.slow
@pytest.mark.parametrize("bearable", [None, 100])
@pytest.mark.parametrize("few", [index.FEW, 0])
@pytest.mark.parametrize("name", masks())
def test_what_is_allowed_is_found_as_among_all(
    lexical: Lexical, name: str, few: int, bearable: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FEW", few)
    if bearable is not None:
        monkeypatch.setattr(index, "_bearable", lambda count: bearable)
    mask = masks()[name]
    for question in QUESTIONS:
        assert lexical.search(question, TOP_K, None, Allowed(KEYS, mask)) == expected(lexical, question, mask)


@pytest.mark.slow
@pytest.mark.parametrize(("every", "at_once", "entries"), [(False, 10**6, 10**6), (False, 0, 2_000), (True, 0, 10**6)])
def test_what_may_be_read_is_found_as_by_an_index_of_nothing_else(
    tmp_path: Path, every: bool, at_once: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With equal scores, to the last bit; some questions hold common terms that hardly matter, some nothing else.

    Whether all nodes are scored or the best are narrowed down, and whether lists of terms are kept or forgotten.
    """
    monkeypatch.setattr(asker_bm25, "_AT_ONCE", at_once)
    monkeypatch.setattr(asker_bm25, "_ENTRIES", entries)
    texts = drawn_texts(np.random.default_rng(2), lengths=(1, 60))[:2_000]
    nodes, draw = list(enumerate(texts)), np.random.default_rng(3)
    freeze(tmp_path / "all", None, (), nodes, Analyzer(""))
    lexical, keys = Lexical(tmp_path / "all", Analyzer("")), np.arange(len(texts))
    for share in (0.9, 0.5, 0.02, 0.0):
        mask = draw.random(len(keys)) < share
        readable = Allowed(keys, mask)
        freeze(tmp_path / f"{share}", None, (), [nodes[position] for position in readable.positions()], Analyzer(""))
        reference = Lexical(tmp_path / f"{share}", Analyzer(""))
        among = Allowed(keys, mask & (draw.random(len(keys)) < 0.3))
        for question in QUESTIONS:
            ranking = reference.search(question, NODES, require_all=every)
            for top_k in (1, TOP_K, NODES):
                assert lexical.search(question, top_k, readable, require_all=every) == ranking[:top_k]
                memberships = among.holds(key for key, _ in ranking)
                expected = [pair for pair, is_in in zip(ranking, memberships, strict=True) if is_in]
                assert lexical.search(question, top_k, readable, among, require_all=every) == expected[:top_k]


@pytest.mark.slow
def test_what_is_gone_counts_for_nothing_among_what_may_be_read(tmp_path: Path) -> None:
    nodes = list(enumerate(drawn_texts(np.random.default_rng(4), lengths=(1, 60))[:2_000]))
    freeze(tmp_path / "g1", None, (), nodes, Analyzer(""))
    freeze(tmp_path / "g2", tmp_path / "g1", range(0, len(nodes), 40), [], Analyzer(""))
    left = [node for node in nodes if node[0] % 40]
    freeze(tmp_path / "anew", None, (), left, Analyzer(""))
    used, anew = Lexical(tmp_path / "g2", Analyzer("")), Lexical(tmp_path / "anew", Analyzer(""))
    readable = Allowed(np.array([key for key, _ in left]))
    for question in QUESTIONS:
        assert used.search(question, 50, readable) == anew.search(question, 50)


@pytest.mark.slow
def test_an_index_without_lengths_is_given_them_and_made_anew_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = list(enumerate(["w1 w1 w2", "w1 w3 w4 w5", "w2"]))
    with monkeypatch.context() as earlier:
        earlier.setattr(index_writer, "LENGTH", "audience")
        freeze(tmp_path / "g1", None, (), nodes, Analyzer(""))
    assert not files.holds_lengths(tmp_path / "g1")
    assert files.is_worn(tmp_path / "g1", 0)
    readable, texts = Allowed(np.arange(3), np.array([True, True, False])), dict(nodes)
    old = Lexical(tmp_path / "g1", Analyzer(""), lambda keys: [len(texts[key].split()) for key in keys])
    freeze(tmp_path / "g2", None, (), nodes[:2], Analyzer(""))
    assert old.search("w1 w2", 3, readable) == Lexical(tmp_path / "g2", Analyzer("")).search("w1 w2", 3)


def test_runs_of_what_is_allowed() -> None:
    keys = np.array([3, 5, 8, 9, 20])
    assert Allowed(keys).runs(1) == [(3, 20)]
    two = Allowed(keys, np.array([True, True, False, True, False]))
    assert (two.runs(2), two.runs(1)) == ([(3, 5), (9, 9)], None)
    assert Allowed(keys, np.array([False, True, False, True, True])).runs(2) == [(5, 5), (9, 20)]
    assert Allowed(keys, np.zeros(5, dtype=np.bool_)).runs(1) == []


@pytest.mark.slow
def test_terms_weigh_what_they_would_if_what_is_gone_had_never_been(tmp_path: Path) -> None:
    """Of nodes of one length; the mean length is that of all that were ever in the index."""
    nodes = [(key, f"w{key % 7} w{key % 3} w{key % 2 + 8}") for key in range(1, 301)]
    gone = [key for key in range(1, 301) if key % 7 == 1 and key < 280]
    freeze(tmp_path / "g1", None, (), nodes, Analyzer(""))
    freeze(tmp_path / "g2", tmp_path / "g1", gone, [(301, "w1 w1 w9")], Analyzer(""))
    left = [node for node in nodes if node[0] not in gone]
    freeze(tmp_path / "anew", None, (), [*left, (301, "w1 w1 w9")], Analyzer(""))
    used, anew = Lexical(tmp_path / "g2", Analyzer("")), Lexical(tmp_path / "anew", Analyzer(""))
    for question in ("w1", "w1 w2", "w5 w9 w9", "w8"):
        expected = dict(anew.search(question, 400))
        assert dict(used.search(question, 400)) == pytest.approx(expected, rel=1e-5)
    assert used._corrections["w1"] > 1.2


def test_a_worn_index_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [(key, f"w{key}") for key in range(100)]
    freeze(tmp_path / "g1", None, (), nodes, Analyzer(""))
    freeze(tmp_path / "g2", tmp_path / "g1", range(4), [], Analyzer(""))
    assert (files.count_deleted(tmp_path / "g1"), files.count_deleted(tmp_path / "g2")) == (0, 4)
    assert (files.is_worn(tmp_path / "g1", 0), files.is_worn(tmp_path / "g1", 1)) == (False, True)
    monkeypatch.setattr(files, "FEW", 50)
    assert (files.is_worn(tmp_path / "g2", 1), files.is_worn(tmp_path / "g2", 2)) == (False, True)
    (tmp_path / "g2" / "meta.json").write_text("{}")
    assert not files.is_worn(tmp_path / "g2", 100)
