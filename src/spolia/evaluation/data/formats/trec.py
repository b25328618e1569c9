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
from spolia.evaluation.data.formats.form import Asked, Form, Placed, single_passages
from spolia.evaluation.data.formats.native import item_in, meta_in, passage_in, plain
from spolia.evaluation.data.json_lines import LONGEST, jsonl_file, opened, rows, whole_files, write_rows
from spolia.types import Document, Hit, Item, Meta, Node, Query, Ranking

NOT_RELEVANT = "judged_not_relevant"
"""Metadata: ids of the passages that were judged and found not relevant, as JSON."""


@dataclass
class Judged:
    """Grades of the passages judged for one question (0 and less: not relevant), and where the first stands."""

    place: str
    grades: dict[str, float] = field(default_factory=dict)

    def add(self, place: str, passage: str, grade: str) -> None:
        """Take a judgement; the same passage must not be judged twice."""
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


def judged_item(item: Item, judged: Judged) -> Item:
    """A question with what was judged for it: each relevant passage is a group of its own."""
    relevant = {id: grade for id, grade in judged.grades.items() if grade > 0}
    refused = [id for id in judged.grades if id not in relevant]
    graded = any(grade != 1 for grade in relevant.values())
    return item.but(
        gold=tuple((id,) for id in relevant),
        grades=tuple(relevant.items()) if graded else (),
        meta=item.meta + (((NOT_RELEVANT, json.dumps(refused, ensure_ascii=False)),) if refused else ()),
    )


def judgements(item: Item, form: str) -> Iterator[tuple[str, float]]:
    """The judgements of a question, with those that found nothing relevant."""
    grades = dict(item.grades)
    yield from ((id, grades.get(id, 1.0)) for id in single_passages(item, form))
    yield from ((id, 0.0) for id in json.loads(str(dict(item.meta).get(NOT_RELEVANT, "[]"))))


def lines(path: Path, separator: str | None) -> Iterator[tuple[str, list[str]]]:
    """The lines of a text file, cut at the separator (None: blanks), each with where it stands."""
    try:
        with opened(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST), b""), start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
                if text.strip():
                    yield f"{path} line {number}", text.split(separator)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}. Convert the file to UTF-8.") from error
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}. Check the file and its permissions.") from error


def write_lines(path: Path, head: str, written: Iterable[str]) -> None:
    """Write a text file; `head` is its first line, where there is one."""
    with whole_files(path) as (part,), part.open("w", encoding="utf-8", newline="\n") as file:
        if head:
            file.write(f"{head}\n")
        file.writelines(f"{line}\n" for line in written)


SPLITS = ("test", "dev", "train")
HEADER = "query-id\tcorpus-id\tscore"


class Beir(Form):
    """A folder; or the file of judgements in it that is meant. By default that is the test part's."""

    called: ClassVar[str] = "beir"
    files: ClassVar[str] = "corpus.jsonl, queries.jsonl, qrels/NAME.tsv"

    def fits(self, path: Path) -> bool:
        return jsonl_file(_folder(path), "queries") is not None and bool(_qrels(path))

    def corpus(self, path: Path) -> Sequence[Path]:
        found = jsonl_file(_folder(path), "corpus")
        return () if found is None else (found,)

    def passages(self, path: Path) -> Iterator[Placed]:
        for file in self.corpus(path) or _lacks_file(path, "corpus.jsonl"):
            for place, row in rows(file):
                yield place, passage_in(place, _renamed(row) | {"text": row.get("text")})

    def items(self, path: Path) -> Iterator[Asked]:
        judged = _grades_in(_qrels(path) or _lacks_file(path, "qrels/test.tsv"))
        lacking = dict(judged)
        asked = jsonl_file(_folder(path), "queries") or _lacks_file(path, "queries.jsonl")[0]
        for place, row in rows(asked):
            id, named = row.get("_id"), _renamed(row)
            item = item_in(place, named | {"question": row.get("text"), "meta": {}}).but(meta=meta_in(place, named))
            if id in judged:
                yield place, judged_item(item, judged[item.id])
                lacking.pop(item.id, None)
        for id, found in lacking.items():
            raise DataError(f"{found.place}: question {id!r} is not in {asked}. Correct the id, or add the question.")

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        write_rows(path / "corpus.jsonl", (_row(one.id, one.text, one.meta, title=one.title) for one in passages))
        write_rows(path / "queries.jsonl", (_row(one.id, one.question, _said(one)) for one in items))
        (path / "qrels").mkdir(exist_ok=True)
        grades = ((item, id, grade) for item in items for id, grade in judgements(item, self.called))
        write_lines(path / "qrels" / "test.tsv", HEADER, (f"{item.id}\t{id}\t{grade:g}" for item, id, grade in grades))


def _row(id: str, text: str, meta: Any, **more: str) -> dict[str, Any]:
    return {"_id": id, **more, "text": text, "metadata": plain(meta)}


