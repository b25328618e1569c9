"""Judgements of relevance (qrels), as BEIR and TREC write them: with passages and questions, and runs."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan, nan
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from spolia.errors import DataError
from spolia.evaluation.data.formats.form import Form, PlacedItem, PlacedPassage, single_passages
from spolia.evaluation.data.formats.native import decode_meta, parse_item, parse_meta, parse_passage
from spolia.evaluation.data.json_lines import LONGEST, jsonl_file, open_bytes, read_rows, replace_files, write_rows
from spolia.types import Document, Hit, Item, Meta, Node, Query, Ranking

NOT_RELEVANT = "judged_not_relevant"
"""Metadata: ids of the passages that were judged and found not relevant, as JSON."""


@dataclass
class QuestionGrades:
    """Grades of the passages judged for one question (0 and less: not relevant), and where the first stands."""

    place: str
    grades: dict[str, float] = field(default_factory=dict)

    def add(self, place: str, passage: str, grade: str) -> None:
        """Add a judgement; the same passage must not be judged twice."""
        try:
            number = float(grade)
        except ValueError:
            number = float("nan")
        if not isfinite(number):
            raise DataError(
                f"{place}: the grade {grade!r} is not a number. Write 0 for not relevant, 1 or more for relevant."
            )
        if passage in self.grades:
            raise DataError(f"{place}: passage {passage!r} is judged twice for the same question. Keep one judgement.")
        self.grades[passage] = number


def item_with_grades(item: Item, question_grades: QuestionGrades) -> Item:
    """Return a question with what was judged for it: each relevant passage is a group of its own."""
    relevant = {id: grade for id, grade in question_grades.grades.items() if grade > 0}
    irrelevant = [id for id in question_grades.grades if id not in relevant]
    has_grades = any(grade != 1 for grade in relevant.values())
    return item.but(
        gold=tuple((id,) for id in relevant),
        grades=tuple(relevant.items()) if has_grades else (),
        meta=item.meta + (((NOT_RELEVANT, json.dumps(irrelevant, ensure_ascii=False)),) if irrelevant else ()),
    )


def judgements(item: Item, form: str) -> Iterator[tuple[str, float]]:
    """Yield the judgements of a question, with those that found nothing relevant."""
    grades = dict(item.grades)
    yield from ((id, grades.get(id, 1.0)) for id in single_passages(item, form))
    yield from ((id, 0.0) for id in json.loads(str(dict(item.meta).get(NOT_RELEVANT, "[]"))))


def read_lines(path: Path, separator: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines of a text file, cut at the separator (None: blanks), each with where it stands."""
    try:
        with open_bytes(path) as file:
            # A file without ends of lines is not read into memory as a whole.
            for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
                if text.strip():
                    yield f"{path} line {number}", text.split(separator)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}. Convert the file to UTF-8.") from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}. Check the file and its permissions.") from error


def write_lines(path: Path, head: str, content: Iterable[str]) -> None:
    """Write a text file; `head` is its first line, where there is one."""
    with replace_files(path) as (part,), part.open("w", encoding="utf-8", newline="\n") as file:
        if head:
            file.write(f"{head}\n")
        file.writelines(f"{line}\n" for line in content)


SPLITS = ("test", "dev", "train")
HEADER = "query-id\tcorpus-id\tscore"


