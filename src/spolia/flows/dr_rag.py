"""DR-RAG: each retrieved passage is searched with, too; a classifier keeps the passages that help each other.

The paper gives no code; this is its inverse selection, of pairs of any two passages that were found.
"""

from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.generation.reader import Reader
from spolia.models.judge import ask_judge
from spolia.models.protocols import LanguageModel, Scorer
from spolia.models.text_classifier import JOINT
from spolia.types import Answer, Query, Ranking

PASSAGES = 5
"""Passages of the first search; the second search uses each."""


@step(calls={"search": PASSAGES})
def dynamic(ranking: Ranking, *, search: Retriever, more: int = 5, characters: int = 1000) -> Ranking:
    """Add the first passages for the question joined with each passage: at most `more`."""
    query, whole = ranking.query, ranking
    for text in ranking.texts[:PASSAGES]:  # no more searches than `calls` promises, whatever `search` returns
        whole = whole.extended(search(query.rewritten(f"{query.question} {text[:characters]}")))
    return whole.cut(len(ranking) + more)


@step(version=2)
def selected(ranking: Ranking, *, scorer: Scorer, threshold: float = 0.5, keep: int = 10) -> Ranking:
    """Keep the passages that a classifier of (question, two passages) finds useful with at least one other passage."""
    texts, question = ranking.texts, ranking.query.question

    pairs = [(a, b) for a in range(len(texts)) for b in range(a + 1, len(texts))]
    pair_texts = [texts[a] + JOINT + texts[b] for a, b in pairs]
    scores = ask_judge(lambda: scorer.scores(question, pair_texts), "all passages are kept") if pairs else ()
    if scores is None:
        return ranking.cut(keep)
    useful = {index for pair, score in zip(pairs, scores, strict=True) if score >= threshold for index in pair}
    # A lone passage is in no pair, and stays.
    hits = tuple(hit for index, hit in enumerate(ranking.hits) if index in useful or not pairs)
    return ranking.but(hits=hits).cut(keep)


@published('Hei et al., "DR-RAG: Applying dynamic document relevance", 2024', "answered", "abstained", "cap")
def dr_rag(
    llm: LanguageModel, search: Retriever, scorer: Scorer, more: int = 5, threshold: float = 0.5
) -> Operator[Query, Answer]:
    """Select inversely, with 1 + k searches and one call."""
    chosen = selected.but(scorer=scorer, threshold=threshold)
    return search >> dynamic.but(search=search, more=more) >> chosen >> Reader(llm, max_passages=10)
