"""Forms in which data sets are written: finding, reading and writing them, and what a form has no place for."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from spolia.core.public_names import load_name
from spolia.errors import DataError
from spolia.evaluation.data.json_lines import read_first_record
from spolia.types import Document, Gold, Item, Quote

Texts = Mapping[str, str]

TWIN = "-unanswerable"
"""Suffix of the id of a question's twin in a data set, whose passages do not answer it."""


def count_losses(
    form: str, original: tuple[Sequence[Document], Sequence[Item]], reread: tuple[Sequence[Document], Sequence[Item]]
) -> dict[str, int]:
    """Count what is not read as it was given.

    Passages are the same if their text is; questions if they are at the same place.

    >>> asked = Item("q", "What pulls?", answers=("the moon",), type="tides")
    >>> count_losses("beir", ([], [asked, asked.but(id="r")]), ([], [asked.but(answers=())]))
    {'answers of questions': 1, 'questions': 1}
    """
    texts = tuple({passage.id: passage.text for passage in passages} for passages, _ in (original, reread))
    (passages, items), (passages_read, items_read) = original, reread
    # A form may give other ids, so questions are paired by their places if none was lost.
    twins_by_id = (
        dict(zip((item.id for item in items), items_read, strict=True)) if len(items) == len(items_read) else {}
    )
    twins_by_id = twins_by_id or {item.id: item for item in items_read}
    counts = Counter(_passage_losses(passages, passages_read))
    for item in items:
        twin = twins_by_id.get(item.id)
        if item.gold != (twin.gold if twin else ()) and _gold(item, texts[0]) != (twin and _gold(twin, texts[1])):
            raise DataError(
                f"The gold of question {item.id!r} cannot be written in the form {form!r}: read again, it is "
                f"{twin.gold if twin else ()}, not {item.gold}. Write the form 'spolia'."
            )
        counts.update(_item_losses(item, twin, *texts) if twin else ["questions"])
    return dict(counts)


def _passage_losses(passages: Sequence[Document], reread: Sequence[Document]) -> Iterator[str]:
    by_id, by_text = {passage.id: passage for passage in reread}, {passage.text: passage for passage in reread}
    for passage in passages:
        twin = by_id.get(passage.id)
        twin = twin if twin and twin.text == passage.text else by_text.get(passage.text)
        if twin is None:
            yield "passages"
            continue
        yield from (f"{name} of passages" for name in ("id", "title") if getattr(passage, name) != getattr(twin, name))
        yield from (f"{name!r} of passages" for name, value in passage.meta if dict(twin.meta).get(name) != value)


def _item_losses(item: Item, twin: Item, texts: Texts, texts_read: Texts) -> Iterator[str]:
    fields, fields_read = _item_fields(item, texts), _item_fields(twin, texts_read)
    yield from (f"{name} of questions" for name in fields if fields[name] != fields_read[name])
    yield from (f"{name!r} of questions" for name, value in item.meta if dict(twin.meta).get(name) != value)


def _item_fields(item: Item, texts: Texts) -> dict[str, Any]:
    grades = dict(item.grades)
    return {
        "id": item.id,
        "text": item.question,
        "answers": item.answers,
        "type": item.type,
        "grades": {_text(member, texts): grades.get(str(member), 1.0) for group in item.gold for member in group},
        "decomposition": [(hop.question, hop.answer, texts.get(hop.gold_id, "")) for hop in item.decomposition],
    }


def _gold(item: Item, texts: Texts) -> set[frozenset[str]]:
    return {frozenset(_text(member, texts) for member in group) for group in item.gold}


def _text(gold: Gold, texts: Texts) -> str:
    return texts.get(gold, gold) if isinstance(gold, str) else str(gold)


PlacedPassage: TypeAlias = tuple[str, Document]
"""A passage, and where it stands: file and line, for errors."""
PlacedItem: TypeAlias = tuple[str, Item]
"""A question, and where it stands."""


