"""Reports as files: their kind is what their name ends in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spolia.cli.plain import json_text
from spolia.errors import DataError

if TYPE_CHECKING:
    from spolia.evaluation.pages.question import Traces
    from spolia.evaluation.report import Report

KINDS = (".html", ".md", ".json")


def refuse_other_kinds(paths: Iterable[Path], kinds: Sequence[str] = KINDS) -> None:
    """Refuse what no report can be written to, before anything is asked."""
    for path in paths:
        if path.suffix not in kinds:
            raise DataError(f"A report cannot be written as {path.name!r}. End its name in one of: {', '.join(kinds)}.")
        if not path.parent.is_dir():
            raise DataError(f"There is no folder {path.parent} to write {path.name} to. Make it first.")


def written(found: Report, path: Path, traces: Traces | None) -> None:
    """Write a report."""
    if path.suffix == ".json":
        text = json_text(found.json(), ascii_only=False) + "\n"
    elif path.suffix == ".md":
        from spolia.evaluation.pages.markdown import markdown

        text = markdown(found)
    else:
        from spolia.evaluation.pages.html import html

        text = html(found, traces)
    path.write_text(text, "utf-8", errors="backslashreplace")
