"""Auto-RAG: the model decides in a dialogue what to search for next, and when it knows enough.

Other than the published code: any model is asked, by one prompt with a log, where the code continues a chat with a
tuned one. A reply without an action is sent back once before the last search is repeated.
"""

from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import Gathered, citing, nothing
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
    """What has been searched, found and imagined, what is to be searched next, and the thought that says why."""

    wanted: str = ""
    thought: str = ""

    def decided(self, ask: Ask) -> "Dialogue":
        """What the model wants next; a search counts before an answer, and the last search where neither is there."""
        said = ask.reply(self.sample, **self.shown())
        if said.get("answer") and not said.get("search"):
            return self.but(answer=said["answer"], stop="answered")
        wanted = said.get("search") or self.wanted or self.found.query.question
        return self.but(wanted=wanted, thought=said.get(THOUGHT, ""))


@step
def begin(query: Query) -> Dialogue:
    return Dialogue(nothing(query), sample=query.sample)


@step(calls={"ask": 1, "search": 1})
def decide(state: Dialogue, *, ask: Ask, search: Retriever, new: int = 2) -> Dialogue:
    """Decide; the first passages that were not shown before are added."""
    state = state.decided(ask)
    if state.stop:
        return state
    known = {node.id for node in state.found.nodes}
    found = search(state.found.query.asking(state.wanted))
    fresh = found.but(hits=tuple(hit for hit in found.hits if hit.node.id not in known)[:new])
    return state.noting(state.thought, f"search: {state.wanted}", f"{len(fresh)} new passages", new=fresh)


@step(calls={"ask": 1})
def retry(state: Dialogue, *, ask: Ask) -> Dialogue:
    """Where the cap has ended the dialogue, decide once more."""
    return state.but(stop="").decided(ask) if state.stop == "cap" else state


@step(calls={"ask": 1, "imagine": 1})
def recall(state: Dialogue, *, ask: Ask, imagine: Ask) -> Dialogue:
    """Let the model itself write what is still wanted, and decide again."""
    said = imagine.reply(state.sample, question=state.wanted)
    return state.noting(state.wanted, said).decided(ask)


@step
def finish(state: Dialogue) -> Answer:
    return citing(state.answer or "I do not know.", state.found)


@published('Yu et al., "Auto-RAG: Autonomous retrieval-augmented generation", 2024', "answered", "abstained")
def auto_rag(llm: LanguageModel, search: Retriever, turns: int = 10, recalls: int = 5) -> Operator[Query, Answer]:
    """Ten turns with a search each; then one answer more, and up to five texts that the model imagines."""
    ask = Ask(llm, DECIDE, 200)
    searching = Loop(decide.but(ask=ask, search=search), max_steps=turns)
    recalling = Loop(recall.but(ask=ask, imagine=Ask(llm, IMAGINE, 150)), max_steps=recalls)
    return begin >> searching >> retry.but(ask=ask) >> recalling >> finish