class Form(ABC):
    """Form of a data set's files: its `name`, and the `files` that it consists of, for people."""

    name: ClassVar[str]
    files: ClassVar[str]
    needs_passages: ClassVar[bool] = False
    """Whether a data set of questions alone, such as a table, cannot be written so."""

    @abstractmethod
    def fits(self, path: Path) -> bool:
        """Return whether the files have this form; checks names, and the first row where names do not decide."""

    def corpus(self, path: Path) -> Sequence[Path]:
        """Return the files that hold the passages; none if there are only questions."""
        return ()

    @abstractmethod
    def passages(self, path: Path) -> Iterator[PlacedPassage]:
        """Yield the passages, one at a time."""

    @abstractmethod
    def items(self, path: Path) -> Iterator[PlacedItem]:
        """Yield the questions, one at a time."""

    def unread(self, path: Path) -> Mapping[str, int]:
        """Return the fields that this form does not read, with their counts: perhaps misspelt."""
        return {}

    def columns(self, path: Path) -> Mapping[str, str]:
        """Return which column of a table is read as what; nothing if the names are fixed."""
        return {}

    def other_columns(self, path: Path) -> Sequence[str]:
        """Return the columns of a table that are read as metadata."""
        return ()

    @abstractmethod
    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        """Write a data set in this form, as well as the form can."""

    def write(self, path: Path, passages: Iterable[Document], items: Iterable[Item]) -> dict[str, int]:
        """Write a data set in this form, read it again, and count what the form has no place for.

        >>> import tempfile
        >>> from spolia.evaluation.data.formats.trec import Beir
        >>> item = Item("q", "What pulls?", answers=("the moon",), gold=(("p",),))
        >>> Beir().write(Path(tempfile.mkdtemp()), [Document("p", "The moon pulls.")], [item])
        {'answers of questions': 1}
        """
        original = list(passages), list(items)
        if self.needs_passages and not original[0]:
            raise DataError(
                f"The data set has no passages, and {self.name} needs those that gold names. Write it in the form "
                "'spolia', which holds questions about files of a store, too."
            )
        self.write_files(path, *original)
        reread = [passage for _, passage in self.passages(path)], [item for _, item in self.items(path)]
        return count_losses(self.name, original, reread)


def passage_groups(item: Item, form: str) -> tuple[tuple[str, ...], ...]:
    """Return the gold as ids of passages, for forms that know nothing else."""
    if item.quotes:
        raise DataError(
            f"The gold of question {item.id!r} has the quote {str(item.quotes[0])!r}, and {form} names passages only. "
            "Write it in the form 'spolia'."
        )
    return tuple(tuple(member for member in group if not isinstance(member, Quote)) for group in item.gold)


def single_passages(item: Item, form: str) -> list[str]:
    """Return the gold as ids of which all are relevant, for forms that know no alternatives."""
    groups = passage_groups(item, form)
    if either := next((group for group in groups if len(group) > 1), None):
        raise DataError(
            f"Any of {', '.join(either[:3])} satisfies question {item.id!r}, which {form} cannot say. Write it in the "
            "form 'spolia' or 'autorag'."
        )
    return [group[0] for group in groups]


HOME = "spolia.evaluation.data.formats"
FORMS: Mapping[str, str] = {
    "spolia": "native.NativeForm",
    "beir": "trec.Beir",
    "autorag": "autorag.AutoRAG",
    "trec": "trec.Trec",
    "2wikimultihopqa": "hotpotqa.TwoWiki",
    "hotpotqa": "hotpotqa.HotpotQA",
    "musique": "hotpotqa.MuSiQue",
    "table": "table.QuestionTable",
}
"""The class of each, in the order in which they are tried."""


def form_named(name: str) -> Form:
    """Return the form of this name.

    >>> form_named("beir").files
    'corpus.jsonl, queries.jsonl, qrels/NAME.tsv'
    """
    if name not in FORMS:
        raise DataError(f"No form of data sets is called {name!r}. Write one of: {', '.join(FORMS)}.")
    module, _, cls = FORMS[name].rpartition(".")
    form: Form = load_name(f"{HOME}.{module}", cls)()
    return form


def forms() -> Iterator[Form]:
    return map(form_named, FORMS)


def detect_form(path: Path) -> Form:
    """Return the form of a folder or file; if none fits a folder, the one that has most of its files there."""
    # The order of `FORMS` matters: a file of 2WikiMultihopQA has all fields of HotpotQA, too.
    if match := next((form for form in forms() if form.fits(path)), None):
        return match
    best_form = max(forms(), key=lambda form: _count_files(form, path))
    if _count_files(best_form, path) or not path.exists():
        return best_form
    has = list_names(path) if path.is_dir() else f"a first row with: {', '.join(read_first_record(path)) or 'nothing'}"
    listed = "; ".join(f"{form.name} ({form.files})" for form in forms())
    raise DataError(
        f"{path} is in no form that is known; it has {has}. Known: {listed}. docs/reference/data_sets.md has them all."
    )


def _count_files(form: Form, folder: Path) -> int:
    """Count the files of a form that a folder has."""
    names = (name.partition(" ")[0].replace("NAME", "*") for name in form.files.split(", "))
    return sum(any(folder.glob(name)) for name in names) if folder.is_dir() else 0


def list_names(folder: Path) -> str:
    """List the first files of a folder, for errors."""
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "nothing"
