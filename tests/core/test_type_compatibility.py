"""Which types fit which: generic operators of users, aliases, unions, sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NewType, Protocol, TypeVar, Union

import pytest

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.type_compatibility import fits
from spolia.types import Answer, Query, Ranking, Value
from tests.cases import check_each

T = TypeVar("T")
Name = NewType("Name", str)


class Named(Protocol):
    name: str


class Scores(dict[str, T], Generic[T]):
    """One parameter fewer than its base."""


@dataclass(frozen=True)
class Box(Value, Generic[T]):
    content: T


@dataclass(frozen=True)
class TextBox(Box[str]):
    pass


FITS: list[tuple[Any, Any, bool]] = [
    (Sequence[Query], tuple[Query, ...], True),
    (Sequence[Query], list[Query], True),
    (list[Query], tuple[Query, ...], False),
    (tuple[Query, ...], list[Query], False),
    (tuple[Query, Query], tuple[Query, ...], True),
    (tuple[Query, Ranking], tuple[Query, Query], False),
    (tuple[int, str], tuple, True),
    (Iterable[str], Mapping[str, int], True),
    (Mapping[str, float], Scores[float], True),
    (dict[str, float], Scores[str], False),
    (Box[str], TextBox, True),
    (Box[int], TextBox, False),
    (Box[int], Box[str], False),
    (Query | None, Query, True),
    (Query, Query | None, False),
    (Union[Query, Ranking], Query | Ranking, True),  # noqa: UP007
    (type(None), None, True),
    (None, type(None), True),
    (str, Name, True),
    (str, Annotated[str, "a name"], True),
    (Annotated[Query, "asked"], Query, True),
    (Named, Query, True),
    (float, int, True),
    (int, float, False),
]


@check_each(("wanted", "given", "yes"), FITS)
def test_what_fits(wanted: Any, given: Any, yes: bool) -> None:
    assert fits(wanted, given, {}) is yes


@dataclass(frozen=True)
class Both(Operator[T, tuple[T, T]]):
    """Generic in what it passes on."""

    def apply(self, value: T, /) -> tuple[T, T]:
        return (value, value)


@dataclass(frozen=True)
class Counted(Both[T]):
    """A subclass that leaves the type open."""


@dataclass(frozen=True)
class OfQueries(Both[Query]):
    """A subclass that fixes it."""


@dataclass(frozen=True)
class Below(OfQueries):
    """A subclass that says nothing of types."""


@dataclass(frozen=True)
class Later(Operator["Query", "Soon"]):
    """Names what is defined below."""

    def apply(self, value: Query, /) -> Soon:
        return Soon(value.text)


@dataclass(frozen=True)
class Soon(Value):
    text: str


@dataclass(frozen=True)
class Silent(Operator):  # type: ignore[type-arg]
    """Says nothing of its types."""

    def apply(self, value: Any, /) -> Any:
        return value


def test_types_go_through_generic_classes_of_users() -> None:
    assert Both().gives(Query) == Counted().gives(Query) == tuple[Query, Query]
    assert OfQueries().takes() is Below().takes() is Query
    with pytest.raises(TypeError, match="takes Query, not Answer"):
        Below().gives(Answer)


def test_types_written_as_text_are_looked_up_or_left_to_the_type_checker() -> None:
    assert Later().takes() is Query
    assert Later().gives(Query) is Soon

    @step
    def read(soon: Soon) -> str:
        return soon.text

    assert (Later() >> read)(Query("q")) == "q"
    with pytest.raises(TypeError, match="takes Query, not Answer"):
        Later().gives(Answer)


def test_an_operator_that_says_nothing_of_types_takes_and_gives_anything() -> None:
    assert (Silent() >> Silent())(5) == 5
