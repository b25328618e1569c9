"""Search from the top of a tree of groups down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spolia import retrieval
from spolia.core.operator import Operator
from spolia.core.run_context import access, note, run_filter
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import WiringError
from spolia.filters import combine_filters
from spolia.models.protocols import Embedder
from spolia.retrieval.vector_search import best, refuse_other
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.types import Filter, Query, Ranking, Value

if TYPE_CHECKING:
    from spolia.retrieval.tree_levels import TreeSteps
    from spolia.stores.access.allowed_nodes import Allowed
    from spolia.stores.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class Stage(Value):
    """One level of a search down a tree: counts of nodes allowed and compared, keys and scores of the best."""

    group: str
    compared: int
    there: int
    found: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Descend(Operator[Query, Ranking]):
    """Search down a hierarchy: it keeps the best nodes of each level and searches only below them.

    The levels are groups of one corpus, the coarsest first: sections by their summaries, chunks by their text. A node
    belongs to one of the level above if both have an ancestor in the nearest group that both were made from, so that a
    summary leads to the chunks of its section. A level on which nothing is found narrows nothing.

    Without a width all nodes of the last level are compared, as a flat search of it does. `stages` tells, and the trace
    notes, how many were.

    Filters hold for the nodes of the last level; of the levels above those count that lead to one of them and may be
    read.

    Args:
        levels: groups, from the top to the one that is returned; two at least.
        embedder: one that all of them were embedded with, for likeness in meaning; None for BM25.
        width: nodes that are kept of a level; None for all.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        WiringError: fewer than two levels, or levels of several corpora.
        QueryError: for an empty query.
        ManifestMismatch: when a level was not embedded with the embedder.
        FilterError: for a filter on a field that the store does not declare.
        StoreError: when the store cannot be read, or lacks the group.

    Source: Sarthi et al., "RAPTOR: recursive abstractive processing for tree-organized retrieval", 2024.

    >>> from spolia.stores.corpus import Corpus
    >>> notes = Corpus("notes.spolia")
    >>> Descend((notes.group("summary"), notes.group("chunk")), width=2).short
    "Descend(width=2, top_k=10, source='descend')"
    """

    levels: tuple[NodeGroup, ...]
    embedder: Embedder | None = None
    width: int | None = 3
    top_k: int = 10
    source: str = "descend"
    filter: Filter | None = None

    version: ClassVar[int] = 2  # 2: counts only what the asker may read
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        levels = self.levels if isinstance(self.levels, tuple) else (self.levels,)
        for level in levels:
            refuse_no_group(level, "Each level of Descend")
        if len(levels) < 2 or len({group.corpus for group in levels}) > 1:
            raise WiringError(
                f"Descend has the levels {', '.join(repr(group.name) for group in levels) or 'none'}. "
                "Write two groups of one corpus at least, the coarsest first."
            )
        refuse_counts(self, "top_k")
        refuse_counts(self, "width", optional=True)

    def apply(self, value: Query, /) -> Ranking:
        snapshot = self._snapshot()
        last = self._stages(snapshot, value)[-1]
        note(f"Of {last.there} nodes of group {last.group!r}, {last.compared} were compared with the question.")
        return Ranking(value, snapshot.hits(last.found, access()), self.source)

    def stages(self, query: Query) -> tuple[Stage, ...]:
        """Return what a search does on each level; it raises as a search does."""
        return self._stages(self._snapshot(), query)

    def reads(self, value: Query, /) -> Any:
        return (value.text if self.embedder is None or value.vector is None else value.vector), value.filter

    def _snapshot(self) -> Snapshot:
        *_, snapshot = [group.snapshot() for group in self.levels]  # the last one, since each may build its group first
        return snapshot

    def _stages(self, snapshot: Snapshot, query: Query) -> tuple[Stage, ...]:
        if self.embedder is not None:
            for group in self.levels:
                refuse_other(group, snapshot, self.embedder)
        steps = self._steps(snapshot)
        leading = steps.leading_to_allowed(self._allowed(snapshot, query))
        candidates, stages = leading[0], []
        for level, group in enumerate(self.levels[:-1]):
            ranking = best(snapshot, group, query, self.embedder, candidates, self.width) if self.width else []
            stages.append(
                Stage(group.name, candidates.count if self.width else 0, leading[level].count, tuple(ranking))
            )
            best_keys = [key for key, _ in ranking] or candidates.keys[candidates.positions()]
            candidates = leading[level + 1].restrict_to(steps.step_down(level, best_keys))
        ranking = best(snapshot, self.levels[-1], query, self.embedder, candidates, self.top_k)
        return (*stages, Stage(self.levels[-1].name, candidates.count, leading[-1].count, tuple(ranking)))

    def _allowed(self, snapshot: Snapshot, query: Query) -> list[Allowed]:
        """Return readable nodes of the upper levels, and of the last level those that may be found."""
        principals = access()
        *upper, last = [group.name for group in self.levels]
        filter = combine_filters(self.filter, query.filter, run_filter())
        return [*(snapshot.allowed(name, principals) for name in upper), snapshot.allowed(last, principals, filter)]

    def _steps(self, snapshot: Snapshot) -> TreeSteps:
        names = tuple(group.name for group in self.levels)
        steps: retrieval.tree_levels.TreeSteps | None = snapshot.derived.get(("steps", names))
        if steps is None:
            steps = snapshot.derived[("steps", names)] = retrieval.tree_levels.TreeSteps(snapshot, names)
        return steps
