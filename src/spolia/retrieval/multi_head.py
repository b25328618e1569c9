"""Search by each part of a vector, so that a node with several aspects is found by any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from spolia.core.type_compatibility import refuse_counts
from spolia.errors import WiringError
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.retrieval.group_search import GroupSearch
from spolia.retrieval.term_counts import derived
from spolia.retrieval.vector_search import refuse_other, text_to_embed, vectors_of
from spolia.stores.corpus import NodeGroup
from spolia.stores.vectors.search import rank_scores
from spolia.types import Filter, Hit, Query

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Numbers, Vectors

Votes: TypeAlias = Literal["strength", "decay", "distance", "rank"]
# The least distance that votes are divided by: a node equal to the query would get infinitely many.
_NEAREST = 1e-6
# The constant of reciprocal rank fusion in its paper (Cormack et al., 2009).
RRF_K = 60


@dataclass(frozen=True)
class MultiHead(GroupSearch):
    """Search in which each head of a vector votes for its `top_k` nearest nodes.

    A vector is cut into `heads` parts of one length, e_h. Score(d) = Σ_h vote_h(d), with rank r from 0 in the order of
    the head's cosines and s_h = mean ‖e_h‖ · mean (1 - cos) of all pairs of nodes, which tells heads that see
    differences from those that do not:

    | votes | of head h for the node of rank r |
    |---|---|
    | `strength` | s_h · 2^-r |
    | `decay` | 2^-r |
    | `distance` | s_h / (1 - cos), at most s_h · 10⁶ |
    | `rank` | 1 / (60 + r + 1), reciprocal rank fusion of the heads |

    With an embedder that gives what the attention heads of a language model's last layer say of a text, one after the
    other, this is multi-head RAG. With any other it is the paper's split baseline, which works without that model. All
    nodes that may be found are compared. The strengths are of all nodes that the asker may read.

    Args:
        embedder: one that the group was built with; its dimension is a multiple of `heads`.
        heads: parts of a vector.
        votes: of the table.
        top_k: hits to return, and nodes that each head votes for, at most.
        group, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        ManifestMismatch: when the group was built with another embedder, or none.
        WiringError: a vector cannot be cut into this many parts, or the votes are unknown.

    Source: Besta et al., "Multi-head RAG: solving multi-aspect problems with LLMs", 2024.

    >>> from spolia import Corpus, MiniLM
    >>> MultiHead(Corpus("notes.spolia").group(), MiniLM(), heads=32).short
    "MultiHead(heads=32, votes='strength', top_k=10, source='heads')"
    """

    group: NodeGroup
    embedder: Embedder
    heads: int = 32
    votes: Votes = "strength"
    top_k: int = 10
    source: str = "heads"
    filter: Filter | None = None

    version: ClassVar[int] = 2  # 2: strengths are those of the nodes that the asker may read
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "MultiHead", Embedder)
        refuse_counts(self, "heads")
        if self.votes not in get_args(Votes):
            raise WiringError(f"There are no votes {self.votes!r}. Write one of: {', '.join(get_args(Votes))}.")

    def reads(self, value: Query, /) -> object:
        return (value.text if value.vector is None else value.vector), value.filter

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...]:
        refuse_other(self.group, snapshot, self.embedder)
        query_parts = self._cut(vectors_of([query], [text_to_embed(query, self.embedder)], self.embedder))[0]
        allowed = snapshot.allowed(self.group.name, principals, filter)
        keys = allowed.keys[allowed.positions()]
        if not len(keys):
            return ()
        parts = self._cut(snapshot.vectors(self.group.name, self.embedder.name, allowed))
        key = ("strengths", self.group.name, self.embedder.name, self.heads)
        cache = snapshot.derived_of(principals, self.group.name)
        scores = self._scores(query_parts, parts, derived(cache, key, lambda: self._strengths(snapshot, principals)))
        voted = scores > 0
        return snapshot.hits(rank_scores(keys[voted], scores[voted], self.top_k, snapshot.ids), principals)

    def _cut(self, vectors: Vectors) -> Numbers:
        """Return float64[n, heads, d / heads]."""
        if vectors.shape[1] % self.heads:
            raise WiringError(
                f"{self.short}: vectors of {vectors.shape[1]} numbers cannot be cut into {self.heads} parts. "
                f"Write a number of heads that divides {vectors.shape[1]}."
            )
        return vectors.astype("float64").reshape(len(vectors), self.heads, -1)

    def _scores(self, query_parts: Numbers, parts: Numbers, strengths: Numbers) -> Numbers:
        """Return float64[n] votes for each node."""
        scores = np.zeros(len(parts))
        ranks = np.arange(min(self.top_k, len(parts)))
        for head in range(self.heads):
            # Rounded, so that equal cosines stay equal whatever order their products are added in.
            cosines = np.round(_unit(parts[:, head]) @ _unit(query_parts[head][None])[0], 9)
            nearest = np.argsort(-cosines, kind="stable")[: self.top_k]
            if self.votes == "distance":
                votes = strengths[head] / np.maximum(1 - cosines[nearest], _NEAREST)
            elif self.votes == "rank":
                votes = 1 / (RRF_K + ranks + 1)
            else:
                votes = (strengths[head] if self.votes == "strength" else 1.0) * 2.0**-ranks
            scores[nearest] += votes
        return scores

    def _strengths(self, snapshot: Snapshot, principals: frozenset[str]) -> Numbers:
        """Return float64[heads], s_h over all nodes that may be read; 1 for fewer than two nodes, which have no
        differences."""
        readable = snapshot.allowed(self.group.name, principals)
        parts = self._cut(snapshot.vectors(self.group.name, self.embedder.name, readable))
        if len(parts) < 2:
            return np.ones(self.heads)
        return np.array([_strength(parts[:, head]) for head in range(self.heads)])


def _strength(parts: Numbers) -> float:
    """Return mean length · mean (1 - cosine) of all pairs, in one pass over the nodes."""
    count, unit = len(parts), _unit(parts)
    # Σ of all products of unit vectors is the square of their sum: no pair needs to be formed.
    squares = float((unit**2).sum())
    cosines = (float((unit.sum(axis=0) ** 2).sum()) - squares) / (count * (count - 1))
    return float(np.linalg.norm(parts, axis=1).mean()) * max(0.0, 1 - cosines)


def _unit(rows: Numbers) -> Numbers:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0), dtype=np.float64)
