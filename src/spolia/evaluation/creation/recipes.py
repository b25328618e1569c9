"""Recipes of each type of question: an ordinary flow from passages to questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from spolia.core.combinators.each import Each
from spolia.core.operator import Operator, Then
from spolia.core.replacement import replace_parts
from spolia.errors import DataError
from spolia.evaluation.creation.draft import QuestionDraft, SampleRange
from spolia.evaluation.creation.filters import (
    KeepAnswerable,
    KeepAnswered,
    KeepMultiHop,
    KeepQuoted,
    KeepSelfContained,
    KeepUnanswerable,
    KeepUnknown,
    KeepUnleaked,
)
from spolia.evaluation.creation.near_duplicates import DropNearDuplicates
from spolia.evaluation.creation.sampling import SampleLinked, SamplePassages
from spolia.evaluation.creation.writers import (
    COMPARISON,
    CONCEPT,
    EVOLUTIONS,
    FACTOID,
    UNANSWERABLE,
    Evolve,
    WriteAnswer,
    WriteMultiHop,
    WriteQuestion,
)
from spolia.generation.reader import Reader
from spolia.indexing.transforms.rule_entities import RuleEntities
from spolia.models.prompting.role import Role
from spolia.models.prompting.template import check_language
from spolia.models.protocols import LanguageModel
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.graph.edges import SharedEntities
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.stores.corpus import NodeGroup
from spolia.stores.definition import Definition
from spolia.types import Value

LINKED = {"multi-hop": 2, "3-hop": 3, "4-hop": 4, "comparison": 2}
"""Types that are made of several passages, and of how many."""
TYPES = ("factoid", "concept", *LINKED, "unanswerable")
DISTINCT = DropNearDuplicates()
_ROLES = {"factoid": FACTOID, "concept": CONCEPT, "comparison": COMPARISON, "unanswerable": UNANSWERABLE}


@dataclass(frozen=True)
class Recipe(Value):
    """Recipe of one type of question.

    Args:
        type: of the questions.
        sample: draws passages.
        body: what each question goes through.
        distinct: drops near-duplicates among the questions.
    """

    type: str
    sample: Operator[SampleRange, tuple[QuestionDraft, ...]]
    body: Operator[QuestionDraft, QuestionDraft]
    distinct: DropNearDuplicates = DISTINCT

    @classmethod
    def from_flow(cls, flow: Operator[Any, Any]) -> Self:
        """Return the recipe that a flow is: a sampler, and then `Each` of the steps that a question goes through.

        Raises:
            DataError: the flow does not write questions.
        """
        match flow.steps if isinstance(flow, Then) else (flow,):
            case (SamplePassages() | SampleLinked() as sample, Each() as loop, DropNearDuplicates() as distinct):
                return cls(sample.type, sample, loop.arm, distinct)
        raise DataError(
            f"The flow {flow.short} makes no questions. Write a sampler (SamplePassages, SampleLinked), then Each with "
            "the steps of a question, then DropNearDuplicates; dump(recipe(...).flow) begins one."
        )

    def in_language(self, language: str) -> Self:
        """Return the recipe with its prompts in a language, `en`, `zh`, `ko` or `ja`; empty for the passages' own."""
        check_language(language, "The recipe")

        def change(value: Any) -> Any:
            return value.but(language=language) if isinstance(value, (Role, Reader)) else value

        return self.but(body=replace_parts(self.body, change))

    @property
    def source(self) -> str:
        """Return what its questions are made of: `passages`, or `links` between them."""
        return "links" if isinstance(self.sample, SampleLinked) else "passages"

    @property
    def flow(self) -> Operator[SampleRange, tuple[QuestionDraft, ...]]:
        """Return all of it as one flow: to be drawn, checked, or run on a range of passages."""
        flow: Operator[SampleRange, Any] = self.sample >> Each(self.body) >> self.distinct
        return flow

    @property
    def steps(self) -> Sequence[Operator[Any, Any]]:
        """Return the steps of the body, in order."""
        return self.body.steps if isinstance(self.body, Then) else (self.body,)


def recipe(
    type: str,
    group: NodeGroup,
    llm: LanguageModel,
    *,
    judge: LanguageModel | None = None,
    seed: int = 0,
    evolve: Sequence[str] = (),
    unknown: bool = False,
) -> Recipe:
    """Return the recipe of a type of question.

    Args:
        type: one of `TYPES`.
        group: its nodes are the passages.
        llm: writes questions and answers.
        judge: judges them; None for the same model.
        seed: of the order in which passages are drawn.
        evolve: names of `EVOLUTIONS`, applied one after the other.
        unknown: also drop what the model answers without any document.

    >>> from spolia import Corpus, ScriptedModel
    >>> found = recipe("factoid", Corpus("notes.spolia").group(), ScriptedModel(("none",)))
    >>> [type(step).__name__ for step in found.steps]  # doctest: +NORMALIZE_WHITESPACE
    ['WriteQuestion', 'KeepSelfContained', 'WriteAnswer', 'KeepAnswered', 'KeepQuoted', 'KeepUnleaked',
     'KeepAnswerable']
    """
    if type not in TYPES:
        raise DataError(f"No type of question is called {type!r}. Write one of: {', '.join(TYPES)}.")
    if unknown_evolutions := [name for name in evolve if name not in EVOLUTIONS]:
        raise DataError(
            f"A question cannot be evolved by {unknown_evolutions[0]!r}. Write one of: {', '.join(EVOLUTIONS)}."
        )
    judging_model = judge or llm
    writer = WriteQuestion(llm, _ROLES[type]) if type in _ROLES else WriteMultiHop(llm)
    writing = [writer, *(Evolve(llm, EVOLUTIONS[name]) for name in evolve), KeepSelfContained(judging_model)]
    if type == "unanswerable":
        body: Operator[QuestionDraft, QuestionDraft] = Then(
            *writing, KeepUnanswerable(BM25(group, top_k=5), Reader(judging_model))
        )
        return Recipe(type, SamplePassages(group, type, seed), body)
    answering = [WriteAnswer(llm), KeepAnswered(), KeepQuoted(), KeepUnleaked(), KeepAnswerable(judging_model)]
    if unknown:
        answering.append(KeepUnknown(judging_model))
    if (passages := LINKED.get(type)) is None:
        return Recipe(type, SamplePassages(group, type, seed), Then(*writing, *answering))
    sample = SampleLinked(graph_of(group), type, seed, passages=passages, titles_first=type != "comparison")
    return Recipe(type, sample, Then(*writing, *answering, KeepMultiHop(judging_model, passages=passages)))


def graph_of(group: NodeGroup) -> NodeGraph:
    """Return the nodes of a group, linked by the names that they share; the names are a group of their own in the
    store."""
    names = f"{group.name}-names"
    definition = Definition(RuleEntities(("name", "acronym", "quote")), parent=group.name)
    group.corpus.group(names, definition)
    return NodeGraph(group, (SharedEntities(names),))
