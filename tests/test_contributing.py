"""The pages for contributors name files, functions and classes that exist."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from spolia.core.public_names import names_of
from tests.cases import check_each

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "contributing").glob("*.md"))]
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
DEFINED = re.compile(r"^( *)(?:(?:async )?(?:def|class) (\w+)|(\w+)(?:\[.*?\])?(?:: .*)? =|(\w+): )", re.MULTILINE)
"""A function or class; a name with a value; a field."""
PLAIN = re.compile(r"[a-z]+|apply_batch")
"""A word such as `slow`: not only a name."""
FILE_KINDS = ("py", "md", "txt", "toml", "json", "lock", "yaml")
NOT_OURS = frozenset({"lint-imports", "name==version", "notes.spolia", "build.lock"})


@cache
def files() -> frozenset[str]:
    """Every file and folder of the project, by each way to end its path."""
    folders = ("src", "tests", "docs", "benchmarks", "examples")
    paths = [*ROOT.glob("*.*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    paths += [ROOT / folder for folder in folders]
    parts = [path.relative_to(ROOT).parts for path in paths if "__pycache__" not in path.parts]
    return frozenset("/".join(part[start:]) for part in parts for start in range(len(part)))


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The names that a file defines, `Class.method` for those of classes."""
    found, owner = set[str](), ""
    for indent, *names in DEFINED.findall(path.read_text("utf-8")):
        name = "".join(names)
        if not indent:
            owner = name
        found |= {name, f"{owner}.{name}"}
    return frozenset(found)


@cache
def defined() -> frozenset[str]:
    """Every name of the package and the tests, alone and after its class, module or package."""
    found = set[str]()
    for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "docs").glob("*.py")):
        found |= {name for own in defined_in(path) for name in (own, f"{path.stem}.{own}")}
        found.add(f"{path.parent.name}.{path.stem}")
    packages = {f"spolia.{path.parent.name}" for path in (ROOT / "src" / "spolia").glob("*/__init__.py")}
    return frozenset(found | {f"{package[7:]}.{name}" for package in packages for name in names_of(package)})


@pytest.mark.slow
@check_each("page", PAGES)
def test_a_page_names_files_and_code_that_exist(page: Path) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for quoted in re.findall(r"`([^`\n]+)`", CODE.sub("", page.read_text("utf-8"))):
        if match := re.fullmatch(r"make (\w+)", quoted):
            assert match[1] in targets, f"{page.name} names {quoted}, which is no target of the Makefile"
        if match := re.fullmatch(r"python -m ([\w.]+)", quoted):
            assert f"{match[1].replace('.', '/')}.py" in files(), f"{page.name} names {quoted}, which is no module"
        word = quoted.partition("(")[0]
        if word in NOT_OURS or PLAIN.fullmatch(word):
            continue
        if re.fullmatch(r"[\w./-]+", word) and ("/" in word or Path(word).suffix[1:] in FILE_KINDS):
            assert word.rstrip("/") in files(), f"{page.name} names {word}, which is no file or folder"
        elif re.fullmatch(r"\w+(\.\w+)*", word):
            assert word in defined(), f"{page.name} names {word}, which nothing defines"


@pytest.mark.parametrize("name", ["path-sync", "path-ask", "path-request", "path-study"])
def test_a_box_of_a_path_names_a_function_in_its_file(name: str) -> None:
    boxes = tomllib.loads((ROOT / "docs" / "drawings.toml").read_text("utf-8"))[name]["boxes"]
    for line in boxes.strip().splitlines():
        function, path = re.fullmatch(r"\d+ \S+ \S+ \w+ \d+ (\S+) / (\S+)", line).groups()  # type: ignore[union-attr]
        assert function in defined_in(ROOT / "src" / "spolia" / path), f"{path} has no {function}"


def test_the_drawings_are_those_of_the_boxes() -> None:
    from docs import pictures

    for name, picture in pictures.concepts().items():
        assert (ROOT / "docs" / "images" / f"{name}.svg").read_text("utf-8") == picture, "python docs/pictures.py"
