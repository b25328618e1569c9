"""Gold that can be found: documents that the stores have, which flows search, and quotes that stand in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from spolia.errors import DataError
from spolia.operator import Operator
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.tables import sql
from spolia.stores.tables.rows import document_of
from spolia.types import Gold, Item


def refuse_unknown_gold(items: Sequence[Item], flows: Iterable[Operator[Any, Any]]) -> None:
    """Refuse gold that no flow could find, since it would only lower their scores.

    Nothing is said where a flow searches no store: what it finds is not known here.

    Raises:
        DataError: names the first such id, and its question.
    """
    searched = [[one.corpus for one in flow.resources if isinstance(one, NodeGroup)] for flow in flows]
    if not all(searched):
        return
    corpora = {corpus.path: corpus for corpora in searched for corpus in corpora}
    missing = {one for item in items for group in item.gold for one in group}
    for corpus in corpora.values():
        missing -= {one for one in missing if _has(corpus, one)}
    for item in items:
        for one in (one for group in item.gold for one in group if one in missing):
            raise DataError(
                f"Gold {str(one)!r} of question {item.id!r} is no {_kind(one)} of {', '.join(corpora)}, and "
                f"{len(missing) - 1} more are not. Correct the ids, or index what they name."
            )


def _has(corpus: Corpus, gold: Gold) -> bool:
    snapshot = corpus.snapshot()
    id = gold if isinstance(gold, str) else gold.document
    row = snapshot.opened.row(sql.DOCUMENT, {"id": id, "at": snapshot.generation})
    if row is None or isinstance(gold, str):
        return row is not None
    return document_of(row, snapshot.readers.lists).text[gold.start : gold.end] == gold.text


def _kind(gold: Gold) -> str:
    return "document" if isinstance(gold, str) else f"quote “{gold.text[:60]}” in a document"
