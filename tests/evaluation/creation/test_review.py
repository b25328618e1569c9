"""A review goes through a spreadsheet and back: what nobody touched is unchanged, and nothing in it is computed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia import Node
from spolia.errors import DataError
from spolia.evaluation import DataSet
from spolia.evaluation.creation.draft import QuestionDraft
from spolia.evaluation.creation.items import LONGEST_CELL, Review, apply_review, item_of, write_review
from spolia.types import Item, Quote, SubQuestion

NODE = Node("n", "Clovis made Paris his capital in 508.", "d", uri="france.txt")
QUOTE = Quote("d", 0, "Clovis made Paris his capital in 508.")
DRAFT = QuestionDraft("factoid", (NODE,), (), "When did Clovis move?", ("508",), (), (QUOTE,))


def write_drafts(folder: Path, *drafts: QuestionDraft) -> tuple[Path, list[Item]]:
    items = [item_of(draft) for draft in drafts]
    write_review(folder / "review.csv", items, drafts)
    return folder / "review.csv", items


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def save_table(
    path: Path, rows: Sequence[dict[str, str]], mark: str = ",", code: str = "utf-8-sig", end: str = "\n"
) -> None:
    """Save a table as spreadsheets do."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), delimiter=mark, lineterminator=end)
    table.writeheader()
    table.writerows({name: cell.replace("\n", end) for name, cell in row.items()} for row in rows)
    path.write_bytes(text.getvalue().encode(code))


def review_after(folder: Path, draft: QuestionDraft, **cells: str) -> Review:
    """The review with a row in which these cells were changed."""
    path, items = write_drafts(folder, draft)
    save_table(path, [row | cells for row in rows_of(path)])
    return apply_review(path, items)


NASTY = st.sampled_from(("=1+1", "+5", "-5+cmd|' /C calc'!A0", "@SUM(A1)", "1/2", "3.14", "007", "1e5", "Mar 5", "5 PM",
                         "true", "'=x", "''", 'a "b", c',
                         "a\nb", "a; b", "| x | y |", "[1] x", '["x"]', "2024年5月", "\t=1", "‘’"))  # fmt: skip
TEXT = st.one_of(NASTY, st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30))


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(TEXT, st.lists(TEXT, min_size=1, max_size=3), TEXT),
        min_size=1,
        max_size=4,
        unique_by=lambda row: row[0],
    )
)
@pytest.mark.slow
def test_what_nobody_touched_comes_back_unchanged_through_any_spreadsheet(
    tmp_path: Path, rows: list[tuple[str, list[str], str]]
) -> None:
    drafts = [
        DRAFT.but(question=f"{question}?", answers=tuple(answers), quotes=(QUOTE.but(text=words),))
        for question, answers, words in rows
    ]
    path, items = write_drafts(tmp_path, *drafts)
    cells = rows_of(path)
    ways: list[dict[str, Any]] = [
        {}, {"mark": ";"}, {"mark": "\t", "code": "utf-16"}, {"end": "\r\n"}, {"mark": ";", "end": "\r\n"},
    ]  # fmt: skip
    for way in ways:
        save_table(path, cells, **way)
        review = apply_review(path, items)
        assert review.items == tuple(items), way
        assert (review.changed, review.rejected) == (0, 0)


@pytest.mark.parametrize(
    "cell",
    ["=1+1", " =1+1", "+1", "-5+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "＝1", "1/2", "3.14", "007", "5 May", "TRUE"],
)
def test_no_cell_is_computed_and_none_becomes_a_date(tmp_path: Path, cell: str) -> None:
    node = NODE.but(text=cell)
    path, _ = write_drafts(
        tmp_path, DRAFT.but(question=cell, answers=(cell,), quotes=(QUOTE.but(text=cell),), passages=(node,))
    )
    (row,) = rows_of(path)
    begins = {row[name][:1] for name in ("question", "answers", "quote", "passages")}
    assert begins == ({"'", "["} if "|" in cell else {"'"})  # a list in JSON
    assert path.read_text("utf-8-sig").count('","') == 2 * (len(row) - 1)  # each cell is between quotation marks
    (item,) = DataSet(str(path)).items(stored=True)
    assert (item.question.strip(), item.answers) == (cell.strip(), (cell.strip(),))


def test_no_id_is_a_number_to_a_spreadsheet() -> None:
    assert item_of(DRAFT).id[0] == "q"


def test_no_cell_is_longer_than_a_spreadsheet_takes(tmp_path: Path) -> None:
    long = tuple(NODE.but(id=f"n{number}", text="words " * 200_000) for number in range(3))
    path, _ = write_drafts(tmp_path, DRAFT.but(passages=long))
    csv.field_size_limit(10**7)
    assert max(map(len, rows_of(path)[0].values())) <= LONGEST_CELL


HOPS = (SubQuestion("Who moved?", "Clovis", "d"), SubQuestion("When did Clovis move?", "508", "d"))


def test_a_changed_question_keeps_its_gold_and_says_that_people_changed_it(tmp_path: Path) -> None:
    (item,) = review_after(tmp_path, DRAFT.but(hops=HOPS), question="In which year did Clovis move to Paris?").items
    assert item.question == "In which year did Clovis move to Paris?"
    assert (item.gold, item.answers) == (item_of(DRAFT).gold, ("508",))
    assert len(item.decomposition) == 2
    assert dict(item.meta)["edited"] == "question"


def test_hops_that_lead_to_another_answer_are_left_out(tmp_path: Path) -> None:
    (item,) = review_after(tmp_path, DRAFT.but(hops=HOPS), answers="509").items
    assert (item.answers, item.decomposition) == (("509",), ())
    assert item_of(DRAFT.but(hops=HOPS, answers=("Paris",))).decomposition == ()


def test_a_changed_quote_is_the_gold(tmp_path: Path) -> None:
    (item,) = review_after(tmp_path, DRAFT, quote="in 508").items
    assert [str(quote) for group in item.gold for quote in group] == ["france.txt “in 508”"]


def test_an_unanswerable_question_with_an_answer_needs_another_type(tmp_path: Path) -> None:
    draft = DRAFT.but(type="unanswerable")
    with pytest.raises(DataError, match="'type'"):
        review_after(tmp_path, draft, answers="508")
    (item,) = review_after(tmp_path, draft, answers="508", type="factoid", file="france.txt", quote="in 508").items
    assert (item.type, item.answers, len(item.gold)) == ("factoid", ("508",), 1)


@pytest.mark.parametrize("word", ["yes", "是", "네", "はい"])
def test_yes_and_no_are_read_in_the_languages_of_the_prompts(tmp_path: Path, word: str) -> None:
    assert review_after(tmp_path, DRAFT, accept=word).accepted == 1
    no = {"yes": "no", "是": "否", "네": "아니요", "はい": "いいえ"}[word]
    assert review_after(tmp_path, DRAFT, accept=no).rejected == 1
