"""Write `requirements.lock` again with the hashes of all files of each pinned version: `make lock`.

To add or raise a package, write `name==version` into the lock, then run it. `requirements-demo.lock` is the part of it
that `make demo` installs. torch is pinned in the Makefile, without hashes: each machine has a build of its own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK, DEMO_LOCK = ROOT / "requirements.lock", ROOT / "requirements-demo.lock"
DEMO = ("pdf", "office", "embeddings")
UNHASHED = "torch"
OLDEST = "3.11.5"
"""What the pinned versions need."""
HEAD = "# Made by `make lock`.\n"


def pins(path: Path = LOCK) -> dict[str, list[str]]:
    """Return the entries of a lock by package: a pin with its hashes, or several for several Pythons."""
    entries = re.findall(r"^\S.*?(?=^\S|\Z)", path.read_text(), re.MULTILINE | re.DOTALL)
    entries_by_name: dict[str, list[str]] = {}
    for entry in entries:
        if not entry.startswith("#"):
            entries_by_name.setdefault(canonicalize_name(re.split("[=; ]", entry, maxsplit=1)[0]), []).append(entry)
    return entries_by_name


def pin(entry: str) -> str:
    """Return an entry without its hashes.

    >>> pin("a==1 ; sys_platform == 'linux' \\\\\\n    --hash=sha256:0\\n")
    "a==1 ; sys_platform == 'linux'"
    """
    return entry.partition("\\")[0].strip()


def project() -> dict[str, list[str]]:
    """Return what pyproject.toml needs: the base as "", each extra, and the group `dev`."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = table["project"]["optional-dependencies"]
    return {"": table["project"]["dependencies"], **extras, "dev": table["dependency-groups"]["dev"]}


def needed_packages(requirements: Iterable[str], locked: dict[str, list[str]]) -> set[str]:
    """Return the locked packages that requirements need, by the metadata of what is installed here."""
    names, todo = set[str](), [(first_requirement, "") for first_requirement in requirements]
    while todo:
        text, extra = todo.pop()
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name not in locked or (requirement.marker and not _applies(str(requirement.marker), extra)):
            continue
        if name not in names or requirement.extras:
            names.add(name)
            todo += [
                (first_requirement, extra)
                for extra in ("", *requirement.extras)
                for first_requirement in _requires(name)
            ]
    return names


def _applies(marker: str, extra: str) -> bool:
    """Whether a requirement is one of every machine's, or of an extra that is wanted."""
    return "extra ==" not in marker or bool(extra and re.search(rf"extra == [\"']{extra}[\"']", marker))


def _requires(name: str) -> Iterator[str]:
    try:
        yield from distribution(name).requires or ()
    except PackageNotFoundError:  # of another system
        return


def main() -> None:
    plain = [pin(entry) for name, entries in pins().items() if name != UNHASHED for entry in entries]
    command = ["pip", "compile", "-q", "--no-deps", "--universal", "--generate-hashes", "--no-header"]
    hashed = subprocess.run(
        [sys.executable, "-m", "uv", *command, "--native-tls", "--no-annotate", "--python-version", OLDEST, "-"],
        input="\n".join(plain), check=True, stdout=subprocess.PIPE, text=True, cwd="/",
    ).stdout  # fmt: skip
    LOCK.write_text(HEAD + hashed)
    locked, requirements = pins(), project()
    names = needed_packages([requirement for extra in ("", *DEMO) for requirement in requirements[extra]], locked)
    DEMO_LOCK.write_text(HEAD + "".join(entry for name in sorted(names) for entry in locked[name]))


if __name__ == "__main__":
    main()
