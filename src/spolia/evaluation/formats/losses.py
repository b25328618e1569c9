"""What a form had no place for: a data set beside itself as it is read again from what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spolia.errors import DataError
from spolia.types import Document, Gold, Item

Texts = Mapping[str, str]


def losses(
    form: str, given: tuple[Sequence[Document], Sequence[Item]], read: tuple[Sequence[Document], Sequence[Item]]
) -> dict[str, int]:
    """What is not as it was given, with how often.

    Passages are the same whose text is, whatever the form calls them; questions that stand at the same place.

    Args:
        form: in which it was written.
        given: passages and questions.
        read: those that were read again.

    Raises:
        DataError: the gold of a question is another one.

    >>> asked = Item("q", "What pulls?", answers=("the moon",), type="tides")
    >>> losses("beir", ([], [asked, asked.but(id="r")]), ([], [asked.but(answers=())]))
    {'answers of questions': 1, 'questions': 1}
    """
    texts = tuple({one.id: one.text for one in passages} for passages, _ in (given, read))
    (passages, items), (same, again) = given, read
    twins = dict(zip((one.id for one in items), again, strict=True)) if len(items) == len(again) else {}
    twins = twins or {one.id: one for one in again}
    found = Counter(_of_passages(passages, same))
    for item in items:
        twin = twins.get(item.id)
        if item.gold != (twin.gold if twin else ()) and _gold(item, texts[0]) != (twin and _gold(twin, texts[1])):
            raise DataError(
                f"The gold of question {item.id!r} cannot be said in the form {form!r}: read again, it is "
                f"{twin.gold if twin else ()}, not {item.gold}. Write the form 'spolia'."
            )
        found.update(_of_item(item, twin, *texts) if twin else ["questions"])
    return dict(found)


def _of_passages(given: Sequence[Document], read: Sequence[Document]) -> Iterator[str]:
    by_id, by_text = {one.id: one for one in read}, {one.text: one for one in read}
    for one in given:
        twin = by_id.get(one.id)
        twin = twin if twin and twin.text == one.text else by_text.get(one.text)
        if twin is None:
            yield "passages"
            continue
        yield from (f"{name} of passages" for name in ("id", "title") if getattr(one, name) != getattr(twin, name))
        yield from (f"{name!r} of passages" for name, value in one.meta if dict(twin.meta).get(name) != value)


def _of_item(item: Item, twin: Item, before: Texts, after: Texts) -> Iterator[str]:
    told, again = _told(item, before), _told(twin, after)
    yield from (f"{name} of questions" for name in told if told[name] != again[name])
    yield from (f"{name!r} of questions" for name, value in item.meta if dict(twin.meta).get(name) != value)


def _told(item: Item, texts: Texts) -> dict[str, Any]:
    grades = dict(item.grades)
    return {
        "id": item.id,
        "text": item.question,
        "answers": item.answers,
        "type": item.type,
        "grades": {_text(one, texts): grades.get(str(one), 1.0) for group in item.gold for one in group},
        "decomposition": [(one.question, one.answer, texts.get(one.gold_id, "")) for one in item.decomposition],
    }


def _gold(item: Item, texts: Texts) -> set[frozenset[str]]:
    return {frozenset(_text(one, texts) for one in group) for group in item.gold}


def _text(gold: Gold, texts: Texts) -> str:
    return texts.get(gold, gold) if isinstance(gold, str) else str(gold)
