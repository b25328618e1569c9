"""PrefRAG: a preferred source, another one if it does not help, and self-reflection on the answer.

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
from spolia.flows.evidence import Gathered, empty_ranking, is_correct, put_first, search_all, search_or_keep, show_hits
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
    """The gathered evidence, with the turns and the reflections that are left."""

    left: int = 0
    reflections: int = 0


@step(calls={"ask": 1, "helps": 1, "sources": 1})
def turn(state: SourceSearch, *, ask: Ask, sources: Sources, helps: Ask | None = None) -> SourceSearch:
    """Take a turn: answer, or search once more."""
    names = Setting(", ".join(name for name, _ in sources))
    reply = state.take_turn(ask, sources=names)
    state = state.but(left=state.left - 1)
    if reply.get("answer"):
        return accept_or_doubt(state, reply, sources)
    if is_search := bool(reply.get("search")):
        state = search_source(state, reply, sources, helps)
    return state if is_search and state.left > 0 else state.but(stop="forced")


def accept_or_doubt(state: SourceSearch, reply: Mapping[str, str], sources: Sources) -> SourceSearch:
    """Accept the answer; or doubt it: then search all sources for the question itself and grant another turn."""
    # an answer without evaluation is not doubted
    if state.reflections < 1 or is_correct(reply.get("evaluation", "CORRECT")):
        return state.but(answer=reply["answer"], stop="answered")
    doubt = (f"{reply['answer']} ({reply['evaluation']})", reply.get("explanation", ""), reply.get("suggestion", ""))
    state = state.add_entry(reply.get(THOUGHT, ""), *doubt, new=search_all(state.found.query, sources))
    return state.but(left=state.left + 2, reflections=state.reflections - 1)


def search_source(state: SourceSearch, reply: Mapping[str, str], sources: Sources, helps: Ask | None) -> SourceSearch:
    """Search the preferred source, and the named one if it fails or does not help; without `helps` the named one."""
    search_text, source_name, preferred = reply["search"], reply.get("source", ""), sources[0][0]
    query = state.found.query.asking(search_text)
    by_name = put_first(sources, source_name)
    order = put_first(by_name, preferred) if helps else by_name
    name, new = next(search_sources(query, order))
    is_choice = len(sources) == 2 or source_name.strip() != preferred  # of more the model may name the preferred one
    is_compared = helps and name == preferred and is_choice and state.log
    analysis = ""
    if helps and is_compared:
        verdict = helps.reply(state.sample, new=show_hits(new), **state.prompt_places())
        is_useful, analysis = verdict if isinstance(verdict, tuple) else (verdict, "")  # flow files of 0.2.0: yes or no
        if not is_useful:
            name, new = search_or_keep((name, new), query, order[1])
    return state.add_entry(reply.get(THOUGHT, ""), f"{name}: {search_text}", analysis, new=new)


@step(calls={"force": 1})
def finish(state: SourceSearch, *, force: Ask) -> Answer:
    """Return the answer that the model has given, or force one."""
    return state.conclude(force)


@step
def begin(query: Query, *, turns: int = 4, reflections: int = 1) -> SourceSearch:
    return SourceSearch(empty_ranking(query), sample=query.sample, left=turns, reflections=reflections)


def build_flow(
    llm: LanguageModel, sources: Sources, turns: int, reflections: int, compares: bool = True
) -> Operator[Query, Answer]:
    body = turn.but(ask=Ask(llm, TURN), sources=sources, helps=Ask(llm, HELPS) if compares else None)
    loop = Loop(body, max_steps=turns + 2 * reflections)  # each reflection grants two turns (`accept_or_doubt`)
    return begin.but(turns=turns, reflections=reflections) >> loop >> finish.but(force=Ask(llm, FORCED, 128))


@published(SOURCE, "answered", "abstained", "forced")
def prefrag(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1, more: Sources = ()
) -> Operator[Query, Answer]:
    """Prefer `search`; `web` and `more` are the other sources."""
    return build_flow(llm, (("local", search), ("web", web), *more), turns, reflections)
