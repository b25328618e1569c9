"""Pictures of what a browser shows: a report, a trace and a notebook, for README.

    python docs/screenshots.py

Needs chromium and `pip install nbconvert`. Everything in them is computed anew: an invented world of 40 people, whose
language model is simulated, and the first notebook as it is committed.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDE, COLOURS = 1000, 64
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip
FLOWS = ("naive", "ircot", "corag")


def pages(folder: Path) -> dict[str, tuple[Path, int]]:
    """By name of a picture: the page, and how many pixels of its height are shown."""
    world, report, trace, store = (folder / name for name in ("world", "report.html", "trace.html", "docs.spolia"))
    spolia("world", world, "--people", 40, "--questions", 60)
    spolia("eval", *FLOWS, "--data", world, "--llm", "simulated", "--measures", "F1,full@5", "--report", report)
    spolia("index", ROOT / "docs" / "concepts", "--store", store, "--no-vectors")
    spolia("ask", "What does a generation publish?", "--store", store, "--keep-values")
    spolia("trace", "last", "--store", store, "--html", trace)
    trace.write_text(trace.read_text("utf-8").replace("<details><summary><b>", "<details open><summary><b>"), "utf-8")
    notebook = ROOT / "examples" / "notebooks" / "first_answer.ipynb"
    convert = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", folder, notebook]
    subprocess.run(convert, check=True, capture_output=True)
    return {"report": (report, 860), "trace": (trace, 640), "notebook": (folder / "first_answer.html", 1100)}


def spolia(*arguments: object) -> None:
    command = [sys.executable, "-m", "spolia", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode not in (0, 5):
        sys.exit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")


def picture(page: Path, high: int, folder: Path) -> Image.Image:
    """What chromium shows of a page."""
    shot = folder / f"{page.stem}.png"
    how = (f"--user-data-dir={folder / 'profile'}", f"--window-size={WIDE},{high}", f"--screenshot={shot}")
    browser = shutil.which("chromium") or sys.exit("Not found: chromium.")
    subprocess.run([browser, *QUIET, *how, page.as_uri()], check=True, capture_output=True, timeout=120)
    return Image.open(io.BytesIO(shot.read_bytes())).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, (page, high) in pages(folder).items():
            picture(page, high, folder).save(IMAGES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
