"""Search by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from spolia.errors import ManifestMismatch, QueryError, WiringError
from spolia.filters import narrowed
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.surrounding import access, narrowing, note
from spolia.types import Failure, Filter, Query, Ranking

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.stores.snapshot import Snapshot

    Vectors: TypeAlias = npt.NDArray[np.float32]

SPECIALS = 8
"""Tokens around a text, at most: its beginning and end, and a prefix for queries."""


@dataclass(frozen=True)
class Dense(Operator[Query, Ranking]):
    """The nodes whose vectors have the largest cosine with the query's, by exact search.

    The query is embedded, unless it brings its vector. Many queries are embedded together and searched with one matrix
    product. There is always a nearest node, so that `top_k` are found wherever the group has as many.

    Args:
        group: the node group to search.
        embedder: the one that the group was built with.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        ManifestMismatch: when the group was built with another embedder, or none.
        StoreError: when the store cannot be read, or has no such group.

    >>> from spolia.models.minilm import MiniLM
    >>> from spolia.stores.corpus import Corpus
    >>> Dense(Corpus("notes.spolia").group(), MiniLM(), top_k=5).short
    "Dense(top_k=5, source='dense')"
    """

    group: NodeGroup
    embedder: Embedder
    top_k: int = 10
    source: str = "dense"
    filter: Filter | None = None

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise WiringError(f"{self.short}: top_k counts from 1.")

    def apply(self, value: Query, /) -> Ranking:
        text = None if value.vector is not None else self._read(value, None)
        return self._found([value], [text])[0]

    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking | Failure]:
        results: list[Ranking | Failure | None] = []
        texts: list[str | None] = []
        for row, value in enumerate(values):
            try:
                texts.append(None if value.vector is not None else self._read(value, row))
                results.append(None)
            except QueryError as error:
                results.append(Failure.of(error, self.short))
        asked = [value for value, result in zip(values, results, strict=True) if result is None]
        found = iter(self._found(asked, texts) if asked else ())
        return [next(found) if result is None else result for result in results]

    def reads(self, value: Query, /) -> object:
        return (value.text if value.vector is None else value.vector), value.filter

    def _found(self, asked: Sequence[Query], texts: Sequence[str | None]) -> list[Ranking]:
        who = access()
        snapshot = self.group.corpus.snapshot()
        self._check(snapshot)
        vectors = self._vectors(asked, texts)
        results: dict[int, Ranking] = {}
        for wanted, rows in self._by_filter(asked).items():
            found = snapshot.nearest_batch(self.group.name, self.embedder.name, vectors[rows], self.top_k, who, wanted)
            for row, pairs in zip(rows, found, strict=True):
                results[row] = Ranking(asked[row], snapshot.hits(pairs, who), self.source)
        return [results[row] for row in range(len(asked))]

    def _by_filter(self, asked: Sequence[Query]) -> dict[Filter | None, list[int]]:
        """Which rows are searched together: those with the same filter."""
        rows: dict[Filter | None, list[int]] = {}
        for row, query in enumerate(asked):
            rows.setdefault(narrowed(self.filter, query.filter, narrowing()), []).append(row)
        return rows

    def _vectors(self, asked: Sequence[Query], texts: Sequence[str | None]) -> Vectors:
        import numpy as np

        vectors = np.zeros((len(asked), self.embedder.dimension), dtype=np.float32)
        for row, query in enumerate(asked):
            if query.vector is not None:
                if len(query.vector) != self.embedder.dimension:
                    raise QueryError(
                        f"The query's vector has {len(query.vector)} numbers; {self.embedder.name} gives "
                        f"{self.embedder.dimension}. Write a vector from that embedder, or none."
                    )
                vectors[row] = query.vector
        rows = [row for row, text in enumerate(texts) if text is not None]
        if rows:
            vectors[rows] = self.embedder.embed([text for text in texts if text is not None], kind="query")
        return vectors

    def _read(self, query: Query, row: int | None) -> str:
        """The text to embed; that the embedder does not read all of it is recorded."""
        text = searched(query, row=row)
        most = len(text.encode("utf-8", "replace")) + SPECIALS  # no tokenizer makes more tokens than there are bytes
        if most > self.embedder.window:
            tokens = self.embedder.tokens([text])[0]
            if tokens > self.embedder.window:
                note(
                    f"The question has {tokens} tokens; {self.embedder.name} reads the first {self.embedder.window}.",
                    row=row,
                )
        return text

    def _check(self, snapshot: Snapshot) -> None:
        built = snapshot.manifest(self.group.name).embedder
        if built != self.embedder.name:
            raise ManifestMismatch(
                f"Group {self.group.name!r} of {self.group.corpus.path} was built with "
                f"{f'the embedder {built!r}' if built else 'no embedder'}, and is searched with "
                f"{self.embedder.name!r}. Search with BM25, with that embedder, or index again with this one."
            )
