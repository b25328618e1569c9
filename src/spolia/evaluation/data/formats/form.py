"""The forms in which data sets are written: finding, reading and writing them, and what a form has no place for."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from spolia.errors import DataError
from spolia.evaluation.data.json_lines import first_record
from spolia.types import Document, Gold, Item, Quote

Texts = Mapping[str, str]


def losses(
    form: str, given: tuple[Sequence[Document], Sequence[Item]], read: tuple[Sequence[Document], Sequence[Item]]
) -> dict[str, int]:
    """What is not as it was given, with how often.

    Passages are the same if their text is; questions if they are at the same place.

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
                f"The gold of question {item.id!r} cannot be written in the form {form!r}: read again, it is "
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


Placed: TypeAlias = tuple[str, Document]
"""A passage, and where it stands: file and line, for errors."""
Asked: TypeAlias = tuple[str, Item]
"""A question, and where it stands."""


class Form(ABC):
    """One way to write passages and questions: what it is `called`, and the `files` that it consists of, for people."""

    called: ClassVar[str]
    files: ClassVar[str]
    needs_passages: ClassVar[bool] = False
    """Whether a data set of questions alone, such as a table, cannot be written so."""

    @abstractmethod
    def fits(self, path: Path) -> bool:
        """Whether the files have this form; checks names, and the first row where names do not decide."""

    def corpus(self, path: Path) -> Sequence[Path]:
        """The files that hold the passages; none where there are only questions."""
        return ()

    @abstractmethod
    def passages(self, path: Path) -> Iterator[Placed]:
        """The passages, one at a time."""

    @abstractmethod
    def items(self, path: Path) -> Iterator[Asked]:
        """The questions, one at a time."""

    def unread(self, path: Path) -> Mapping[str, int]:
        """Fields that this form does not read, with their counts: perhaps misspelt."""
        return {}

    def columns(self, path: Path) -> Mapping[str, str]:
        """Which column of a table is read as what; nothing where the names are fixed."""
        return {}

    def other_columns(self, path: Path) -> Sequence[str]:
        """The columns of a table that are read as metadata."""
        return ()

    @abstractmethod
    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        """Write a data set so, as well as the form can."""

    def write(self, path: Path, passages: Iterable[Document], items: Iterable[Item]) -> dict[str, int]:
        """Write a data set so, read it again, and say what the form has no place for, with how often.

        >>> import tempfile
        >>> from spolia.evaluation.data.formats.trec import Beir
        >>> item = Item("q", "What pulls?", answers=("the moon",), gold=(("p",),))
        >>> Beir().write(Path(tempfile.mkdtemp()), [Document("p", "The moon pulls.")], [item])
        {'answers of questions': 1}
        """
        given = list(passages), list(items)
        if self.needs_passages and not given[0]:
            raise DataError(
                f"The data set has no passages, and {self.called} needs those that gold names. Write it in the form "
                "'spolia', which holds questions about files of a store, too."
            )
        self.put(path, *given)
        read = [one for _, one in self.passages(path)], [one for _, one in self.items(path)]
        return losses(self.called, given, read)


def passage_groups(item: Item, form: str) -> tuple[tuple[str, ...], ...]:
    """The gold as ids of passages, for forms that know nothing else."""
    if item.quotes:
        raise DataError(
            f"The gold of question {item.id!r} has the quote {str(item.quotes[0])!r}, and {form} names passages only. "
            "Write it in the form 'spolia'."
        )
    return tuple(tuple(one for one in group if not isinstance(one, Quote)) for group in item.gold)


def single_passages(item: Item, form: str) -> list[str]:
    """The gold as ids of which all are relevant, for forms that know no alternatives."""
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
    return map(form_called, FORMS)


def form_of(path: Path) -> Form:
    """The form that a folder or file has; where none fits a folder, the one of which most is there."""
    if found := next((form for form in forms() if form.fits(path)), None):
        return found
    nearest = max(forms(), key=lambda form: _there(form, path))
    if _there(nearest, path) or not path.exists():
        return nearest
    has = names_in(path) if path.is_dir() else f"a first row with: {', '.join(first_record(path)) or 'nothing'}"
    known = "; ".join(f"{form.called} ({form.files})" for form in forms())
    raise DataError(
        f"{path} is in no form that is known; it has {has}. Known: {known}. docs/reference/data_sets.md has them all."
    )


def _there(form: Form, folder: Path) -> int:
    """How many of the files of a form a folder has."""
    names = (name.partition(" ")[0].replace("NAME", "*") for name in form.files.split(", "))
    return sum(any(folder.glob(name)) for name in names) if folder.is_dir() else 0


def names_in(folder: Path) -> str:
    """The first files of a folder, for errors."""
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "nothing"
