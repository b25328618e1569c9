"""Questions with their gold, of which data sets are made."""

from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from spolia.errors import DataError
from spolia.types.value import Meta, Value, lazy_property


@dataclass(frozen=True)
class SubQuestion(Value):
    """One hop of a question: what it asks, its answer, the passage that states it."""

    question: str
    answer: str
    gold_id: str = ""


SOMEWHERE = -1
"""The start of a quote that has to be looked for."""


@dataclass(frozen=True)
class Quote(Value):
    """Stretch of a document that is gold, whatever the document is cut into.

    Args:
        document: id of the document, or the name of its source: a file's path in the indexed folder.
        start: its first character in the document's text, from 0; `SOMEWHERE` if it occurs only once there and is
            found when a store is asked.
        text: exactly `document.text[start : start + len(text)]`; blanks aside if Spolia finds its place.

    >>> quote = Quote("tides", 4, "moon pulls")
    >>> str(quote), quote.end
    ('tides[4:14]', 14)
    >>> str(Quote("sea/tides.md", text="The moon pulls the sea."))
    'sea/tides.md “The moon pulls the sea.”'
    """

    document: str
    start: int = SOMEWHERE
    text: str = ""

    @property
    def end(self) -> int:
        """Return the place after its last character."""
        return self.start + len(self.text)

    def __str__(self) -> str:
        return f"{self.document} “{self.text}”" if self.start < 0 else f"{self.document}[{self.start}:{self.end}]"


Gold: TypeAlias = str | Quote
"""What is to be found: a document by its id or the name of its source (any node of it will do), or a stretch of one."""


@dataclass(frozen=True)
class Item(Value):
    """Question with its gold.

    Args:
        id: unique within a data set.
        question: its text.
        answers: accepted answers, the main one first.
        gold: groups of documents, by id or by name, or quotes; a group is satisfied by any of its members, the gold by
            all groups.
        grades: how relevant a gold passage (or `str(quote)`) is, from 0, higher is better, where judges gave grades;
            else every one counts 1.
        type: a label to slice by.
        decomposition: the hops, where they are known.
        meta: anything else that the data set says.

    Raises:
        DataError: a group of the gold is empty or a text, or a grade is not a number from 0.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    gold: tuple[tuple[Gold, ...], ...] = ()
    grades: tuple[tuple[str, float], ...] = ()
    type: str = ""
    decomposition: tuple[SubQuestion, ...] = ()
    meta: Meta = ()

    def __post_init__(self) -> None:
        # A text is iterable: `gold=("p1",)` would be read as the passages `p` and `1`.
        if wrong := [group for group in self.gold if not group or isinstance(group, str | Quote)]:
            raise DataError(
                f"The gold of question {self.id!r} has the group {wrong[0]!r}. Write a tuple of groups, each a tuple "
                'of at least one passage or quote, any of which will do: (("p1",), ("p2", "p3")).'
            )
        if bad := [(passage, grade) for passage, grade in self.grades if not 0 <= grade < inf]:
            raise DataError(f"The grade of {bad[0][0]!r} of question {self.id!r} is {bad[0][1]}. Write 0 or more.")

    @lazy_property
    def quotes(self) -> tuple[Quote, ...]:
        """Return the stretches of documents among its gold, each once."""
        return tuple(dict.fromkeys(member for group in self.gold for member in group if isinstance(member, Quote)))

    @lazy_property
    def documents(self) -> frozenset[str]:
        """Return ids of the documents that are gold, or of which a stretch is."""
        return frozenset(
            member if isinstance(member, str) else member.document for group in self.gold for member in group
        )