def _said(item: Item) -> Meta:
    return tuple(pair for pair in item.meta if pair[0] not in (NOT_RELEVANT, "grades"))


def _renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": row.get("_id"), "title": row.get("title"), "meta": row.get("metadata") or {}}


def _folder(path: Path) -> Path:
    return path.parent.parent if path.suffix == ".tsv" else path


def _qrels(path: Path) -> list[Path]:
    """The file of judgements: the one that is named, else that of the first part that is there."""
    if path.suffix == ".tsv":
        return [path] if path.is_file() else []
    return [file for name in SPLITS if (file := path / "qrels" / f"{name}.tsv").is_file()][:1]


def _lacks_file(path: Path, name: str) -> list[Path]:
    raise DataError(f"There is no {name} in {path}. A data set of BEIR has {Beir.files}.")


def _grades_in(files: Sequence[Path]) -> dict[str, Judged]:
    found: dict[str, Judged] = {}
    for place, cells in lines(files[0], "\t"):
        if not found and cells[-1] == "score":
            continue
        if len(cells) != 3:
            raise DataError(
                f"{place} has {len(cells)} columns. Write query-id, corpus-id and score, separated by tabs."
            )
        found.setdefault(cells[0], Judged(place)).add(place, cells[1], cells[2])
    return found


_TAG = {name: re.compile(rf"<{name}>(.*?)(?=</?[a-zA-Z]+>|\Z)", re.S | re.I) for name in
        ("num", "title", "desc", "docno", "headline")}  # fmt: skip
_TEXT = re.compile(r"<text>(.*)</text>", re.S | re.I)
_LABEL = re.compile(r"^\s*(Number|Topic|Description)\s*:\s*", re.I)
_BLANKS = re.compile(r"\s+")


class Trec(Form):
    """A folder with a file whose name begins with `topics`, one with `qrels`, and those with `docs` if there are any.

    Topics and documents stand between tags, or are a line each, id and text separated by a tab.
    """

    called: ClassVar[str] = "trec"
    files: ClassVar[str] = "topics*, qrels*, docs*"

    def fits(self, path: Path) -> bool:
        return bool(_named(path, "topics") and _named(path, "qrels"))

    def corpus(self, path: Path) -> Sequence[Path]:
        return _named(path, "docs")

    def passages(self, path: Path) -> Iterator[Placed]:
        for file in self.corpus(path) or _missing(path, "docs"):
            for place, block in _blocks(file, "DOC"):
                id, title, text = block if isinstance(block, tuple) else _document(place, block)
                yield place, Document(id, text, title=title)

    def items(self, path: Path) -> Iterator[Asked]:
        judged = _judged(_named(path, "qrels") or _missing(path, "qrels"))
        lacking = dict(judged)
        for file in _named(path, "topics") or _missing(path, "topics"):
            for place, block in _blocks(file, "top"):
                id, title, text = block if isinstance(block, tuple) else _topic(place, block)
                item = Item(id, title or text, meta=(("description", text),) if title and text else ())
                yield place, judged_item(item, judged.get(id, Judged(place)))
                lacking.pop(id, None)
        for id, found in lacking.items():
            raise DataError(f"{found.place}: topic {id!r} is not among the topics. Correct the id, or add the topic.")

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        write_lines(path / "docs.trec", "", (_as_document(one) for one in passages))
        write_lines(path / "topics.trec", "", (_as_topic(one) for one in items))
        judged = ((item, id, grade) for item in items for id, grade in judgements(item, self.called))
        write_lines(path / "qrels.txt", "", (f"{_word(item.id)} 0 {_word(id)} {grade:g}" for item, id, grade in judged))


def read_run(path: Path, items: Iterable[Item] = ()) -> dict[str, Ranking]:
    """The rankings of a run file, by id of the question: best score first, as trec_eval orders them.

    Raises:
        DataError: a line is not `topic Q0 document rank score tag`, or names a document twice.
    """
    asked, found = {item.id: item.question for item in items}, dict[str, dict[str, float]]()
    tag = ""
    for place, cells in lines(path, None):
        if len(cells) != 6:
            raise DataError(f"{place} has {len(cells)} columns. Write topic, Q0, document, rank, score and tag.")
        topic, _, document, _, score, tag = cells
        if document in found.setdefault(topic, {}):
            raise DataError(f"{place}: document {document!r} appears twice for topic {topic!r}. Keep one line.")
        found[topic][document] = _number(place, score)
    return {topic: _ranking(Query(asked.get(topic) or topic), scores, tag) for topic, scores in found.items()}


