"""One cut-off with one meaning, and the forms in which a ranking is handed out."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import WiringError
from spolia.post_retrieval.presentation import AsDicts, AsNodes, AsText
from spolia.post_retrieval.selection import Cut
from spolia.types import Hit, Node, Query, Ranking, Span


def ranking(*scores: float) -> Ranking:
    return Ranking(
        Query("?"), tuple(Hit(Node(str(index), f"text {index}"), score) for index, score in enumerate(scores))
    )


@pytest.mark.slow
@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 0.3, 0.30000001, 1.0]), max_size=6),
    top_k=st.none() | st.integers(1, 7),
    at_least=st.none() | st.sampled_from([-1.0, 0.0, 0.3, 2.0, -math.inf]),
)
def test_a_cut_keeps_what_is_at_least_as_good(scores: list[float], top_k: int | None, at_least: float | None) -> None:
    full = ranking(*sorted(scores, reverse=True))
    cut = Cut(top_k, at_least)(full)
    assert list(cut.hits) == [hit for hit in full.hits[:top_k] if at_least is None or hit.score >= at_least]


def test_what_cannot_be_cut_at_is_refused() -> None:
    with pytest.raises(WiringError, match="top_k counts from 1"):
        Cut(0)
    with pytest.raises(WiringError, match="NaN"):
        Cut(at_least=math.nan)


def test_nodes_text_and_dicts() -> None:
    meta = (("lang", "en"), ("tag", "a"), ("tag", "b"), ("none", None))
    node = Node(
        "n", "Tides.", "d", span=Span(0, 6, pages=(2, 3)), uri="a.pdf", context="Sea", meta=meta, readers=("ann",)
    )
    two_hits = Ranking(Query("?"), (Hit(node, 0.5), Hit(Node("m", "Salt."), 0.25)))
    assert AsNodes()(two_hits) == two_hits.nodes
    assert (AsText()(two_hits), AsText(join="|")(two_hits), AsText()(ranking())) == (
        "Tides.\n\nSalt.",
        "Tides.|Salt.",
        "",
    )
    first, second = AsDicts()(two_hits)
    assert first == {
        "id": "n", "score": 0.5, "text": "Tides.", "uri": "a.pdf",
        "meta": {"lang": "en", "tag": ["a", "b"], "none": None},
    }  # fmt: skip
    assert second["meta"] == {}
    rest = AsDicts(("rank", "pages", "lines", "context", "group", "document", "parent", "number"))(two_hits)
    assert rest[0] == {
        "rank": 1, "pages": [2, 3], "lines": None, "context": "Sea", "group": "chunk", "document": "d", "parent": "",
        "number": 0,
    }  # fmt: skip
    assert rest[1]["rank"] == 2
    assert json.loads(json.dumps(rest)) == list(rest)


def test_a_field_that_a_hit_has_not_is_refused() -> None:
    with pytest.raises(WiringError, match="no field 'readers'"):
        AsDicts(("id", "readers"))
