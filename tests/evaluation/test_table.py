"""Questions in a table: which column is what, and gold by file, page or quote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.measures.registry import parse_measures
from spolia.indexing.sync.sync import sync
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.types import Item, Quote
from tests.indexing.readers.fixtures import xlsx
from tests.indexing.readers.pdf_samples import Sheet, lines, pdf

ROWS: list[dict[str, Any]] = [
    {"Question": "Who pulls?", "Expected answer": "the moon | moon", "Source File": "a.pdf", "Page": 3, "Topic": "sea"},
    {"Question": "Who hunts?", "Expected answer": "owls", "Source File": "b.txt", "Page": None, "Topic": "birds"},
]
ITEMS = [
    ("Who pulls?", ("the moon", "moon"), (("a.pdf#page=3",),), (("Topic", "sea"),)),
    ("Who hunts?", ("owls",), (("b.txt",),), (("Topic", "birds"),)),
]


def write_separated(mark: str, encoding: str = "utf-8") -> Callable[[Path], Any]:
    table = [list(ROWS[0]), *[["" if cell is None else str(cell) for cell in row.values()] for row in ROWS]]
    return lambda path: path.write_text("\n".join(mark.join(row) for row in table), encoding)


def sheet(path: Path) -> None:
    def cell(value: object) -> str:
        if isinstance(value, int):
            return f"<c><v>{value}</v></c>"
        return f'<c t="inlineStr"><is><t>{value or ""}</t></is></c>'

    table = [list(ROWS[0]), *[list(row.values()) for row in ROWS]]
    path.write_bytes(xlsx({"Questions": "".join(f"<row>{''.join(map(cell, row))}</row>" for row in table)}))


def parquet(path: Path) -> None:
    pyarrow, writer_module = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    writer_module.write_table(pyarrow.Table.from_pylist(ROWS), path)


TABLES: dict[str, Callable[[Path], Any]] = {
    "q.csv": write_separated(","),
    "semicolons.csv": write_separated(";", "utf-8-sig"),
    "excel.csv": write_separated("\t", "utf-16"),
    "q.tsv": write_separated("\t"),
    "q.xlsx": sheet,
    "q.parquet": parquet,
    "q.json": lambda path: path.write_text(json.dumps(ROWS)),
    "q.jsonl": lambda path: path.write_text("\n".join(map(json.dumps, ROWS))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_any_format_gives_the_same_questions(tmp_path: Path, name: str) -> None:
    TABLES[name](tmp_path / name)
    data = DataSet(str(tmp_path / name))
    assert data.file_form.name == "table"
    items = list(data.items())
    assert [(item.question, item.answers, item.gold, item.meta) for item in items] == ITEMS
    assert "'Question' as question" in data.columns
    assert "'Source File' as file, 'Page' as page" in data.columns
    assert "'Topic' as metadata" in data.columns
    assert len({item.id for item in items}) == 2


def read_rows(tmp_path: Path, *rows: dict[str, Any]) -> list[Item]:
    (tmp_path / "q.json").write_text(json.dumps(rows))
    return list(DataSet(str(tmp_path / "q.json"), form="table").items())


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        ({"file": "a.pdf; b.pdf"}, (("a.pdf",), ("b.pdf",))),
        ({"file": ["a.pdf", "b.pdf"]}, (("a.pdf",), ("b.pdf",))),
        ({"file": "a.pdf", "page": "3, 7"}, (("a.pdf#page=3",), ("a.pdf#page=7",))),
        ({"file": "a.pdf", "page": "3-4"}, (("a.pdf#page=3", "a.pdf#page=4"),)),
        ({"file": "a.pdf;b.pdf", "page": "3;4"}, (("a.pdf#page=3",), ("b.pdf#page=4",))),
        ({"file": "a.pdf", "page": 3.0, "quote": "so it is"}, ((Quote("a.pdf", text="so it is"),),)),
        ({"quote": "so it is"}, ((Quote("", text="so it is"),),)),
        ({"reference_contexts": ["one", "two"]}, ((Quote("", text="one"),), (Quote("", text="two"),))),
        ({"page": 3}, ()),
    ],
)
def test_gold_is_a_file_a_page_or_a_quote(tmp_path: Path, row: dict[str, Any], gold: object) -> None:
    assert read_rows(tmp_path, {"question": "Who?", **row})[0].gold == gold


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_row_longer_than_its_header_is_refused(tmp_path: Path, separator: str) -> None:
    rows = (("id", "question", "answers"), ("1", "What does it cost?", "1", "299 EUR"), ("2", "Where?", "Salo", ""))
    table = tmp_path / "q.csv"
    table.write_text("\n".join(map(separator.join, rows)))
    with pytest.raises(DataError, match=r"row 2 has 4 cells, and the header names 3\. '299 EUR' is left over"):
        list(DataSet(str(table)).items())
    table.write_text("\n".join(map(separator.join, (rows[0], rows[2]))))
    assert [item.answers for item in DataSet(str(table)).items()] == [("Salo",)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"file": "a.pdf;b.pdf", "page": "1;2;3"}, "2 files and 3 pages. Write as many"),
        ({"file": "a.pdf", "page": "iv"}, "page 'iv' of 'a.pdf' is not a number"),
        ({"file": "a.pdf", "page": "9-3"}, "not a number or range of pages. Write 3, or 3-5"),
        ({"gold": [["x"]]}, r"'gold' holds \[\"x\"\], which is not a text. Write a list of texts"),
        ({"gold": '[["x", "y"]]'}, 'for passages of which any one suffices, write "gold_ids"'),
        ({"answers": [{"text": "Salo"}]}, r"'answers' holds {\"text\": \"Salo\"}, which is not a text"),
    ],
)
def test_gold_that_cannot_be_read_is_named_with_its_row(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=f"q.json line 1: .*{says}|q.json object 1: .*{says}"):
        read_rows(tmp_path, {"question": "Who?", **row})


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            "question,answer,Answer ,answer\nWho?,owls,,\n",
            r"q.csv has 2 columns 'answer'. Rename or delete all but one",
        ),
        ('question,file\nWho?,a.txt\n"Where?,b.txt\nWhen?,c.txt\n', r"q.csv row 3: a quote \(\"\) opens and never"),
    ],
)
def test_a_table_that_would_lose_columns_or_rows_is_an_error(tmp_path: Path, table: str, says: str) -> None:
    (tmp_path / "q.csv").write_text(table)
    with pytest.raises(DataError, match=says):
        list(DataSet(str(tmp_path / "q.csv")).items())


@pytest.mark.parametrize("above", ["", "sep=,\n", "Questions of May,,,\n,,,\n"])
def test_empty_names_and_titles_above_the_names_are_left_out(tmp_path: Path, above: str) -> None:
    (tmp_path / "q.csv").write_text(f"{above}question,file,,\nWho?,b.txt,,\n")
    (item,) = DataSet(str(tmp_path / "q.csv")).items()
    assert (item.question, item.gold) == ("Who?", (("b.txt",),))


@pytest.mark.parametrize(
    "names",
    [
        ("问题", "答案", "文件"),
        ("질문", "정답", "파일"),
        ("Frage", "Antwort", "Datei"),
        ("user_input", "reference", "source"),
    ],
)
def test_columns_are_told_by_their_names_in_several_languages(tmp_path: Path, names: tuple[str, str, str]) -> None:
    (item,) = read_rows(tmp_path, dict(zip(names, ("Who?", "owls", "b.txt"), strict=True)))
    assert (item.question, item.answers, item.gold) == ("Who?", ("owls",), (("b.txt",),))


def test_without_a_name_the_question_is_the_column_that_asks(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("Nr,Text,Antwort\n1,Wer zieht?,Mond\n2,Wer jagt?,Eulen\n")
    assert [(item.id, item.question) for item in DataSet(str(tmp_path / "q.csv")).items()] == [
        ("1", "Wer zieht?"),
        ("2", "Wer jagt?"),
    ]
    (tmp_path / "q.csv").write_text("a,b\nx,y\nz,w\n")
    with pytest.raises(DataError, match=r"has no question column. It has: a, b. Call one of them 'question'"):
        list(DataSet(str(tmp_path / "q.csv")).items())
    for text in ("", "question,file\n"):
        (tmp_path / "q.csv").write_text(text)
        with pytest.raises(DataError, match=r"q.csv has no rows. Write a line with the names of columns"):
            list(DataSet(str(tmp_path / "q.csv")).items())


def test_an_id_stays_when_a_row_is_put_before_it(tmp_path: Path) -> None:
    previous_ids = {item.question: item.id for item in read_rows(tmp_path, {"q": "a?"}, {"q": "b?"}, {"q": "b?"})}
    later_ids = {
        item.question: item.id for item in read_rows(tmp_path, {"q": "new?"}, {"q": "a?"}, {"q": "b?"}, {"q": "b?"})
    }
    assert previous_ids.items() <= later_ids.items()


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    folder = tmp_path_factory.mktemp("table")
    (folder / "docs" / "sea").mkdir(parents=True)
    sheets = [
        Sheet(lines(50, 700, "Salt makes the sea heavy wherever it is.")),
        Sheet(lines(50, 700, "The moon pulls the water of the sea.", "So the tide rises twice a day.")),
    ]
    (folder / "docs" / "sea" / "tides.pdf").write_bytes(pdf(sheets))
    (folder / "docs" / "owls.txt").write_text("Owls hunt by night and sleep by day.")
    corpus = Corpus(str(folder / "notes.spolia"))
    sync(folder / "docs", corpus)
    return corpus.group()


def scores_of(chunks: NodeGroup, *items: Item) -> list[float]:
    report = Experiment({"flow": BM25(chunks)}, items, parse_measures("R@1")).run()
    return [observation[0] for observation in report.flows[0].measured[0].observations if observation is not None]


@pytest.mark.slow
def test_gold_by_page_and_by_quote_is_found_in_a_store(chunks: NodeGroup, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": "Who pulls the water of the sea?", "file": "sea/tides.pdf", "page": 2},
        {"question": "Who pulls the water?", "file": "tides.pdf", "page": "2"},  # the end of its path will do
        {"question": "Who hunts by night?", "file": "tides.pdf", "page": "1"},
        {"question": "When do owls sleep?", "quote": "sleep by day"},
        {"question": "When do owls hunt?", "file": "/home/ann/docs/owls.txt"},
    ]
    assert scores_of(chunks, *read_rows(tmp_path, *rows)) == [1.0, 1.0, 0.0, 1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            {"file": "tides.pdf", "page": 7},
            "names a page that 'tides.pdf' of .* does not have.*it has 2 pages. Write anot",
        ),
        ({"file": "owls.txt", "page": 1}, "it has 0 pages"),
        ({"quote": "the sun shines"}, "is in no document of .*Quote words as"),
    ],
)
def test_a_page_or_a_quote_that_is_not_there_is_named(
    chunks: NodeGroup, tmp_path: Path, row: dict[str, Any], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        scores_of(chunks, *read_rows(tmp_path, {"question": "Who?", **row}))
