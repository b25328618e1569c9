"""Judgements of relevance (qrels), as BEIR and TREC write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from spolia.errors import DataError
from spolia.evaluation.formats.form import single_passages
from spolia.evaluation.jsonl import LONGEST, opened
from spolia.types import Item

NOT_RELEVANT = "judged_not_relevant"
"""Metadata: ids of the passages that were judged and found not relevant, as JSON."""


@dataclass
class Judged:
    """What was judged for one question.

    Args:
        place: where the first judgement stands.
        grades: by passage; 0 and less is not relevant.
    """

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
