"""HotpotQA, 2WikiMultihopQA, MuSiQue: the paragraphs that questions bring are one pool, in which each stands once."""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.data.dataset import TWIN
from spolia.evaluation.data.formats.form import Asked, Form, Placed
from spolia.evaluation.data.formats.native import plain
from spolia.evaluation.data.json_lines import first_record, records, whole_files, write_rows
from spolia.types import Document, Item, Meta, Scalar, SubQuestion


@dataclass
class Pool:
    """Ids of paragraphs: the title, and which text of that title it is, since different texts share one."""

    texts: dict[str, dict[str, int]] = field(default_factory=dict)

    def id(self, title: str, text: str) -> tuple[str, bool]:
        """The id of a paragraph, and whether it was not there before.

        >>> pool = Pool()
        >>> pool.id("Nokia", "A town."), pool.id("Nokia", "A company."), pool.id("Nokia", "A town.")
        (('Nokia#1', True), ('Nokia#2', True), ('Nokia#1', False))
        """
        known = self.texts.setdefault(title, {})
        new = text not in known
        number = known.setdefault(text, len(known) + 1)
        return f"{title}#{number}", new


def has_fields(path: Path, *names: str) -> bool:
    if not path.is_file():
        return False
    found = first_record(path)
    return all(name in found for name in names)


def field_of(place: str, row: Mapping[str, Any], name: str, kind: type | tuple[type, ...] = str) -> Any:
    """A field that must be there and of a kind."""
    found = row.get(name)
    if not isinstance(found, kind):
        there = "missing" if name not in row else repr(found)[:80]
        raise DataError(f"{place}: {name!r} is {there}. The fields are: {', '.join(row) or 'none'}.")
    return found


def rest_of(row: Mapping[str, Any], known: Sequence[str]) -> Iterator[tuple[str, Scalar]]:
    """All other fields as metadata; what is no scalar as JSON."""
    for name, value in row.items():
        if name not in known:
            scalar = isinstance(value, str | int | float | bool | None)
            yield name, value if scalar else json.dumps(value, ensure_ascii=False)


def context_of(item: Item, passages: Mapping[str, Document]) -> list[Document]:
    """The paragraphs that a question brought, and all that are its gold."""
    named = list(plain(item.meta).get("context") or ())
    named += [one for group in item.gold for one in group if one not in named]
    if lacking := next((one for one in named if not isinstance(one, str) or one not in passages), None):
        raise DataError(f"{str(lacking)!r} of question {item.id!r} is not a passage of the corpus.")
    return [passages[one] for one in named]


class PooledForm(Form):
    """One file of questions, each with its own paragraphs; `Pool` gives these their ids."""

    needs_passages: ClassVar[bool] = True

    def corpus(self, path: Path) -> Sequence[Path]:
        return (path,)

    def passages(self, path: Path) -> Iterator[Placed]:
        pool = Pool()
        for place, row in records(path):
            for title, text, meta in self.paragraphs(place, row):
                id, new = pool.id(title, text)
                if new:
                    yield place, Document(id, text, title=title, meta=meta)

    def items(self, path: Path) -> Iterator[Asked]:
        pool = Pool()
        for place, row in records(path):
            yield place, self.item(place, row, pool)

    @abstractmethod
    def paragraphs(self, place: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, Meta]]:
        """Title, text and metadata of the paragraphs of a row."""

    @abstractmethod
    def item(self, place: str, row: Mapping[str, Any], pool: Pool) -> Item:
        """The question of a row."""


KNOWN = ("_id", "question", "answer", "type", "context", "supporting_facts")
OURS = ("context", "supporting_sentences", "supporting_facts")


