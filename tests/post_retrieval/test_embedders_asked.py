"""Embedders are told what is a question and what a passage, and one that gives no vectors is an error of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from spolia.core.operator import Operator
from spolia.errors import ModelError
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import Kind
from spolia.models.vectors import TokenVectors
from spolia.orchestration.similarity_router import ByMeaning
from spolia.post_retrieval.compression import Extractive
from spolia.post_retrieval.mmr import MMR
from spolia.post_retrieval.rerankers import ColBERT
from spolia.post_retrieval.selection import SimilarityPercentile, SimilarityThreshold
from spolia.pre_retrieval.hyde import AveragedHyDE
from spolia.testing import HashingEmbedder
from spolia.testing.hash_embedder import HashingTokens
from spolia.types import Hit, Node, Query, Ranking
from tests.cases import check_each

FOUND = Ranking(Query("stones"), tuple(Hit(Node(text, text), 1.0) for text in ("Red stones.", "Blue sea.")))
Made = Callable[[HashingEmbedder], tuple[Operator[Any, Any], Any]]
EVERY: dict[str, Made] = {
    "MMR": lambda embedder: (MMR(embedder), FOUND),
    "SimilarityThreshold": lambda embedder: (SimilarityThreshold(embedder), FOUND),
    "SimilarityPercentile": lambda embedder: (SimilarityPercentile(embedder), FOUND),
    "Extractive": lambda embedder: (Extractive(embedder), FOUND),
    "ByMeaning": lambda embedder: (ByMeaning(embedder, (("a", ("x", "y")), ("b", ("z",)))), FOUND.query),
    "AveragedHyDE": lambda embedder: (AveragedHyDE(ScriptedModel(("One.", "Two.")), embedder, 2), FOUND.query),
}


class NaN(HashingEmbedder):
    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        return np.full((len(texts), self.dimension), np.nan, np.float32)


class TooFew(HashingEmbedder):
    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        return super().embed(texts[:1], kind=kind)


class TooShort(HashingEmbedder):
    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        return super().embed(texts, kind=kind)[:, 1:]


@check_each("wrong", [NaN(), TooFew(), TooShort()])
@check_each("name", EVERY)
def test_what_are_no_vectors_is_told(name: str, wrong: HashingEmbedder) -> None:
    op, value = EVERY[name](wrong)
    with pytest.raises(ModelError, match=r"gave (vectors of shape|NaN or infinity for)"):
        op(value)


ASKED: list[tuple[str, str]] = []


class Noted(HashingEmbedder):
    def embed(self, texts: Sequence[str], *, kind: Kind) -> Any:
        ASKED.extend((kind, text) for text in texts)
        return super().embed(texts, kind=kind)


class NotedTokens(HashingTokens):
    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        ASKED.extend((kind, text) for text in texts)
        return super().embed_tokens(texts, kind=kind)


@check_each("name", [*EVERY, "ColBERT"])
def test_the_question_is_embedded_as_a_query_and_all_else_as_passages(name: str) -> None:
    ASKED.clear()
    op, value = (ColBERT(NotedTokens(), strict=True), FOUND) if name == "ColBERT" else EVERY[name](Noted())
    op(value)
    assert [text for kind, text in ASKED if kind == "query"] == ["stones"]
    assert {text for kind, text in ASKED if kind == "passage"} in (
        {"Red stones.", "Blue sea."},
        {"x", "y", "z"},
        {"One.", "Two."},
    )


@check_each("name", EVERY)
def test_what_are_vectors_is_not(name: str) -> None:
    op, value = EVERY[name](HashingEmbedder())
    assert op(value)