class Beir(Form):
    """A folder; or the file of judgements in it that is meant. By default that is the test part's."""

    name: ClassVar[str] = "beir"
    files: ClassVar[str] = "corpus.jsonl, queries.jsonl, qrels/NAME.tsv"

    def fits(self, path: Path) -> bool:
        return jsonl_file(_folder(path), "queries") is not None and bool(_qrels(path))

    def corpus(self, path: Path) -> Sequence[Path]:
        file = jsonl_file(_folder(path), "corpus")
        return () if file is None else (file,)

    def passages(self, path: Path) -> Iterator[PlacedPassage]:
        for file in self.corpus(path) or _lacks_file(path, "corpus.jsonl"):
            for place, row in read_rows(file):
                yield place, parse_passage(place, _native_row(row) | {"text": row.get("text")})

    def items(self, path: Path) -> Iterator[PlacedItem]:
        graded = _read_beir_grades(_qrels(path) or _lacks_file(path, "qrels/test.tsv"))
        remaining = dict(graded)
        queries = jsonl_file(_folder(path), "queries") or _lacks_file(path, "queries.jsonl")[0]
        for place, row in read_rows(queries):
            id, native_row = row.get("_id"), _native_row(row)
            # Metadata are read apart: BEIR's may have a field `grades` that holds no codes.
            item = parse_item(place, native_row | {"question": row.get("text"), "meta": {}}).but(
                meta=parse_meta(place, native_row)
            )
            if id in graded:
                yield place, item_with_grades(item, graded[item.id])
                remaining.pop(item.id, None)
        for id, grades in remaining.items():
            raise DataError(
                f"{grades.place}: question {id!r} is not in {queries}. Correct the id, or add the question."
            )

    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        write_rows(
            path / "corpus.jsonl",
            (_row(passage.id, passage.text, passage.meta, title=passage.title) for passage in passages),
        )
        write_rows(path / "queries.jsonl", (_row(item.id, item.question, _own_meta(item)) for item in items))
        (path / "qrels").mkdir(exist_ok=True)
        grades = ((item, id, grade) for item in items for id, grade in judgements(item, self.name))
        write_lines(path / "qrels" / "test.tsv", HEADER, (f"{item.id}\t{id}\t{grade:g}" for item, id, grade in grades))


def _row(id: str, text: str, meta: Any, **fields: str) -> dict[str, Any]:
    return {"_id": id, **fields, "text": text, "metadata": decode_meta(meta)}


def _own_meta(item: Item) -> Meta:
    return tuple(pair for pair in item.meta if pair[0] not in (NOT_RELEVANT, "grades"))


def _native_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": row.get("_id"), "title": row.get("title"), "meta": row.get("metadata") or {}}


def _folder(path: Path) -> Path:
    return path.parent.parent if path.suffix == ".tsv" else path


def _qrels(path: Path) -> list[Path]:
    """Find the file of judgements: the one that is named, else that of the first part that is there."""
    if path.suffix == ".tsv":
        return [path] if path.is_file() else []
    return [file for name in SPLITS if (file := path / "qrels" / f"{name}.tsv").is_file()][:1]


def _lacks_file(path: Path, name: str) -> list[Path]:
    raise DataError(f"There is no {name} in {path}. A data set of BEIR has {Beir.files}.")


def _read_beir_grades(files: Sequence[Path]) -> dict[str, QuestionGrades]:
    graded: dict[str, QuestionGrades] = {}
    for place, cells in read_lines(files[0], "\t"):
        if not graded and cells[-1] == "score":
            continue
        if len(cells) != 3:
            raise DataError(
                f"{place} has {len(cells)} columns. Write query-id, corpus-id and score, separated by tabs."
            )
        graded.setdefault(cells[0], QuestionGrades(place)).add(place, cells[1], cells[2])
    return graded


_TAG = {name: re.compile(rf"<{name}>(.*?)(?=</?[a-zA-Z]+>|\Z)", re.S | re.I) for name in
        ("num", "title", "desc", "docno", "headline")}  # fmt: skip
_TEXT = re.compile(r"<text>(.*)</text>", re.S | re.I)
_LABEL = re.compile(r"^\s*(Number|Topic|Description)\s*:\s*", re.I)
_BLANKS = re.compile(r"\s+")


