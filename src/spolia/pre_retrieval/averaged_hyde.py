"""A search by the mean of a question's vector and those of imagined passages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.models.embedded import embedded
from spolia.models.protocols import CHAT, Embedder, LanguageModel, refuse_no_embedder
from spolia.models.role import Role
from spolia.pre_retrieval.imagining import IMAGINED, Imagines
from spolia.types import Query


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
        ModelError: what the embedder gives are no vectors.

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

    version: ClassVar[int] = 2
    least: ClassVar[int] = 0
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "AveragedHyDE", Embedder)

    def apply(self, value: Query, /) -> Query:
        passages = self.imagined(value)
        (mean,) = embedded(self.embedder, (value.text,), "query").astype(float)
        if passages:
            mean = (mean + embedded(self.embedder, passages, "passage").astype(float).sum(axis=0)) / (len(passages) + 1)
        return value.but(vector=tuple(map(float, mean)), origin=value)
