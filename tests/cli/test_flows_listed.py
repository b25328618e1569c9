"""`spolia flows`: what is published, with a bound on calls for each."""

from __future__ import annotations

import json

from spolia.flows.published import MODULES

from .conftest import Spolia


def test_every_published_flow_is_listed_with_a_bound_on_its_calls(spolia: Spolia) -> None:
    ran = spolia("flows", "--json")
    assert ran.code == 0
    rows = json.loads(ran.out)
    assert [row["name"] for row in rows] == list(MODULES)
    assert all(row["max_calls"] >= 1 for row in rows)
    assert all(row["source"] and row["stop_reasons"] for row in rows)


def test_a_misspelt_flow_is_answered_with_the_nearest_one(spolia: Spolia) -> None:
    for written, meant in (("corga", "corag"), ("Self-RAG", "self-rag"), ("irkot", "ircot")):
        assert f"There is no flow '{written}'. The nearest is {meant}. Write one of" in spolia("check", written).err
    assert "The nearest" not in spolia("check", "xyzzyx").err