class Trec(Form):
    """A folder with a file whose name begins with `topics`, one with `qrels`, and those with `docs` if there are any.

    Topics and documents stand between tags, or are a line each, id and text separated by a tab.
    """

    name: ClassVar[str] = "trec"
    files: ClassVar[str] = "topics*, qrels*, docs*"

    def fits(self, path: Path) -> bool:
        return bool(_find_files(path, "topics") and _find_files(path, "qrels"))

    def corpus(self, path: Path) -> Sequence[Path]:
        return _find_files(path, "docs")

    def passages(self, path: Path) -> Iterator[PlacedPassage]:
        for file in self.corpus(path) or _missing(path, "docs"):
            for place, block in _read_blocks(file, "DOC"):
                id, title, text = block if isinstance(block, tuple) else _document(place, block)
                yield place, Document(id, text, title=title)

    def items(self, path: Path) -> Iterator[PlacedItem]:
        graded = _read_trec_grades(_find_files(path, "qrels") or _missing(path, "qrels"))
        remaining = dict(graded)
        for file in _find_files(path, "topics") or _missing(path, "topics"):
            for place, block in _read_blocks(file, "top"):
                id, title, text = block if isinstance(block, tuple) else _topic(place, block)
                item = Item(id, title or text, meta=(("description", text),) if title and text else ())
                yield place, item_with_grades(item, graded.get(id, QuestionGrades(place)))
                remaining.pop(id, None)
        for id, grades in remaining.items():
            raise DataError(f"{grades.place}: topic {id!r} is not among the topics. Correct the id, or add the topic.")

    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        write_lines(path / "docs.trec", "", (_as_document(passage) for passage in passages))
        write_lines(path / "topics.trec", "", (_as_topic(item) for item in items))
        judged_pairs = ((item, id, grade) for item in items for id, grade in judgements(item, self.name))
        write_lines(
            path / "qrels.txt", "", (f"{_word(item.id)} 0 {_word(id)} {grade:g}" for item, id, grade in judged_pairs)
        )


def read_run(path: Path, items: Iterable[Item] = ()) -> dict[str, Ranking]:
    """Return the rankings of a run file, by id of the question: best score first, as trec_eval orders them.

    Raises:
        DataError: a line is not `topic Q0 document rank score tag`, or names a document twice.
    """
    questions, scores_by_topic = {item.id: item.question for item in items}, dict[str, dict[str, float]]()
    tag = ""
    for place, cells in read_lines(path, None):
        if len(cells) != 6:
            raise DataError(f"{place} has {len(cells)} columns. Write topic, Q0, document, rank, score and tag.")
        topic, _, document, _, score, tag = cells
        if document in scores_by_topic.setdefault(topic, {}):
            raise DataError(f"{place}: document {document!r} appears twice for topic {topic!r}. Keep one line.")
        scores_by_topic[topic][document] = _parse_score(place, score)
    return {
        topic: _ranking(Query(questions.get(topic) or topic), scores, tag) for topic, scores in scores_by_topic.items()
    }


def write_run(path: Path, rankings: Mapping[str, Ranking], tag: str = "spolia") -> None:
    """Write rankings as a run file; each node stands for its document, at its first place.

    trec_eval orders by score alone, as a number of 32 bits, and equal ones by name. So a score that is not below the
    one before it is written as the next number below: the order is that of the ranking.
    """

    def format_rankings() -> Iterator[str]:
        for topic, ranking in rankings.items():
            best: dict[str, float] = {}
            for hit in ranking:
                best.setdefault(hit.node.document or hit.node.id, hit.score)
            for rank, (id, score) in enumerate(zip(best, _strictly_falling(best.values()), strict=True), start=1):
                # All digits, so that rounding makes no scores equal.
                yield f"{_word(topic)} Q0 {_word(id)} {rank} {score!r} {_word(tag)}"

    write_lines(path, "", format_rankings())


def _parse_score(place: str, score: str) -> float:
    try:
        number = float(score)
    except ValueError:
        number = nan
    if isnan(number):
        raise DataError(f"{place}: the score {score!r} is not a number. Higher is better.")
    return number


def _strictly_falling(scores: Iterable[float]) -> Iterator[float]:
    """Yield scores of which each is below the one before it, also as numbers of 32 bits.

    >>> list(_strictly_falling([2.0, 1.0, 1.0]))
    [2.0, 1.0, 0.9999999403953552]
    """
    last = np.float32(np.inf)
    for score in scores:
        narrow = np.float32(score)
        last = narrow if narrow < last else np.nextafter(last, np.float32(-np.inf))
        yield score if last is narrow else float(last)