class HotpotQA(PooledForm):
    """One file, as it is published. Gold is every paragraph with a supporting fact; its sentences are metadata."""

    called: ClassVar[str] = "hotpotqa"
    files: ClassVar[str] = "one file of JSON, with context and supporting_facts"

    def fits(self, path: Path) -> bool:
        return has_fields(path, "_id", "context", "supporting_facts")

    def paragraphs(self, place: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, Meta]]:
        for title, sentences in _context(place, row):
            text, starts = together(sentences)
            yield title, text, (("sentences", json.dumps(starts)),)

    def item(self, place: str, row: Mapping[str, Any], pool: Pool) -> Item:
        context = _context(place, row)
        brought = [pool.id(title, together(sentences)[0])[0] for title, sentences in context]
        ids = dict(zip((title for title, _ in context), brought, strict=True))
        facts = _facts(place, row, ids)
        sentences = dict(context)
        told = [
            {"gold_id": ids[title], "sentence": sentences[title][at].strip()}
            for title, at in facts
            if 0 <= at < len(sentences[title])
        ]
        answer = row.get("answer")
        own = {"context": brought, "supporting_sentences": told, "supporting_facts": facts}
        return Item(
            field_of(place, row, "_id"),
            field_of(place, row, "question"),
            answers=(answer,) if isinstance(answer, str) and answer else (),
            gold=tuple((ids[title],) for title in dict.fromkeys(title for title, _ in facts)),
            type=row.get("type") or "",
            decomposition=self.steps(place, row, ids),
            meta=(*rest_of(row, (*KNOWN, *self.more)), *rest_of(own, ())),
        )

    more: ClassVar[tuple[str, ...]] = ()
    """Fields that `steps` reads."""

    def steps(self, place: str, row: Mapping[str, Any], ids: Mapping[str, str]) -> tuple[SubQuestion, ...]:
        """The hops, if the row has them."""
        return ()

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        known = {one.id: one for one in passages}
        rows = [self.row(item, context_of(item, known)) for item in items]
        with whole_files(path) as (part,):
            part.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")

    def row(self, item: Item, context: Sequence[Document]) -> dict[str, Any]:
        meta, titles = plain(item.meta), {one.id: one.title for one in context}
        gold = [[titles[str(one)], 0] for group in item.gold for one in group]
        facts = meta.get("supporting_facts") or []
        rest = {name: value for name, value in meta.items() if name not in OURS}
        return {
            "_id": item.id,
            "answer": item.answers[0] if item.answers else "",
            "question": item.question,
            "supporting_facts": facts if {title for title, _ in facts} == {title for title, _ in gold} else gold,
            "context": [[one.title, apart(one)] for one in context],
            "type": item.type,
        } | rest


def together(sentences: Sequence[str]) -> tuple[str, list[int]]:
    """Sentences as one text, and where each begins. Those that do not begin with a blank get one before them.

    >>> together(["A town.", " It is old.", "It is small."])
    ('A town. It is old. It is small.', [0, 7, 19])
    """
    text, starts = "", list[int]()
    for sentence in sentences:
        text += " " if text and sentence and not sentence[0].isspace() and not text[-1].isspace() else ""
        starts.append(len(text))
        text += sentence
    return text, starts


def apart(passage: Document) -> list[str]:
    """The sentences of which a passage was made; all of it where that is not known."""
    starts = plain(passage.meta).get("sentences")
    if not starts:
        return [passage.text]
    ends = [*starts[1:], len(passage.text)]
    found = [passage.text[start:end] for start, end in zip(starts, ends, strict=True)]
    joined = [one[:-1] if one.endswith(" ") and at + 1 < len(found) else one for at, one in enumerate(found)]
    return joined if together(joined)[0] == passage.text else found


