"""Packages that are imported on first use."""

from __future__ import annotations

from importlib import import_module

import pytest

from spolia.deferred import Deferred


def test_whoever_looks_for_a_wrapped_function_imports_nothing() -> None:
    module = Deferred("no_such_package")
    assert not hasattr(module, "__wrapped__")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        module.connect()


def test_a_module_in_a_package_is_imported_on_first_use() -> None:
    assert Deferred("xml").dom is import_module("xml.dom")
    with pytest.raises(AttributeError, match="no_such_module"):
        _ = Deferred("xml").no_such_module
