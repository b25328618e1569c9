"""Every block of the README and of docs/ is run, and what is made from the code is as the code says."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spolia.cli import demo
from tests import pages

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"^`([\w/]+\.(?:jsonl|csv))`:\n\n```(?:json|text)\n(.*?)^```$", re.M | re.S)
NOT_RUN = {"make test", "make check", "make bench", "make versions", "make pages", "make demo", "make demo DIR=papers"}
"""`make test` runs this test; the Makefile is run as a whole before a change lands."""
ASKED = {"queries.md", "run_contract.md", "store.md", "stores.md"}
"""The pages that blocks ask about without naming them. Not all pages, since blocks embed them several times."""


def blocks(page: Path, language: str) -> list[str]:
    return [code for block_language, code in FENCE.findall(page.read_text()) if block_language == language]


def files(page: Path) -> dict[str, str]:
    """The blocks that begin with the name of the file in which they are, as `# cutting.py`, or stand below it."""
    matches = (re.match(r"# (\w+\.(?:py|yaml))\n", code) for _, code in FENCE.findall(page.read_text()))
    return {match[1]: match.string for match in matches if match} | dict(NAMED.findall(page.read_text()))


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


@pytest.fixture
def workplace(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with those of the project's own docs as `docs` that the blocks of a page name or ask about."""
    folder = tmp_path / "work"
    (folder / "docs").mkdir(parents=True)
    run = "".join(code for _, code in FENCE.findall(page.read_text()))
    for doc in PAGES[1:]:
        if doc.name in ASKED or doc.name in run:
            place = folder / doc.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(doc, place)
    monkeypatch.chdir(folder)
    return folder


Asked = Callable[..., Any]


@pytest.fixture(scope="session")
def forks() -> Iterator[Asked]:
    """Runs commands or a program in a folder; see `tests/commands.py`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run, pipe = [sys.executable, "-m", "tests.commands"], subprocess.PIPE
    with subprocess.Popen(run, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        questions, answers = process.stdin, process.stdout
        assert questions is not None
        assert answers is not None

        def ask_fork(folder: Path, **what: Any) -> Any:
            request = {"folder": str(folder), "environment": {**os.environ, "PATH": path}, **what}
            questions.write(json.dumps(request) + "\n")
            questions.flush()
            return json.loads(answers.readline())

        yield ask_fork


@pytest.mark.slow
@pytest.mark.parametrize("page", with_blocks("python"), ids=lambda page: page.name)
def test_python_blocks_run(page: Path, workplace: Path, forks: Asked) -> None:
    program = "\n".join(blocks(page, "python"))
    ran = forks(workplace, text=program)
    assert ran["code"] == 0, ran["err"]
    for printed in re.findall(r"^print\(.*\)  # (.+)$", program, re.M):
        assert printed in ran["out"].splitlines(), f"{page.name} says that this is printed: {printed}"


@pytest.mark.slow
@pytest.mark.parametrize("page", with_blocks("bash"), ids=lambda page: page.name)
def test_shell_blocks_run(page: Path, workplace: Path, forks: Asked) -> None:
    for name, text in files(page).items():
        (workplace / name).parent.mkdir(exist_ok=True)
        (workplace / name).write_text(text)
    lines = [(line, shlex.split(line, comments=True)) for line in "".join(blocks(page, "bash")).splitlines()]
    ran = forks(workplace, commands=[line for line, words in lines if words and shlex.join(words) not in NOT_RUN])
    assert ran["code"] == 0, ran["out"]


@pytest.mark.parametrize("page", with_blocks("yaml"), ids=lambda page: page.name)
def test_flow_blocks_load(page: Path, workplace: Path) -> None:
    from spolia import Corpus, MiniLM, Query, ScriptedModel, check, load
    from spolia.flow_files.files import load_definitions

    notes = Corpus("notes.spolia")
    objects = {"chunks": notes.group(), "corpus": notes, "embedder": MiniLM(), "llm": ScriptedModel(("yes",))}
    for text in blocks(page, "yaml"):
        if text.startswith("# groups.yaml\n"):
            assert load_definitions(text, objects)
            continue
        assert check(load(text, objects=objects, env=("MY_KEY",)), takes=Query).ok, text


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if pages.PART.search(page.read_text())], ids=lambda page: page.name
)
def test_made_parts_are_what_the_code_and_the_measurements_say(page: Path) -> None:
    assert page.read_text() == pages.fill_parts(page.read_text()), "write `make pages`"


@pytest.mark.slow
def test_every_command_has_its_part_of_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "options.md").read_text()
    assert [name for _, name, _ in pages.PART.findall(page)] == ["exit codes", "options", *pages.commands()]


def test_the_tree_of_the_architecture_is_the_one_that_is_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = {name for layer in contracts[0]["layers"] for name in layer.split(" | ")} | {"testing"} - {"errors"}
    table = (ROOT / "docs" / "contributing" / "architecture.md").read_text().partition("## How a step runs")[0]
    drawn = {
        name for first in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)(?:/|\.py)`", first)
    }
    assert drawn == checked - {"errors"}


def test_no_page_that_is_asked_repeats_the_question() -> None:
    readme = (ROOT / "README.md").read_text()
    questions = [*demo.FIXED_QUESTIONS, *re.findall(r'^spolia (?:ask|search) "(.+?)"', readme, re.M)]
    for page in PAGES[1:]:
        assert [question for question in questions if question in page.read_text()] == [], page.name


def test_pages_do_not_link_to_what_is_not_there() -> None:
    for page in [*PAGES, *ROOT.glob("*.md")]:
        prose = re.sub(r"`[^`\n]+`", "", page.read_text())  # what stands in code is no link
        for target in re.findall(r"\]\(([^)#:]+?)\)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
