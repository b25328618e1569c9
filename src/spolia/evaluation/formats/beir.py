"""BEIR: Thakur et al. 2021, "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.formats.form import Asked, Form, Placed
from spolia.evaluation.formats.judgements import NOT_RELEVANT, Judged, judged_item, judgements, lines, write_lines
from spolia.evaluation.formats.own import plain
from spolia.evaluation.jsonl import jsonl_file, rows, write_rows
from spolia.evaluation.schema import item_in, meta_in, passage_in
from spolia.types import Document, Item, Meta

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
            for number, row in rows(file):
                place = f"{file} line {number}"
                yield place, passage_in(place, _renamed(row) | {"text": row.get("text")})

    def items(self, path: Path) -> Iterator[Asked]:
        judged = _judged(_qrels(path) or _missing(path, "qrels/test.tsv"))
        lacking = dict(judged)
        asked = jsonl_file(_folder(path), "queries") or _missing(path, "queries.jsonl")[0]
        for number, row in rows(asked):
            place, id = f"{asked} line {number}", row.get("_id")
            named = _renamed(row)
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
    """Metadata without what the judgements say."""
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
