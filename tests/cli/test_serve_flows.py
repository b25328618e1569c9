"""What `spolia serve` says of its flows before it serves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia import ChatModel, Corpus, add_texts
from spolia.cli.commands.serve import _load_flows
from spolia.cli.flow_parts import build_parts
from spolia.cli.screen import Screen


@pytest.mark.slow
def test_a_server_that_several_flows_ask_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = Corpus(str(tmp_path / "notes.spolia"))
    add_texts(corpus, {"tides": "The moon pulls the sea."})
    parts = build_parts(corpus.path, llm=ChatModel("m", "http://127.0.0.1:9/v1"))
    _load_flows(["bm25", "naive", "default"], parts, Screen(json=False))
    printed = capsys.readouterr().err
    assert printed.count("http://127.0.0.1:9/v1") == 1
    assert [line.partition(" ")[0] for line in printed.splitlines() if " searches with " in line] == [
        "naive",
        "default",
    ]
