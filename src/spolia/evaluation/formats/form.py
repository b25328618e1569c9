"""What a form of data sets says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias

from spolia.errors import DataError
from spolia.evaluation.formats.losses import losses
from spolia.types import Document, Item, Quote

Placed: TypeAlias = tuple[str, Document]
"""A passage, and where it stands: file and line, for errors."""
Asked: TypeAlias = tuple[str, Item]
"""A question, and where it stands."""


class Form(ABC):
    """One way to write passages and questions.

    Class attributes:
        called: its name.
        files: what it consists of, for people.
    """

    called: ClassVar[str]
    files: ClassVar[str]

    @abstractmethod
    def fits(self, path: Path) -> bool:
        """Whether what is there is written so; looks at names, and at the first row where those do not tell."""

    @abstractmethod
    def corpus(self, path: Path) -> Sequence[Path]:
        """The files that hold the passages; none where there are only questions."""

    @abstractmethod
    def passages(self, path: Path) -> Iterator[Placed]:
        """The passages, one at a time.

        Raises:
            DataError: what is there does not follow the form; names file and line.
        """

    @abstractmethod
    def items(self, path: Path) -> Iterator[Asked]:
        """The questions, one at a time."""

    def unread(self, path: Path) -> Mapping[str, int]:
        """Fields that nothing here reads, with how often they stand there: misspelt ones, perhaps."""
        return {}

    @abstractmethod
    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        """Write a data set so, as well as the form can."""

    def write(self, path: Path, passages: Iterable[Document], items: Iterable[Item]) -> dict[str, int]:
        """Write a data set so, read it again, and say what the form has no place for, with how often.

        >>> import tempfile
        >>> from spolia.evaluation.formats.beir import Beir
        >>> item = Item("q", "What pulls?", answers=("the moon",), gold=(("p",),))
        >>> Beir().write(Path(tempfile.mkdtemp()), [Document("p", "The moon pulls.")], [item])
        {'answers of questions': 1}

        Raises:
            DataError: the form cannot say what the gold is; what was written until then is no data set.
        """
        given = list(passages), list(items)
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
