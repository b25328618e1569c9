"""The site: `make docs` builds it strictly into `build/site`."""

from __future__ import annotations

import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
from spolia import __version__  # noqa: E402
from spolia.core.public_names import MODULE_OF  # noqa: E402

project, author, version = "Spolia", "The Spolia developers", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title = "furo", "Spolia"
html_static_path = ["images"]
exclude_patterns = ["images"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
napoleon_custom_sections = [("Class attributes", "params_style")]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository that are not pages
nitpicky = False


def write_api(app: Any) -> None:
    """A page for each package with its public names, from the one registry of them."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, module in MODULE_OF.items():
        names[".".join(module.split(".")[:2])].append(f"{module}.{name}")
    folder = HERE / "reference" / "api"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for package, found in sorted(names.items()):
        lines = [f"# {package}", "", "```{eval-rst}"]
        lines += [
            f".. autoclass:: {one}\n   :members:\n" if _is_class(one) else f".. autofunction:: {one}\n"
            for one in sorted(found)
        ]
        (folder / f"{package}.md").write_text("\n".join([*lines, "```", ""]), "utf-8")
    listed = "\n".join(f"api/{package}" for package in sorted(names))
    (folder.parent / "api.md").write_text(f"# API\n\n```{{toctree}}\n:maxdepth: 1\n{listed}\n```\n", "utf-8")


def _is_class(name: str) -> bool:
    from importlib import import_module

    module, _, leaf = name.rpartition(".")
    return isinstance(getattr(import_module(module), leaf), type)


def as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are Markdown: code is in single backquotes, and bars mean nothing."""
    parts = re.split(r"(^ *(?:>>>|\.\.\. ).*$)", "\n".join(lines), flags=re.M)
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"(?<!`)`([^`]+)`(?!`)", lambda code: f"``{' '.join(code[1].split())}``", parts[at])
        parts[at] = parts[at].replace("|", r"\|")
    lines[:] = "".join(parts).split("\n")


def setup(app: Any) -> None:
    app.connect("builder-inited", write_api)
    app.connect("autodoc-process-docstring", as_rst, priority=100)
