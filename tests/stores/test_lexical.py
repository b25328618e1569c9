"""Search by words among some nodes: whichever way it is done, what is found is what is left of the whole ranking."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from spolia.stores import files
from spolia.stores.access.allowed_nodes import Allowed, Mask
from spolia.stores.lexical import index
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.lexical.index import Lexical
from spolia.stores.lexical.index_writer import freeze

NODES, TOP_K = 6_000, 10
KEYS = np.arange(NODES, dtype=np.int64) * 3 + 7
QUESTIONS = ("w1", "w2 w40", "w300 w2 w7", "w90 w91 w92 w93", "nowhere", "w0 w0 w700")


@pytest.fixture(scope="module")
def lexical(tmp_path_factory: pytest.TempPathFactory) -> Lexical:
    draw = np.random.default_rng(0)
    drawn = np.minimum(draw.zipf(1.3, (NODES, 12)) - 1, 999)
    texts = (" ".join(f"w{term}" for term in terms) for terms in drawn)
    nodes = ((key, text, key % 2) for key, text in zip(KEYS.tolist(), texts, strict=True))
    folder = tmp_path_factory.mktemp("store") / "lexical" / "chunk" / "g1"
    freeze(folder, None, (), nodes, Analyzer(""))
    return Lexical(folder, Analyzer(""))


def masks() -> dict[str, Mask]:
    draw, at = np.random.default_rng(1), np.arange(NODES)
    shares = {f"{share:.1%} of all": draw.random(NODES) < share for share in (0.9, 0.2, 0.06, 0.01, 0.001)}
    return shares | {
        "one run": (at >= 1_000) & (at < 4_000),
        "first and last": (at < 500) | (at == NODES - 1),
        "as many runs as can be": (at % 1_000 < 700),
        "all": at >= 0,
        "none": at < 0,
    }


def expected(lexical: Lexical, question: str, mask: npt.NDArray[np.bool_]) -> list[tuple[int, float]]:
    allowed = set(KEYS[mask].tolist())
    return [pair for pair in lexical.search(question, NODES) if pair[0] in allowed][:TOP_K]


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
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("few", [index.FEW, NODES])
def test_what_is_allowed_is_found_among_what_may_be_read(
    lexical: Lexical, few: int, every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FEW", few)
    for mask in masks().values():
        allowed = set(KEYS[mask].tolist())
        for question in QUESTIONS:
            ranking = lexical.search(question, NODES, {1}, every=every)
            assert all(key % 2 for key, _ in ranking)
            found = lexical.search(question, TOP_K, {1}, Allowed(KEYS, mask), every=every)
            assert found == [pair for pair in ranking if pair[0] in allowed][:TOP_K]


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
    nodes = [(key, f"w{key % 7} w{key % 3} w{key % 2 + 8}", 0) for key in range(1, 301)]
    gone = [key for key in range(1, 301) if key % 7 == 1 and key < 280]
    freeze(tmp_path / "g1", None, (), nodes, Analyzer(""))
    freeze(tmp_path / "g2", tmp_path / "g1", gone, [(301, "w1 w1 w9", 0)], Analyzer(""))
    left = [node for node in nodes if node[0] not in gone]
    freeze(tmp_path / "anew", None, (), [*left, (301, "w1 w1 w9", 0)], Analyzer(""))
    used, anew = Lexical(tmp_path / "g2", Analyzer("")), Lexical(tmp_path / "anew", Analyzer(""))
    for question in ("w1", "w1 w2", "w5 w9 w9", "w8"):
        expected = dict(anew.search(question, 400))
        assert dict(used.search(question, 400)) == pytest.approx(expected, rel=1e-5)
    assert used._righted["w1"] > 1.2


def test_a_worn_index_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [(key, f"w{key}", 0) for key in range(100)]
    freeze(tmp_path / "g1", None, (), nodes, Analyzer(""))
    freeze(tmp_path / "g2", tmp_path / "g1", range(4), [], Analyzer(""))
    assert (files.gone(tmp_path / "g1"), files.gone(tmp_path / "g2")) == (0, 4)
    assert (files.is_worn(tmp_path / "g1", 0), files.is_worn(tmp_path / "g1", 1)) == (False, True)
    monkeypatch.setattr(files, "FEW", 50)
    assert (files.is_worn(tmp_path / "g2", 1), files.is_worn(tmp_path / "g2", 2)) == (False, True)
    (tmp_path / "g2" / "meta.json").write_text("{}")
    assert not files.is_worn(tmp_path / "g2", 100)
