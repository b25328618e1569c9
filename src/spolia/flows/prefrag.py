"""PrefRAG: a preferred source, another where it does not help, and a look back at the answer."""

from dataclasses import dataclass
from typing import Any

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.evidence import CHARACTERS, citing, nothing, shown
from spolia.flows.published import published
from spolia.models.parsers import Tags, Text, YesNo
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query, Ranking, State

OPTIONAL = ("thought", "source", "search", "answer", "evaluation")
TURN = Role(
    "spolia:flows/prompts/prefrag_turn.txt", Tags(("thought",), OPTIONAL[1:]), default="<thought>none</thought>"
)
HELPS = Role(
    "spolia:flows/prompts/prefrag_helps.txt", YesNo(), default="yes"
)  # what cannot be read keeps the preference
FORCED = Role("spolia:flows/prompts/prefrag_forced.txt", Text(), default="I do not know.")
Sources = tuple[tuple[str, Retriever], ...]
SOURCE = 'Zhao et al., "PrefRAG: preference-driven multi-source retrieval augmented generation", 2025'


@dataclass(frozen=True)
class SourceSearch(State):
    """What has been found and said.

    Args:
        log: what the model sees of the turns before, oldest first.
        left: turns that may follow.
        reflections: answers that may still be doubted.
    """

    found: Ranking
    left: int
    reflections: int
    log: tuple[str, ...] = ()
    answer: str = ""

    def shown(self) -> dict[str, Any]:
        return {"question": self.found.query.question, "log": self.log, "passages": shown(self.found)}

    def seeing(self, new: Ranking, heading: str) -> "SourceSearch":
        """With further passages, and a line that says what they were found for."""
        return self.but(found=self.found.extended(new), log=(*self.log, heading))


@step(calls={"ask": 1, "helps": 1, "sources": 3})
def turn(state: SourceSearch, *, ask: Ask, sources: Sources, helps: Ask | None = None) -> SourceSearch:
    """Search the preferred source, and another where that does not help; or answer, and doubt it once."""
    names = Setting(", ".join(name for name, _ in sources))
    said = ask.reply(state.sample, sources=names, **state.shown())
    state, query = state.but(left=state.left - 1), state.found.query
    if answer := said.get("answer"):
        if state.reflections < 1 or said.get("evaluation", "CORRECT").strip().upper().startswith("CORRECT"):
            return state.but(answer=answer, stop="answered")
        both = nothing(query)
        for _, source in sources:
            both = both.extended(source(query))
        doubted = f"{answer} ({said['evaluation']})"[:CHARACTERS]
        return state.seeing(both, doubted).but(left=state.left + 2, reflections=state.reflections - 1)
    if not said.get("search"):
        return state.but(stop="forced")
    by_name = dict(sources)
    (preferred, first), wanted = sources[0], query.asking(said["search"])
    if helps is None:  # the model's own choice
        new = by_name.get(said.get("source", "").strip(), first)(wanted)
    else:
        new = first(wanted)
        if state.log and not helps.reply(state.sample, new=shown(new), **state.shown()):
            named = said.get("source", "").strip()
            other = by_name[named] if named in by_name and named != preferred else sources[1][1]
            found = other(wanted)
            new = found if found.hits else new
    state = state.seeing(new, f"{new.source}: {said['search']}")
    return state if state.left > 0 else state.but(stop="forced")


@step(calls={"force": 1})
def finish(state: SourceSearch, *, force: Ask) -> Answer:
    """The answer that the model has given, else the one that it is made to give."""
    said = state.answer if state.stop == "answered" else force.reply(state.sample, **state.shown())
    return citing(said, state.found)


@step
def begin(query: Query, *, turns: int = 4, reflections: int = 1) -> SourceSearch:
    return SourceSearch(nothing(query), turns, reflections, sample=query.sample)


def flow_of(
    llm: LanguageModel, sources: Sources, turns: int, reflections: int, compares: bool = True
) -> Operator[Query, Answer]:
    body = turn.but(ask=Ask(llm, TURN), sources=sources, helps=Ask(llm, HELPS, 256) if compares else None)
    loop = Loop(body, max_steps=turns + 2 * reflections)
    return begin.but(turns=turns, reflections=reflections) >> loop >> finish.but(force=Ask(llm, FORCED, 128))


@published(SOURCE, "answered", "forced")
def prefrag(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1, more: Sources = ()
) -> Operator[Query, Answer]:
    """Prefer `search`; `web` and `more` are other sources."""
    return flow_of(llm, (("local", search), ("web", web), *more), turns, reflections)
