"""Without any extra, everything can be imported, and a folder indexed and searched; what needs an extra names it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.indexing.sample_documents import locked_pdf

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_base_install_indexes_what_needs_no_extra_and_names_the_extras_for_the_rest(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("a.txt", "b.md", "c.html", "d.csv"):
        (notes / name).write_text("The ferry sailed twice each day.\n")
    (notes / "e.json").write_text('{"what": "The ferry sailed twice each day."}')
    (notes / "f.pdf").write_bytes(locked_pdf("secret"))
    (notes / "g.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (notes / "h.docx").write_bytes(b"PK\x05\x06" + b"\0" * 18)
    done = subprocess.run(
        [sys.executable, "-m", "tests.indexing.base_install", ROOT, tmp_path], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["found"] == ["a.txt", "b.md", "c.html", "d.csv", "e.json"]
    for uri, extra in {"f.pdf": "pdf", "g.png": "images", "h.docx": "office"}.items():
        assert re.search(rf"pip install .*\[{extra}\]'", outcome["failed"][uri])
