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
