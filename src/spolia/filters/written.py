"""Conditions as they are written short, and put together."""

from __future__ import annotations

from collections.abc import Iterable

from spolia.errors import FilterError
from spolia.filters.conditions import And, AnyOf, Condition, Operand
from spolia.types import Filter


def where(**fields: Operand | Iterable[Operand]) -> Condition:
    """Each field is equal to its value, or to one of its values; no field at all is fulfilled by everything.

    A time is all of its period: `where(file_modified="2026-11")`, `where(file_modified=date(2026, 11, 21))`.

    >>> where(lang="en", year=(2020, 2021))
    And(filters=(AnyOf(field='lang', values=('en',)), AnyOf(field='year', values=(2020, 2021))))
    """
    parts = tuple(AnyOf(name, _values(wanted)) for name, wanted in fields.items())
    return parts[0] if len(parts) == 1 else And(parts)


def _values(wanted: Operand | Iterable[Operand]) -> tuple[Operand, ...]:
    return tuple(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, (str, bytes)) else (wanted,)  # type: ignore[return-value]


def narrowed(*filters: Filter | None) -> Condition | None:
    """All of these together; None where there is none.

    Raises:
        FilterError: one of them is no filter. It is never passed over: more would be found than may be.
    """
    given = tuple(part for part in filters if part is not None)
    for part in given:
        if not isinstance(part, Condition):
            raise FilterError(
                f"{part!r:.80} ({type(part).__name__}) is no filter. Write one of spolia.filters, for example "
                "where(lang='en') or Between('year', at_least=2020)."
            )
    return (given[0] if len(given) == 1 else And(given)) if given else None  # type: ignore[arg-type, return-value]
