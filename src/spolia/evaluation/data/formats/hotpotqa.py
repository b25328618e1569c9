"""HotpotQA, 2WikiMultihopQA, MuSiQue: the paragraphs that questions bring are one pool, in which each stands once."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.data.formats.form import TWIN, Form, PlacedItem, PlacedPassage
from spolia.evaluation.data.formats.native import decode_meta
from spolia.evaluation.data.json_lines import read_first_record, read_records, replace_files, write_rows
from spolia.types import Document, Item, Meta, Scalar, SubQuestion


@dataclass
class Pool:
    """Ids of paragraphs: the title, and which text of that title it is, since different texts share one."""

    texts: dict[str, dict[str, int]] = field(default_factory=dict)

    def id(self, title: str, text: str) -> tuple[str, bool]:
        """Return the id of a paragraph, and whether it is new.

        >>> pool = Pool()
        >>> pool.id("Nokia", "A town."), pool.id("Nokia", "A company."), pool.id("Nokia", "A town.")
        (('Nokia#1', True), ('Nokia#2', True), ('Nokia#1', False))
        """
        numbers = self.texts.setdefault(title, {})
        is_new = text not in numbers
        number = numbers.setdefault(text, len(numbers) + 1)
        return f"{title}#{number}", is_new


def has_fields(path: Path, *names: str) -> bool:
    if not path.is_file():
        return False
    record = read_first_record(path)
    return all(name in record for name in names)


def require_field(place: str, row: Mapping[str, Any], name: str, kind: type | tuple[type, ...] = str) -> Any:
    """Return a field that must be there and of a kind."""
    value = row.get(name)
    if not isinstance(value, kind):
        state = "missing" if name not in row else repr(value)[:80]
        raise DataError(f"{place}: {name!r} is {state}. The fields are: {', '.join(row) or 'none'}.")
    return value


def other_fields(row: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[str, Scalar]]:
    """Yield all other fields as metadata; what is no scalar as JSON."""
    for name, value in row.items():
        if name not in names:
            scalar = isinstance(value, str | int | float | bool | None)
            yield name, value if scalar else json.dumps(value, ensure_ascii=False)


def context_passages(item: Item, passages: Mapping[str, Document]) -> list[Document]:
    """Return the paragraphs that a question brought, and all that are its gold."""
    ids = list(decode_meta(item.meta).get("context") or ())
    ids += [id for group in item.gold for id in group if id not in ids]
    if missing := next((id for id in ids if not isinstance(id, str) or id not in passages), None):
        raise DataError(f"{str(missing)!r} of question {item.id!r} is not a passage of the corpus.")
    return [passages[id] for id in ids]


class PooledForm(Form):
    """One file of questions, each with its own paragraphs; `Pool` gives these their ids."""

    needs_passages: ClassVar[bool] = True

    def corpus(self, path: Path) -> Sequence[Path]:
        return (path,)

    def passages(self, path: Path) -> Iterator[PlacedPassage]:
        pool = Pool()
        for place, row in read_records(path):
            for title, text, meta in self.paragraphs(place, row):
                id, new = pool.id(title, text)
                if new:
                    yield place, Document(id, text, title=title, meta=meta)

    def items(self, path: Path) -> Iterator[PlacedItem]:
        pool = Pool()  # filled in the order of `passages`, so that both give the same ids
        for place, row in read_records(path):
            yield place, self.item(place, row, pool)

    @abstractmethod
    def paragraphs(self, place: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, Meta]]:
        """Yield title, text and metadata of the paragraphs of a row."""

    @abstractmethod
    def item(self, place: str, row: Mapping[str, Any], pool: Pool) -> Item:
        """Return the question of a row."""


FIELDS = ("_id", "question", "answer", "type", "context", "supporting_facts")
OURS = ("context", "supporting_sentences", "supporting_facts")


class HotpotQA(PooledForm):
    """One file, as it is published. Gold is every paragraph with a supporting fact; its sentences are metadata."""

    name: ClassVar[str] = "hotpotqa"
    files: ClassVar[str] = "one file of JSON, with context and supporting_facts"

    def fits(self, path: Path) -> bool:
        return has_fields(path, "_id", "context", "supporting_facts")

    def paragraphs(self, place: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, Meta]]:
        for title, sentences in _context(place, row):
            text, starts = join_sentences(sentences)
            yield title, text, (("sentences", json.dumps(starts)),)

    def item(self, place: str, row: Mapping[str, Any], pool: Pool) -> Item:
        context = _context(place, row)
        brought = [pool.id(title, join_sentences(sentences)[0])[0] for title, sentences in context]
        ids = dict(zip((title for title, _ in context), brought, strict=True))
        facts = _facts(place, row, ids)
        sentences = dict(context)
        supporting = [
            {"gold_id": ids[title], "sentence": sentences[title][number].strip()}
            for title, number in facts
            if 0 <= number < len(sentences[title])  # some published facts number a sentence that is not there
        ]
        answer = row.get("answer")
        own_meta = {"context": brought, "supporting_sentences": supporting, "supporting_facts": facts}
        return Item(
            require_field(place, row, "_id"),
            require_field(place, row, "question"),
            answers=(answer,) if isinstance(answer, str) and answer else (),
            gold=tuple((ids[title],) for title in dict.fromkeys(title for title, _ in facts)),
            type=row.get("type") or "",
            decomposition=self.steps(place, row, ids),
            meta=(*other_fields(row, (*FIELDS, *self.step_fields)), *other_fields(own_meta, ())),
        )

    step_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that `steps` reads."""

    def steps(self, place: str, row: Mapping[str, Any], ids: Mapping[str, str]) -> tuple[SubQuestion, ...]:
        """Return the hops, if the row has them."""
        return ()

    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        passages_by_id = {passage.id: passage for passage in passages}
        rows = [self.row(item, context_passages(item, passages_by_id)) for item in items]
        with replace_files(path) as (part,):
            part.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")

    def row(self, item: Item, context: Sequence[Document]) -> dict[str, Any]:
        meta, titles = decode_meta(item.meta), {passage.id: passage.title for passage in context}
        gold = [[titles[str(member)], 0] for group in item.gold for member in group]
        facts = meta.get("supporting_facts") or []
        rest = {name: value for name, value in meta.items() if name not in OURS}
        return {
            "_id": item.id,
            "answer": item.answers[0] if item.answers else "",
            "question": item.question,
            # If the gold was changed, the facts as published no longer belong to it.
            "supporting_facts": facts if {title for title, _ in facts} == {title for title, _ in gold} else gold,
            "context": [[passage.title, split_sentences(passage)] for passage in context],
            "type": item.type,
        } | rest


