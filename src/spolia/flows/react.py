"""ReAct: thoughts and actions in turn: search a source, look something up, or finish."""

from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.sentences import sentences
from spolia.flows.evidence import Places, citing, nothing, shown
from spolia.flows.published import published
from spolia.models.parsers import Tags, Text
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query, Ranking, State

ACTIONS = ("source", "search", "lookup", "answer")
TURN = Role("spolia:flows/prompts/react_turn.txt", Tags(("thought",), ACTIONS), default="<thought>none</thought>")
FORCED = Role("spolia:flows/prompts/react_forced.txt", Text(), default="I do not know.")
Sources = tuple[tuple[str, Retriever], ...]
SOURCE = 'Yao et al., "ReAct: Synergizing reasoning and acting in language models", ICLR 2023'


@dataclass(frozen=True)
class ActionLog(State):
    """What was thought, done and observed, oldest first."""

    found: Ranking
    log: tuple[str, ...] = ()
    answer: str = ""


@step
def begin(query: Query) -> ActionLog:
    return ActionLog(nothing(query), sample=query.sample)


@step(calls={"ask": 1, "sources": 2})
def act(state: ActionLog, *, ask: Ask, sources: Sources, every: bool = False) -> ActionLog:
    """Think, and take one action; what cannot be done is observed, and costs a turn."""
    names = Setting(", ".join(name for name, _ in sources))
    query = state.found.query
    said = ask.reply(state.sample, question=query.question, log=state.log, passages=shown(state.found), sources=names)
    thought = said["thought"]
    if answer := said.get("answer"):
        return state.but(answer=answer, stop="answered")
    if wanted := said.get("search"):
        by_name = dict(sources)
        chosen = list(by_name.values()) if every else [by_name.get(said.get("source", "").strip(), sources[0][1])]
        new = nothing(query)
        for source in chosen:
            new = new.extended(source(query.asking(wanted)))
        observed = f"{len(new)} passages" if new.hits else "No passage was found."
        state = state.but(found=state.found.extended(new))
        return state.but(log=(*state.log, f"{thought}\nsearch: {wanted}\n{observed}"))
    if word := said.get("lookup"):
        seen = [text[start:end] for text in state.found.texts for start, end in sentences(text)]
        observed = next((one for one in seen if word.casefold() in one.casefold()), "Nothing was found.")
        return state.but(log=(*state.log, f"{thought}\nlookup: {word}\n{observed}"))
    return state.but(log=(*state.log, f"{thought}\nInvalid action. Write search, lookup or answer."))


@step(calls={"force": 1})
def finish(state: ActionLog, *, force: Ask) -> Answer:
    """The answer that was given, else one that the model is made to give."""
    if state.stop == "answered":
        return citing(state.answer, state.found)
    places: Places = {"question": state.found.query.question, "log": state.log, "passages": shown(state.found)}
    return citing(force.reply(state.sample, **places), state.found)


def _flow(llm: LanguageModel, sources: Sources, turns: int, every: bool) -> Operator[Query, Answer]:
    body = act.but(ask=Ask(llm, TURN, 256), sources=sources, every=every)
    return begin >> Loop(body, max_steps=turns) >> finish.but(force=Ask(llm, FORCED, 128))


@published(SOURCE, "answered", "cap")
def react(
    llm: LanguageModel, search: Retriever, web: Retriever | None = None, turns: int = 7
) -> Operator[Query, Answer]:
    """The model chooses a source at each search."""
    return _flow(llm, (("local", search), *((("web", web),) if web is not None else ())), turns, False)


@published(SOURCE + "; all sources at each search", "answered", "cap")
def react_concat(llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 7) -> Operator[Query, Answer]:
    return _flow(llm, (("local", search), ("web", web)), turns, True)
