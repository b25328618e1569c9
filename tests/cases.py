"""One test over many cases of one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

import pytest

Test = Callable[..., None]


def check_each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test over all cases and report each that fails, as one test whose fixtures the cases share.

    Write it as `pytest.mark.parametrize`, which costs five milliseconds a case.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [case if len(parameters) > 1 else (case,) for case in cases]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def check(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for row in rows:
                try:
                    test(**fixtures, **dict(zip(parameters, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"Case: {row!r:.500}")
                    failures.append(error)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} cases fail", failures)

        whole = signature(test)
        rest = [parameter for name, parameter in whole.parameters.items() if name not in parameters]
        check.__signature__ = whole.replace(parameters=rest)  # type: ignore[attr-defined]
        return check

    return decorate
