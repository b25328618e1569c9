"""A search by the mean of a question's vector and those of imagined passages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.errors import ModelError
from spolia.models.protocols import CHAT, Embedder, LanguageModel, refuse_no_embedder
from spolia.models.role import Role
from spolia.pre_retrieval.imagining import IMAGINED, Imagines
from spolia.types import Query

if TYPE_CHECKING:
    from spolia.models.protocols import Vectors


@dataclass(frozen=True)
class AveragedHyDE(Imagines):
    """Search by v = (f(q) + Σ_i f(d̂_i)) / (N + 1): the query's vector and those of N imagined passages.

    The text of the query stays, for searches by words beside. With no passage, also where no reply can be read, it is
    the plain search by f(q).

    Args:
        llm: the language model.
        embedder: f; the one that the group was embedded by. The query is embedded as a query, passages as passages.
        passages: N, draws at `temperature`.
        role: prompt, reader and default (`AsksOfQuery`).
        max_tokens: longest passage.
        temperature: above 0 where there are several passages.

    Raises:
        WiringError: for several passages at temperature 0; what stands for the embedder is none.
        ModelError: when the embedder gives NaN or infinity.

    Source: Gao, Ma, Lin, Callan, "Precise zero-shot dense retrieval without relevance labels", ACL 2023.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.testing import HashingEmbedder
    >>> op = AveragedHyDE(ScriptedModel(("The moon pulls the sea.", "Tides follow the moon.")), HashingEmbedder(), 2)
    >>> found = op(Query("Why are there tides?"))
    >>> found.text, len(found.vector) == HashingEmbedder().dimension
    ('Why are there tides?', True)
    """

    llm: LanguageModel
    embedder: Embedder
    passages: int = 8
    role: Role[str] = IMAGINED
    max_tokens: int = 128
    temperature: float = 0.7

    least: ClassVar[int] = 0
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "AveragedHyDE", Embedder)

    def apply(self, value: Query, /) -> Query:
        passages = self.imagined(value)
        vectors = self._embedded((value.text,), "query")
        mean = vectors[0].astype(float)
        if passages:
            mean = (mean + self._embedded(passages, "passage").astype(float).sum(axis=0)) / (len(passages) + 1)
        return value.but(vector=tuple(map(float, mean)), origin=value)

    def _embedded(self, texts: tuple[str, ...], kind: str) -> Vectors:
        import numpy as np

        vectors = self.embedder.embed(texts, kind="query" if kind == "query" else "passage")
        if vectors.shape != (len(texts), self.embedder.dimension) or not np.isfinite(vectors).all():
            raise ModelError(
                f"{self.embedder.name} gave vectors of shape {vectors.shape}, or NaN or infinity, for {len(texts)} "
                f"texts; wanted are {self.embedder.dimension} finite numbers for each. Correct the embedder."
            )
        return vectors
