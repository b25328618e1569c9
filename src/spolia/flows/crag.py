"""CRAG: grade the retrieved passages, and correct them: by their best strips, by the web, or by both.

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
from spolia.flows.evidence import together
from spolia.generation.reader import Reader
from spolia.models.judge import ask_judge
from spolia.models.prompting.role import Ask, Brief, Role, replies
from spolia.models.prompting.template import shorten
from spolia.models.protocols import LanguageModel, Scorer
from spolia.post_retrieval.context_window import showing
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
    """What the first source finds that does not fail."""
    return next(search_sources(query, sources))[1]


@step
def graded(found: Ranking, *, grade: Operator[Ranking, Ranking], ambiguous: float = -0.2) -> Ranking:
    """The passages with the scores of the evaluator; with an ambiguous one where it cannot be asked."""
    best = ask_judge(lambda: grade(found), "the passages count as ambiguous")
    return found.but(hits=tuple(hit.but(score=ambiguous) for hit in found.hits)) if best is None else best


@step
def action(graded: Ranking, *, upper: float = 0.592, lower: float = -0.995) -> Action:
    """Correct where a passage scores at least `upper`, incorrect where all are below `lower`, else ambiguous."""
    scores = [hit.score for hit in graded.hits]
    if any(score >= upper for score in scores):
        return "correct"
    return "incorrect" if all(score < lower for score in scores) else "ambiguous"


@step(version=2)
def refined(found: Ranking, *, scorer: Scorer, size: int = 3, at_least: float = -0.5, keep: int = 5) -> Ranking:
    """The best strips of the passages, each of `size` sentences, in the place of the passages."""
    strips = [strip for hit in found.hits for strip in cut(hit, size)]
    texts = [strip.node.text for strip in strips]
    grade = partial(scorer.scores, found.query.question, texts)
    scores = ask_judge(grade, "the first strips are read") if strips else ()
    if scores is None:
        return found.but(hits=tuple(strips[:keep]))
    ranked = sorted(zip(scores, range(len(strips)), strict=True), key=lambda pair: -pair[0])
    return found.but(hits=tuple(strips[at].but(score=score) for score, at in ranked[:keep] if score >= at_least))


def cut(hit: Hit, size: int) -> list[Hit]:
    """A hit for each strip of at least four words."""
    text = hit.node.text
    spans = list(sentences(text))
    ends = [(spans[at][0], spans[min(at + size, len(spans)) - 1][1]) for at in range(0, len(spans), size)]
    strips = [text[start:end] for start, end in ends if len(text[start:end].split()) > 3 or not text.isascii()]
    return [
        showing(hit, strip).but(node=hit.node.but(id=f"{hit.node.id}/{at}", text=strip, search_text=""))
        for at, strip in enumerate(strips)
    ]


@step(calls={"ask": 1, "web": 1})
def looked_up(found: Ranking, *, ask: Ask, web: Retriever) -> Ranking:
    """What the web finds for at most three keywords of the question; the earlier passages if it fails."""
    words = ask.reply(found.query.sample, question=found.query.question)
    query = found.query.rewritten(words or found.query.question)
    return next(search_sources(query, (("web", web),), needed=False), ("kept", found))[1]


@step
def joined(rankings: Sequence[Ranking]) -> Ranking:
    """All hits, those of the first ranking before the others."""
    return together(rankings)


@step(calls={"grade": 10, "rewrite": 1, "web": 1})
def corrected(
    found: Ranking, *, grade: Ask, rewrite: Operator[Query, Query], web: Retriever, most: int = 10
) -> Ranking:
    """The relevant hits; where one is not, also what the web finds for the question in other words."""
    found, asked = found.cut(most), found.query
    briefs = [
        Brief.from_texts(asked.sample, question=asked.question, passage=shorten(node.shown_text, CHARACTERS))
        for node in found.nodes
    ]
    graded = zip(found.hits, replies(grade, briefs), strict=True)
    kept = found.but(hits=tuple(hit for hit, is_relevant in graded if is_relevant is not False))
    if found.hits and len(kept) == len(found):
        return kept
    return together((kept, *(more for _, more in search_sources(rewrite(asked), (("web", web),), needed=False))))


@published(SOURCE, "answered", "abstained", "cap", top_k=10)
def crag(
    llm: LanguageModel, search: Retriever, web: Retriever, scorer: Scorer, upper: float = 0.592, lower: float = -0.995
) -> Operator[Query, Answer]:
    """Graded by a trained evaluator, whose scores lie between −1 and 1."""
    strips = refined.but(scorer=scorer)
    from_web = looked_up.but(ask=Ask(llm, KEYWORDS, 32), web=web) >> strips
    arms = {"correct": strips, "incorrect": from_web, "ambiguous": Branch(strips, from_web) >> joined}
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
