"""PrefRAG: a preferred source, another where it does not help, and a look back at the answer."""

from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import CHARACTERS, Gathered, everywhere, instead_of, is_correct, nothing, preferring, shown
from spolia.models.parsers import Tags, Text, YesNo
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.retrieval.multi_source import Sources, reached
from spolia.types import Answer, Query

SAYS = ("source", "search", "answer", "evaluation")
TURN = Role("spolia:flows/prompts/prefrag_turn.txt", Tags(("thought",), SAYS), default="<thought>none</thought>")
HELPS = Role("spolia:flows/prompts/prefrag_helps.txt", YesNo(), default="yes")
FORCED = Role("spolia:flows/prompts/prefrag_forced.txt", Text(), default="I do not know.")
SOURCE = 'Zhao et al., "PrefRAG: preference-driven multi-source retrieval augmented generation", 2025'


@dataclass(frozen=True)
class SourceSearch(Gathered):
    """How many turns may follow, and how many answers may yet be doubted."""

    left: int = 0
    reflections: int = 0


@step(calls={"ask": 1, "helps": 1, "sources": 1})
def turn(state: SourceSearch, *, ask: Ask, sources: Sources, helps: Ask | None = None) -> SourceSearch:
    """Answer, or search once more."""
    names = Setting(", ".join(name for name, _ in sources))
    said = ask.reply(state.sample, sources=names, **state.shown())
    state = state.but(left=state.left - 1)
    if answer := said.get("answer"):
        return answered(state, answer, said.get("evaluation", "CORRECT"), sources)
    if wanted := said.get("search"):
        state = searched(state, wanted, said.get("source", ""), sources, helps)
    return state if wanted and state.left > 0 else state.but(stop="forced")


def answered(state: SourceSearch, answer: str, evaluation: str, sources: Sources) -> SourceSearch:
    """Done, or doubted: then all sources are searched for the question itself, and a turn more is given."""
    if state.reflections < 1 or is_correct(evaluation):
        return state.but(answer=answer, stop="answered")
    state = state.noting(f"{answer} ({evaluation})"[:CHARACTERS], everywhere(state.found.query, sources))
    return state.but(left=state.left + 2, reflections=state.reflections - 1)


def searched(state: SourceSearch, wanted: str, named: str, sources: Sources, helps: Ask | None) -> SourceSearch:
    """Ask the preferred source, and the named one where it fails or does not help; without `helps` the named one."""
    query, preferred = state.found.query.asking(wanted), sources[0][0]
    by_name = preferring(sources, named)
    order = preferring(by_name, preferred) if helps else by_name
    name, new = next(reached(query, order))
    is_choice = len(sources) == 2 or named.strip() != preferred  # of more the model may name the preferred one
    is_compared = helps and name == preferred and is_choice and state.log
    if helps and is_compared and not helps.reply(state.sample, new=shown(new), **state.shown()):
        name, new = instead_of((name, new), query, order[1])
    return state.noting(f"{name}: {wanted}", new)


@step(calls={"force": 1})
def finish(state: SourceSearch, *, force: Ask) -> Answer:
    """The answer that the model has given, else the one that it is made to give."""
    return state.concluded(force)


@step
def begin(query: Query, *, turns: int = 4, reflections: int = 1) -> SourceSearch:
    return SourceSearch(nothing(query), sample=query.sample, left=turns, reflections=reflections)


def flow_of(
    llm: LanguageModel, sources: Sources, turns: int, reflections: int, compares: bool = True
) -> Operator[Query, Answer]:
    body = turn.but(ask=Ask(llm, TURN), sources=sources, helps=Ask(llm, HELPS, 256) if compares else None)
    loop = Loop(body, max_steps=turns + 2 * reflections)
    return begin.but(turns=turns, reflections=reflections) >> loop >> finish.but(force=Ask(llm, FORCED, 128))


@published(SOURCE, "answered", "abstained", "forced")
def prefrag(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1, more: Sources = ()
) -> Operator[Query, Answer]:
    """Prefer `search`; `web` and `more` are other sources."""
    return flow_of(llm, (("local", search), ("web", web), *more), turns, reflections)
