"""Former names of keyword arguments."""

from __future__ import annotations

from typing import Any

import pytest

from spolia.core.deprecation import renamed_arguments


@renamed_arguments(told="on_progress")
def tune(space: str, *, on_progress: str = "none") -> str:
    return f"{space} {on_progress}"


def test_a_former_name_is_accepted_with_a_warning_and_both_names_are_not() -> None:
    former: Any = tune
    assert tune("a", on_progress="bar") == "a bar"
    with pytest.warns(DeprecationWarning, match=r"tune\(told=…\) is tune\(on_progress=…\) now"):
        assert former("a", told="bar") == "a bar"
    with pytest.raises(TypeError, match="Write on_progress"):
        former("a", told="bar", on_progress="bar")