def _context(place: str, row: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Titles and sentences: `[[title, [sentence, …]], …]`, or as an object of two lists, as some mirrors have it."""
    found = row.get("context")
    if isinstance(found, Mapping):
        found = list(zip(found.get("title") or (), found.get("sentences") or found.get("content") or (), strict=False))
    try:
        return [(str(title), [str(one) for one in sentences]) for title, sentences in found or ()]
    except (TypeError, ValueError):
        raise DataError(f"{place}: 'context' is not [[title, [sentence, …]], …].") from None


def _facts(place: str, row: Mapping[str, Any], ids: Mapping[str, str]) -> list[tuple[str, int]]:
    found = row.get("supporting_facts")
    if isinstance(found, Mapping):
        found = list(zip(found.get("title") or (), found.get("sent_id") or (), strict=False))
    try:
        facts = [(str(title), int(at)) for title, at in found or ()]
    except (TypeError, ValueError):
        raise DataError(f"{place}: 'supporting_facts' is not [[title, number of the sentence], …].") from None
    if lacking := next((title for title, _ in facts if title not in ids), None):
        raise DataError(f"{place}: the supporting fact {lacking!r} has no paragraph in 'context'.")
    return facts


OF = " >> "


class TwoWiki(HotpotQA):
    """As HotpotQA, with evidences: triples of subject, relation, object, which are the hops."""

    called: ClassVar[str] = "2wikimultihopqa"
    files: ClassVar[str] = "one file of JSON, with context, supporting_facts and evidences"
    more: ClassVar[tuple[str, ...]] = ("evidences",)

    def fits(self, path: Path) -> bool:
        return has_fields(path, "_id", "context", "supporting_facts", "evidences")

    def steps(self, place: str, row: Mapping[str, Any], ids: Mapping[str, str]) -> tuple[SubQuestion, ...]:
        try:
            triples = [(str(one), str(relation), str(other)) for one, relation, other in row.get("evidences") or ()]
        except (TypeError, ValueError):
            raise DataError(f"{place}: 'evidences' is not [[subject, relation, object], …].") from None
        return tuple(SubQuestion(f"{one}{OF}{relation}", other, ids.get(one, "")) for one, relation, other in triples)

    def row(self, item: Item, context: Sequence[Document]) -> dict[str, Any]:
        steps = ((*one.question.rpartition(OF)[::2], one.answer) for one in item.decomposition)
        return super().row(item, context) | {"evidences": [list(step) for step in steps]}


MUSIQUE_FIELDS = ("id", "question", "paragraphs", "question_decomposition", "answer", "answer_aliases", "answerable")
MUSIQUE_OURS = ("context", "supporting", "steps", "answer")


class MuSiQue(PooledForm):
    """One file of JSON lines, as it is published (Trivedi et al. 2022).

    A question that cannot be answered has no gold. MuSiQue-Full has each question twice under one id, with paragraphs
    that answer it and without; here the id of the second ends in `-unanswerable`, and both are in the same part.
    """

    called: ClassVar[str] = "musique"
    files: ClassVar[str] = "one file of JSON lines, with paragraphs and question_decomposition"

    def fits(self, path: Path) -> bool:
        return has_fields(path, "paragraphs", "question_decomposition")

    def paragraphs(self, place: str, row: Mapping[str, Any]) -> Iterator[tuple[str, str, Meta]]:
        return ((title, text, ()) for title, text, _ in _paragraphs(place, row))

    def item(self, place: str, row: Mapping[str, Any], pool: Pool) -> Item:
        paragraphs = _paragraphs(place, row)
        ids = [pool.id(title, text)[0] for title, text, _ in paragraphs]
        id, answerable = field_of(place, row, "id"), row.get("answerable", True)
        hops = [_hop(place, hop, ids) for hop in field_of(place, row, "question_decomposition", list)]
        supporting = [one for one, (_, _, yes) in zip(ids, paragraphs, strict=True) if yes]
        gold = dict.fromkeys([hop.gold_id for hop in hops if hop.gold_id in supporting] + supporting)
        answers = dict.fromkeys((row.get("answer") or "", *(row.get("answer_aliases") or ())))
        own: dict[str, Any] = {"context": ids, "supporting": supporting}
        own["steps"] = [hop.get("id") for hop in row["question_decomposition"]]
        own |= {} if answerable else {"answer": list(answers)}
        return Item(
            id if answerable else id + TWIN,
            field_of(place, row, "question"),
            answers=tuple(filter(None, answers)) if answerable else (),
            gold=tuple((one,) for one in gold) if answerable else (),
            type=id.partition("__")[0] if answerable else "unanswerable",
            decomposition=tuple(hops),
            meta=(*rest_of(row, MUSIQUE_FIELDS), *rest_of(own, ())),
        )

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        known = {one.id: one for one in passages}
        write_rows(path, (_row(item, context_of(item, known)) for item in items))


def _paragraphs(place: str, row: Mapping[str, Any]) -> list[tuple[str, str, bool]]:
    found = field_of(place, row, "paragraphs", list)
    if not all(isinstance(one, Mapping) and isinstance(one.get("paragraph_text"), str) for one in found):
        raise DataError(f"{place}: 'paragraphs' is not a list of objects with title and paragraph_text.")
    return [(one.get("title") or "", one["paragraph_text"], bool(one.get("is_supporting"))) for one in found]


def _hop(place: str, hop: Any, ids: Sequence[str]) -> SubQuestion:
    at = hop.get("paragraph_support_idx") if isinstance(hop, Mapping) else "no object"
    if at is not None and (type(at) is not int or not 0 <= at < len(ids)):
        raise DataError(f"{place}: a hop's paragraph_support_idx is {at!r}; there are {len(ids)} paragraphs.")
    question, answer = (str(hop.get(name) or "") for name in ("question", "answer"))
    return SubQuestion(question, answer, "" if at is None else ids[at])


def _row(item: Item, context: Sequence[Document]) -> dict[str, Any]:
    meta, ids = plain(item.meta), [one.id for one in context]
    answerable = item.type != "unanswerable"
    supporting = {one for group in item.gold for one in group} if answerable else set(meta.get("supporting") or ())
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
            {"idx": at, "title": one.title, "paragraph_text": one.text, "is_supporting": one.id in supporting}
            for at, one in enumerate(context)
        ],
        "question": item.question,
        "question_decomposition": hops,
        "answer": answers[0] if answers else "",
        "answer_aliases": answers[1:],
        "answerable": answerable,
    } | {name: value for name, value in meta.items() if name not in MUSIQUE_OURS}
