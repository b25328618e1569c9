"""`spolia flows`: what is published, with a bound on calls for each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.flows.catalogue import MODULES

from .conftest import Spolia


@pytest.mark.slow
def test_every_published_flow_is_listed_with_a_bound_on_its_calls(spolia: Spolia) -> None:
    ran = spolia("flows", "--json")
    assert ran.code == 0
    rows = json.loads(ran.out)
    assert [row["name"] for row in rows] == list(MODULES)
    assert all(row["max_calls"] >= 1 for row in rows)
    assert all(row["source"] and row["stop_reasons"] for row in rows)


@pytest.mark.slow
def test_check_says_what_a_published_flow_needs_with_the_numbers_of_the_list(spolia: Spolia) -> None:
    listed = {row["name"]: row for row in json.loads(spolia("flows", "--json").out)}
    for name in ("naive", "self-rag", "prefrag", "dr-rag"):
        output = spolia("check", name, "--json").json
        assert output["calls"] == output["max_calls"] == listed[name]["max_calls"]
        assert output["stop_reasons"] == listed[name]["stop_reasons"]
    assert spolia("check", "prefrag", "--json").json["needs"] == ["llm", "search", "web"]
    naive = spolia("check", "naive", "--json").json
    assert (naive["needs"], naive["may_have"]) == (["search"], ["llm"])
    message = " ".join(spolia("check", "self-rag").out.split())
    assert "needs a language model: --llm URL --model NAME. It must be able to: chat, logprobs, next_tokens." in message
    assert "ends answered, abstained" in message
    assert "needs" not in spolia("check", "bm25", "--json").json


def test_a_misspelt_flow_is_answered_with_the_nearest_one(spolia: Spolia) -> None:
    for text, meant in (("corga", "corag"), ("Self-RAG", "self-rag"), ("irkot", "ircot")):
        assert f"There is no flow '{text}'. Did you mean {meant}" in spolia("check", text).err
    assert "Did you mean" not in spolia("check", "xyzzyx").err


def test_a_flow_file_that_does_not_exist_is_answered_with_its_neighbours(spolia: Spolia, tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("Identity")
    output = spolia("check", tmp_path / "spaec.yaml").err
    assert f"spaec.yaml does not exist. Did you mean {tmp_path / 'space.yaml'}? Else write bm25, dense" in output
    assert "one that `spolia flows` lists" in output
    assert "wikichat" not in output
