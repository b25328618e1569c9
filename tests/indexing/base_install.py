"""A process without the packages of any extra: imports every public name, indexes a folder, searches it."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path


def main(root: str, folder: str) -> None:
    extras = tomllib.loads(Path(root, "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lacking = {re.split(r"[^\w-]", text)[0].lower() for texts in extras.values() for text in texts} - {"spolia"}
    for name, owners in packages_distributions().items():
        if not lacking.isdisjoint(owner.lower() for owner in owners):
            sys.modules[name] = None  # type: ignore[assignment]  # which makes its import fail
    from spolia.core.public_names import MODULE_OF

    for name, module in MODULE_OF.items():
        getattr(import_module(module), name)
    from spolia import BM25, Corpus, Query, sync

    corpus = Corpus(f"{folder}/notes.spolia")
    report = sync(f"{folder}/notes", corpus, workers=0)
    ranking = BM25(corpus.group("chunk"))(Query("ferry"))
    sys.stdout.write(json.dumps({"failed": dict(report.failed), "found": sorted(hit.node.uri for hit in ranking.hits)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
