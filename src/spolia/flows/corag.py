"""CoRAG: a chain of sub-questions, each answered from passages that were retrieved for it.

Other than the published code: a sub-question is the same as an earlier one whatever its case and punctuation, and is
drawn again three times at most for each step, where the code has four calls a step in all; the prompts are ours, so
that CoRAG-8B is asked with its own (`--prompts`, which have places for `question` and `chain`) and `form="corag-8b"`;
the last answer reads as many passages as `search` finds, where the code reads 20.
"""

from dataclasses import dataclass, field

from spolia.core.combinators import Loop, Stopped
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import Places, cite_reply, merge_rankings, show_hits
from spolia.models.parsers import AnswerText, Text
from spolia.models.prompting.role import Ask, Role
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import OneText, normalize_text
from spolia.types import Answer, Chain, Query, Ranking, Verdict

NOTHING = "No relevant information found."
NEXT = Role("spolia:flows/prompts/corag_next.txt", OneText(), default="none")
REPLY = Role("spolia:flows/prompts/corag_reply.txt", Text(), default=NOTHING)
FINAL = Role("spolia:flows/prompts/corag_final.txt", AnswerText(), default="I do not know.")
WARM, CHARACTERS = 0.7, 8000
SOURCE = 'Wang et al., "Chain-of-retrieval augmented generation", 2025 (arXiv 2501.14342)'
Judge = Operator[Chain, Verdict]


@dataclass(frozen=True)
class Searched(Chain):
    """A chain, the passages that its answers are from, and the form in which prompts show it (`CHAIN_FORMS`)."""

    found: tuple[Ranking, ...] = field(default=(), compare=False)  # chains of the same pairs are the same chain
    form: str = "plain"

    def prompt_places(self) -> Places:
        """Return what prompts show of the chain."""
        return {"question": self.query.question, "chain": self.format_text(CHARACTERS, self.form)}


@step
def begin(query: Query, *, form: str = "plain") -> Searched:
    return Searched(query, sample=query.sample, form=form)


@step(calls={"ask": 1, "again": 3, "reply": 1, "search": 1})
def hop(chain: Searched, *, ask: Ask, again: Ask, reply: Ask, search: Retriever, pairs: int = 6) -> Searched:
    """Ask a new sub-question and answer it. A repeated one is drawn again, up to three times, at a higher temperature.

    Of several samples of a chain the first one begins with the most probable question, the others are drawn.
    """
    if len(chain.pairs) >= pairs:  # C may be below L: the loop counts steps, not pairs
        return chain.but(stop="pairs")
    known_questions = {normalize_text(question) for question, _ in chain.pairs}
    for draw in range(4):
        question_ask = again if draw or chain.sample else ask
        # a number of its own for each draw of each sample
        question = question_ask.reply(4 * chain.sample + draw, **chain.prompt_places())
        if question and normalize_text(question) not in known_questions:
            return extend_chain(chain, question, reply, search)
    return chain.but(stop="repeated")


def extend_chain(chain: Searched, question: str, reply: Ask, search: Retriever) -> Searched:
    """Answer a sub-question and add the pair to the chain; the model reads the best passage last."""
    ranking = search(chain.query.asking(question))
    passages = show_hits(ranking, best_last=True)
    # Without passages there is nothing to answer from: no call.
    answer = reply.reply(chain.sample, question=question, passages=passages) if passages else NOTHING
    return chain.but(pairs=(*chain.pairs, (question, answer)), found=(*chain.found, ranking))


@step(calls={"final": 1, "search": 1})
def conclude(chain: Searched, *, final: Ask, search: Retriever) -> Answer:
    """Answer from the chain, and from passages for the question itself."""
    ranking = search(chain.query)
    reply = final.reply(chain.sample, passages=show_hits(ranking, best_last=True), **chain.prompt_places())
    return cite_reply(reply, ranking).but(evidence=merge_rankings((ranking, *chain.found)))


def build_hop(llm: LanguageModel, search: Retriever, pairs: int) -> Operator[Searched, Searched]:
    """Build the step of a chain of at most `pairs` pairs."""
    ask = Ask(llm, NEXT, 64)
    return hop.but(ask=ask, again=ask.but(temperature=WARM), reply=Ask(llm, REPLY, 128), search=search, pairs=pairs)


def build_conclusion(llm: LanguageModel, search: Retriever) -> Operator[Searched, Answer]:
    return conclude.but(final=Ask(llm, FINAL, 128), search=search)


def greedy(
    llm: LanguageModel, search: Retriever, until: Judge, steps: int, pairs: int | None, form: str
) -> Operator[Query, Answer]:
    """Build a flow of one chain that ends when a judge accepts it."""
    chains = Loop(build_hop(llm, search, steps if pairs is None else pairs), until, steps)
    return begin.but(form=form) >> chains >> build_conclusion(llm, search)


@published(SOURCE, "abstained", "cap", "pairs", "repeated")
def corag(
    llm: LanguageModel, search: Retriever, steps: int = 6, pairs: int | None = None, form: str = "plain"
) -> Operator[Query, Answer]:
    """Take at most `steps` steps (L), for at most `pairs` pairs of question and answer (C), shown in a form."""
    return greedy(llm, search, Stopped(), steps, pairs, form)
