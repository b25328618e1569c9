"""Searches by passages that a language model imagines as the answer to a question."""

from dataclasses import dataclass
from typing import ClassVar

from spolia.core.call_bounds import times
from spolia.core.operator import Operator
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import WiringError
from spolia.models.parsers import NOTHING
from spolia.models.prompting.role import Role
from spolia.models.protocols import Embedder, LanguageModel, embed_checked, refuse_no_embedder
from spolia.pre_retrieval.query_llm import OneText, QueryLLM
from spolia.types import Answer, Query
from spolia.types.outcomes import require_successes

IMAGINED: Role[str] = Role("spolia:pre_retrieval/prompts/hyde.txt", OneText(), default=NOTHING)


class ImaginedPassages(QueryLLM[Query]):
    """Base of operators that search by passages which a model imagines.

    Args:
        passages: draws; the same prompt each time, so that more than one needs a temperature above 0.
    """

    passages: int
    min_passages: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "passages", minimum=self.min_passages)
        if self.passages > 1 and not self.temperature > 0:
            raise WiringError(
                f"{self.short}: {self.passages} passages at temperature {self.temperature} are one passage as many "
                "times. Write temperature=0.7, or passages=1."
            )

    def imagine(self, query: Query) -> tuple[str, ...]:
        """Return the passages that could be read, in the order of the draws."""
        brief = self.brief(query)
        # draws of one sample have other numbers than the next one's, or a cache gives the same
        first = query.sample * self.passages
        results = self.ask.batch([brief.but(sample=first + number) for number in range(self.passages)])
        return tuple(filter(None, require_successes(results)))

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(self.passages, self.ask.calls())


@dataclass(frozen=True)
class HyDE(ImaginedPassages):
    """Search for a passage that would answer the question, imagined by the model: q → d̂.

    What is wrong in it does not matter much: it is in the words of an answer, and only what the store has is found.
    The reader still answers the original question. `AveragedHyDE` does the same with vectors. Reverse HyDE,
    questions that a text would answer, is a node group: `HypotheticalQuestions`.

    Args:
        llm: the language model.
        passages: draws, one below the other; more than one need a temperature.
        beside: keep the query above the passage: for a search by words, which would miss the query's own.
        role: prompt, reader and default (`QueryLLM`); without a passage the query goes on as it was.
        max_tokens: longest passage.
        temperature: 0 for the most probable passage.

    Raises:
        WiringError: for several passages at temperature 0.

    Source: Gao, Ma, Lin, Callan, "Precise zero-shot dense retrieval without relevance labels", ACL 2023.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> model = ScriptedModel(("Tides are caused by the pull of the moon.",))
    >>> HyDE(model)(Query("Why tides?")).text, HyDE(model, beside=True)(Query("Why tides?")).text
    ('Tides are caused by the pull of the moon.', 'Why tides?\\nTides are caused by the pull of the moon.')
    """

    llm: LanguageModel
    passages: int = 1
    beside: bool = False
    role: Role[str] = IMAGINED
    max_tokens: int = 128
    temperature: float = 0.0

    version: ClassVar[int] = 3  # 3: a thought is no part of a reply

    def apply(self, value: Query, /) -> Query:
        passages = self.imagine(value)
        return value.rewritten("\n".join((value.text, *passages) if self.beside else passages)) if passages else value


@dataclass(frozen=True)
class AveragedHyDE(ImaginedPassages):
    """Search by v = (f(q) + Σ_i f(d̂_i)) / (N + 1): the query's vector and those of N imagined passages.

    The text of the query stays, for searches by words beside. With no passage, also where no reply can be read, it is
    the plain search by f(q).

    Args:
        embedder: f; the one that the group was embedded by. The query is embedded as a query, passages as passages.
        passages: N, draws at `temperature`.
        max_tokens: longest passage.
        temperature: above 0 where there are several passages.
        llm, role: as for every `QueryLLM`.

    Raises:
        WiringError: for several passages at temperature 0; `embedder` is not one.
        ModelError: the embedder does not give vectors.

    Source: Gao, Ma, Lin, Callan, "Precise zero-shot dense retrieval without relevance labels", ACL 2023.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> from spolia.testing import HashingEmbedder
    >>> op = AveragedHyDE(ScriptedModel(("The moon pulls the sea.", "Tides follow the moon.")), HashingEmbedder(), 2)
    >>> found = op(Query("Why are there tides?"))
    >>> found.text, len(found.vector) == HashingEmbedder().dimension
    ('Why are there tides?', True)
    """

    llm: LanguageModel
    embedder: Embedder
    passages: int = 8
    role: Role[str] = IMAGINED
    max_tokens: int = 128
    temperature: float = 0.7

    version: ClassVar[int] = 3  # 3: a thought is no part of a reply
    min_passages: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "AveragedHyDE", Embedder)

    def apply(self, value: Query, /) -> Query:
        passages = self.imagine(value)
        (mean,) = embed_checked(self.embedder, (value.text,), "query").astype(float)
        if passages:
            mean = (mean + embed_checked(self.embedder, passages, "passage").astype(float).sum(axis=0)) / (
                len(passages) + 1
            )
        return value.but(vector=tuple(map(float, mean)), origin=value)


@dataclass(frozen=True)
class WithDraft(Operator[Query, Query]):
    """Search for the question together with a draft of its answer: q → q ⊕ draft(q).

    With `ChainOfVerification` as the draft, the draft is verified before the search: fewer hits for what the model made
    up. An abstention leaves the query as it is.

    Args:
        draft: answers the question.
        beside: keep the question above the draft.

    Source: Dhuliawala et al., "Chain-of-verification reduces hallucination in large language models", Findings of ACL
    2024; Wang, Yang, Wei, "Query2doc: query expansion with large language models", EMNLP 2023.

    >>> from spolia.core.function import step
    >>> @step
    ... def known(query: Query) -> Answer:
    ...     return Answer("Jane Austen.")
    >>> WithDraft(known)(Query("Who wrote Emma?")).text
    'Who wrote Emma?\\nJane Austen.'
    """

    draft: Operator[Query, Answer]
    beside: bool = True

    def apply(self, value: Query, /) -> Query:
        draft = self.draft(value)
        if draft.abstained or not draft.text.strip():
            return value
        return value.rewritten(f"{value.text}\n{draft.text}" if self.beside else draft.text)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.draft.calls()
