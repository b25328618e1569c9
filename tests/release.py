"""Build the sdist, the wheel and its SBOM, and try the wheel in a clean environment of each Python: `make release`.

Each environment has nothing but the wheel with the extras of README's installation. There the first example of README
runs, and `spolia init` makes a project of three documents and gates it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.lock import LOCK

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = "[pdf,office,embeddings]"


def pythons() -> Iterator[Path]:
    """The interpreters of supported versions that this machine has: on the path, or installed by pyenv."""
    for version in SUPPORTED:
        installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        if installed:
            yield installed[-1]
        elif path := shutil.which(f"python{version}"):
            yield Path(path)


def try_wheel(python: Path, wheel: Path, folder: Path) -> str:
    """Install the wheel for a Python, and use it; its version."""
    subprocess.run([python, "-m", "venv", folder / "env"], check=True)
    bin, place = folder / "env" / "bin", folder / "place"
    subprocess.run([bin / "pip", "install", "-qq", "--disable-pip-version-check", f"{wheel}{EXTRAS}"], check=True)
    (place / "papers").mkdir(parents=True)
    example = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)[0]
    for n in range(3):
        (place / "papers" / f"{n}.txt").write_text(f"Lighthouse {n} was lit in {1800 + n}.")
    (place / "q.csv").write_text("question,file\nWhen was lighthouse 1 lit?,1.txt\n")
    commands: tuple[list[str | Path], ...] = (
        [bin / "python", "-W", "error", "-c", example],
        [bin / "spolia", "init", "P", "--docs", "papers", "--questions", "q.csv", "--no-vectors"],
        [bin / "spolia", "gate", "--baseline", "P/baseline.json"],
    )
    for command in commands:
        ran = subprocess.run(command, cwd=place, capture_output=True, text=True)
        if ran.returncode:
            sys.exit(f"{python}: {command[-1]}\n{ran.stdout}{ran.stderr}")
    version = subprocess.run([bin / "python", "-V"], capture_output=True, text=True, check=True)
    return version.stdout.strip()


def write_sbom(dist: Path, lock: Path = LOCK) -> Path:
    """Write what a lock pins, with hashes, as CycloneDX in JSON beside the wheel."""
    path = dist / "spolia.cdx.json"
    command = ["requirements", "--pyproject", "pyproject.toml", "--spec-version", "1.6", "--output-reproducible"]
    subprocess.run(
        [sys.executable, "-m", "cyclonedx_py", *command, "--output-file", path, lock],
        cwd=ROOT, check=True,
    )  # fmt: skip
    return path


def main() -> None:
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", dist, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = dist.glob("*.whl")
    sys.stdout.write(f"{write_sbom(dist).name} written\n")
    for python in pythons():
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"{wheel.name} works on {try_wheel(python, wheel, Path(folder))}\n")


if __name__ == "__main__":
    main()
