"""What is to be installed is named as it was installed."""

from __future__ import annotations

from typing import Any

import pytest

from spolia import errors


@pytest.mark.parametrize(
    ("origin", "extra", "said"),
    [
        ({}, "pdf", "pip install 'spolia[pdf]'"),
        ({"url": "file:///home/ann/my%20work", "dir_info": {}}, "pdf", "pip install '/home/ann/my work[pdf]'"),
        ({"url": "file:///src/spolia", "dir_info": {"editable": True}}, "pdf", "pip install -e '/src/spolia[pdf]'"),
        ({"url": "file:///src/spolia", "dir_info": {"editable": True}}, "", "pip install -e /src/spolia"),
        ({"url": "https://host/spolia.git", "vcs_info": {}}, "", "pip install spolia"),
    ],
)
def test_a_hint_installs_from_where_it_was_installed(
    origin: dict[str, Any], extra: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_origin", lambda: origin)
    assert errors.pip_install(extra) == said
    assert said.replace("install", "install -U") == errors.pip_install(extra, "-U")


def test_a_package_that_cannot_be_loaded_is_not_called_missing() -> None:
    def message(error: Exception) -> str:
        with (
            pytest.raises(errors.MissingExtra) as raised,
            errors.require_extra("hnsw", "usearch", "A graph of vectors"),
        ):
            raise error
        return str(raised.value)

    assert "needs usearch, which is not installed. Write: pip install" in message(ModuleNotFoundError("No module"))
    assert message(ImportError("lib.so: cannot allocate memory in static TLS block")) == (
        "A graph of vectors needs usearch, which is installed but cannot be loaded: lib.so: cannot allocate memory in "
        "static TLS block. Write: GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536 before the command"
    )
    for error in (OSError("libGL.so.1: cannot open shared object file"), ImportError("cannot import name 'Index'")):
        assert f"is installed but cannot be loaded: {error}. Write: pip install --force-reinstall" in message(error)
    assert message(errors.MissingExtra("pdf", "pypdfium2", "Reading")).startswith("Reading needs pypdfium2")
