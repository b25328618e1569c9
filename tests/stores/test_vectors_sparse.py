"""Sparse vectors: what comes back from a segment, and search by inverted lists beside multiplying everything."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import ModelError, StoreCorrupt
from spolia.models.vectors import SparseRows
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.vectors.sparse import SparseSearch, open_sparse, write_sparse
from tests.cases import check_each

WEIGHTS = st.integers(-8, 8).map(lambda eighths: eighths / 8)  # sums of their products are exact
TEXTS = st.lists(st.dictionaries(st.integers(0, 12), WEIGHTS, max_size=6), min_size=1, max_size=25)


def hashes(count: int) -> list[bytes]:
    return [str(number).encode().ljust(16) for number in range(count)]


@pytest.mark.slow
@settings(max_examples=100)
@given(
    first=TEXTS, second=TEXTS, asked=TEXTS, top_k=st.integers(0, 60), seed=st.integers(0, 99), filtered=st.booleans()
)
def test_it_finds_what_multiplying_all_finds(
    first: list[dict[int, float]],
    second: list[dict[int, float]],
    asked: list[dict[int, float]],
    top_k: int,
    seed: int,
    filtered: bool,
) -> None:
    draw, rows = np.random.default_rng(seed), first + second
    places = draw.integers(0, len(rows), 30)
    keys = np.arange(30) * 2 + 1
    allowed = Allowed(keys, draw.random(30) < 0.4 if filtered else None)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "v" / f"{number}.seg" for number in range(2)]
        for path, part in zip(paths, (first, second), strict=True):
            assert write_sparse(path, "splade", hashes(len(part)), SparseRows.from_weights(part)) == path.stat().st_size
        segments = [open_sparse(path) for path in paths]
        search = SparseSearch(keys, segments, places)
        rankings = search.search(SparseRows.from_weights(asked), top_k, allowed)
        assert [list(segment.hashes) for segment in segments] == [hashes(len(first)), hashes(len(second))]
        for segment, part in zip(segments, (first, second), strict=True):
            assert [segment.rows.weights_of(index) for index in range(len(part))] == part
    for query, ours in zip(asked, rankings, strict=True):
        scores = {
            int(key): sum(weight * query.get(term, 0.0) for term, weight in rows[place].items())
            for key, place, is_held in zip(keys, places, allowed.holds(keys), strict=True)
            if is_held
        }
        assert ours == sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:top_k]


def test_rows_of_several_batches_stand_one_below_the_other() -> None:
    parts = [
        SparseRows.from_weights([{1: 0.5}, {}]),
        SparseRows.from_weights([]),
        SparseRows.from_weights([{0: 1.0, 9: 2.0}]),
    ]
    rows = SparseRows.concatenate(parts)
    assert rows.offsets.tolist() == [0, 1, 1, 3]
    assert rows.row(2)[0].tolist() == [0, 9]
    assert len(SparseRows.concatenate([])) == 0


@check_each(
    ("offsets", "terms", "weights", "said"),
    [
        ([0, 3], [1, 2], [1, 1], "offsets that do not go from 0 to 2"),
        ([0, 2], [1, 2], [1], "2 terms and 1 weights"),
        ([0, 1, 3], [5, 2, 2], [1, 1, 1], "Sparse row 1 holds the term 2"),
        ([0, 1, 3], [5, 3, 2], [1, 1, 1], "Sparse row 1 holds the term 2"),
        ([0, 1], [-1], [1], "Sparse row 0 holds the term -1"),
        ([0, 1, 2], [1, 1], [1, np.nan], "Sparse row 1 .* weight nan"),
        ([0, 1, 2], [1, 1], [np.inf, 1], "Sparse row 0 .* weight inf"),
    ],
)
def test_rows_that_cannot_be_are_refused(offsets: list[int], terms: list[int], weights: list[float], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        SparseRows(np.array(offsets), np.array(terms, np.int32), np.array(weights, np.float32))


def test_damaged_segments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "v" / "1.seg"
    write_sparse(path, "splade", hashes(3), SparseRows.from_weights([{1: 0.5}, {}, {2: 3.0, 7: 1.0}]))
    segment_bytes = path.read_bytes()
    for damaged in (b"", segment_bytes[:-1], segment_bytes[:20], b"SPLVEC01" + segment_bytes[8:]):
        path.write_bytes(damaged)
        with pytest.raises(StoreCorrupt):
            open_sparse(path)
    path.write_bytes(segment_bytes[:-30] + b"\xff" + segment_bytes[-29:])
    with pytest.raises(StoreCorrupt, match="checksum"):
        open_sparse(path)
