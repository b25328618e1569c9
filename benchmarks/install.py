"""What an installation weighs: distributions and megabytes of the base and of base + PDF, Office and embeddings.

    python benchmarks/install.py [--check] [--out FILE]

Each is installed into a fresh environment, as `make demo` does it: what Python compiles at the first import is not
counted. `--check` fails when a limit is exceeded; it installs only if what is installed has changed since the committed
result.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import venv
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from limits import WEIGHTS
from results import publish

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = ROOT / "benchmarks" / "results" / "install.json"
BUNDLED = {"pip", "setuptools"}


def weigh(extras: str, folder: Path) -> dict[str, object]:
    """Distributions and size of an installation of their own."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    command = [python, "-m", "pip", "install", "--no-compile", "-qq", "--disable-pip-version-check", f"{ROOT}{extras}"]
    constraints = folder / "constraints.txt"  # hashes would be wanted for Spolia's own folder, too
    constraints.write_text(re.sub(r" *\\\n *--hash=\S+", "", (ROOT / "requirements.lock").read_text()))
    subprocess.run([*command, "--constraint", constraints], check=True, stderr=subprocess.DEVNULL)
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    names = sorted(row["name"].lower() for row in json.loads(listed))
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "setuptools", "pip"], check=True)
    size = sum(path.stat().st_size for path in (folder / "lib").rglob("*") if path.is_file())
    return {"distributions": len(set(names) - BUNDLED), "megabytes": round(size / 1e6, 1), "names": names}


def installed_digest() -> str:
    """Return what decides the weight: the project's file, and the pinned versions."""
    inputs = [ROOT / "pyproject.toml", ROOT / "requirements.lock", ROOT / "requirements-demo.lock"]
    return sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()


def measure() -> dict[str, object]:
    """Return the weights by name of `WEIGHTS`, each of a fresh environment."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        extras = ["" if name == "base" else name for name in WEIGHTS]
        folders = [Path(folder) / str(number) for number in range(len(extras))]
        return dict(zip(WEIGHTS, pool.map(weigh, extras, folders), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = json.loads(COMMITTED.read_text())
    if not options.check or result.get("installed") != installed_digest():
        result = measure() | {"installed": installed_digest()}
        publish("install", result, options.out)
    for name, (limit, megabytes) in WEIGHTS.items():
        row = result[name]
        if options.check and (row["distributions"] > limit or row["megabytes"] > megabytes):
            sys.exit(f"{name}: {row}; the limits are {limit} distributions and {megabytes} MB")


if __name__ == "__main__":
    main()
