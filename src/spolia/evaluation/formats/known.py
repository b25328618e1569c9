"""Which forms there are, and which one a data set has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from spolia.errors import DataError
from spolia.evaluation.formats.form import Form
from spolia.evaluation.jsonl import first_record

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
    """The form that a folder or file has; where none fits a folder, the one of which most is there, which says what is
    missing.

    Raises:
        DataError: nothing of any form is there; says what is.
    """
    if found := next((form for form in forms() if form.fits(path)), None):
        return found
    nearest = max(forms(), key=lambda form: _there(form, path))
    if _there(nearest, path) or not path.exists():
        return nearest
    has = _names(path) if path.is_dir() else f"a first row with: {', '.join(first_record(path)) or 'nothing'}"
    known = "; ".join(f"{form.called} ({form.files})" for form in forms())
    raise DataError(f"{path} is in no form that is known; it has {has}. Known: {known}. docs/datasets.md has them all.")


def _there(form: Form, folder: Path) -> int:
    """How many of the files of a form a folder has."""
    names = (name.partition(" ")[0].replace("NAME", "*") for name in form.files.split(", "))
    return sum(any(folder.glob(name)) for name in names) if folder.is_dir() else 0


def _names(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "nothing"
