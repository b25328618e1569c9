"""Who may read which file of a folder, as `--readers FILE` says it, a line for each pattern of paths.

# the first pattern that fits a path counts
hr/* = ann, staff
* = everybody
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from spolia.errors import QueryError

EVERYBODY = "everybody"
_MEANT = {"everyone", "anybody", "anyone", "all", "public", "*"}
"""What people write for it; as names of a group they would shut out whom they mean to let in."""
Rule: TypeAlias = tuple[str, tuple[str, ...]]


def access_of(file: Path | None) -> Callable[[str], tuple[str, ...]] | None:
    """What `sync(access=…)` takes: the principals who may read a file, by its uri; None without a file.

    Raises:
        QueryError: the file cannot be read or understood; when it is called, for a uri that no pattern fits.
    """
    if file is None:
        return None
    rules = list(_rules(file))

    def readers(uri: str) -> tuple[str, ...]:
        for pattern, principals in rules:
            if fnmatchcase(uri, pattern):
                return principals
        raise QueryError(
            f"{file} does not say who may read {uri!r}. Add a line for it; "
            f"`* = {EVERYBODY}` as the last one opens all that is not named."
        )

    return readers


def _rules(file: Path) -> Iterator[Rule]:
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise QueryError(
            f"{file} cannot be read: {reason}. Name a text file with lines like: hr/* = ann, staff"
        ) from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield _rule(line, f"{file}, line {number}")


def _rule(line: str, where: str) -> Rule:
    pattern, _, listed = (part.strip() for part in line.partition("="))
    principals = tuple(name.strip() for name in listed.split(","))
    if not pattern or not all(principals):
        raise QueryError(
            f"{where}: {line.strip()!r:.80} is no line of readers. Write PATTERN = PRINCIPAL, PRINCIPAL; "
            f"or PATTERN = {EVERYBODY}."
        )
    if meant := [name for name in principals if name.casefold() in _MEANT]:
        raise QueryError(
            f"{where}: {meant[0]!r} would be a user or group of that name. Write {EVERYBODY}, or give it another name."
        )
    if EVERYBODY in principals and len(principals) > 1:
        raise QueryError(f"{where}: {EVERYBODY!r} stands beside others. Write it alone, or leave it out.")
    return pattern, () if principals == (EVERYBODY,) else principals
