"""ReAct: thoughts and actions in turn: search a source, look something up, or finish.

Other than the published code: the prompt has no examples; a search returns passages, not the first sentences of a page;
at the end of the turns an answer is forced, where the code returns none.
"""

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.sentences import sentences
from spolia.flows.catalogue import published
from spolia.flows.evidence import Gathered, everywhere, nothing, preferring
from spolia.models.parsers import NOTHING, THOUGHT, AnswerText, Tags
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.retrieval.multi_source import Sources, search_sources
from spolia.types import Answer, Query

ACTIONS = ("search", "lookup", "answer")
TURN = Role("spolia:flows/prompts/react_turn.txt", Tags((), (THOUGHT, "source"), ACTIONS), default=NOTHING)
FORCED = Role("spolia:flows/prompts/react_forced.txt", AnswerText(), default="I do not know.")
SOURCE = 'Yao et al., "ReAct: Synergizing reasoning and acting in language models", ICLR 2023'


@step
def begin(query: Query) -> Gathered:
    return Gathered(nothing(query), sample=query.sample)


@step(calls={"ask": 1, "sources": 1})
def act(state: Gathered, *, ask: Ask, sources: Sources, every: bool = False) -> Gathered:
    """Think, and take one action; what cannot be done is observed, and costs a turn."""
    names = Setting(", ".join(name for name, _ in sources))
    said = state.turn(ask, sources=names)
    thought = said.get(THOUGHT, "")
    if answer := said.get("answer"):
        return state.but(answer=answer, stop="answered")
    if wanted := said.get("search"):
        asked, chosen = state.found.query.asking(wanted), preferring(sources, said.get("source", ""))
        new = everywhere(asked, sources) if every else next(search_sources(asked, chosen))[1]
        observed = f"{len(new)} passages" if new.hits else "No passage was found."
        return state.noting(thought, f"search: {wanted}", observed, new=new)
    if word := said.get("lookup"):
        seen = [text[start:end] for text in state.found.texts for start, end in sentences(text)]
        found = [one for one in seen if word.casefold() in one.casefold()]
        before = sum(
            f"lookup: {word}" in entry.split("\n") for entry in state.log
        )  # each lookup goes on where the last ended
        observed = found[before] if before < len(found) else "Nothing more was found."
        return state.noting(thought, f"lookup: {word}", observed)
    return state.noting(thought, "Invalid action. Write search, lookup or answer.")


@step(calls={"force": 1})
def finish(state: Gathered, *, force: Ask) -> Answer:
    """The answer that was given, else one that the model is made to give."""
    return state.concluded(force)


def _flow(llm: LanguageModel, sources: Sources, turns: int, every: bool) -> Operator[Query, Answer]:
    body = act.but(ask=Ask(llm, TURN, 256), sources=sources, every=every)
    return begin >> Loop(body, max_steps=turns) >> finish.but(force=Ask(llm, FORCED, 128))


@published(SOURCE, "answered", "abstained", "cap")
def react(
    llm: LanguageModel, search: Retriever, web: Retriever | None = None, turns: int = 7
) -> Operator[Query, Answer]:
    """The model chooses a source at each search."""
    return _flow(llm, (("local", search), *((("web", web),) if web is not None else ())), turns, False)


@published(SOURCE + "; all sources at each search", "answered", "abstained", "cap")
def react_concat(llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 7) -> Operator[Query, Answer]:
    return _flow(llm, (("local", search), ("web", web)), turns, True)
