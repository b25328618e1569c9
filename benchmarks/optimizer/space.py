"""The space that strategies are compared on: 672 flows that only retrieve.

A place is what stands between two steps, or a number: how documents are cut, what searches them and by which terms
(stems, words as they are, letters, sentences), whether hits are walked from along shared names (the augmenter), what is
fused and with which weights, whether titles count (the reranker), and how many hits stay (the selection). A search may
stand alone, and "do nothing" is a candidate wherever a step may be left out.
"""

from __future__ import annotations

from spolia import BM25, Branch, Choice, Corpus, Identity, ReciprocalRankFusion
from spolia.core.operator import Operator
from spolia.indexing import RuleEntities, Sentences, SlidingWindow
from spolia.orchestration import ConvexCombination
from spolia.post_retrieval import Cut, Mapped, Percentile, TitleBoost
from spolia.retrieval import TFIDF, NodeGraph, PersonalisedPageRank, SharedEntities
from spolia.stores import Definition, NodeGroup
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Query, Ranking

CUTS = WHOLE, SHORT = "chunk", "short"
WINDOW = SlidingWindow(size=1_200, overlap=0)
"""Most documents are one chunk."""
BELOW = {
    "names": Definition(RuleEntities(("name", "acronym"))),
    "sentences": Definition(Sentences()),
    "letters": Definition(WINDOW, analyzer=Analyzer(ngram=4)),
    "plain": Definition(WINDOW, analyzer=Analyzer(stem="", stop_words="english")),
}
"""What is made of the chunks of either size, by name."""
DEPTH, KEPT = 60, 20


def groups(corpus: Corpus) -> list[NodeGroup]:
    """What a store holds for the space, beside its chunks."""
    short = corpus.group(SHORT, Definition(SlidingWindow(size=100, overlap=0)))
    return [
        short,
        *(corpus.group(f"{cut}-{name}", splitter.but(parent=cut)) for cut in CUTS for name, splitter in BELOW.items()),
    ]


def space(corpus: Corpus) -> Operator[Query, Ranking]:
    """The flows, over a store with these groups; also of one that is not there yet, to number its flows."""
    cuts = [corpus.group(name) for name in CUTS]
    graphs = [NodeGraph(cut, (SharedEntities(f"{cut.name}-names", neighbours=5),)) for cut in cuts]

    def search(op: Operator[Query, Ranking]) -> Operator[Query, Ranking]:
        return op.vary("chunks", group=cuts)

    def search_below(name: str, source: str) -> Operator[Query, Ranking]:
        """What is made of chunks is searched, and leads to these."""
        groups = [corpus.group(f"{cut.name}-{name}") for cut in cuts]
        result = BM25(groups[0], top_k=DEPTH, source=source).vary("chunks", group=groups)
        return result >> Mapped(cuts[0]).vary("chunks", target=cuts)

    words = Choice(
        search(BM25(cuts[0], top_k=DEPTH, source="words")),
        search_below("plain", "words"),
        search(TFIDF(cuts[0], top_k=DEPTH, source="words", sublinear=False)),
        name="words",
    )
    walk = PersonalisedPageRank(graphs[0], damping=0.2, top_k=DEPTH).vary("chunks", graph=graphs)
    walked = words >> Choice(Identity(), walk, name="augmenter")
    other_choice = Choice(search_below("sentences", "other"), search_below("letters", "other"), name="other")
    fusion = Choice(
        ReciprocalRankFusion(top_k=KEPT),
        ConvexCombination(normalisation="min-max", top_k=KEPT).vary(
            "weights", weights=[(("words", weight), ("other", 1 - weight)) for weight in (0.2, 0.5, 0.8)]
        ),
        name="fusion",
    )
    choice = Choice(walked, other_choice, Branch(walked, other_choice) >> fusion, name="arms")
    titles = TitleBoost(near=1.5, named=1.5, mentioned=1.5, top_k=KEPT)
    return (
        choice
        >> Choice(Identity(), titles, name="reranker")
        >> Choice(Identity(), Percentile(0.2), Cut(3), name="selection")
    )


if __name__ == "__main__":
    from spolia.core.combinators.space import Space
    from spolia.optimizer.candidates import FlowTable

    found = FlowTable(Space(space(Corpus("pool.spolia"))))
    print(len(found.all_flows), "flows")
    for name, place in found.space.places.items():
        print(f"{name}: {len(place.values)}")
