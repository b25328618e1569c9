"""PrefRAG with a part taken out: the comparison of sources, the preference, the look back at the answer."""

from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import everywhere
from spolia.flows.prefrag import SOURCE, flow_of
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query, Ranking


@step(calls={"first": 1, "second": 1})
def union(query: Query, *, first: Retriever, second: Retriever) -> Ranking:
    """What both sources find, the first one's before."""
    return everywhere(query, (("local", first), ("web", second))).but(source="both")


@published(SOURCE + ", prompt only", "answered", "abstained", "forced")
def prefrag_prompt(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1
) -> Operator[Query, Answer]:
    """The prompt alone asks to prefer the first source; the model chooses."""
    return flow_of(llm, (("local", search), ("web", web)), turns, reflections, compares=False)


@published(SOURCE + ", without preference", "answered", "abstained", "forced")
def prefrag_no_preference(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1
) -> Operator[Query, Answer]:
    """Both sources are read together."""
    both = union.but(first=search, second=web)
    return flow_of(llm, (("both", both),), turns, reflections, compares=False)


@published(SOURCE + ", without self-reflection", "answered", "abstained", "forced")
def prefrag_no_reflection(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4
) -> Operator[Query, Answer]:
    return flow_of(llm, (("local", search), ("web", web)), turns, reflections=0)
