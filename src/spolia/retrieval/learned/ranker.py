"""Retriever whose ranking was learned from questions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import note, record_access
from spolia.errors import ManifestMismatch, WeightsError
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.models.trained_weights import RANKER, TrainedWeights
from spolia.retrieval import learned
from spolia.retrieval.group_search import GroupSearch, search_text
from spolia.retrieval.vector_search import refuse_other, text_to_embed, vectors_of
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
        """Return the generation to search, in which the group, its names and its vectors are built."""
        return snapshot_of(self.group, self.names, self.embedder)

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...]:
        record_access(self.weights)
        passes = self._load_passes(snapshot)
        question = prepare_question(snapshot, self.group, self.names, self.embedder, query, principals, filter)
        ranked_nodes = learned.scores.rank_candidates(question, passes)
        keys = snapshot.open.records(self.group.name).keys[ranked_nodes.positions].tolist()
        best = best_hits(zip(keys, ranked_nodes.scores.tolist(), strict=True), self.top_k, snapshot.ids)
        row = {key: row_number for row_number, key in enumerate(keys)}
        ids = snapshot.ids([key for key, _ in best])
        parts = {
            ids[key]: tuple(
                sorted(
                    zip(learned.features.FEATURES, ranked_nodes.contributions[row[key]].tolist(), strict=True),
                    key=lambda item: -abs(item[1]),
                )
            )[:EXPLAINED]
            for key, _ in best
        }
        return tuple(hit.but(parts=parts[hit.node.id]) for hit in snapshot.hits(best, principals))

    def _load_passes(self, snapshot: Snapshot) -> tuple[Score, ...]:
        plain = self.weights.plain(RANKER)
        trained, here = plain.get("groups"), describe_groups(snapshot, self.group, self.names, self.embedder)
        if not isinstance(trained, dict):
            raise WeightsError(f"{self.weights.place} holds no weights of a ranker. Train it again.")
        differences = [
            f"{name}: made in another way"
            if name == "group"  # a hash
            else f"{name}: {value!r} in training, {here.get(name)!r} here"
            for name, value in trained.items()
            # Weights of earlier versions may lack a part; then it is not compared.
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
    """Read the scores of all passes, once for each state of the file."""
    # The hash of the weights is only the key of the cache: another file is read again.
    passes = weights.plain(RANKER).get("passes")
    if not isinstance(passes, list) or not passes:
        raise WeightsError(f"{weights.place} holds no passes of a ranker. Train it again.")
    return tuple(map(learned.scores.read_score, passes))


def snapshot_of(group: NodeGroup, names: str, embedder: Embedder | None) -> Snapshot:
    """Return the generation that the run has pinned, in which a group, its names and its vectors are built."""
    if names:
        group.corpus.group(names).snapshot()
    return (group if embedder is None else groups.materialise.with_embedding(group, embedder)).snapshot()


def describe_groups(snapshot: Snapshot, group: NodeGroup, names: str, embedder: Embedder | None) -> dict[str, Any]:
    """Describe what weights are fitted to: how the nodes and their names are made, and the embedder."""
    manifest = snapshot.manifest(group.name)
    return {
        "group": manifest.signature or manifest.transform,
        "names": snapshot.manifest(names).transform if names else "",
        "embedder": embedder.name if embedder is not None else "",
        "dimension": embedder.dimension if embedder is not None else 0,
    }


def prepare_question(
    snapshot: Snapshot,
    group: NodeGroup,
    names: str,
    embedder: Embedder | None,
    query: Query,
    principals: frozenset[str],
    filter: Filter | None,
) -> learned.features.QuestionInGroup:
    """Prepare a question in a group for candidates; the run notes where titles and names are missing."""
    vector = None
    if embedder is not None:
        refuse_other(group, snapshot, embedder)
        vector = vectors.search.unit_rows(vectors_of([query], [text_to_embed(query, embedder)], embedder))[0]
    question = learned.features.QuestionInGroup(
        snapshot, group.name, names, embedder.name if embedder else "", search_text(query), vector, principals, filter
    )
    if not len(question.links.texts.title_labels.nodes) and not len(question.links.texts.name_labels.nodes):
        note(f"Group {group.name!r} has no titles and no names, by which nodes are linked: little is gained here.")
    return question
