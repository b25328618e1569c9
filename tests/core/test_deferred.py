"""Packages that are imported on first use."""

from __future__ import annotations

import pytest

from spolia.deferred import Deferred


def test_whoever_looks_for_a_wrapped_function_imports_nothing() -> None:
    module = Deferred("no_such_package")
    assert not hasattr(module, "__wrapped__")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        module.connect()
