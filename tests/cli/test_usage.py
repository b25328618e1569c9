"""Help, usage errors and what every command does alike."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from spolia.cli.app import build_app, run
from spolia.cli.commands.doctor import BASE, EXTRAS
from spolia.cli.exit_codes import Exit, guard_command
from spolia.errors import ModelRejected, QueryError, SpoliaError, StoreBusy
from tests.cases import check_each

from .conftest import Spolia

COMMANDS = (
    "init", "index", "docs", "groups", "plan", "export", "import", "search", "ask", "eval", "check", "show", "trace",
    "doctor", "repair",
)  # fmt: skip
INNER = [("docs", name) for name in ("list", "show", "chunks", "report", "remove")]
INNER += [("groups", name) for name in ("list", "show", "build", "add", "drop")]


def test_help_names_every_command_and_every_exit_code(spolia: Spolia) -> None:
    ran = spolia("--help")
    assert ran.code == 0
    assert all(f" {name} " in ran.out for name in COMMANDS)
    assert "fail-points" not in ran.out
    assert all(str(int(code)) in ran.out for code in Exit)


@check_each("words", [*((name,) for name in (*COMMANDS, "fail-points") if name not in ("docs", "groups")), *INNER])
def test_every_command_has_help_and_json(spolia: Spolia, words: tuple[str, ...]) -> None:
    ran = spolia(*words, "--help")
    assert ran.code == 0
    assert "--json" in ran.out


def test_help_fits_on_a_screen_and_names_every_option(
    spolia: Spolia, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words, command in leaf_commands(build_app()):
        with subtests.test(" ".join(words)):
            short = spolia(*words, "--help").out.splitlines()
            assert len(short) < 60
            assert max(map(len, short)) <= 80
            printed = "".join("".join(short).split())
            options = [param.opts[0] for param in command.params if param.param_type_name == "option"]
            assert [option for option in options if option not in printed] == []


def test_help_begins_with_what_a_command_needs_and_with_its_own_options(spolia: Spolia) -> None:
    help_text = spolia("tune", "--help").out
    assert " tune [OPTIONS] SPACE\n" in help_text
    assert re.search(r"--data DATA +\(required\) ", help_text)
    places = [help_text.index(f"  {name}") for name in ("--data", "--store", "--strategy", "--llm", "--help-all")]
    assert places == sorted(places)


@pytest.mark.parametrize("words", [(), ("docs",), ("data",)])
def test_without_a_command_the_commands_are_listed(spolia: Spolia, words: tuple[str, ...]) -> None:
    ran = spolia(*words)
    assert ran.code == Exit.USAGE
    assert "\nCommands:\n" in ran.err


def test_an_option_that_is_missing_is_described(spolia: Spolia) -> None:
    error = json.loads(spolia("index", "docs", "--json").out)["error"]["message"]
    assert error.startswith("Missing option '--store'. Write --store STORE: The store: a folder that `spolia index`")


def test_help_all_describes_what_help_only_names(spolia: Spolia, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert "Further options, which --help-all describes:" in spolia("serve", "--help").out
    described = spolia("serve", "--help-all").out
    assert all(f" {name} " in described for name in ("--max-concurrent", "--shadow", "--json"))


def leaf_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from leaf_commands(command.get_command(None, name), (*words, name))
    else:
        yield words, command


def test_the_version_is_told(spolia: Spolia) -> None:
    ran = spolia("--version")
    assert ran.code == 0
    assert ran.out.startswith("spolia 0.")


@pytest.mark.parametrize(
    "args", [("search",), ("search", "?"), ("nope",), ("search", "?", "--store", "x", "--top-k", "0")]
)
def test_wrong_usage_exits_with_2(spolia: Spolia, args: tuple[str, ...]) -> None:
    ran = spolia(*args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


@pytest.mark.parametrize(
    "args", [("search", "--json"), ("serch", "--json"), ("eval", "bm25", "--json", "--limit", "0")]
)
def test_wrong_usage_is_json_too_where_that_is_asked_for(spolia: Spolia, args: tuple[str, ...]) -> None:
    ran = spolia(*args)
    assert ran.code == 2
    assert (ran.json["error"]["kind"], ran.json["exit_code"]) == ("UsageError", 2)


def test_doctor_looks_for_what_the_package_declares() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    declared = {re.split(r"[\[<>=;\s]", line)[0].lower() for line in lines}
    looked_for = {*BASE, *(name for _, names in EXTRAS.values() for name in names)}
    assert {name.lower() for name in looked_for} == declared - {"spolia"}


def exit_code_of(error: BaseException) -> int:
    def command(json: bool = False) -> Exit:
        raise error

    with pytest.raises(click.exceptions.Exit) as caught:
        guard_command(command)(json=True)
    return caught.value.exit_code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (QueryError("no question"), 2),
        (StoreBusy("process 7 writes"), 3),
        (ModelRejected("no"), 4),
        (SpoliaError("something"), 2),
        (PermissionError(13, "Permission denied", "notes"), 2),
        (ZeroDivisionError("oops"), 2),  # in a file of the user's: this one
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_become_one_line_and_a_code(capfd: pytest.CaptureFixture[str], error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code
    out, err = capfd.readouterr()
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    assert f'"exit_code": {code}' in out


def test_an_error_cannot_act_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    exit_code_of(QueryError("bad \x1b[2J\u202e question\nof two lines"))
    assert capfd.readouterr().err == "error: bad \\x1b[2J\\u202e question of two lines\n"


WAITS = """
import sys, time
from spolia.cli.exit_codes import guard_command
def command(json: bool = False):
    print("ready", flush=True)
    time.sleep(60)
try:
    guard_command(command)(json=True)
except BaseException as ended:
    sys.exit(ended.exit_code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_stop_a_command_in_order(number: int, code: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    assert process.returncode == code
    assert f'"exit_code": {code}' in out
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("words", ["show hybrid --json", "--help", "ask --help"])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, words: str) -> None:
    command = f"{sys.executable} -m spolia {words}; echo $? > {tmp_path}/code"
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(["sh", "-c", command], stdout=write, stderr=subprocess.PIPE, timeout=600)
    os.close(write)
    assert ran.stderr == b""
    assert (tmp_path / "code").read_text().strip() == "141"


@pytest.mark.parametrize("command", [("index", "."), ("docs", "list"), ("search", "salt"), ("doctor",), ("trace",)])
def test_an_address_of_something_else_makes_no_folder(
    spolia: Spolia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "salt.txt").write_text("Salt is dug in mines.")
    ran = spolia(*command, "--store", "mysql://me@host/notes")
    assert ran.code == 3
    assert "postgresql://USER@HOST/DATABASE" in ran.err + ran.out
    assert [path.name for path in tmp_path.iterdir()] == ["salt.txt"]


class Full(io.StringIO):
    """A disk without space."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("args", [("--help",), ("flows", "--json")])
def test_output_that_cannot_be_written_is_an_error_in_one_line(
    args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["spolia", *args])
    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == Exit.USAGE
    assert "No space left on device" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN, "the process belongs to the one that called"
