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
