"""CoRAG: a chain of sub-questions (Wang et al. 2025) that ends when a judge finds it sufficient (Yeom et al. 2025)."""

from spolia import Answer, Loop, Operator, Query, Retriever, Verdict, step
from spolia.models import Ask, LanguageModel, Role, Text
from spolia.pre_retrieval import OneText
from spolia.types import Chain

NONE = "No relevant information found."
NEXT = Role("Write the next simple question to answer, a new one.\n<chain>{{chain}}</chain>", OneText(), default="none")
REPLY = Role("Answer from the passages in a few words.\n{{passages}}\n<question>{{question}}</question>", Text(), NONE)
FINAL = Role("Answer the first question in a few words.\n{{passages}}\n<chain>{{chain}}</chain>", Text(), NONE)


@step
def hop(chain: Chain, *, ask: Ask, reply: Ask, search: Retriever, draws: int = 4) -> Chain:
    """Ask a new sub-question and answer it from what is found for it; one that comes again is drawn anew, warmer."""
    for draw in range(draws):
        warmer = ask.but(temperature=0.7) if draw else ask
        question = warmer.reply(chain.sample * draws + draw, chain=chain.format_text(8_000))
        if question and question not in dict(chain.pairs):
            found = search(chain.query.asking(question)).texts[::-1]  # the best one last
            answer = reply.reply(chain.sample, question=question, passages=found)
            return chain.but(pairs=(*chain.pairs, (question, answer)))
    return chain.but(stop="repeated")


@step
def conclude(chain: Chain, *, ask: Ask, search: Retriever) -> Answer:
    """Answer from the chain, and from what is found for the question itself."""
    found = search(chain.query)
    return Answer(ask.reply(chain.sample, chain=chain.format_text(8_000), passages=found.texts[::-1]), evidence=found)


@step
def begin(query: Query) -> Chain:
    return Chain(query, sample=query.sample)


def corag(
    llm: LanguageModel, search: Retriever, until: Operator[Chain, Verdict], max_hops: int = 6
) -> Operator[Query, Answer]:
    body = hop.but(ask=Ask(llm, NEXT, 64), reply=Ask(llm, REPLY, 128), search=search)
    return begin >> Loop(body, until, max_hops) >> conclude.but(ask=Ask(llm, FINAL, 128), search=search)
