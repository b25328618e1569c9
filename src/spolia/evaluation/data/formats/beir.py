"""Judgements of relevance (qrels), as BEIR and TREC write them."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.data.formats.form import Asked, Form, Placed, single_passages
from spolia.evaluation.data.formats.native import item_in, meta_in, passage_in, plain
from spolia.evaluation.data.json_lines import LONGEST, jsonl_file, opened, rows, write_rows
from spolia.types import Document, Item, Meta

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
                f"{place}: the grade {grade!r} is no number. Write 0 for not relevant, 1 or more for relevant."
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
    with path.open("w", encoding="utf-8", newline="\n") as file:
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
        for file in self.corpus(path) or _missing(path, "corpus.jsonl"):
            for place, row in rows(file):
                yield place, passage_in(place, _renamed(row) | {"text": row.get("text")})

    def items(self, path: Path) -> Iterator[Asked]:
        judged = _judged(_qrels(path) or _missing(path, "qrels/test.tsv"))
        lacking = dict(judged)
        asked = jsonl_file(_folder(path), "queries") or _missing(path, "queries.jsonl")[0]
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


def _missing(path: Path, name: str) -> list[Path]:
    raise DataError(f"There is no {name} in {path}. A data set of BEIR has {Beir.files}.")


def _judged(files: Sequence[Path]) -> dict[str, Judged]:
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
