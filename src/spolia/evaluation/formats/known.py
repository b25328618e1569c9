"""Which forms there are, and which one a data set has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from spolia.errors import DataError
from spolia.evaluation.formats.form import Form

HOME = "spolia.evaluation.formats"
FORMS: Mapping[str, str] = {
    "spolia": "own.Own",
    "beir": "beir.Beir",
    "autorag": "autorag.AutoRAG",
    "trec": "trec.Trec",
    "2wikimultihopqa": "two_wiki.TwoWiki",
    "hotpotqa": "hotpotqa.HotpotQA",
    "musique": "musique.MuSiQue",
}
"""The class of each, in the order in which they are tried."""


def form_called(name: str) -> Form:
    """The form of this name.

    >>> form_called("beir").files
    'corpus.jsonl, queries.jsonl, qrels/NAME.tsv'
    """
    if name not in FORMS:
        raise DataError(f"No form of data sets is called {name!r}. Write one of: {', '.join(FORMS)}.")
    module, _, cls = FORMS[name].rpartition(".")
    found: Form = getattr(import_module(f"{HOME}.{module}"), cls)()
    return found


def forms() -> Iterator[Form]:
    """All of them."""
    return map(form_called, FORMS)


def form_of(path: Path) -> Form:
    """The form that a folder or file has; where none fits, the first, which says what is missing."""
    return next((form for form in forms() if form.fits(path)), form_called("spolia"))