def _ranking(query: Query, scores: Mapping[str, float], tag: str) -> Ranking:
    """Rank documents by score; of equal scores the higher id is first, as in trec_eval."""
    best = sorted(sorted(scores, reverse=True), key=lambda id: -scores[id])
    return Ranking(query, tuple(Hit(Node(id, "", id), scores[id]) for id in best), tag)


def _find_files(path: Path, prefix: str) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(file for file in path.iterdir() if file.is_file() and file.name.lower().startswith(prefix))


def _missing(path: Path, prefix: str) -> list[Path]:
    raise DataError(f"No file in {path} has a name that begins with {prefix}. A data set of TREC has {Trec.files}.")


def _read_trec_grades(files: Sequence[Path]) -> dict[str, QuestionGrades]:
    graded: dict[str, QuestionGrades] = {}
    for file in files:
        for place, cells in read_lines(file, None):
            if len(cells) != 4:
                raise DataError(f"{place} has {len(cells)} columns. Write topic, iteration, document and relevance.")
            graded.setdefault(cells[0], QuestionGrades(place)).add(place, cells[2], cells[3])
    return graded


def _read_blocks(file: Path, tag: str) -> Iterator[tuple[str, str | tuple[str, str, str]]]:
    """Yield what stands between tags, with where it begins; or of each line its id, no title, and its text."""
    block: list[str] | None = None
    start = ""
    for place, [line] in read_lines(file, "\0"):  # no line has this character, so that it stays whole
        low = line.strip().lower()
        if block is None and low.startswith(f"<{tag.lower()}>"):
            block, start = [], place
        if block is None:
            id, tab, text = line.partition("\t")
            if not tab:
                raise DataError(f"{place} is neither between <{tag}> and </{tag}> nor an id, a tab and a text.")
            yield place, (id.strip(), "", text.strip())
            continue
        block.append(line)
        if low.endswith(f"</{tag.lower()}>"):
            yield start, "\n".join(block)
            block = None
    if block is not None:
        raise DataError(f"{start}: <{tag}> has no </{tag}>. The file is cut short.")


def _topic(place: str, block: str) -> tuple[str, str, str]:
    number, title, text = (
        _BLANKS.sub(" ", _LABEL.sub("", _tag_text(block, name))) for name in ("num", "title", "desc")
    )
    return _require_id(place, number, "<num>"), title, text


def _document(place: str, block: str) -> tuple[str, str, str]:
    id, text = _tag_text(block, "docno"), _tag_text(block, "text")
    return _require_id(place, id, "<DOCNO>"), _tag_text(block, "title") or _tag_text(block, "headline"), text


def _tag_text(block: str, tag: str) -> str:
    match = _TEXT.search(block) if tag == "text" else _TAG[tag].search(block)  # a text may have tags of its own
    return match[1].strip() if match else ""


def _require_id(place: str, id: str, tag: str) -> str:
    if not id:
        raise DataError(f"{place} has no {tag}. Give every one its own id.")
    return id


def _word(id: str) -> str:
    if not id or _BLANKS.search(id):
        raise DataError(f"The id {id!r} has blanks, which separate the columns of TREC. Give it another one.")
    return id


def _as_document(passage: Document) -> str:
    title = f"<TITLE>{passage.title}</TITLE>\n" if passage.title else ""
    return f"<DOC>\n<DOCNO>{_word(passage.id)}</DOCNO>\n{title}<TEXT>\n{passage.text}\n</TEXT>\n</DOC>"


def _as_topic(item: Item) -> str:
    description = f"\n<desc> {dict(item.meta)['description']}" if "description" in dict(item.meta) else ""
    return f"<top>\n<num> Number: {_word(item.id)}\n<title> {_BLANKS.sub(' ', item.question)}{description}\n</top>"
