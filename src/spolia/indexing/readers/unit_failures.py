"""Units of a file that fail: a page, shape, sheet, cell, note, picture, attachment or part never costs the file."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

from spolia.core.plurals import plural, several
from spolia.errors import DocumentError, EncryptedDocument, ReaderDied, SpoliaError, UnsafeDocument

Out = TypeVar("Out")
Attempt = Callable[..., Any]
"""`UnitFailures.attempt` with a place."""
_LONGEST = 200
_MOST_PLACES = 5
_WITHOUT_PLAIN_TEXT = frozenset(["part", "chapter"])
"""Units of which what can be saved has the form of the unit."""


class UnitFailure(NamedTuple):
    """Place of a unit that failed, and the reason."""

    place: str
    reason: str


class UnitFailures:
    """Runner of each unit of a file. It counts and reports the units that fail.

    A unit that fails is read as plain text where the library gives any, and is empty otherwise. Not caught are limits
    that protect memory and disk, passwords, and packages that are missing: those concern the whole file.

    >>> failures = UnitFailures()
    >>> [failures.attempt("shape", read, "", place="slide 7") for read in (lambda: str(1 / 0), lambda: "Stones.")]
    ['', 'Stones.']
    >>> failures.dropped(), failures.warnings()
    ({'unreadable shapes': 1}, ('1 shape could not be read (slide 7: ZeroDivisionError: division by zero).',))
    """

    def __init__(self) -> None:
        self._empty: dict[str, list[UnitFailure]] = {}
        self._plain: dict[str, list[UnitFailure]] = {}

    def __bool__(self) -> bool:
        return bool(self._empty or self._plain)

    def attempt(
        self,
        unit: str,
        read: Callable[[], Out],
        empty: Any,
        plain: Callable[[], Any] | None = None,
        *,
        place: str = "",
        undo: Callable[[], object] = lambda: None,
    ) -> Out:
        """Return what `read` gives; if it fails, what `plain` gives; else `empty`.

        Args:
            unit: its kind, a singular.
            place: its place in the file, for the warning.
            undo: takes back what `read` did before it failed.
        """
        try:
            return read()
        except Exception as error:
            if not _concerns_unit(error):
                raise
            failure = UnitFailure(place, _reason(error))
        # Undo first: the plain text must not follow half of the unit.
        undo()
        if plain is not None:
            try:
                text = plain()
            except Exception as error:
                if not _concerns_unit(error):
                    raise
            else:
                if text:
                    self._plain.setdefault(unit, []).append(failure)
                    return cast(Out, text)
        self._empty.setdefault(unit, []).append(failure)
        return cast(Out, empty)

    def report(self, unit: str, reason: str, place: str = "") -> None:
        """Note a unit that is lost, without trying to read it."""
        self._empty.setdefault(unit, []).append(UnitFailure(place, reason))

    def places(self, unit: str) -> set[str]:
        """Return the places of the units of this kind that failed."""
        return {failure.place for failures in (self._empty, self._plain) for failure in failures.get(unit, ())}

    def include(self, part: "UnitFailures") -> None:
        """Add the failures of a part of the file that was read separately."""
        for target, source in ((self._empty, part._empty), (self._plain, part._plain)):
            for unit, failures in source.items():
                target.setdefault(unit, []).extend(failures)

    def dropped(self) -> dict[str, int]:
        """Return the number of empty units of each kind, for `Reading.dropped`."""
        return {f"unreadable {plural(unit)}": len(failures) for unit, failures in self._empty.items()}

    def warnings(self) -> tuple[str, ...]:
        """Return a sentence for each kind of unit, with its first places and the first reason."""
        empty = (
            f"{several(len(failures), unit)} could not be read ({_describe(failures)})."
            for unit, failures in self._empty.items()
        )
        plain = (
            f"{several(len(failures), unit)} {_outcome(unit, len(failures))} ({_describe(failures)})."
            for unit, failures in self._plain.items()
        )
        return (*empty, *plain)

    def raise_any(self, uri: str) -> None:
        """Raise DocumentError if a unit failed."""
        if self:
            raise DocumentError(f"{uri}: {' '.join(self.warnings())} Open the file and save it again.")


def _concerns_unit(error: Exception) -> bool:
    if isinstance(error, (MemoryError, EncryptedDocument, ReaderDied, UnsafeDocument)):  # these concern the whole file
        return False
    return isinstance(error, DocumentError) or not isinstance(error, SpoliaError)


def _reason(error: Exception) -> str:
    text = str(error).rstrip(".")
    return (text if isinstance(error, DocumentError) else f"{type(error).__name__}: {text}")[:_LONGEST]


def _outcome(unit: str, number: int) -> str:
    if unit in _WITHOUT_PLAIN_TEXT:
        return f"{'is' if number == 1 else 'are'} damaged and read as far as possible"
    return f"{'was' if number == 1 else 'were'} read as plain text"


def _describe(failures: list[UnitFailure]) -> str:
    places = [*dict.fromkeys(failure.place for failure in failures if failure.place)]
    ellipsis = " ..." if len(places) > _MOST_PLACES else ""
    reason = failures[0].reason
    return f"{', '.join(places[:_MOST_PLACES])}{ellipsis}: {reason}" if places else reason
