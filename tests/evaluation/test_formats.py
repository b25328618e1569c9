"""Data sets in other forms: read as published, and written again as they were."""

from __future__ import annotations

import gzip
import itertools
import json
import struct
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DataError, MissingExtra
from spolia.evaluation.data.dataset import DataSet, part_of
from spolia.evaluation.data.formats.form import FORMS, detect_form, form_named
from spolia.evaluation.data.formats.trec import read_run, write_run
from spolia.evaluation.measures.measure import Case, measured
from spolia.evaluation.measures.registry import parse_measure
from spolia.types import Document, Hit, Item, Node, Query, Quote, Ranking, SubQuestion

HOTPOT: dict[str, Any] = {
    "_id": "5a8b57f25542995d1e6f1371",
    "answer": "yes",
    "question": "Were Scott Derrickson and Ed Wood of the same nationality?",
    "supporting_facts": [["Scott Derrickson", 0], ["Ed Wood", 0], ["Ed Wood", 7]],
    "context": [
        ["Ed Wood (film)", ["Ed Wood is a 1994 American film.", " It concerns a period."]],
        ["Scott Derrickson", ["Scott Derrickson is an American director.", " He lives in Los Angeles."]],
        ["Ed Wood", ["Edward Davis Wood Jr. was an American filmmaker.", " He died in 1978."]],
    ],
    "type": "comparison",
    "level": "hard",
}
SECOND = HOTPOT | {
    "_id": "5a8c7595554299585d9e36b6",
    "question": "When did Ed Wood die?",
    "answer": "1978",
    "supporting_facts": [["Ed Wood", 1]],
    "context": [HOTPOT["context"][2], ["Ed Wood (film)", ["Another text of this title."]]],
    "type": "bridge",
}
WIKI: dict[str, Any] = {
    "_id": "8813f87c0bdd11eba7f7acde48001122",
    "type": "compositional",
    "question": "Who is the mother of the director of Polish-Russian War?",
    "context": [
        ["Xawery Żuławski", ["Xawery Żuławski is a Polish director.", "He is the son of Małgorzata Braunek."]],
        ["Polish-Russian War (film)", ["Polish-Russian War is a 2009 film.", "Xawery Żuławski directed it."]],
    ],
    "supporting_facts": [["Polish-Russian War (film)", 1], ["Xawery Żuławski", 1]],
    "evidences": [
        ["Polish-Russian War", "director", "Xawery Żuławski"],
        ["Xawery Żuławski", "mother", "Małgorzata Braunek"],
    ],
    "answer": "Małgorzata Braunek",
}
MUSIQUE: dict[str, Any] = {
    "id": "2hop__482757_12019",
    "paragraphs": [
        {"idx": 0, "title": "Pakistan Super League", "paragraph_text": "A league.", "is_supporting": False},
        {"idx": 1, "title": "Lilli's Marriage", "paragraph_text": "It was made in Berlin.", "is_supporting": True},
        {"idx": 2, "title": "Berlin", "paragraph_text": "Berlin lies on the Spree.", "is_supporting": True},
    ],
    "question": "On what river does the place lie where Lilli's Marriage was made?",
    "question_decomposition": [
        {"id": 482757, "question": "Lilli's Marriage >> made in", "answer": "Berlin", "paragraph_support_idx": 1},
        {"id": 12019, "question": "On what river does #1 lie?", "answer": "Spree", "paragraph_support_idx": 2},
    ],
    "answer": "Spree",
    "answer_aliases": ["the Spree", "river Spree"],
    "answerable": True,
}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def lines(rows: Iterable[object]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def contents_of(data: DataSet) -> tuple[list[object], list[Item]]:
    return list(data.passages()), list(data.items())


def write_again(data: DataSet, form: str, path: Path) -> DataSet:
    form_named(form).write(path, data.passages(), data.items())
    return DataSet(str(path))


# ------------------------------------------------------------------------------------------- those with paragraphs


@pytest.mark.parametrize("packed", [False, True])
def test_hotpotqa_as_it_is_published(tmp_path: Path, packed: bool) -> None:
    file = tmp_path / ("hotpot_dev_distractor_v1.json" + (".gz" if packed else ""))
    raw = json.dumps([HOTPOT, SECOND]).encode()
    file.write_bytes(gzip.compress(raw) if packed else raw)
    data = DataSet(str(file))
    assert (data.file_form.name, data.name) == ("hotpotqa", "hotpot_dev_distractor_v1")
    passages = {passage.id: passage for passage in data.passages()}
    assert list(passages) == ["Ed Wood (film)#1", "Scott Derrickson#1", "Ed Wood#1", "Ed Wood (film)#2"]
    assert passages["Ed Wood#1"].text == "Edward Davis Wood Jr. was an American filmmaker. He died in 1978."
    first, second = data.items()
    assert (first.answers, first.type) == (("yes",), "comparison")
    assert first.gold == (("Scott Derrickson#1",), ("Ed Wood#1",))
    assert second.gold == (("Ed Wood#1",),)
    meta = dict(first.meta)
    assert meta["level"] == "hard"
    assert json.loads(str(meta["supporting_sentences"])) == [
        {"gold_id": "Scott Derrickson#1", "sentence": "Scott Derrickson is an American director."},
        {"gold_id": "Ed Wood#1", "sentence": "Edward Davis Wood Jr. was an American filmmaker."},
    ]  # there is no eighth sentence, which happens in the published file too


def test_2wikimultihopqa_has_its_evidences_as_hops(tmp_path: Path) -> None:
    data = DataSet(str(write(tmp_path / "dev.json", json.dumps([WIKI]))))
    assert data.file_form.name == "2wikimultihopqa"
    [item] = data.items()
    assert item.decomposition == (
        SubQuestion("Polish-Russian War >> director", "Xawery Żuławski", ""),
        SubQuestion("Xawery Żuławski >> mother", "Małgorzata Braunek", "Xawery Żuławski#1"),
    )
    assert item.gold == (("Polish-Russian War (film)#1",), ("Xawery Żuławski#1",))


def test_musique_has_its_decomposition_and_what_cannot_be_answered(tmp_path: Path) -> None:
    never = MUSIQUE | {"answerable": False}  # published so: the same id a second time
    data = DataSet(str(write(tmp_path / "musique_full_v1.0_dev.jsonl", lines([MUSIQUE, never]))))
    assert data.file_form.name == "musique"
    item, other_item = data.items()
    assert (item.id, other_item.id) == ("2hop__482757_12019", "2hop__482757_12019-unanswerable")
    assert item.answers == ("Spree", "the Spree", "river Spree")
    assert item.gold == (("Lilli's Marriage#1",), ("Berlin#1",))
    assert item.decomposition[1] == SubQuestion("On what river does #1 lie?", "Spree", "Berlin#1")
    assert (item.type, other_item.type, other_item.gold, other_item.answers) == ("2hop", "unanswerable", (), ())
    assert part_of(item.id) == part_of(other_item.id)


@pytest.mark.parametrize(
    ("form", "name", "published"),
    [
        ("hotpotqa", "hotpot.json", [HOTPOT, SECOND]),
        ("2wikimultihopqa", "wiki.json", [WIKI]),
        ("musique", "musique.jsonl", [MUSIQUE | {"answerable": False}, MUSIQUE]),
    ],
)
def test_what_is_written_is_what_was_published(tmp_path: Path, form: str, name: str, published: list[Any]) -> None:
    text = lines(published) if name.endswith("l") else json.dumps(published)
    data = DataSet(str(write(tmp_path / name, text)))
    second_data_set = write_again(data, form, tmp_path / "again" / name)
    out = Path(second_data_set.path).read_text()
    assert ([json.loads(line) for line in out.splitlines()] if name.endswith("l") else json.loads(out)) == published
    ours = write_again(data, "spolia", tmp_path / "ours")
    assert contents_of(ours) == contents_of(second_data_set) == contents_of(data)
    back = write_again(ours, form, tmp_path / "back" / name)
    assert Path(back.path).read_text() == out


# ------------------------------------------------------------------------------------------------------ BEIR and TREC


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    folder = tmp_path / "nfcorpus"
    docs = [{"_id": f"MED-{n}", "title": f"T{n}", "text": f"Text {n}.", "metadata": {"url": f"u{n}"}} for n in range(4)]
    queries = [{"_id": f"PLAIN-{n}", "text": f"Question {n}?", "metadata": {}} for n in range(3)]
    write(folder / "corpus.jsonl", lines(docs))
    write(folder / "queries.jsonl", lines(queries))
    judged = "PLAIN-0\tMED-1\t2\nPLAIN-0\tMED-2\t1\nPLAIN-0\tMED-3\t0\nPLAIN-2\tMED-0\t1\n"
    write(folder / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\n" + judged)
    write(folder / "qrels" / "train.tsv", "query-id\tcorpus-id\tscore\nPLAIN-1\tMED-0\t1\n")
    return folder


def test_beir_has_the_judged_questions_of_its_test_part(beir: Path) -> None:
    data = DataSet(str(beir))
    assert (data.file_form.name, data.name) == ("beir", "nfcorpus")
    first, third = data.items()
    assert (first.id, first.question, first.gold) == ("PLAIN-0", "Question 0?", (("MED-1",), ("MED-2",)))
    assert (first.grades, third.grades) == ((("MED-1", 2.0), ("MED-2", 1.0)), ())
    assert [passage.title for passage in data.passages()] == ["T0", "T1", "T2", "T3"]
    assert [item.id for item in DataSet(str(beir / "qrels" / "train.tsv")).items()] == ["PLAIN-1"]


def test_beir_is_written_as_it_was(beir: Path, tmp_path: Path) -> None:
    data = DataSet(str(beir))
    second_data_set = write_again(write_again(data, "spolia", tmp_path / "ours"), "beir", tmp_path / "again")
    assert contents_of(second_data_set) == contents_of(data)
    for name in ("corpus.jsonl", "qrels/test.tsv"):
        assert (Path(second_data_set.path) / name).read_text() == (beir / name).read_text()


TOPICS = """<top>
<num> Number: 301
<title> International Organized Crime
<desc> Description:
Identify organizations that participate in crime.
</top>

<top>
<num> Number: 302
<title> Poliomyelitis
</top>
"""
DOCS = """<DOC>
<DOCNO>FT911-1</DOCNO>
<TITLE>Crime</TITLE>
<TEXT>
They cross borders.
<b>Often.</b>
</TEXT>
</DOC>
<DOC>
<DOCNO>FT911-2</DOCNO>
<TEXT>
A disease.
</TEXT>
</DOC>
"""


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    folder = tmp_path / "trec6"
    write(folder / "topics.301-302", TOPICS)
    write(folder / "qrels.txt", "301 0 FT911-1 2\n301 0 FT911-2 0\n302 0 FT911-2 1\n")
    write(folder / "docs.trec", DOCS)
    return folder


def test_trec_has_topics_judgements_and_documents(trec: Path) -> None:
    data = DataSet(str(trec))
    assert data.file_form.name == "trec"
    assert [(passage.id, passage.title, passage.text) for passage in data.passages()] == [
        ("FT911-1", "Crime", "They cross borders.\n<b>Often.</b>"),
        ("FT911-2", "", "A disease."),
    ]
    first, second = data.items()
    assert (first.id, first.question) == ("301", "International Organized Crime")
    assert dict(first.meta)["description"] == "Identify organizations that participate in crime."
    assert (first.gold, first.grades) == ((("FT911-1",),), (("FT911-1", 2.0),))
    assert (second.question, second.gold, second.grades) == ("Poliomyelitis", (("FT911-2",),), ())


def test_trec_of_lines_with_tabs(tmp_path: Path) -> None:
    write(tmp_path / "topics.tsv", "1\twhat is a tide\n")
    write(tmp_path / "qrels.tsv", "1\t0\tD1\t1\n")
    write(tmp_path / "docs.tsv", "D1\tThe moon pulls the sea.\nD2\tSalt.\n")
    passages, [item] = contents_of(DataSet(str(tmp_path)))
    assert len(passages) == 2
    assert (item.question, item.gold) == ("what is a tide", (("D1",),))


def test_trec_is_written_as_it_was(trec: Path, tmp_path: Path) -> None:
    data = DataSet(str(trec))
    second_data_set = write_again(data, "trec", tmp_path / "again")
    assert contents_of(second_data_set) == contents_of(data)
    assert (tmp_path / "again" / "qrels.txt").read_text() == (trec / "qrels.txt").read_text()


def test_a_run_of_trec_is_measured_as_trec_eval_would(trec: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "run.txt", "301 Q0 FT911-2 1 1.5 tag\n301 Q0 FT911-1 2 3.5 tag\n302 Q0 X 1 1.0 tag\n")
    items = list(DataSet(str(trec)).items())
    rankings = read_run(file, items)
    assert [hit.node.document for hit in rankings["301"]] == ["FT911-1", "FT911-2"]  # by score, whatever the rank says
    report = measured(parse_measure("MRR"), [Case(item, rankings[item.id]) for item in items])
    assert report.value == 0.5
    write_run(tmp_path / "again.txt", rankings, "tag")
    assert read_run(tmp_path / "again.txt", items) == rankings
    assert (tmp_path / "again.txt").read_text().splitlines()[0] == "301 Q0 FT911-1 1 3.5 tag"


def test_a_written_run_names_a_document_once(tmp_path: Path) -> None:
    hits = tuple(Hit(Node(f"n{n}", "", f"d{n // 2}"), 9.0 - n) for n in range(4))
    write_run(tmp_path / "run", {"q": Ranking(Query("?"), hits)})
    assert (tmp_path / "run").read_text() == "q Q0 d0 1 9.0 spolia\nq Q0 d1 2 7.0 spolia\n"


def test_a_written_run_keeps_the_order_of_equal_scores(tmp_path: Path) -> None:
    scores = {"a": 1.0, "b": 1.0, "c": 1.0 - 1e-12, "d": 0.5, "e": 0.75}  # trec_eval reads 32 bits
    ranking = Ranking(Query("?"), tuple(Hit(Node(id, "", id), score) for id, score in scores.items()))
    write_run(tmp_path / "run", {"q": ranking})
    assert [hit.node.id for hit in read_run(tmp_path / "run")["q"]] == list(scores)
    written_scores = [float(line.split()[4]) for line in (tmp_path / "run").read_text().splitlines()]
    as_read = [struct.unpack("f", struct.pack("f", score_read))[0] for score_read in written_scores]
    assert all(score_read > next_score for score_read, next_score in itertools.pairwise(as_read))
    assert written_scores[0] == 1.0


# ------------------------------------------------------------------------------------------------------------ AutoRAG

QA = [
    {
        "qid": "a1",
        "query": "What pulls?",
        "retrieval_gt": [["c1", "c2"], ["c3"]],
        "generation_gt": ["The moon.", "Moon"],
    },
    {"qid": "a2", "query": "Who?", "retrieval_gt": [["c3"]], "generation_gt": ["Nobody."]},
]
CHUNKS = [
    {
        "doc_id": f"c{n}",
        "contents": f"Contents {n}.",
        "path": "tides.pdf",
        "start_end_idx": [n * 10, n * 10 + 11],
        "metadata": {
            "last_modified_datetime": datetime(2024, 5, n),
            "prev_id": f"c{n - 1}",
            "next_id": None,
            "page": n,
        },
    }
    for n in (1, 2, 3)
]


@pytest.fixture
def autorag(tmp_path: Path) -> Path:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    folder = tmp_path / "autorag"
    folder.mkdir()
    parquet.write_table(pa.Table.from_pylist(QA), folder / "qa.parquet")
    parquet.write_table(pa.Table.from_pylist(CHUNKS), folder / "corpus.parquet")
    return folder


@pytest.mark.slow
def test_autorag_keeps_and_of_ors_answers_and_metadata(autorag: Path) -> None:
    data = DataSet(str(autorag))
    assert data.file_form.name == "autorag"
    first, second = data.items()
    assert (first.gold, first.answers) == ((("c1", "c2"), ("c3",)), ("The moon.", "Moon"))
    assert second.gold == (("c3",),)
    passage = next(data.passages())
    assert (passage.id, passage.text) == ("c1", "Contents 1.")
    meta = dict(passage.meta)
    assert (meta["path"], meta["start_end_idx"]) == ("tides.pdf", "[10, 21]")
    assert json.loads(str(meta["metadata"]))["last_modified_datetime"] == "2024-05-01T00:00:00"


@pytest.mark.slow
def test_autorag_is_written_as_it_was_also_by_way_of_our_own_form(autorag: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    second_data_set = write_again(
        write_again(DataSet(str(autorag)), "spolia", tmp_path / "ours"), "autorag", tmp_path / "x"
    )
    assert contents_of(second_data_set) == contents_of(DataSet(str(autorag)))
    for name, rows in (("qa", QA), ("corpus", CHUNKS)):
        assert parquet.read_table(Path(second_data_set.path) / f"{name}.parquet").to_pylist() == rows


def test_without_pyarrow_the_extra_is_named(autorag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"needs pyarrow.*pip install 'spolia\[parquet\]'"):
        list(DataSet(str(autorag)).items())


# ------------------------------------------------------------------------------------------------------------ all forms


def test_every_form_says_what_it_consists_of_and_fits_nothing_else(
    tmp_path: Path, beir: Path, trec: Path, autorag: Path
) -> None:
    own = write(tmp_path / "own" / "questions.jsonl", lines([{"id": "q", "question": "?"}])).parent
    files = {"hotpotqa": HOTPOT, "2wikimultihopqa": WIKI, "musique": MUSIQUE}
    places = {"spolia": own, "beir": beir, "trec": trec, "autorag": autorag}
    places |= {name: write(tmp_path / f"{name}.json", json.dumps([row])) for name, row in files.items()}
    places["table"] = write(tmp_path / "questions.csv", "question,file\nWho?,a.pdf\n")
    assert set(places) == set(FORMS)
    for name, place in places.items():
        fitting = [form for form in FORMS if form_named(form).fits(place)]
        fitting = [form for form in fitting if form != "table" or name == "table"]  # the last: JSON with questions
        assert detect_form(place).name == name
        assert fitting == [name] or (name, fitting) == ("2wikimultihopqa", ["2wikimultihopqa", "hotpotqa"])
        assert form_named(name).files


def test_a_form_that_is_named_is_not_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No form of data sets is called 'csv'. Write one of: spolia, beir"):
        DataSet(str(tmp_path), form="csv")
    with pytest.raises(DataError, match=r"There is no qrels/test.tsv"):
        list(DataSet(str(tmp_path), form="beir").items())


@pytest.mark.parametrize("form", sorted(set(FORMS) - {"table"}))
def test_questions_about_files_are_written_or_the_lack_of_passages_is_named(tmp_path: Path, form: str) -> None:
    item = Item("q", "What is dug?", gold=(("salt.txt",),))
    (folder := tmp_path / "new").mkdir()
    place = folder if form in ("spolia", "beir", "trec", "autorag") else folder / "new.json"
    if form in ("spolia", "beir", "trec"):
        assert form_named(form).write(place, [], [item]) == {}
    else:
        with pytest.raises(DataError, match=f"has no passages, and {form} needs .* Write it in the form 'spolia'"):
            form_named(form).write(place, [], [item])


@pytest.mark.parametrize("form", ["beir", "trec", "autorag", "hotpotqa"])
def test_gold_that_a_form_cannot_say_is_refused_by_name(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "own"
    write(folder / "corpus.jsonl", lines([{"id": "d", "text": "The moon pulls the sea."}]))
    gold = [{"document": "d", "quote": "moon"}]
    write(folder / "questions.jsonl", lines([{"id": "q7", "question": "?", "gold_ids": gold}]))
    with pytest.raises(DataError, match="question 'q7'"):
        write_again(DataSet(str(folder)), form, tmp_path / "out")


@pytest.mark.parametrize("form", ["beir", "trec"])
def test_alternatives_are_refused_where_a_form_has_none(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "own"
    write(folder / "corpus.jsonl", lines([{"id": "a", "text": "A"}, {"id": "b", "text": "B"}]))
    write(folder / "questions.jsonl", lines([{"id": "q7", "question": "?", "gold_ids": [["a", "b"]]}]))
    with pytest.raises(DataError, match=r"Any of a, b satisfies question 'q7', which .* cannot say"):
        write_again(DataSet(str(folder)), form, tmp_path / "out")


@pytest.mark.parametrize("form", ["hotpotqa", "2wikimultihopqa"])
def test_gold_that_another_paragraph_of_its_title_would_become_is_refused(tmp_path: Path, form: str) -> None:
    paragraphs = [
        {"idx": number, "title": "Berlin", "paragraph_text": text, "is_supporting": number == 0}
        for number, text in enumerate(("Berlin lies on the Spree.", "Berlin is a town in Maryland."))
    ]
    hop = MUSIQUE["question_decomposition"][1] | {"paragraph_support_idx": 0}
    two = MUSIQUE | {"paragraphs": paragraphs, "question_decomposition": [hop]}
    data = DataSet(str(write(tmp_path / "m.jsonl", lines([two]))))
    with pytest.raises(DataError, match=r"'2hop__482757_12019' cannot be written in the form.*'Berlin#2'.*'Berlin#1'"):
        write_again(data, form, tmp_path / "out.json")


LOST = {
    "beir": {"answers of questions": 1, "type of questions": 1, "grades of questions": 0, "questions": 1},
    "trec": {"answers of questions": 1, "type of questions": 2, "'url' of passages": 1},
    "autorag": {"type of questions": 2, "grades of questions": 1},
    "hotpotqa": {"id of passages": 1, "'url' of passages": 1, "answers of questions": 1, "grades of questions": 1},
    "musique": {"id of passages": 1, "'url' of passages": 1, "type of questions": 1, "grades of questions": 1,
                "id of questions": 1},
    "spolia": {},
}  # fmt: skip


@pytest.mark.parametrize("form", LOST)
def test_what_a_form_has_no_place_for_is_told(tmp_path: Path, form: str) -> None:
    if form == "autorag":
        pytest.importorskip("pyarrow")
    passages = [Document("p", "The moon pulls the sea.", title="Tides", meta=(("url", "u"),))]
    items = [
        Item("q1", "What pulls?", ("the moon", "moon"), (("p",),), (("p", 2.0),), type="easy"),
        Item("q2", "Who sings?", type="unanswerable"),
    ]
    lost = form_named(form).write(tmp_path / "out", passages, items)
    assert lost == {name: number for name, number in LOST[form].items() if number}


# --------------------------------------------------------------------------------------------------------- bad input

BAD = [
    ("beir", "qrels/test.tsv", "query-id\tcorpus-id\tscore\nPLAIN-0\tMED-1\n", r"test.tsv line 2 has 2 columns"),
    ("beir", "qrels/test.tsv", "PLAIN-0\tMED-1\tmuch\n", r"test.tsv line 1: the grade 'much' is not a number"),
    ("beir", "qrels/test.tsv", "PLAIN-0\tMED-1\t1\nPLAIN-0\tMED-1\t0\n", r"line 2: passage 'MED-1' is judged twice"),
    ("beir", "qrels/test.tsv", "PLAIN-9\tMED-1\t1\n", r"test.tsv line 1: question 'PLAIN-9' is not in .*queries.jsonl"),
    ("beir", "qrels/test.tsv", "PLAIN-0\tMED-77\t1\n", r"gold id 'MED-77' of question 'PLAIN-0' is not in the corpus"),
    ("beir", "queries.jsonl", '{"_id": "PLAIN-0"}\n', r"queries.jsonl line 1: 'question' is None"),
    ("beir", "queries.jsonl", '{"_id": "PLAIN-0", "text": "?"}\n' * 2, r"queries.jsonl line 2: id 'PLAIN-0' is on"),
    ("trec", "qrels.txt", "301 0 FT911-1\n", r"qrels.txt line 1 has 3 columns. Write topic, iteration"),
    ("trec", "qrels.txt", "999 0 FT911-1 1\n", r"qrels.txt line 1: topic '999' is not among the topics"),
    ("trec", "topics.301-302", "<top>\n<num> Number: 301\n", r"topics.301-302 line 1: <top> has no </top>"),
    ("trec", "topics.301-302", "<top>\n<title> No number\n</top>\n", r"topics.301-302 line 1 has no <num>"),
    ("trec", "docs.trec", "something\n", r"docs.trec line 1 is neither between <DOC> and </DOC>"),
]


@pytest.mark.parametrize(("form", "file", "text", "says"), BAD)
def test_what_does_not_follow_its_form_is_named_with_its_line(
    form: str, file: str, text: str, says: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(form)
    write(folder / file, text)
    with pytest.raises(DataError, match=says):
        contents_of(DataSet(str(folder), form=form))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("301 Q0 D1 1 0.5", "line 2 has 5 columns"),
        ("301 Q0 D1 1 much tag", "line 2: the score 'much' is not a number"),
        ("301 Q0 D1 1 nan tag", "line 2: the score 'nan' is not a number"),
        ("301 Q0 D0 2 0.5 tag", "line 2: document 'D0' appears twice for topic '301'"),
    ],
)
def test_a_bad_line_of_a_run_is_named(tmp_path: Path, line: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_run(write(tmp_path / "run.txt", f"301 Q0 D0 1 1.0 tag\n{line}\n"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"supporting_facts": [["Nobody", 0]]}, r"object 2: the supporting fact 'Nobody' has no paragraph"),
        ({"context": [["Title"]]}, r"object 2: 'context' is not"),
        ({"supporting_facts": [["Ed Wood"]]}, r"object 2: 'supporting_facts' is not"),
        ({"_id": HOTPOT["_id"]}, r"object 2: id '5a8b57f25542995d1e6f1371' is on an earlier"),
        ({"question": None}, r"object 2: 'question' is None"),
    ],
)
def test_a_bad_question_of_hotpotqa_is_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        contents_of(DataSet(str(write(tmp_path / "hotpot.json", json.dumps([HOTPOT, SECOND | change])))))


def test_a_hop_of_musique_without_its_paragraph_is_named(tmp_path: Path) -> None:
    hop = MUSIQUE["question_decomposition"][0] | {"paragraph_support_idx": 7}
    bad = MUSIQUE | {"question_decomposition": [hop]}
    with pytest.raises(DataError, match=r"line 1: a hop's paragraph_support_idx is 7; there are 3 paragraphs"):
        contents_of(DataSet(str(write(tmp_path / "m.jsonl", lines([bad])))))


def test_bad_tables_of_autorag_are_named(autorag: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    good = (autorag / "qa.parquet").read_bytes()
    parquet.write_table(pa.Table.from_pylist([{"qid": "a", "question": "?"}]), autorag / "qa.parquet")
    with pytest.raises(DataError, match=r"qa.parquet has no column 'query'. It has: qid, question"):
        contents_of(DataSet(str(autorag)))
    parquet.write_table(pa.Table.from_pylist([QA[0], QA[0]]), autorag / "qa.parquet")
    with pytest.raises(DataError, match=r"qa.parquet row 2: id 'a1' is on an earlier"):
        contents_of(DataSet(str(autorag)))
    (autorag / "qa.parquet").write_bytes(good[: len(good) // 2])
    with pytest.raises(DataError, match=r"qa.parquet is not a readable Parquet file"):
        contents_of(DataSet(str(autorag)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"id": "q", "question": "?"}'.encode("utf-16"), "line 1 is not UTF-8"),
        ('{"id": "q", "question": "é"}'.encode("latin-1"), "line 1 is not UTF-8"),
        (b'{"id": "q", "question": "\\ud800?"}', "line 1 has half of a character"),
        (b'{"id": "q", "question": "' + b"x" * (1 << 26) + b'"}', "line 1 is longer than 64 MiB"),
    ],
    ids=["utf-16", "latin-1", "surrogate", "huge"],
)
def test_odd_encodings_and_huge_lines(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "questions.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=f"questions.jsonl {says}"):
        list(DataSet(str(tmp_path)).items())


def test_a_character_written_as_two_halves_is_one(tmp_path: Path) -> None:
    write(tmp_path / "questions.jsonl", '\ufeff{"id": "q", "question": "\\ud83d\\ude00?"}')
    assert next(iter(DataSet(str(tmp_path)).items())).question == "😀?"


# -------------------------------------------------------------------------------------------- quotes in our own form


def write_own(folder: Path, gold: object, **more: object) -> DataSet:
    write(folder / "corpus.jsonl", lines([{"id": "d", "text": "The moon pulls the sea. The moon is far."}]))
    write(folder / "questions.jsonl", lines([{"id": "q", "question": "?", "gold_ids": gold, **more}]))
    return DataSet(str(folder))


@pytest.mark.parametrize(
    ("member", "start", "text"),
    [
        ({"document": "d", "start": 4, "end": 14}, 4, "moon pulls"),
        ({"document": "d", "quote": "pulls the sea"}, 9, "pulls the sea"),
        ({"document": "d", "start": 28, "quote": "moon"}, 28, "moon"),
    ],
)
def test_gold_is_a_stretch_of_a_document(tmp_path: Path, member: object, start: int, text: str) -> None:
    data = write_own(tmp_path, [member, ["d", member]], grades={f"d[{start}:{start + len(text)}]": 3})
    [item] = data.items()
    assert item.gold == ((Quote("d", start, text),), ("d", Quote("d", start, text)))
    assert item.grades == ((f"d[{start}:{start + len(text)}]", 3.0),)
    assert contents_of(write_again(data, "spolia", tmp_path / "again")) == contents_of(data)


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ({"document": "d", "quote": "moon"}, r"“moon” is in 'd' more than once. Write its 'start' too"),
        ({"document": "d", "quote": "sun"}, r"is not a stretch of 'd', which has 40 characters"),
        ({"document": "d", "start": 30, "end": 99}, r"is not a stretch of 'd'"),
        ({"document": "d", "start": 9, "end": 9}, r"is not a stretch of 'd'"),
        ({"document": "d", "start": 0, "quote": "moon"}, r"'d' has 'The ' at 0, not 'moon'"),
        ({"document": "e", "quote": "moon"}, r"gold id 'e' of question 'q' is not in the corpus"),
        ({"start": 3, "end": 4}, r"'document' is missing"),
        (7, r"'gold_ids' holds 7"),
    ],
)
def test_a_stretch_that_is_not_there_is_named_with_its_line(tmp_path: Path, member: object, says: str) -> None:
    with pytest.raises(DataError, match=rf"questions.jsonl line 1: .*{says}"):
        list(write_own(tmp_path, [member]).items())


# ----------------------------------------------------------------------------------------------------- real data sets


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cranfield", "xquad_en"])
@pytest.mark.parametrize("form", ["spolia", "beir", "trec", "autorag"])
def test_real_data_sets_go_there_and_back(shared_datasets: Path, tmp_path: Path, name: str, form: str) -> None:
    if form == "autorag":
        pytest.importorskip("pyarrow")
    source = DataSet(str(shared_datasets / name))
    items_by_id = {item.id: item for item in write_again(source, form, tmp_path / form).items()}
    back = {item.id: item for item in write_again(DataSet(str(tmp_path / form)), "spolia", tmp_path / "back").items()}
    for item in source.items():
        for second_item in (items_by_id[item.id], back[item.id]):
            assert (second_item.gold, second_item.question.split()) == (item.gold, item.question.split())
        assert relevance(back[item.id]) == relevance(item)
    texts = [passage.text.strip() for passage in DataSet(str(tmp_path / "back")).passages()]
    assert texts == [passage.text.strip() for passage in source.passages()]


def relevance(item: Item) -> dict[str, float]:
    grades = dict(item.grades)
    return {str(entry): grades.get(str(entry), 1.0) for group in item.gold for entry in group}
