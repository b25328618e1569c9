"""CRAG: grade the retrieved passages, and correct them by their best strips, by the web, or by both.

Strips are the paper's: of three sentences, of which those that score at least −0.5 are read, five at most; the
published code reads whole passages. The web is a second retriever here, whose pages are not visited.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from spolia.core.combinators import Branch, Route
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.sentences import sentences
from spolia.flows.catalogue import published
from spolia.flows.evidence import merge_rankings
from spolia.generation.reader import Reader
from spolia.models.judge import ask_judge
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.prompting.template import shorten
from spolia.models.protocols import LanguageModel, Scorer
from spolia.post_retrieval.context_window import show_text
from spolia.post_retrieval.rerankers import USEFUL, CrossEncoder
from spolia.pre_retrieval.query_llm import OneText
from spolia.pre_retrieval.rewrite import Rewrite
from spolia.retrieval.multi_source import Sources, search_sources
from spolia.types import Answer, Hit, Query, Ranking

KEYWORDS = Role("spolia:flows/prompts/crag_keywords.txt", OneText(), default="none")
CHARACTERS = 8000
"""Of a passage that is graded."""
Action = Literal["correct", "incorrect", "ambiguous"]
SOURCE = 'Yan et al., "Corrective retrieval augmented generation", 2024'


@step(calls={"sources": 1})
def either(query: Query, *, sources: Sources) -> Ranking:
    """Retrieve from the first source that does not fail."""
    return next(search_sources(query, sources))[1]


@step
def graded(ranking: Ranking, *, grade: Operator[Ranking, Ranking], ambiguous: float = -0.2) -> Ranking:
    """Score the passages with the evaluator; if it is unavailable, all get an ambiguous score."""
    best = ask_judge(lambda: grade(ranking), "the passages count as ambiguous")
    return ranking.but(hits=tuple(hit.but(score=ambiguous) for hit in ranking.hits)) if best is None else best


@step
def action(ranking: Ranking, *, upper: float = 0.592, lower: float = -0.995) -> Action:
    """Choose "correct" if a passage scores at least `upper`, "incorrect" if all are below `lower`, else "ambiguous"."""
    scores = [hit.score for hit in ranking.hits]
    if any(score >= upper for score in scores):
        return "correct"
    return "incorrect" if all(score < lower for score in scores) else "ambiguous"  # also without any passage


@step(version=2)
def refined(ranking: Ranking, *, scorer: Scorer, size: int = 3, at_least: float = -0.5, keep: int = 5) -> Ranking:
    """Replace the passages by their best strips, each of `size` sentences."""
    strips = [strip for hit in ranking.hits for strip in cut_strips(hit, size)]
    texts = [strip.node.text for strip in strips]
    grade = partial(scorer.scores, ranking.query.question, texts)
    scores = ask_judge(grade, "the first strips are read") if strips else ()  # no call of the scorer for nothing
    if scores is None:
        return ranking.but(hits=tuple(strips[:keep]))
    # equal strips keep their order
    ranked = sorted(zip(scores, range(len(strips)), strict=True), key=lambda pair: -pair[0])
    return ranking.but(
        hits=tuple(strips[index].but(score=score) for score, index in ranked[:keep] if score >= at_least)
    )


def cut_strips(hit: Hit, size: int) -> list[Hit]:
    """Return a hit for each strip of at least four words."""
    text = hit.node.text
    spans = list(sentences(text))
    ends = [(spans[index][0], spans[min(index + size, len(spans)) - 1][1]) for index in range(0, len(spans), size)]
    # In a script without blanks there are no words to count.
    strips = [text[start:end] for start, end in ends if len(text[start:end].split()) > 3 or not text.isascii()]
    return [
        # with ids of their own: `joined` leaves out hits whose id it has
        show_text(hit, strip).but(node=hit.node.but(id=f"{hit.node.id}/{index}", text=strip, search_text=""))
        for index, strip in enumerate(strips)
    ]


@step(calls={"ask": 1, "web": 1})
def looked_up(ranking: Ranking, *, ask: Ask, web: Retriever) -> Ranking:
    """Search the web for at most three keywords of the question; if that fails, keep the passages."""
    keywords = ask.reply(ranking.query.sample, question=ranking.query.question)
    query = ranking.query.rewritten(keywords or ranking.query.question)
    return next(search_sources(query, (("web", web),), needed=False), ("kept", ranking))[1]


@step
def joined(rankings: Sequence[Ranking]) -> Ranking:
    """Combine all hits, those of the first ranking first."""
    return merge_rankings(rankings)


@step(calls={"grade": 10, "rewrite": 1, "web": 1})
def corrected(
    ranking: Ranking, *, grade: Ask, rewrite: Operator[Query, Query], web: Retriever, most: int = 10
) -> Ranking:
    """Keep the relevant hits; if one is not, add what the web gives for the rewritten question."""
    ranking, query = ranking.cut(most), ranking.query
    briefs = [
        Brief.from_texts(query.sample, question=query.question, passage=shorten(node.shown_text, CHARACTERS))
        for node in ranking.nodes
    ]
    graded = zip(ranking.hits, replies(grade, briefs), strict=True)
    # A grade that cannot be read drops nothing.
    relevant = ranking.but(hits=tuple(hit for hit, is_relevant in graded if is_relevant is not False))
    if ranking.hits and len(relevant) == len(ranking):
        return relevant
    return merge_rankings(
        (relevant, *(more for _, more in search_sources(rewrite(query), (("web", web),), needed=False)))
    )


@published(SOURCE, "answered", "abstained", "cap", top_k=10)
def crag(
    llm: LanguageModel, search: Retriever, web: Retriever, scorer: Scorer, upper: float = 0.592, lower: float = -0.995
) -> Operator[Query, Answer]:
    """Grade by a trained evaluator, whose scores lie between −1 and 1."""
    strips = refined.but(scorer=scorer)
    from_web = looked_up.but(ask=Ask(llm, KEYWORDS, 32), web=web) >> strips
    arms = {"correct": strips, "incorrect": from_web, "ambiguous": Branch(strips, from_web) >> joined}
    # `strict`: a failure must come to `graded`, which gives all passages a score between the two bounds.
    evaluated = graded.but(grade=CrossEncoder(scorer, top_k=10, strict=True), ambiguous=(upper + lower) / 2)
    return (
        either.but(sources=(("local", search), ("web", web)))
        >> evaluated
        >> Route(action.but(upper=upper, lower=lower), arms, "ambiguous")
        >> Reader(llm, max_passages=10)
    )


@published(SOURCE + "; graded by a language model, yes or no", "answered", "abstained", "cap")
def crag_grader(llm: LanguageModel, search: Retriever, web: Retriever) -> Operator[Query, Answer]:
    body = corrected.but(grade=Ask(llm, USEFUL, 64), rewrite=Rewrite(llm), web=web)
    return either.but(sources=(("local", search), ("web", web))) >> body >> Reader(llm, max_passages=10)
