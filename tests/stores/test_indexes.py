"""Settings of indexes: what cannot be is refused where it is written."""

from __future__ import annotations

import pytest

from spolia.errors import WiringError
from spolia.stores.indexes import HNSW
from tests.cases import check_each


@check_each("name", ["connectivity", "expansion_add", "expansion_search"])
@check_each("value", [0, -5, 1.5, True, "16"])
def test_what_counts_from_one_does(name: str, value: object) -> None:
    with pytest.raises(WiringError, match=f"{name} counts from 1, and is"):
        HNSW(**{name: value})  # type: ignore[arg-type]


def test_a_graph_may_be_wanted_for_any_number_of_vectors() -> None:
    assert HNSW(above=0).above == 0
    with pytest.raises(WiringError, match="above counts from 0"):
        HNSW(above=-1)
