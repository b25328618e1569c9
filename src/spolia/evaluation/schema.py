"""The rows of a data set.

    corpus       {id, title, text, meta}
    questions    {id, question, answers, type, gold_ids, decomposition?: [{question, answer, gold_id}], meta}

`gold_ids` are all the passages that are needed or relevant. Of `meta`, only `grades` means something here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spolia.errors import DataError
from spolia.types import Document, Item, Meta, SubQuestion

WORST_GRADE = 4


def passage_in(place: str, row: Mapping[str, Any]) -> Document:
    """The passage that a row of a corpus describes; `place` names the row in errors."""
    return Document(
        _text(place, row, "id", required=True),
        _text(place, row, "text", required=True),
        title=_text(place, row, "title"),
        meta=_meta(place, row),
    )


def item_in(place: str, row: Mapping[str, Any]) -> Item:
    """The question that a row of questions describes."""
    gold = _gold(place, row)
    return Item(
        _text(place, row, "id", required=True),
        _text(place, row, "question", required=True),
        answers=tuple(_strings(place, "answers", row.get("answers", []))),
        gold=gold,
        grades=_grades(place, row.get("meta") or {}, gold),
        type=_text(place, row, "type"),
        decomposition=tuple(_hop(place, hop) for hop in _list(place, "decomposition", row.get("decomposition") or [])),
        meta=_meta(place, row),
    )


def _hop(place: str, hop: object) -> SubQuestion:
    if not isinstance(hop, Mapping):
        raise DataError(
            f"{place}: a hop of 'decomposition' is {type(hop).__name__}; write an object with question and answer."
        )
    return SubQuestion(*(_text(place, hop, name) for name in ("question", "answer", "gold_id")))


def _gold(place: str, row: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Each gold id is a group of its own; a list among them is a group of which any one suffices."""
    groups: dict[tuple[str, ...], None] = {}
    for one in _list(place, "gold_ids", row.get("gold_ids") or []):
        group = _strings(place, "gold_ids", one if isinstance(one, list) else [one])
        if not group:
            raise DataError(f"{place}: 'gold_ids' holds an empty group. Name at least one passage, or leave it out.")
        groups[tuple(dict.fromkeys(group))] = None
    return tuple(groups)


def _grades(place: str, meta: object, gold: Sequence[Sequence[str]]) -> tuple[tuple[str, float], ...]:
    """`meta.grades` holds judgement codes from 1, the best, to 4; the gain of code c is 5 - c: higher is better."""
    codes = meta.get("grades") if isinstance(meta, Mapping) else None
    if codes is None:
        return ()
    known = {one for group in gold for one in group}
    found: list[tuple[str, float]] = []
    for id, code in codes.items() if isinstance(codes, Mapping) else [("meta.grades", codes)]:
        if type(code) is not int or not 1 <= code <= WORST_GRADE or id not in known:
            raise DataError(
                f"{place}: grade {code!r} of {id!r} is not a code from 1 (best) to {WORST_GRADE} of one of the gold "
                'ids. Write "grades": {"gold id": code}.'
            )
        found.append((id, float(WORST_GRADE + 1 - code)))
    return tuple(found)


def _meta(place: str, row: Mapping[str, Any]) -> Meta:
    """The data set's own fields; what is not a scalar is kept as JSON."""
    meta = row.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise DataError(f"{place}: 'meta' is {type(meta).__name__}; write an object.")
    plain = (str, int, float, bool, type(None))
    return tuple((k, v if isinstance(v, plain) else json.dumps(v, ensure_ascii=False)) for k, v in meta.items())


def _text(place: str, row: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    found = row.get(name)
    if found is None and not required:
        return ""
    if not isinstance(found, str) or (required and not found and name != "text"):
        there = "missing" if name not in row else repr(found)
        raise DataError(f"{place}: {name!r} is {there}; write a text. The fields are: {', '.join(row) or 'none'}.")
    return found


def _list(place: str, name: str, found: object) -> list[Any]:
    if not isinstance(found, list):
        raise DataError(f"{place}: {name!r} is {found!r}; write a list.")
    return found


def _strings(place: str, name: str, found: object) -> list[str]:
    for one in (listed := _list(place, name, found)):
        if not isinstance(one, str):
            raise DataError(f"{place}: {name!r} holds {one!r}; write texts.")
    return listed
