"""TREC: topics, judgements of four columns, runs of six, documents between tags, as trec_eval has them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import ClassVar

import numpy as np

from spolia.errors import DataError
from spolia.evaluation.data.formats.beir import Judged, judged_item, judgements, lines, write_lines
from spolia.evaluation.data.formats.form import Asked, Form, Placed
from spolia.types import Document, Hit, Item, Node, Query, Ranking

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
            raise DataError(f"{place}: document {document!r} stands twice for topic {topic!r}. Keep one line.")
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
        raise DataError(f"{place}: the score {score!r} is no number. Higher is better.")
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
