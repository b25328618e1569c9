"""PrefRAG without one of its parts: the comparison of sources, the preference, or self-reflection."""

from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.evidence import search_all
from spolia.flows.prefrag import SOURCE, build_flow
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Query, Ranking


@step(calls={"first": 1, "second": 1})
def union(query: Query, *, first: Retriever, second: Retriever) -> Ranking:
    """Search both sources, and put the hits of the first one first."""
    return search_all(query, (("local", first), ("web", second))).but(source="both")


@published(SOURCE + ", prompt only", "answered", "abstained", "forced")
def prefrag_prompt(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1
) -> Operator[Query, Answer]:
    """Prefer the first source by the prompt alone; the model chooses."""
    return build_flow(llm, (("local", search), ("web", web)), turns, reflections, compares=False)


@published(SOURCE + ", without preference", "answered", "abstained", "forced")
def prefrag_no_preference(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4, reflections: int = 1
) -> Operator[Query, Answer]:
    """Read both sources together."""
    both_sources = union.but(first=search, second=web)
    return build_flow(llm, (("both", both_sources),), turns, reflections, compares=False)


@published(SOURCE + ", without self-reflection", "answered", "abstained", "forced")
def prefrag_no_reflection(
    llm: LanguageModel, search: Retriever, web: Retriever, turns: int = 4
) -> Operator[Query, Answer]:
    return build_flow(llm, (("local", search), ("web", web)), turns, reflections=0)
