"""Search over several groups, corpora and embeddings at a time."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from spolia.core.combinators.branch import Branch
from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.flow_files.built_in_flows import CANDIDATES
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.post_retrieval.selection import Cut
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense, LearnedSparse
from spolia.stores.corpus import Corpus, NodeGroup, refuse_no_group
from spolia.types import Filter, Query, Ranking

AnyFusion: TypeAlias = Operator[Sequence[Ranking], Ranking]
Model: TypeAlias = Embedder | SparseEmbedder
Arm: TypeAlias = BM25 | Dense | LearnedSparse


def across(
    groups: NodeGroup | Sequence[NodeGroup],
    embedders: Model | Sequence[Model] = (),
    top_k: int = 10,
    *,
    at_least: float | Mapping[str, float] | None = None,
    filter: Filter | None = None,
    fusion: AnyFusion | None = None,
) -> Operator[Query, Ranking]:
    """Search every group with every embedder, each with its own ranking and cut-off; fuse the rankings to `top_k`.

    The short way to write `Branch(Dense(notes, small), Dense(notes, large), ...) >> ReciprocalRankFusion(top_k)`. A
    node that several arms find is one hit. The `source` of an arm, for the weights of `ConvexCombination`, is the
    embedder's name, or the group's name for search by words.

    Args:
        groups: of one corpus or of several.
        embedders: whose vectors are searched, dense or sparse; none for search by words.
        top_k: hits of the result: exactly as many, if the groups have enough that may be found and are not cut off.
        at_least: the least score that counts (s ≥ at_least), for all arms or by the source of each arm.
        filter: what may be found at all.
        fusion: how rankings become one; None for reciprocal rank fusion, which needs no scores that can be compared. Of
            several groups and one embedder the scores can: `HighestScore(top_k)`.

    Raises:
        WiringError: no group to search, or a cut-off for an arm that does not exist.

    >>> from spolia.stores.corpus import Corpus
    >>> notes, mail = Corpus("notes.spolia").group(), Corpus("mail.spolia").group()
    >>> [arm.source for arm in across((notes, mail), top_k=5).steps[0].arms]
    ['chunk', 'chunk']
    """
    several = (groups,) if isinstance(groups, (NodeGroup, Corpus, str)) else tuple(groups)
    for group in several:
        refuse_no_group(group, "across")
    models = (embedders,) if isinstance(embedders, (Embedder, SparseEmbedder)) else tuple(embedders)
    if not several:
        raise WiringError("There is no group to search. Write across((corpus.group(), ...)).")
    depth = max(CANDIDATES, top_k)
    arms: list[Arm] = []
    for group in several:
        arms += [_arm(group, model, depth, filter) for model in models]
        arms += [] if models else [BM25(group, depth, group.name, filter)]
    bounded = zip(arms, _bounds(arms, at_least), strict=True)
    cut = [arm if bound is None else arm >> Cut(at_least=bound) for arm, bound in bounded]
    return Branch(*cut) >> (ReciprocalRankFusion(top_k=top_k) if fusion is None else fusion)


def _arm(group: NodeGroup, model: Model, depth: int, filter: Filter | None) -> Arm:
    if isinstance(model, Embedder):
        return Dense(group, model, depth, model.name, filter)
    return LearnedSparse(group, model, depth, model.name, filter)


def _bounds(arms: Sequence[Arm], at_least: float | Mapping[str, float] | None) -> list[float | None]:
    if not isinstance(at_least, Mapping):
        return [at_least] * len(arms)
    sources = [arm.source for arm in arms]
    if unknown := sorted(set(at_least) - set(sources)):
        raise WiringError(f"There is a cut-off for {unknown[0]!r}. Write one for some of: {', '.join(sources)}.")
    return [at_least.get(source) for source in sources]
