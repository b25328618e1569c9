"""PrefRAG: search a preferred source, another where it does not help, reflect on the answer (Zhao et al. 2025)."""

from dataclasses import dataclass

from spolia import Answer, Loop, Operator, Query, Ranking, Retriever, State, step
from spolia.models import AnswerText, Ask, LanguageModel, Role, Tags, YesNo

SEEN = "\n<question>{{question}}</question>\n{{seen}}"
SAY = "Write a <thought>, and what to <search> for; or the <answer>, and an <evaluation>: CORRECT, PARTIAL or WRONG."
TURN = Role(SAY + SEEN, Tags((), ("thought", "evaluation"), ("search", "answer")), default="none")
HELPS = Role("Do these passages add what is needed? Say yes or no.\n{{passages}}" + SEEN, YesNo(), default="yes")
FORCE = Role("Answer in a few words." + SEEN, AnswerText(), default="I do not know.")


@dataclass(frozen=True)
class Search(State):
    found: Ranking
    answers: tuple[str, ...] = ()
    searches: int = 0

    def shown(self) -> dict[str, str | tuple[str, ...]]:
        return {"question": self.found.query.question, "seen": (*self.found.texts, *self.answers)}


@step
def turn(state: Search, *, ask: Ask, helps: Ask, preferred: Retriever, other: Retriever, most: int = 4) -> Search:
    """Search, or answer; a poor first answer adds a search, and what both sources have on the question itself."""
    said, query, n = ask.reply(state.sample, **state.shown()), state.found.query, state.searches + 1
    if answer := said.get("answer"):
        if state.answers or said.get("evaluation", "").upper() == "CORRECT":
            return state.but(answers=(*state.answers, answer), stop="answered")
        return state.but(answers=(answer,), found=state.found.extended(preferred(query)).extended(other(query)))
    if not said.get("search"):
        return state.but(stop="error")
    new = preferred(query.asking(said["search"]))
    if state.found.hits and not helps.reply(state.sample, passages=new.texts, **state.shown()):
        new = other(new.query)
    return state.but(found=state.found.extended(new), searches=n, stop="" if n < most + len(state.answers) else "cap")


@step
def finish(state: Search, *, force: Ask) -> Answer:
    said = state.answers[-1] if state.stop == "answered" else force.reply(state.sample, **state.shown())
    return Answer(said, evidence=state.found)


@step
def begin(query: Query) -> Search:
    return Search(Ranking(query, ()), sample=query.sample)


def prefrag(llm: LanguageModel, preferred: Retriever, other: Retriever, most: int = 4) -> Operator[Query, Answer]:
    body = turn.but(ask=Ask(llm, TURN), helps=Ask(llm, HELPS), preferred=preferred, other=other, most=most)
    return begin >> Loop(body, max_steps=most + 2) >> finish.but(force=Ask(llm, FORCE))
