"""Contexts that readers are shown: which scores of a space take a call of a model, and which share one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.core.operator import Operator, Then
from spolia.core.run_context import attempt
from spolia.core.sweepable import VariantRanking
from spolia.core.type_compatibility import fits
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.rank_measures import FullRecall
from spolia.generation.prompt import fit_passages
from spolia.generation.reader import Reader
from spolia.optimizer.candidates import FlowTable
from spolia.orchestration.sweep import build_variant_runner, is_sweepable
from spolia.post_retrieval.selection import Cut
from spolia.run import Run
from spolia.types import Failure, Item, Query, Ranking, digest_of

Numbers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
AnswerKey: TypeAlias = tuple[object, ...]
FREE = 0
"""The number of what takes no call."""


@dataclass(frozen=True)
class ReaderFlow:
    """Flow whose only paid step is one reader: its context is known before anything is paid.

    Args:
        search: what comes before the reader.
        following_steps: the steps that follow it.
    """

    search: Operator[Query, Ranking]
    reader: Reader
    following_steps: tuple[Operator[Any, Any], ...] = ()

    @classmethod
    def from_flow(cls, flow: Operator[Query, Any]) -> Self | None:
        """Split a flow at its reader; None if the flow asks models in another way, or not at all."""
        steps = list(_flatten_steps(flow))
        readers = [index for index, step in enumerate(steps) if isinstance(step, Reader)]
        if len(readers) != 1 or any(step.calls() != 0 for step in steps if not isinstance(step, Reader)):
            return None
        leading_steps, reader = steps[: readers[0]], steps[readers[0]]
        assert isinstance(reader, Reader)
        if not leading_steps or (reader.maker is not None and reader.maker.calls() != 0):
            return None
        search = leading_steps[0] if len(leading_steps) == 1 else Then(*leading_steps)
        return (
            cls(make_sweepable(search), reader, tuple(steps[readers[0] + 1 :]))
            if fits(Ranking, search.gives(Query), {})
            else None
        )

    @property
    def query_steps(self) -> object:
        """Return digests of the steps that change the question before anything is searched."""
        steps = takewhile(
            lambda step: fits(Query, step.takes(), {}) and fits(Query, step.gives(Query), {}),
            _flatten_steps(self.search),
        )
        return tuple(step.digest for step in steps)


class Contexts:
    """Contexts that the flows of a space show their readers, by flow and question, as numbers: equal prompts to equal
    models have equal numbers. A flow of another kind that asks models has numbers of its own; what asks none, and a
    reader that is shown nothing, has the number 0.

    They are found by sweeps: all that is free is computed once for a question, and shared by the flows that have it in
    common.

    Args:
        items_for: the questions, with the gold's places in the stores of a flow.
        questions: how many of them choose.
        on_progress: called with how many more rows are known.
    """

    def __init__(
        self,
        candidates: FlowTable,
        items_for: Callable[[int], Sequence[Item]],
        questions: int,
        run: Run,
        on_progress: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self.candidates, self.questions, self.run, self.on_progress = candidates, questions, run, on_progress
        self._items_for = items_for
        self._rows: dict[int, int] = {}
        self._numbers = np.zeros((0, questions), np.int64)
        self._quality = np.zeros((0, questions))
        self._groups = np.zeros((0, questions), np.int64)
        self._answers: dict[object, int] = {}
        self._prompts: dict[bytes, int] = {}
        self.count = FREE + 1
        """Numbers that are taken."""

    @classmethod
    def applies(cls, candidates: FlowTable) -> bool:
        """Return whether any flow of a space has a reader whose context can be known."""
        return any(ReaderFlow.from_flow(candidates.flows[flow]) is not None for flow in candidates.all_flows)

    def numbers(self, flows: Sequence[int]) -> Numbers:
        """Return the contexts of flows as int64[flows, questions]."""
        places = self._compute_rows(flows)
        return self._numbers[places]

    def groups(self, flows: Sequence[int]) -> Numbers:
        """Return int64[flows, questions]: flows with the same number answer alike from the same passages; -1 if the
        context is unknown."""
        places = self._compute_rows(flows)
        return self._groups[places]

    def quality(self, flows: Sequence[int]) -> Floats:
        """Return float64[flows, questions]: whether a reader is shown all the gold; NaN if that is unknown."""
        places = self._compute_rows(flows)
        return self._quality[places]

    @property
    def total(self) -> int:
        """Return how many calls all flows of the space take on all questions, each context asked once."""
        unique_numbers = np.unique(self.numbers(list(self.candidates.all_flows)))
        return int((unique_numbers != FREE).sum())

    def _compute_rows(self, flows: Sequence[int]) -> list[int]:
        if new := [flow for flow in dict.fromkeys(flows) if flow not in self._rows]:
            self._rows |= {flow: len(self._rows) + index for index, flow in enumerate(new)}
            numbers, groups, quality = self._compute_contexts(new)
            self._numbers, self._groups = np.vstack([self._numbers, numbers]), np.vstack([self._groups, groups])
            self._quality = np.vstack([self._quality, quality])
        return [self._rows[flow] for flow in flows]

    def _compute_contexts(self, flows: Sequence[int]) -> tuple[Numbers, Numbers, Floats]:
        numbers = np.zeros((len(flows), self.questions), np.int64)
        groups = np.full((len(flows), self.questions), -1)
        quality = np.full((len(flows), self.questions), np.nan)
        readers = [ReaderFlow.from_flow(self.candidates.flows[flow]) for flow in flows]
        by_items: dict[int, list[int]] = {}
        for row, (flow, reader) in enumerate(zip(flows, readers, strict=True)):
            if reader is not None:
                # Flows over the same stores share the list of items, and therefore a sweep.
                by_items.setdefault(id(self._items_for(flow)), []).append(row)
            elif self.candidates.flows[flow].calls() != 0:
                numbers[row] = self._reserve_numbers()
        for rows in by_items.values():
            shown_contexts = ShownContexts(
                [known_reader for row in rows if (known_reader := readers[row])], self._number_prompt
            )
            items = self._items_for(flows[rows[0]])
            with self.run:
                for question in range(self.questions):
                    result = attempt(partial(shown_contexts.compute, items[question]))
                    self.on_progress(len(rows))
                    if isinstance(result, Failure):  # its failure is reported when the flow is asked
                        # Numbers of their own: each counts as a call.
                        numbers[rows, question] = np.arange(self.count, self.count + len(rows))
                        self.count += len(rows)
                    else:
                        context_numbers, answer_keys, quality[rows, question] = result
                        numbers[rows, question] = context_numbers
                        groups[rows, question] = [
                            self._answers.setdefault(key, len(self._answers)) for key in answer_keys
                        ]
        return numbers, groups, quality

    def _reserve_numbers(self) -> Numbers:
        self.count += self.questions
        return np.arange(self.count - self.questions, self.count)

    def _number_prompt(self, prompt: bytes) -> int:
        number = self._prompts.setdefault(prompt, self.count)
        self.count += number == self.count  # a new prompt has taken the next number
        return number


class ShownContexts:
    """Contexts that readers are shown for a question; equal passages are rendered once."""

    def __init__(self, flows: Sequence[ReaderFlow], number_prompt: Callable[[bytes], int]) -> None:
        self.flows, self.number_prompt = flows, number_prompt
        self.run_variants = build_variant_runner([flow.search for flow in flows])
        self.keys = [(flow.query_steps, flow.reader.digest) for flow in flows]
        self.models = [_model_digest(flow.reader) for flow in flows]

    def compute(self, item: Item) -> tuple[list[int], list[object], list[float]]:
        """Return for each flow the number of its context, what the answer depends on, and how good the context is."""
        contexts: dict[object, tuple[int, AnswerKey, float]] = {}
        results: list[tuple[int, AnswerKey, float]] = []
        (rankings,) = self.run_variants([Query(item.question)])
        flow_rows = zip(self.flows, self.keys, self.models, rankings, strict=True)
        for flow, key, model, variant in flow_rows:
            # A prompt maker may read more than the ids of passages: only the same ranking object counts
            # as equal.
            context_key = (
                key,
                tuple(variant.ids[: flow.reader.max_passages]) if flow.reader.maker is None else id(variant),
            )
            if context_key not in contexts:
                contexts[context_key] = self._compute_context(flow.reader, model, variant, item)
            results.append(contexts[context_key])
        answer_keys = ((*result[1], flow.following_steps) for result, flow in zip(results, self.flows, strict=True))
        return [number for number, *_ in results], list(answer_keys), [quality for *_, quality in results]

    def _compute_context(
        self, reader: Reader, model: bytes, variant: VariantRanking, item: Item
    ) -> tuple[int, AnswerKey, float]:
        ranking = fit_passages(variant.ranking, reader.max_passages, reader.max_characters)
        measure = FullRecall(max(1, reader.max_passages))
        observation = measure.observe(Case(item, ranking)) if measure.applies(item) else None
        quality = float("nan") if observation is None else observation[0]
        number = FREE
        if ranking.hits:
            prompt = reader.build_prompt(ranking)
            number = self.number_prompt(digest_of((model, prompt, prompt.role)))
        nodes = tuple((hit.node.id, *(node.id for node in hit.found)) for hit in ranking.hits)
        return number, (number, nodes, type(reader), reader.abstention), quality


def _model_digest(reader: Reader) -> bytes:
    """Return a digest of the model that a reader asks, and of its settings."""
    try:
        model: object = digest_of(reader.llm)
    except TypeError:  # compared by identity
        model = str(id(reader.llm)).encode()
    return digest_of((model, reader.max_tokens, reader.temperature))


def _flatten_steps(flow: Operator[Any, Any]) -> Sequence[Operator[Any, Any]]:
    if not isinstance(flow, Then):
        return (flow,)
    return [step for part in flow.steps for step in _flatten_steps(part)]


def make_sweepable(flow: Operator[Query, Ranking]) -> Operator[Query, Ranking]:
    """Return the flow, or an equal one that can be swept."""
    return flow if is_sweepable(flow) else flow >> Cut()
