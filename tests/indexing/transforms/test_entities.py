"""Entities by rules: what is one, in several languages, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import WiringError
from spolia.evaluation.data.dataset import DataSet
from spolia.indexing.transforms.rule_entities import (
    ALL,
    Mention,
    RuleEntities,
    capitalises_nouns,
    find_names,
    make_entities,
    normalise_name,
)
from tests.cases import check_each
from tests.indexing.transforms.fixtures import cut_part, whole_part

GERMAN = (
    "Die Hauptstadt der Bundesrepublik ist Berlin. Seit dem Umzug der Regierung im Jahr 1999 arbeitet auch Angela "
    "Merkel dort. Der Bundestag tagt in einem Haus, das der Architekt Norman Foster für die NATO umgebaut hat."
)


def entities_in(text: str, *kinds: str) -> list[str]:
    return [piece.text for piece in RuleEntities(kinds or ALL)(whole_part(text))]  # type: ignore[arg-type]


@check_each(
    ("text", "expected"),
    [
        ("He met Ada Lovelace in Paris.", ["Ada Lovelace", "Paris"]),
        ("Clovis ruled. They say that Clovis made Paris his capital.", ["Clovis", "Paris"]),
        ("Running is healthy. The Running continues.", ["Running"]),
        ("Ships wait. Many ships wait.", []),
        ("The Duke of York and the Center for the Arts met.", ["Duke of York", "Center for the Arts"]),
        ("It was J. R. Smith of the U.S. Army.", ["J. R. Smith of the U.S. Army", "U.S."]),
        ("Crew of Apollo 11, not of apollo 12", ["Crew of Apollo 11"]),
        ("We saw Clovis's crown, a Paris-based firm and O'Brien’s hat.", ["Clovis", "Paris", "O'Brien"]),
        (f"{'so ' * 20}in New\nYork, {'so ' * 20}\n\nNext paragraph.", ["New\nYork"]),
        ('He said: "The dog is in Rome."', ["Rome"]),
        ("Se reunieron en la Cruz del Sur y en Sevilla.", ["Cruz del Sur", "Sevilla"]),
        ("Он жил в городе Москва, а Анна Каренина нет.", ["Москва", "Анна Каренина"]),
        ("AN ANNUAL REPORT ON ALL THE THINGS THAT WE DID IN ONE YEAR", []),
    ],
)
def test_names_are_runs_of_capitals(text: str, expected: list[str]) -> None:
    assert entities_in(text, "name", "acronym") == expected


def test_german_nouns_are_no_names() -> None:
    assert entities_in(GERMAN) == ["1999", "Angela Merkel", "Architekt Norman Foster", "NATO"]


def test_the_language_is_judged_by_the_document_not_by_the_piece() -> None:
    text = GERMAN + " Am Fluss Havel"
    assert RuleEntities()(cut_part(text, len(text) - 8, len(text))) == ()
    assert [piece.text for piece in RuleEntities()(whole_part("at Lake Havel"))] == ["Lake Havel"]


@pytest.mark.parametrize("name", ["xquad_en", "xquad_es", "squad2_dev", "hotpotqa"])
def test_no_passage_of_another_language_is_taken_for_german(shared_datasets: Path, name: str) -> None:
    texts = [document.text for document in DataSet(str(shared_datasets / name)).passages()]
    assert len(texts) >= 200
    assert sum(map(capitalises_nouns, texts)) <= len(texts) / 500  # those that quote a German title, and little else


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the NATO, COVID-19, USB3, PRRs and u.s. but U.N.", ["NATO", "COVID-19", "USB3", "PRRs", "U.N."]),
        ("I am OK", ["OK"]),
        ("A b C", []),
        ("SARS-CoV-2x XMLHttp", []),
    ],
)
def test_acronyms(text: str, expected: list[str]) -> None:
    assert entities_in(text, "acronym") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '“Moby Dick”, „Die Welle“, «Le Monde», « Le Figaro » and "Ulysses"',
            ["Moby Dick", "Die Welle", "Le Monde", "Le Figaro", "Ulysses"],
        ),
        ("読んだ「坊っちゃん」と『こころ』、《红楼梦》", ["坊っちゃん", "こころ", "红楼梦"]),
        ('"so called", "Go away!" and 5" or 6"', []),
        ("“Because I say so, and what I say is what we do here”", []),
    ],
)
def test_quoted_titles(text: str, expected: list[str]) -> None:
    assert entities_in(text, "quote") == expected


@pytest.mark.parametrize(
    ("text", "years", "numbers"),
    [
        ("in 1969, 1914-1918 and 1939–1945 (2001)", ["1969", "1914", "1918", "1939", "1945", "2001"], []),
        ("2019-nCoV, 2020-01-05, 1999.5, $2000, 1500%, v1.1999, 12:1999", [], ["2019", "1999.5", "$2000", "1500%"]),
        ("3 of 42, 3.5, 1,200 and 999; 7 %, €5 [102, 103]", [], ["3.5", "1,200", "999", "7 %", "€5"]),
    ],
)
def test_years_and_numbers(text: str, years: list[str], numbers: list[str]) -> None:
    assert entities_in(text, "year") == years
    assert entities_in(text, "number") == numbers


def test_an_entity_is_one_node_with_its_first_place_normal_form_and_type() -> None:
    text = "at the Ｃafé  Noir. In the café noir? In the Café Noir."
    pieces = RuleEntities()(whole_part(text))
    assert [(piece.text, piece.start, piece.meta) for piece in pieces] == [
        ("Ｃafé  Noir", 7, (("entity", "café noir"), ("type", "name")))
    ]
    assert normalise_name("Café\u00a0NOIR") == "café noir"


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(WiringError, match=r"no rule 'verb'. Write some of: name, acronym"):
        RuleEntities(("verb",))  # type: ignore[arg-type]


@given(st.text() | st.text("AaBb .-'’“”\"\n1290%$£é東「」", max_size=80))
def test_entities_are_truly_there_each_once_and_always_the_same(text: str) -> None:
    pieces = RuleEntities()(whole_part(text))
    for piece in pieces:
        assert piece.start is not None
        assert text[piece.start : piece.start + len(piece.text)] == piece.text == piece.text.strip() != ""
        assert dict(piece.meta)["entity"] == normalise_name(piece.text)
    names = [dict(piece.meta)["entity"] for piece in pieces]
    assert len(set(names)) == len(names)
    assert pieces == RuleEntities()(whole_part(text))
    assert [piece.start for piece in pieces] == sorted(piece.start or 0 for piece in pieces)


def test_runs_of_capitals_are_names() -> None:
    text = "Trade with New York grew. The Duke of York met J. Smith there. York grew too."
    runs = [text[start:end] for start, end in find_names(text, nouns=False)]
    assert runs == ["New York", "Duke of York", "J. Smith", "York"]


def test_a_name_is_one_entity_however_it_is_written() -> None:
    assert (normalise_name("Ｎew \u00a0 YORK"), normalise_name("Straße")) == ("new york", "strasse")
    (piece,) = make_entities([Mention(9, "PARIS", "name"), Mention(0, "Paris", "name")])
    assert (piece.text, piece.start) == ("Paris", 0)
