"""Auto-RAG: the model decides in a dialogue what to search for next, and when it knows enough.

Other than the published code: any model is asked, by one prompt with a log, where the code continues a chat with a
tuned one. A reply without an action is sent back once before the last search is repeated.
"""

from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import Gathered, cite_reply, empty_ranking
from spolia.models.parsers import NOTHING, THOUGHT, Tags, Text
from spolia.models.prompting.role import Ask, Role
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query

DECIDE = Role(
    "spolia:flows/prompts/auto_rag_decide.txt",
    Tags((), (THOUGHT,), ("search", "answer")),
    default=NOTHING,
)
IMAGINE = Role("spolia:flows/prompts/auto_rag_imagine.txt", Text(), default="Nothing is known.")


@dataclass(frozen=True)
class Dialogue(Gathered):
    """State of the dialogue: searches, passages and imagined texts, the next query, and the thought behind it."""

    wanted: str = ""
    thought: str = ""

    def decide_next(self, ask: Ask) -> "Dialogue":
        """Let the model decide; an answer yields to a search, and the last search is repeated if it names neither."""
        reply = ask.reply(self.sample, **self.prompt_places())
        if reply.get("answer") and not reply.get("search"):
            return self.but(answer=reply["answer"], stop="answered")
        query = reply.get("search") or self.wanted or self.found.query.question
        return self.but(wanted=query, thought=reply.get(THOUGHT, ""))


@step
def begin(query: Query) -> Dialogue:
    return Dialogue(empty_ranking(query), sample=query.sample)


@step(calls={"ask": 1, "search": 1})
def decide(state: Dialogue, *, ask: Ask, search: Retriever, new: int = 2) -> Dialogue:
    """Decide, and add the first passages that were not shown before."""
    state = state.decide_next(ask)
    if state.stop:
        return state
    known_ids = {node.id for node in state.found.nodes}
    ranking = search(state.found.query.asking(state.wanted))
    # Cut after the known ones are out: a repeated search goes further down its ranking.
    fresh = ranking.but(hits=tuple(hit for hit in ranking.hits if hit.node.id not in known_ids)[:new])
    return state.add_entry(state.thought, f"search: {state.wanted}", f"{len(fresh)} new passages", new=fresh)


@step(calls={"ask": 1})
def retry(state: Dialogue, *, ask: Ask) -> Dialogue:
    """Decide once more if the cap has ended the dialogue."""
    return state.but(stop="").decide_next(ask) if state.stop == "cap" else state


@step(calls={"ask": 1, "imagine": 1})
def recall(state: Dialogue, *, ask: Ask, imagine: Ask) -> Dialogue:
    """Let the model itself write what it still wants to know, and decide again."""
    imagined_text = imagine.reply(state.sample, question=state.wanted)
    return state.add_entry(state.wanted, imagined_text).decide_next(ask)


@step
def finish(state: Dialogue) -> Answer:
    return cite_reply(state.answer or "I do not know.", state.found)


@published('Yu et al., "Auto-RAG: Autonomous retrieval-augmented generation", 2024', "answered", "abstained")
def auto_rag(llm: LanguageModel, search: Retriever, turns: int = 10, recalls: int = 5) -> Operator[Query, Answer]:
    """Search in up to ten turns; then decide once more, with up to five texts that the model imagines."""
    ask = Ask(llm, DECIDE, 200)
    searching = Loop(decide.but(ask=ask, search=search), max_steps=turns)
    recalling = Loop(recall.but(ask=ask, imagine=Ask(llm, IMAGINE, 150)), max_steps=recalls)
    return begin >> searching >> retry.but(ask=ask) >> recalling >> finish
