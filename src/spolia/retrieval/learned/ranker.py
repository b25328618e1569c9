"""Search by a ranking that was learned from questions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import note, reach
from spolia.errors import ManifestMismatch, WeightsError
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.models.trained_weights import RANKER, TrainedWeights
from spolia.retrieval import learned
from spolia.retrieval.group_search import GroupSearch, searched
from spolia.retrieval.vector_search import read, refuse_other, vectors_of
from spolia.stores import groups, vectors
from spolia.stores.corpus import NodeGroup
from spolia.stores.snapshot.hit_order import best_hits
from spolia.types import Filter, Hit, Query

if TYPE_CHECKING:
    from spolia.retrieval.learned.scores import Score
    from spolia.stores.snapshot.snapshot import Snapshot

EXPLAINED = 5
"""Contributions that a hit has: the largest ones, whatever their sign."""


@dataclass(frozen=True)
class LearnedRanker(GroupSearch):
    """Nodes that answer a question together, ranked by weights that were learned from questions with gold passages.

    Candidates are the best nodes by words and by meaning; nodes whose titles the question names; nodes that these are
    linked with, because the title of one occurs in the text of the other; nodes that share a rare name with the best
    ones; and the nearest to the sum of the question and one of the best. Each is scored by 21 features:

        score = Σ weight · (feature - mean) / deviation

    or by boosted trees over them, if the weights have such. A second pass begins where the first has led to. Each hit
    has its largest contributions in `Hit.parts`.

    It gains most where a question needs several passages. Titles link in every language that puts blanks between words.
    Names need capitals, or quotation marks. A group with neither titles nor names gains little over hybrid search,
    which the run notes.

    Args:
        weights: that `spolia train ranker` wrote.
        embedder: one that the group was built with and the weights were trained with; None for weights without one.
        names: the group with a node for each name of a text, made from `group`; it is built at its first use. Empty for
            links by titles alone.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        ManifestMismatch: the weights were trained with another embedder, other groups, or without.
        WeightsError: there are no weights, or they are damaged.

    Source: features and listwise linear ranking as in Liu, "Learning to rank for information retrieval", 2009; links
    by titles as in Asai et al., "Learning to retrieve reasoning paths over Wikipedia graph", ICLR 2020.

    >>> from spolia import Corpus
    >>> LearnedRanker(Corpus("notes.spolia").group(), TrainedWeights("my-ranker"), top_k=5).short
    "LearnedRanker(names='entity', top_k=5, source='learned')"
    """

    group: NodeGroup
    weights: TrainedWeights
    embedder: Embedder | None = None
    names: str = "entity"
    top_k: int = 10
    source: str = "learned"
    filter: Filter | None = None

    version: ClassVar[int] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedder is not None:
            refuse_no_embedder(self.embedder, "LearnedRanker", Embedder)

    def is_nested(self) -> bool:
        return True

    def reads(self, value: Query, /) -> object:
        return value.text, value.vector, value.filter

    def snapshot(self) -> Snapshot:
        """The generation that is searched, in which the group, its names and its vectors are built."""
        return snapshot_of(self.group, self.names, self.embedder)

    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        reach(self.weights)
        passes = self._passes(snapshot)
        asked = searched_in(snapshot, self.group, self.names, self.embedder, query, who, wanted)
        found = learned.scores.ranked(asked, passes)
        keys = snapshot.open.records(self.group.name).keys[found.positions].tolist()
        best = best_hits(zip(keys, found.scores.tolist(), strict=True), self.top_k, snapshot.ids)
        row = {key: at for at, key in enumerate(keys)}
        ids = snapshot.ids([key for key, _ in best])
        parts = {
            ids[key]: tuple(
                sorted(
                    zip(learned.features.FEATURES, found.contributions[row[key]].tolist(), strict=True),
                    key=lambda one: -abs(one[1]),
                )
            )[:EXPLAINED]
            for key, _ in best
        }
        return tuple(hit.but(parts=parts[hit.node.id]) for hit in snapshot.hits(best, who))

    def _passes(self, snapshot: Snapshot) -> tuple[Score, ...]:
        plain = self.weights.plain(RANKER)
        trained, here = plain.get("groups"), groups_of(snapshot, self.group, self.names, self.embedder)
        if not isinstance(trained, dict):
            raise WeightsError(f"{self.weights.place} holds no weights of a ranker. Train it again.")
        differences = [
            f"{name}: made in another way"
            if name == "group"  # a hash
            else f"{name}: {value!r} in training, {here.get(name)!r} here"
            for name, value in trained.items()
            if value is not None and value != here.get(name)
        ]
        if differences:
            raise ManifestMismatch(
                f"The ranker in {self.weights.place} was trained on other groups than {self.group.corpus.path} has: "
                f"{'; '.join(differences)}. Train one on this store: spolia train ranker --data DATA --store "
                f"{self.group.corpus.path} -o FOLDER."
            )
        return read_passes(self.weights.sha256 or self.weights.fingerprint() or "", self.weights)


@lru_cache(maxsize=16)
def read_passes(sha256: str, weights: TrainedWeights) -> tuple[Score, ...]:
    """The scores of all passes; read once for each state of the file."""
    passes = weights.plain(RANKER).get("passes")
    if not isinstance(passes, list) or not passes:
        raise WeightsError(f"{weights.place} holds no passes of a ranker. Train it again.")
    return tuple(map(learned.scores.score_of, passes))


def snapshot_of(group: NodeGroup, names: str, embedder: Embedder | None) -> Snapshot:
    """The generation that the run has pinned, in which a group, its names and its vectors are built."""
    if names:
        group.corpus.group(names).snapshot()
    return (group if embedder is None else groups.materialise.with_vectors(group, embedder)).snapshot()


def groups_of(snapshot: Snapshot, group: NodeGroup, names: str, embedder: Embedder | None) -> dict[str, Any]:
    """What weights are fitted to: how the nodes and their names are made, and who embeds."""
    how = snapshot.manifest(group.name)
    return {
        "group": how.signature or how.transform,
        "names": snapshot.manifest(names).transform if names else "",
        "embedder": embedder.name if embedder is not None else "",
        "dimension": embedder.dimension if embedder is not None else 0,
    }


def searched_in(
    snapshot: Snapshot,
    group: NodeGroup,
    names: str,
    embedder: Embedder | None,
    query: Query,
    who: frozenset[str],
    wanted: Filter | None,
) -> learned.features.QuestionInGroup:
    """A question in a group, ready for candidates; the run notes where titles and names are missing."""
    vector = None
    if embedder is not None:
        refuse_other(group, snapshot, embedder)
        vector = vectors.search.unit(vectors_of([query], [read(query, embedder)], embedder))[0]
    asked = learned.features.QuestionInGroup(
        snapshot, group.name, names, embedder.name if embedder else "", searched(query), vector, who, wanted
    )
    if not len(asked.links.texts.titled.nodes) and not len(asked.links.texts.named.nodes):
        note(f"Group {group.name!r} has no titles and no names, by which nodes are linked: little is gained here.")
    return asked
