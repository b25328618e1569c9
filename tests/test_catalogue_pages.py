"""The page of operators says of each what it takes and gives, what it needs, where it is from, what it was run with."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.flow_files.schema import read_arguments
from tests.cases import check_each
from tests.catalogue_pages import WITH_WEIGHTS, addresses, needs, operators, sources

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("pre_retrieval", "retrieval", "post_retrieval", "generation", "orchestration")
OURS = {
    *("AsDicts", "AsNodes", "AsText", "BySimilarity", "Cut", "Extract", "Generate", "Phrase", "SentenceVectors"),
    "ShowMetadata",
}
"""What is of no publication."""
METHODS = [cls for cls in Catalogue().operators() if cls.__module__.split(".")[1] in MODULES]


@check_each("cls", METHODS)
def test_every_method_says_its_arguments_its_source_and_an_example(cls: type[Operator[Any, Any]]) -> None:
    docstring = cls.__doc__ or ""
    assert [field.name for field in fields(cls) if field.name not in read_arguments(cls)] == []  # type: ignore[arg-type]
    assert ">>> " in docstring
    assert bool(sources(cls)) != (cls.__name__ in OURS)


@pytest.mark.slow
@check_each(
    "line",
    [
        "- **`HyDE`** (`Query` → `Query`): ",
        "- **`ReciprocalRankFusion`** (`Sequence[Ranking]` → `Ranking`): ",
        "- **`Reader`** (`Ranking` → `Answer`): ",
        "  - *Needs*: `llm`, a `LanguageModel` with `chat`, `logprobs`. *Models*: contract-tested.",
        "  - *Needs*: `llm`, a `LanguageModel` with `chat`; `embedder`, an `Embedder`. *Models*: contract-tested.",
        "  - *Needs*: `embedder`, an `Embedder`, or none. *Models*: contract-tested.",
        "  - *Source*: Cormack, Clarke, Büttcher, SIGIR 2009.",
    ],
)
def test_lines_of_the_page(line: str) -> None:
    assert any(entry.startswith(line) for entry in operators())


@pytest.mark.slow
def test_models_say_what_they_were_run_with() -> None:
    lines = list(addresses())
    for name, purpose in (
        ("MiniLM", "its weights"),
        ("LocalModel", "tiny models"),
        ("Brave", "a server on this machine"),
    ):
        index = next(index for index, line in enumerate(lines) if line.startswith(f"- **`{name}`**"))
        own = lines[index + 1 : next(n for n, line in enumerate(lines) if n > index and line.startswith("- "))]
        assert own[-1].startswith(f"  - *Run with*: {purpose}")
    assert not any("Run with" in line for line in lines if line.startswith("- "))


def test_what_asks_no_model_needs_none() -> None:
    assert [cls.__name__ for cls in METHODS if cls.needs and not list(needs(cls))] == []
    assert {"BM25", "Cut", "MajorityVote"} <= {cls.__name__ for cls in METHODS if not list(needs(cls))}


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_what_was_run_with_weights_says_where(name: str) -> None:
    program = (ROOT / WITH_WEIGHTS[name]).read_text("utf-8")
    assert "MiniLM()" in program
    assert f"{name}(embedder" in program or f"{name.lower()}(chunks, embedder" in program
