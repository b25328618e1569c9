"""`--think N`: every command that names a model takes it, and it is what the profile's `thought_tokens` is."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_language_model
from spolia.errors import QueryError
from spolia.models import ChatModel
from tests.pages import COMMANDS

URL = "http://127.0.0.1:8000/v1"


@pytest.mark.slow
def test_each_command_that_names_a_model_takes_tokens_to_think() -> None:
    open_, taking = [COMMANDS.get_command(None, name) for name in COMMANDS.list_commands(None)], []
    for command in open_:
        open_ += list(getattr(command, "commands", {}).values())
        names = {name for param in command.params for name in param.opts}
        if "--model" in names:
            taking.append(command.name)
            assert "--think" in names, command.name
    assert len(taking) > 10


def test_the_command_line_comes_before_the_profile(tmp_path: Path) -> None:
    file = tmp_path / "spolia.toml"
    file.write_text(f'[llm]\nurl = "{URL}"\nmodel = "m"\nthought_tokens = 700\n')
    models = [load_language_model(URL, "m", load_profile(file), think) for think in (0, 2000)]
    assert [model.thought_tokens for model in models if isinstance(model, ChatModel)] == [700, 2000]


def test_a_model_in_a_file_is_told_that_it_needs_none(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="--think is for a model on a server"):
        load_language_model(str(tmp_path), "", None, 9)
