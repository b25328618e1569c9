"""Cutting real text with every splitter: megabytes for each second of CPU.

    python benchmarks/splitters.py [--megabytes 2] [--rounds 3] [--out FILE]

Prose are passages of MuSiQue as Markdown, each below its title; records are the same passages as JSON Lines and as CSV,
pages the same as HTML, code is this project's own. One process, all its threads; the best of the rounds counts.
`SemanticBreaks` and `Topics` run with vectors that cost nothing, so that what is measured is the splitter. Data:
`SPOLIA_DATASETS`, else `../shared/datasets` beside the checkout.
"""

from __future__ import annotations

import argparse
import csv
import html
import io
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from results import publish

from spolia.core.registry import Catalogue
from spolia.evaluation.data.dataset import DataSet
from spolia.indexing.readers.markup.markdown import headings_of
from spolia.indexing.splitters.code import CodeSplitter
from spolia.indexing.splitters.markup import HTMLSections
from spolia.indexing.splitters.rows import CSVRows, JSONRows, TableAware
from spolia.indexing.splitters.sized_splitter import SlidingWindow, TokenWindow
from spolia.indexing.splitters.text_units import SemanticBreaks
from spolia.indexing.structure.topics import Topics
from spolia.models.onnx.tokenizer import WordPiece
from spolia.stores.definition import Part, Splitter
from spolia.types import Document, Node, Span, Value

DATA = Path(os.environ.get("SPOLIA_DATASETS") or Path(__file__).resolve().parents[2] / "shared" / "datasets")
SOURCE = Path(__file__).resolve().parents[1] / "src"
PEERS = {"semantic-text-splitter": 77, "semantic-text-splitter, Markdown": 20, "chonkie, recursive": 40}
"""Megabytes for a CPU-second, measured apart from this project on other text of the same kind."""


@dataclass(frozen=True)
class Free(Value):
    """Vectors that cost nothing."""

    name: str = "free"
    dimension: int = 8
    window: int = 512
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: str) -> Any:
        angles = np.array([len(text) % 97 for text in texts], dtype=np.float32)
        return np.stack([np.cos(angles), np.sin(angles), *[np.zeros_like(angles)] * 6], axis=1)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


NEEDED: dict[type[Splitter], dict[str, Any]] = {
    SemanticBreaks: {"embedder": Free()},
    Topics: {"embedder": Free()},
    TableAware: {"rest": SlidingWindow()},
}
FORMS: dict[type[Splitter], str] = {
    CodeSplitter: "py",
    CSVRows: "csv",
    HTMLSections: "html",
    JSONRows: "jsonl",
}


def documents(size: int) -> dict[str, Document]:
    """A document of about so many characters in each form."""
    passages = list(_passages(size))
    rows = io.StringIO()
    csv.writer(rows).writerows([("title", "text"), *passages])
    program = "\n".join(path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py")))
    texts = {
        "md": "\n\n".join(f"## {title}\n\n{text}" for title, text in passages),
        "html": "".join(f"<h2>{html.escape(title)}</h2>\n<p>{html.escape(text)}</p>\n" for title, text in passages),
        "jsonl": "".join(json.dumps({"title": title, "text": text}) + "\n" for title, text in passages),
        "csv": rows.getvalue(),
        "py": program[:900_000],
    }
    headings = tuple(headings_of(texts["md"]))
    return {form: Document(form, text, f"a.{form}", headings=headings * (form == "md")) for form, text in texts.items()}


def _passages(size: int) -> Iterator[tuple[str, str]]:
    for passage in DataSet(str(DATA / "musique")).passages():
        if size <= 0:
            return
        size -= len(passage.text) + len(passage.title)
        yield passage.title, passage.text


def measure(splitter: Splitter, document: Document, rounds: int) -> dict[str, Any]:
    """The best of some rounds over a document."""
    part = Part(Node(document.id, document.text, span=Span(0, len(document.text))), document)
    best, count = float("inf"), 0
    for _ in range(rounds):
        began = time.process_time()
        count = sum(1 for _ in splitter.pieces(part))
        best = min(best, time.process_time() - began)
    size = len(document.text.encode())
    form = document.uri.rpartition(".")[2]
    return {
        "form": form,
        "bytes": size,
        "pieces": count,
        "cpu_s": round(best, 3),
        "mb_per_cpu_s": round(size / best / 1e6, 1),
    }


def splitters() -> dict[str, Splitter]:
    """Every splitter in the catalogue as it is by default; those of windows also with the embedder's tokenizer."""
    classes = [cls for cls in Catalogue().operators() if issubclass(cls, Splitter)]
    new_splitters: dict[str, Splitter] = {cls.__name__: cls(**NEEDED.get(cls, {})) for cls in classes}
    windows = {"SlidingWindow": SlidingWindow(tokenizer=WordPiece()), "TokenWindow": TokenWindow(tokenizer=WordPiece())}
    return new_splitters | {f"{name}, WordPiece": splitter for name, splitter in windows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    forms = documents(int(options.megabytes * 1e6))
    result = {
        "splitters": {
            name: measure(splitter, forms[FORMS.get(type(splitter), "md")], options.rounds)
            for name, splitter in splitters().items()
        },
        "peers_measured_apart_mb_per_cpu_s": PEERS,
        "python": platform.python_version(),
    }
    publish("splitters", result, options.out)


if __name__ == "__main__":
    main()
