"""What flows that search again and again show of what they have found."""

from __future__ import annotations

import pytest

from spolia.flows.evidence import CHARACTERS, Gathered, show_newest
from spolia.types import Hit, Node, Query, Ranking

LONG = "long " * (CHARACTERS // 20)  # a quarter of a prompt


def ranking_of(*names: str, text: str = LONG) -> Ranking:
    return Ranking(Query("Who?"), tuple(Hit(Node(name, f"{name} {text[: -len(name) - 1]}"), 1.0) for name in names))


def test_what_was_found_last_is_shown_with_its_number() -> None:
    state = Gathered(ranking_of("a", "b", "c")).add_entry("again", new=ranking_of("d", "e", "f"))
    assert [text.split()[:2] for text in state.prompt_places()["passages"]] == [
        ["[3]", "c"],
        ["[4]", "d"],
        ["[5]", "e"],
        ["[6]", "f"],
    ]


def test_all_are_shown_where_they_fit_and_one_in_any_case() -> None:
    assert len(show_newest(ranking_of("a", "b", text="short"))) == 2
    assert [text.split()[1] for text in show_newest(ranking_of("a", "b", text=LONG * 5))] == ["b"]
    assert show_newest(ranking_of()) == ()


def test_passages_that_are_left_out_are_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []

    def prepare(text: str) -> str:
        prepared.append(text[:1])
        return text

    monkeypatch.setattr("spolia.generation.prompt.escape_citations", prepare)
    show_newest(ranking_of("a", "b", "c", "d", "e", "f"))
    assert "".join(prepared) == "cdef"  # a place would be a text of its own: these have none
