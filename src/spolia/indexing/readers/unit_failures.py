"""Units of a file that fail: a page, shape, sheet, cell, note, picture, attachment or part never costs the file."""

from collections.abc import Callable
from typing import TypeVar

from spolia.errors import DocumentError, EncryptedDocument, ReaderDied, SpoliaError, UnsafeDocument

Out = TypeVar("Out")
_LONGEST = 200


class UnitFailures:
    """Runs the reading of each unit of a file; counts and reports those that fail.

    A unit that fails is read as plain text where the library gives any, and is empty otherwise. Not caught are limits
    that protect memory and disk, passwords, and packages that are missing: those concern the whole file.

    >>> failures = UnitFailures()
    >>> [failures.attempt("shape", read, "") for read in (lambda: str(1 // 0), lambda: "Stones.")]
    ['', 'Stones.']
    >>> failures.dropped(), failures.warnings()
    ({'unreadable shapes': 1}, ('1 shape could not be read (ZeroDivisionError: integer division or modulo by zero).',))
    """

    def __init__(self) -> None:
        self._empty: dict[str, list[str]] = {}
        self._plain: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._empty or self._plain)

    def attempt(self, unit: str, read: Callable[[], Out], empty: Out, plain: Callable[[], Out] | None = None) -> Out:
        """Return what `read` gives; if it fails, what `plain` gives; else `empty`. `unit`: its kind, a singular."""
        try:
            return read()
        except Exception as error:
            if not _concerns_unit(error):
                raise
            reason = _reason(error)
        if plain is not None:
            try:
                text = plain()
            except Exception as error:
                if not _concerns_unit(error):
                    raise
            else:
                if text:
                    self._plain.setdefault(unit, []).append(reason)
                    return text
        self._empty.setdefault(unit, []).append(reason)
        return empty

    def dropped(self) -> dict[str, int]:
        """Numbers of the units that are empty, by kind, for `Reading.dropped`."""
        return {f"unreadable {unit}s": len(reasons) for unit, reasons in self._empty.items()}

    def warnings(self) -> tuple[str, ...]:
        """A sentence for each kind of unit, with the first reason."""
        empty = (
            f"{_count(len(reasons), unit)} could not be read ({reasons[0]})." for unit, reasons in self._empty.items()
        )
        plain = (
            f"{_count(len(reasons), unit)} {'was' if len(reasons) == 1 else 'were'} read as plain text ({reasons[0]})."
            for unit, reasons in self._plain.items()
        )
        return (*empty, *plain)

    def raise_any(self, uri: str) -> None:
        """Raise DocumentError if a unit failed."""
        if self:
            raise DocumentError(f"{uri}: {' '.join(self.warnings())} Open the file and save it again.")


def _concerns_unit(error: Exception) -> bool:
    if isinstance(error, (MemoryError, EncryptedDocument, ReaderDied, UnsafeDocument)):
        return False
    return isinstance(error, DocumentError) or not isinstance(error, SpoliaError)


def _reason(error: Exception) -> str:
    text = str(error).rstrip(".")
    return (text if isinstance(error, DocumentError) else f"{type(error).__name__}: {text}")[:_LONGEST]


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}{'s' if number > 1 else ''}"
