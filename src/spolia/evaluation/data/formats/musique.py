"""MuSiQue: Trivedi et al., "MuSiQue: Multihop Questions via Single-hop Question Composition", 2022."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.data.dataset import TWIN
from spolia.evaluation.data.formats.hotpotqa import Pool, PooledForm, context_of, field_of, has_fields, rest_of
from spolia.evaluation.data.formats.native import plain
from spolia.evaluation.data.json_lines import write_rows
from spolia.types import Document, Item, Meta, SubQuestion

KNOWN = ("id", "question", "paragraphs", "question_decomposition", "answer", "answer_aliases", "answerable")
OURS = ("context", "supporting", "steps", "answer")


class MuSiQue(PooledForm):
    """One file of JSON lines, as it is published.

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
        return _item(place, row, pool)

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        known = {one.id: one for one in passages}
        write_rows(path, (_row(item, context_of(item, known)) for item in items))


def _item(place: str, row: Mapping[str, Any], pool: Pool) -> Item:
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
        meta=(*rest_of(row, KNOWN), *rest_of(own, ())),
    )


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
    } | {name: value for name, value in meta.items() if name not in OURS}
