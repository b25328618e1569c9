"""The space that strategies are compared on: 864 flows that only retrieve.

A place is what stands between two steps, or a number: how documents are cut, which formula searches them, how deep,
whether hits are walked from along shared names (the augmenter), what is fused with them and with which weights, whether
titles count (the reranker), and whether the weaker hits are left out (the selection). "Do nothing" is a candidate
wherever a step may be left out.
"""

from __future__ import annotations

from pathlib import Path

from spolia import BM25, Branch, Choice, Corpus, Identity, ReciprocalRankFusion
from spolia.core.operator import Operator
from spolia.indexing import RuleEntities, SlidingWindow
from spolia.orchestration import ConvexCombination
from spolia.post_retrieval import Percentile, TitleBoost
from spolia.retrieval import TFIDF, BM25Variant, FieldedBM25, NodeGraph, PersonalisedPageRank, SharedEntities
from spolia.stores import Definition, NodeGroup
from spolia.types import Query, Ranking

WHOLE, SHORT = "chunk", "short"
NAMES = {WHOLE: "entity", SHORT: "short-entity"}
DEPTHS = (20, 60)
KEPT = 20


def groups(corpus: Corpus) -> list[NodeGroup]:
    """What a store holds for the space, beside its chunks: shorter ones, and the names in both."""
    short = corpus.group(SHORT, Definition(SlidingWindow(size=70, overlap=0)))
    named = [corpus.group(NAMES[of], Definition(RuleEntities(("name", "acronym")), parent=of)) for of in NAMES]
    return [short, *named]


def space(corpus: Corpus) -> Operator[Query, Ranking]:
    """The flows, over a store with these groups; also of one that is not there yet, to number its flows."""
    cuts = [corpus.group(name) for name in (WHOLE, SHORT)]
    graphs = [NodeGraph(cut, (SharedEntities(NAMES[cut.name], neighbours=5),)) for cut in cuts]
    whole = cuts[0]

    def search(op: Operator[Query, Ranking]) -> Operator[Query, Ranking]:
        return op.vary("chunks", group=cuts).vary("depth", top_k=DEPTHS)

    words = Choice(
        search(BM25(whole, source="words")),
        search(BM25Variant(whole, "lucene", k1=0.6, b=0.3, source="words")),
        search(BM25Variant(whole, "bm25l", source="words")),
        name="words",
    )
    walked = words >> Choice(
        Identity(), PersonalisedPageRank(graphs[0], top_k=KEPT).vary("chunks", graph=graphs), name="augmenter"
    )
    other = Choice(
        search(TFIDF(whole, source="other")), search(FieldedBM25(whole, combine="best", source="other")), name="other"
    )
    fusion = Choice(
        ReciprocalRankFusion(top_k=KEPT).vary("rank constant", k=(10.0, 60.0)),
        ConvexCombination(normalisation="min-max", top_k=KEPT).vary(
            "weights", weights=[(("words", weight), ("other", 1 - weight)) for weight in (0.5, 0.8)]
        ),
        name="fusion",
    )
    found = Choice(walked, Branch(walked, other) >> fusion, name="arms")
    return (
        found
        >> Choice(Identity(), TitleBoost(top_k=KEPT), name="reranker")
        >> Choice(Identity(), Percentile(0.4), name="selection")
    )


if __name__ == "__main__":
    from spolia.core.combinators.space import Space

    counted = Space(space(Corpus(str(Path("pool.spolia")))))
    print(counted.size, "flows")
    for name, place in counted.places.items():
        print(f"{name}: {len(place.values)}")
