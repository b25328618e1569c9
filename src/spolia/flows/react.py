"""ReAct: thoughts and actions in turn; an action searches a source, looks a word up, or finishes.

Other than the published code: the prompt has no examples; a search returns passages, not the first sentences of a page;
at the end of the turns an answer is forced, where the code returns none.
"""

from spolia.core.combinators import Loop
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.core.sentences import sentences
from spolia.flows.catalogue import published
from spolia.flows.evidence import Gathered, empty_ranking, put_first, search_all
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
    return Gathered(empty_ranking(query), sample=query.sample)


@step(calls={"ask": 1, "sources": 1})
def act(state: Gathered, *, ask: Ask, sources: Sources, every: bool = False) -> Gathered:
    """Think and take one action; an impossible action is observed, and costs a turn."""
    names = Setting(", ".join(name for name, _ in sources))
    reply = state.take_turn(ask, sources=names)
    thought = reply.get(THOUGHT, "")
    if answer := reply.get("answer"):
        return state.but(answer=answer, stop="answered")
    if search_text := reply.get("search"):
        query, chosen = state.found.query.asking(search_text), put_first(sources, reply.get("source", ""))
        new = search_all(query, sources) if every else next(search_sources(query, chosen))[1]
        observation = f"{len(new)} passages" if new.hits else "No passage was found."
        return state.add_entry(thought, f"search: {search_text}", observation, new=new)
    if word := reply.get("lookup"):
        passage_sentences = [text[start:end] for text in state.found.texts for start, end in sentences(text)]
        matches = [sentence for sentence in passage_sentences if word.casefold() in sentence.casefold()]
        position = sum(f"lookup: {word}" in entry.split("\n") for entry in state.log)  # after the last lookup's match
        observation = matches[position] if position < len(matches) else "Nothing more was found."
        return state.add_entry(thought, f"lookup: {word}", observation)
    return state.add_entry(thought, "Invalid action. Write search, lookup or answer.")


@step(calls={"force": 1})
def finish(state: Gathered, *, force: Ask) -> Answer:
    """Return the answer that the model has given, or force one."""
    return state.conclude(force)


def _build_flow(llm: LanguageModel, sources: Sources, turns: int, uses_all_sources: bool) -> Operator[Query, Answer]:
    body = act.but(ask=Ask(llm, TURN, 256), sources=sources, every=uses_all_sources)
    return begin >> Loop(body, max_steps=turns) >> finish.but(force=Ask(llm, FORCED, 128))


@published(SOURCE, "answered", "abstained", "cap")
def react(
    llm: LanguageModel, search: Retriever, web: Retriever | None = None, turns: int = 7
) -> Operator[Query, Answer]:
    """Let the model choose a source at each search."""
    return _build_flow(llm, (("local", search), *((("web", web),) if web is not None else ())), turns, False)


@published(SOURCE + "; all sources at each search", "answered", "abstained", "cap")
def react_concat(llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 7) -> Operator[Query, Answer]:
    return _build_flow(llm, (("local", search), ("web", web)), turns, True)
