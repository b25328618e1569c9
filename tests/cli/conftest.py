"""The command line, run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spolia.cli.app import build_app
from spolia.testing import OpenAIServer

COMMANDS: Any = build_app()
"""Built once: that takes longer than most commands."""


@dataclass(frozen=True)
class Ran:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout, which must be one JSON object and nothing else."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        assert self.out.count("\n") == 1
        return document


Spolia = Callable[..., Ran]


@pytest.fixture
def spolia(capfd: pytest.CaptureFixture[str]) -> Spolia:
    def run(*args: object) -> Ran:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            COMMANDS([str(arg) for arg in args])
        out, err = capfd.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, out, err)

    return run


def lights(folder: Path, count: int) -> Path:
    """A data set of lights and their lamps, one passage a question."""
    folder.mkdir()
    passages = [
        {"id": f"p{number}", "title": "", "text": f"Light {number} has {number % 5} lamps at sea."}
        for number in range(count)
    ]
    questions = [
        {
            "id": f"q{number}",
            "question": f"How many lamps has light {number}?",
            "gold_ids": [f"p{number}"],
            "answers": [str(number % 5)],
        }
        for number in range(count)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    return folder


def lights_with_reader(folder: Path, count: int, server: OpenAIServer, *depths: int) -> Path:
    """A data set of lights, and beside it reading.yaml: a space of searches of these depths, with a reader that the
    server answers for, at a price."""
    (folder.parent / "reading.yaml").write_text(
        "- Vary: {body: {BM25: {group: {use: chunks}}}, names: {top_k: depth}, "
        f"ranges: {{top_k: {[*depths]}}}}}\n"
        f"- Reader: {{llm: {{ChatModel: {{model: m, base_url: '{server.url}', usd_per_million: [1.0, 2.0]}}}}}}\n"
    )
    return lights(folder, count)