def write_run(path: Path, rankings: Mapping[str, Ranking], tag: str = "spolia") -> None:
    """Write rankings as a run file; each node stands for its document, at its first place.

    trec_eval orders by score alone, as a number of 32 bits, and equal ones by name. So a score that is not below the
    one before it is written as the next number below: the order is that of the ranking.
    """

    def written() -> Iterator[str]:
        for topic, ranking in rankings.items():
            best: dict[str, float] = {}
            for hit in ranking:
                best.setdefault(hit.node.document or hit.node.id, hit.score)
            for rank, (id, score) in enumerate(zip(best, _falling(best.values()), strict=True), start=1):
                yield f"{_word(topic)} Q0 {_word(id)} {rank} {score!r} {_word(tag)}"

    write_lines(path, "", written())


def _number(place: str, score: str) -> float:
    try:
        found = float(score)
    except ValueError:
        found = nan
    if isnan(found):
        raise DataError(f"{place}: the score {score!r} is not a number. Higher is better.")
    return found


def _falling(scores: Iterable[float]) -> Iterator[float]:
    """Scores of which each is below the one before it, also as numbers of 32 bits.

    >>> list(_falling([2.0, 1.0, 1.0]))
    [2.0, 1.0, 0.9999999403953552]
    """
    last = np.float32(np.inf)
    for score in scores:
        found = np.float32(score)
        last = found if found < last else np.nextafter(last, np.float32(-np.inf))
        yield score if last is found else float(last)


def _ranking(query: Query, scores: Mapping[str, float], tag: str) -> Ranking:
    """Of equal scores the higher id is first, as in trec_eval."""
    best = sorted(sorted(scores, reverse=True), key=lambda id: -scores[id])
    return Ranking(query, tuple(Hit(Node(id, "", id), scores[id]) for id in best), tag)


def _named(path: Path, begins: str) -> list[Path]:
    if not path.is_dir():
        return []
    return sorted(one for one in path.iterdir() if one.is_file() and one.name.lower().startswith(begins))


def _missing(path: Path, begins: str) -> list[Path]:
    raise DataError(f"No file in {path} has a name that begins with {begins}. A data set of TREC has {Trec.files}.")


def _judged(files: Sequence[Path]) -> dict[str, Judged]:
    found: dict[str, Judged] = {}
    for file in files:
        for place, cells in lines(file, None):
            if len(cells) != 4:
                raise DataError(f"{place} has {len(cells)} columns. Write topic, iteration, document and relevance.")
            found.setdefault(cells[0], Judged(place)).add(place, cells[2], cells[3])
    return found


def _blocks(file: Path, tag: str) -> Iterator[tuple[str, str | tuple[str, str, str]]]:
    """What stands between tags, with where it begins; or of each line its id, no title, and its text."""
    inside: list[str] | None = None
    begun = ""
    for place, [line] in lines(file, "\0"):
        low = line.strip().lower()
        if inside is None and low.startswith(f"<{tag.lower()}>"):
            inside, begun = [], place
        if inside is None:
            id, found, text = line.partition("\t")
            if not found:
                raise DataError(f"{place} is neither between <{tag}> and </{tag}> nor an id, a tab and a text.")
            yield place, (id.strip(), "", text.strip())
            continue
        inside.append(line)
        if low.endswith(f"</{tag.lower()}>"):
            yield begun, "\n".join(inside)
            inside = None
    if inside is not None:
        raise DataError(f"{begun}: <{tag}> has no </{tag}>. The file is cut short.")


def _topic(place: str, block: str) -> tuple[str, str, str]:
    number, title, text = (_BLANKS.sub(" ", _LABEL.sub("", _inside(block, name))) for name in ("num", "title", "desc"))
    return _needed(place, number, "<num>"), title, text


def _document(place: str, block: str) -> tuple[str, str, str]:
    id, text = _inside(block, "docno"), _inside(block, "text")
    return _needed(place, id, "<DOCNO>"), _inside(block, "title") or _inside(block, "headline"), text


def _inside(block: str, tag: str) -> str:
    found = _TEXT.search(block) if tag == "text" else _TAG[tag].search(block)  # a text may have tags of its own
    return found[1].strip() if found else ""


def _needed(place: str, found: str, tag: str) -> str:
    if not found:
        raise DataError(f"{place} has no {tag}. Give every one its own id.")
    return found


def _word(id: str) -> str:
    if not id or _BLANKS.search(id):
        raise DataError(f"The id {id!r} has blanks, which separate the columns of TREC. Give it another one.")
    return id


def _as_document(one: Document) -> str:
    title = f"<TITLE>{one.title}</TITLE>\n" if one.title else ""
    return f"<DOC>\n<DOCNO>{_word(one.id)}</DOCNO>\n{title}<TEXT>\n{one.text}\n</TEXT>\n</DOC>"


def _as_topic(one: Item) -> str:
    description = f"\n<desc> {dict(one.meta)['description']}" if "description" in dict(one.meta) else ""
    return f"<top>\n<num> Number: {_word(one.id)}\n<title> {_BLANKS.sub(' ', one.question)}{description}\n</top>"