def join_sentences(sentences: Sequence[str]) -> tuple[str, list[int]]:
    """Join sentences to one text, and say where each begins. Those that do not begin with a blank get one before them.

    >>> join_sentences(["A town.", " It is old.", "It is small."])
    ('A town. It is old. It is small.', [0, 7, 19])
    """
    text, starts = "", list[int]()
    for sentence in sentences:
        text += " " if text and sentence and not sentence[0].isspace() and not text[-1].isspace() else ""
        starts.append(len(text))
        text += sentence
    return text, starts


def split_sentences(passage: Document) -> list[str]:
    """Return the sentences of which a passage was made; all of it if that is not known."""
    starts = decode_meta(passage.meta).get("sentences")
    if not starts:
        return [passage.text]
    ends = [*starts[1:], len(passage.text)]
    sentences = [passage.text[start:end] for start, end in zip(starts, ends, strict=True)]
    trimmed = [
        # `join_sentences` adds this blank again.
        sentence[:-1] if sentence.endswith(" ") and index + 1 < len(sentences) else sentence
        for index, sentence in enumerate(sentences)
    ]
    return trimmed if join_sentences(trimmed)[0] == passage.text else sentences


def _context(place: str, row: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return titles and sentences: `[[title, [sentence, …]], …]`, or as an object of two lists, as some mirrors have
    it."""
    rows = row.get("context")
    if isinstance(rows, Mapping):
        rows = list(zip(rows.get("title") or (), rows.get("sentences") or rows.get("content") or (), strict=False))
    try:
        return [(str(title), [str(sentence) for sentence in sentences]) for title, sentences in rows or ()]
    except (TypeError, ValueError):
        raise DataError(f"{place}: 'context' is not [[title, [sentence, …]], …].") from None


def _facts(place: str, row: Mapping[str, Any], ids: Mapping[str, str]) -> list[tuple[str, int]]:
    rows = row.get("supporting_facts")
    if isinstance(rows, Mapping):
        rows = list(zip(rows.get("title") or (), rows.get("sent_id") or (), strict=False))
    try:
        facts = [(str(title), int(number)) for title, number in rows or ()]
    except (TypeError, ValueError):
        raise DataError(f"{place}: 'supporting_facts' is not [[title, number of the sentence], …].") from None
    if missing := next((title for title, _ in facts if title not in ids), None):
        raise DataError(f"{place}: the supporting fact {missing!r} has no paragraph in 'context'.")
    return facts


TRIPLE_MARK = " >> "


class TwoWiki(HotpotQA):
    """As HotpotQA, with evidences: triples of subject, relation, object, which are the hops."""

    name: ClassVar[str] = "2wikimultihopqa"
    files: ClassVar[str] = "one file of JSON, with context, supporting_facts and evidences"
    step_fields: ClassVar[tuple[str, ...]] = ("evidences",)

    def fits(self, path: Path) -> bool:
        return has_fields(path, "_id", "context", "supporting_facts", "evidences")

    def steps(self, place: str, row: Mapping[str, Any], ids: Mapping[str, str]) -> tuple[SubQuestion, ...]:
        try:
            triples = [
                (str(subject), str(relation), str(target)) for subject, relation, target in row.get("evidences") or ()
            ]
        except (TypeError, ValueError):
            raise DataError(f"{place}: 'evidences' is not [[subject, relation, object], …].") from None
        return tuple(
            SubQuestion(f"{subject}{TRIPLE_MARK}{relation}", target, ids.get(subject, ""))
            for subject, relation, target in triples
        )

    def row(self, item: Item, context: Sequence[Document]) -> dict[str, Any]:
        steps = ((*hop.question.rpartition(TRIPLE_MARK)[::2], hop.answer) for hop in item.decomposition)
        return super().row(item, context) | {"evidences": [list(step) for step in steps]}


MUSIQUE_FIELDS = ("id", "question", "paragraphs", "question_decomposition", "answer", "answer_aliases", "answerable")
MUSIQUE_OURS = ("context", "supporting", "steps", "answer")


class MuSiQue(PooledForm):
    """One file of JSON lines, as it is published (Trivedi et al. 2022).

    A question that cannot be answered has no gold. MuSiQue-Full has each question twice under one id, with paragraphs
    that answer it and without; here the id of the second ends in `-unanswerable`, and both are in the same part.
    """

    name: ClassVar[str] = "musique"
    files: ClassVar[str] = "one file of JSON lines, with paragraphs and question_decomposition"

    def fits(self, path: Path) -> bool:
        return has_fields(path, "paragraphs", "question_decomposition")

    def paragraphs(self, place: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, Meta]]:
        return ((title, text, ()) for title, text, _ in _paragraphs(place, row))

    def item(self, place: str, row: Mapping[str, Any], pool: Pool) -> Item:
        paragraphs = _paragraphs(place, row)
        ids = [pool.id(title, text)[0] for title, text, _ in paragraphs]
        id, answerable = require_field(place, row, "id"), row.get("answerable", True)
        hops = [_hop(place, hop, ids) for hop in require_field(place, row, "question_decomposition", list)]
        supporting = [passage for passage, (_, _, is_supporting) in zip(ids, paragraphs, strict=True) if is_supporting]
        gold = dict.fromkeys([hop.gold_id for hop in hops if hop.gold_id in supporting] + supporting)
        answers = dict.fromkeys((row.get("answer") or "", *(row.get("answer_aliases") or ())))
        own_meta: dict[str, Any] = {"context": ids, "supporting": supporting}
        own_meta["steps"] = [hop.get("id") for hop in row["question_decomposition"]]
        own_meta |= {} if answerable else {"answer": list(answers)}
        return Item(
            id if answerable else id + TWIN,
            require_field(place, row, "question"),
            answers=tuple(filter(None, answers)) if answerable else (),
            gold=tuple((passage,) for passage in gold) if answerable else (),
            type=id.partition("__")[0] if answerable else "unanswerable",  # MuSiQue's ids begin with the kind: 2hop__
            decomposition=tuple(hops),
            meta=(*other_fields(row, MUSIQUE_FIELDS), *other_fields(own_meta, ())),
        )

    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        passages_by_id = {passage.id: passage for passage in passages}
        write_rows(path, (_row(item, context_passages(item, passages_by_id)) for item in items))


def _paragraphs(place: str, row: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    paragraphs = require_field(place, row, "paragraphs", list)
    if not all(
        isinstance(paragraph, Mapping) and isinstance(paragraph.get("paragraph_text"), str) for paragraph in paragraphs
    ):
        raise DataError(f"{place}: 'paragraphs' is not a list of objects with title and paragraph_text.")
    return [
        (paragraph.get("title") or "", paragraph["paragraph_text"], bool(paragraph.get("is_supporting")))
        for paragraph in paragraphs
    ]


def _hop(place: str, hop: Any, ids: Sequence[str]) -> SubQuestion:
    index = hop.get("paragraph_support_idx") if isinstance(hop, Mapping) else "no object"
    if index is not None and (type(index) is not int or not 0 <= index < len(ids)):  # `True` would pass as an `int`
        raise DataError(f"{place}: a hop's paragraph_support_idx is {index!r}; there are {len(ids)} paragraphs.")
    question, answer = (str(hop.get(name) or "") for name in ("question", "answer"))
    return SubQuestion(question, answer, "" if index is None else ids[index])


def _row(item: Item, context: Sequence[Document]) -> dict[str, Any]:
    meta, ids = decode_meta(item.meta), [passage.id for passage in context]
    answerable = item.type != "unanswerable"
    supporting = (
        {member for group in item.gold for member in group} if answerable else set(meta.get("supporting") or ())
    )
    answers = list(item.answers) if answerable else meta.get("answer") or []
    numbers = meta.get("steps") or [None] * len(item.decomposition)
    hops = [
        {
            "id": number,
            "question": hop.question,
            "answer": hop.answer,
            "paragraph_support_idx": ids.index(hop.gold_id) if hop.gold_id in ids else None,
        }
        for number, hop in zip(numbers, item.decomposition, strict=True)
    ]
    return {
        "id": item.id if answerable else item.id.removesuffix(TWIN),
        "paragraphs": [
            {
                "idx": index,
                "title": passage.title,
                "paragraph_text": passage.text,
                "is_supporting": passage.id in supporting,
            }
            for index, passage in enumerate(context)
        ],
        "question": item.question,
        "question_decomposition": hops,
        "answer": answers[0] if answers else "",
        "answer_aliases": answers[1:],
        "answerable": answerable,
    } | {name: value for name, value in meta.items() if name not in MUSIQUE_OURS}
