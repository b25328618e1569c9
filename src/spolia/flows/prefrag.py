"""PrefRAG: a preferred source, another where it does not help, and a look back at the answer.

As in the paper, a comparison writes its analysis before its verdict (eq. 3), and a look back says why an answer is
doubted and what to do (§ 3.3); these and the thoughts of each turn enter the log that later turns read.

Other than the published code: a comparison that cannot be read keeps the preferred source, where the code takes the
other one; a reply without an action is sent back once, then searches for the question itself at first, and forces an
answer later, where the code forces one directly; a source that finds nothing leaves what the other one found.
`turns` counts calls: four, as in the code, where the paper says three iterations. Replies are greedy, where the paper
draws at a temperature of 0.1. Of more than two sources, the named one is searched where the preferred one does not
help; if the model names the preferred one, its passages stay (the paper does not say).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import Gathered, everywhere, instead_of, is_correct, nothing, preferring, shown
from spolia.models.parsers import NOTHING, THOUGHT, AnswerText, Reasoned, Tags
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.retrieval.multi_source import Sources, search_sources
from spolia.types import Answer, Query

SAYS = Tags((), (THOUGHT, "source", "evaluation", "explanation", "suggestion"), ("search", "answer"))
TURN = Role("spolia:flows/prompts/prefrag_turn.txt", SAYS, default=NOTHING)
HELPS = Role("spolia:flows/prompts/prefrag_helps.txt", Reasoned(), default="yes")
FORCED = Role("spolia:flows/prompts/prefrag_forced.txt", AnswerText(), default="I do not know.")
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
    said = state.turn(ask, sources=names)
    state = state.but(left=state.left - 1)
    if said.get("answer"):
        return answered(state, said, sources)
    if is_search := bool(said.get("search")):
        state = searched(state, said, sources, helps)
    return state if is_search and state.left > 0 else state.but(stop="forced")


def answered(state: SourceSearch, said: Mapping[str, str], sources: Sources) -> SourceSearch:
    """Done, or doubted: then all sources are searched for the question itself, and a turn more is given."""
    if state.reflections < 1 or is_correct(said.get("evaluation", "CORRECT")):
        return state.but(answer=said["answer"], stop="answered")
    doubt = (f"{said['answer']} ({said['evaluation']})", said.get("explanation", ""), said.get("suggestion", ""))
    state = state.noting(said.get(THOUGHT, ""), *doubt, new=everywhere(state.found.query, sources))
    return state.but(left=state.left + 2, reflections=state.reflections - 1)


def searched(state: SourceSearch, said: Mapping[str, str], sources: Sources, helps: Ask | None) -> SourceSearch:
    """Ask the preferred source, and the named one where it fails or does not help; without `helps` the named one."""
    wanted, named, preferred = said["search"], said.get("source", ""), sources[0][0]
    query = state.found.query.asking(wanted)
    by_name = preferring(sources, named)
    order = preferring(by_name, preferred) if helps else by_name
    name, new = next(search_sources(query, order))
    is_choice = len(sources) == 2 or named.strip() != preferred  # of more the model may name the preferred one
    is_compared = helps and name == preferred and is_choice and state.log
    analysis = ""
    if helps and is_compared:
        verdict = helps.reply(state.sample, new=shown(new), **state.shown())
        is_useful, analysis = verdict if isinstance(verdict, tuple) else (verdict, "")  # flow files of 0.2.0: yes or no
        if not is_useful:
            name, new = instead_of((name, new), query, order[1])
    return state.noting(said.get(THOUGHT, ""), f"{name}: {wanted}", analysis, new=new)


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
    body = turn.but(ask=Ask(llm, TURN), sources=sources, helps=Ask(llm, HELPS) if compares else None)
    loop = Loop(body, max_steps=turns + 2 * reflections)
    return begin.but(turns=turns, reflections=reflections) >> loop >> finish.but(force=Ask(llm, FORCED, 128))


@published(SOURCE, "answered", "abstained", "forced")
def prefrag(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1, more: Sources = ()
) -> Operator[Query, Answer]:
    """Prefer `search`; `web` and `more` are other sources."""
    return flow_of(llm, (("local", search), ("web", web), *more), turns, reflections)
