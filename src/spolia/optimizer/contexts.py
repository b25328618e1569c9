"""What readers are shown: which scores of a space take a call of a model, and which share one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.core.operator import Operator, Then
from spolia.core.run_context import attempt
from spolia.core.sweepable import Swept
from spolia.core.type_compatibility import fits
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.rank_measures import FullRecall
from spolia.generation.prompt import fitting
from spolia.generation.reader import Reader
from spolia.optimizer.candidates import Candidates
from spolia.orchestration.sweep import is_swept, sweeper
from spolia.post_retrieval.selection import Cut
from spolia.run import Run
from spolia.types import Failure, Item, Query, Ranking, digest_of

Numbers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Alike: TypeAlias = tuple[object, ...]
FREE = 0
"""The number of what takes no call."""


@dataclass(frozen=True)
class ReaderFlow:
    """A flow of which all but one reader is free: what it is shown is known before anything is paid.

    Args:
        search: what comes before the reader.
        after: the steps that follow it.
    """

    search: Operator[Query, Ranking]
    reader: Reader
    after: tuple[Operator[Any, Any], ...] = ()

    @classmethod
    def of(cls, flow: Operator[Query, Any]) -> Self | None:
        """None for a flow that asks models otherwise, or not at all."""
        steps = list(_steps(flow))
        readers = [at for at, step in enumerate(steps) if isinstance(step, Reader)]
        if len(readers) != 1 or any(step.calls() != 0 for step in steps if not isinstance(step, Reader)):
            return None
        before, reader = steps[: readers[0]], steps[readers[0]]
        assert isinstance(reader, Reader)
        if not before or (reader.maker is not None and reader.maker.calls() != 0):
            return None
        search = before[0] if len(before) == 1 else Then(*before)
        return (
            cls(sweepable(search), reader, tuple(steps[readers[0] + 1 :]))
            if fits(Ranking, search.gives(Query), {})
            else None
        )

    @property
    def asks(self) -> object:
        """What changes the question before anything is searched."""
        steps = takewhile(
            lambda step: fits(Query, step.takes(), {}) and fits(Query, step.gives(Query), {}), _steps(self.search)
        )
        return tuple(step.digest for step in steps)


class Contexts:
    """The contexts that the flows of a space show their readers, by flow and question, as numbers: equal prompts to
    equal models have equal ones. A flow of another kind that asks models has numbers of its own; what asks none, and a
    reader that is shown nothing, has the number 0.

    They are found by sweeps: all that is free is computed once for a question, and shared by the flows that have it in
    common.

    Args:
        items_for: the questions, with the gold's places in the stores of a flow.
        questions: how many of them choose.
        told: called with how many more rows are known.
    """

    def __init__(
        self,
        candidates: Candidates,
        items_for: Callable[[int], Sequence[Item]],
        questions: int,
        run: Run,
        told: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self.candidates, self.questions, self.run, self.told = candidates, questions, run, told
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
    def applies(cls, candidates: Candidates) -> bool:
        """Whether any flow of a space has a reader whose context can be known."""
        return any(ReaderFlow.of(candidates.flows[flow]) is not None for flow in candidates.every)

    def numbers(self, flows: Sequence[int]) -> Numbers:
        """int64[flows, questions]: the contexts of flows."""
        places = self._known(flows)
        return self._numbers[places]

    def groups(self, flows: Sequence[int]) -> Numbers:
        """int64[flows, questions]: flows with the same number give the same answer from the same passages; -1 where it
        is not known what the reader is shown."""
        places = self._known(flows)
        return self._groups[places]

    def quality(self, flows: Sequence[int]) -> Floats:
        """float64[flows, questions]: whether a reader is shown all the gold; NaN where that is not known."""
        places = self._known(flows)
        return self._quality[places]

    @property
    def total(self) -> int:
        """How many calls all flows of the space take on all questions, each context asked once."""
        found = np.unique(self.numbers(list(self.candidates.every)))
        return int((found != FREE).sum())

    def _known(self, flows: Sequence[int]) -> list[int]:
        if new := [flow for flow in dict.fromkeys(flows) if flow not in self._rows]:
            self._rows |= {flow: len(self._rows) + at for at, flow in enumerate(new)}
            numbers, groups, quality = self._found(new)
            self._numbers, self._groups = np.vstack([self._numbers, numbers]), np.vstack([self._groups, groups])
            self._quality = np.vstack([self._quality, quality])
        return [self._rows[flow] for flow in flows]

    def _found(self, flows: Sequence[int]) -> tuple[Numbers, Numbers, Floats]:
        numbers = np.zeros((len(flows), self.questions), np.int64)
        groups = np.full((len(flows), self.questions), -1)
        quality = np.full((len(flows), self.questions), np.nan)
        readers = [ReaderFlow.of(self.candidates.flows[flow]) for flow in flows]
        by_items: dict[int, list[int]] = {}
        for at, (flow, reader) in enumerate(zip(flows, readers, strict=True)):
            if reader is not None:
                by_items.setdefault(id(self._items_for(flow)), []).append(at)
            elif self.candidates.flows[flow].calls() != 0:
                numbers[at] = self._own()
        for some in by_items.values():
            shown = ShownContexts([one for at in some if (one := readers[at])], self._number)
            items = self._items_for(flows[some[0]])
            with self.run:
                for question in range(self.questions):
                    found = attempt(partial(shown.of, items[question]))
                    self.told(len(some))
                    if isinstance(found, Failure):  # its failure is reported when the flow is asked
                        numbers[some, question] = np.arange(self.count, self.count + len(some))
                        self.count += len(some)
                    else:
                        each, alike, quality[some, question] = found
                        numbers[some, question] = each
                        groups[some, question] = [self._answers.setdefault(one, len(self._answers)) for one in alike]
        return numbers, groups, quality

    def _own(self) -> Numbers:
        self.count += self.questions
        return np.arange(self.count - self.questions, self.count)

    def _number(self, prompt: bytes) -> int:
        found = self._prompts.setdefault(prompt, self.count)
        self.count += found == self.count
        return found


class ShownContexts:
    """What readers are shown for a question; equal passages are rendered once."""

    def __init__(self, flows: Sequence[ReaderFlow], number: Callable[[bytes], int]) -> None:
        self.flows, self.number = flows, number
        self.together = sweeper([flow.search for flow in flows])
        self.keys = [(flow.asks, flow.reader.digest) for flow in flows]
        self.models = [_model_of(flow.reader) for flow in flows]

    def of(self, item: Item) -> tuple[list[int], list[object], list[float]]:
        """By flow the number of the context, what the answer depends on, and how good the context is."""
        known: dict[object, tuple[int, Alike, float]] = {}
        found: list[tuple[int, Alike, float]] = []
        (together,) = self.together([Query(item.question)])
        every = zip(self.flows, self.keys, self.models, together, strict=True)
        for flow, key, model, swept in every:
            own = (key, tuple(swept.ids[: flow.reader.max_passages]) if flow.reader.maker is None else id(swept))
            if own not in known:
                known[own] = self._context(flow.reader, model, swept, item)
            found.append(known[own])
        alike = ((*one[1], flow.after) for one, flow in zip(found, self.flows, strict=True))
        return [number for number, *_ in found], list(alike), [quality for *_, quality in found]

    def _context(self, reader: Reader, model: bytes, swept: Swept, item: Item) -> tuple[int, Alike, float]:
        shown = fitting(swept.ranking, reader.max_passages, reader.max_characters)
        measure = FullRecall(max(1, reader.max_passages))
        seen = measure.seen(Case(item, shown)) if measure.applies(item) else None
        quality = float("nan") if seen is None else seen[0]
        number = FREE
        if shown.hits:
            prompt = reader.prompted(shown)
            number = self.number(digest_of((model, prompt, prompt.role)))
        nodes = tuple((hit.node.id, *(one.id for one in hit.found)) for hit in shown.hits)
        return number, (number, nodes, type(reader), reader.abstention), quality


def _model_of(reader: Reader) -> bytes:
    """Whom a reader asks, and how."""
    try:
        model: object = digest_of(reader.llm)
    except TypeError:  # compared by identity
        model = str(id(reader.llm)).encode()
    return digest_of((model, reader.max_tokens, reader.temperature))


def _steps(flow: Operator[Any, Any]) -> Sequence[Operator[Any, Any]]:
    if not isinstance(flow, Then):
        return (flow,)
    return [step for one in flow.steps for step in _steps(one)]


def sweepable(flow: Operator[Query, Ranking]) -> Operator[Query, Ranking]:
    """The flow, or one that gives the same and can be swept."""
    return flow if is_swept(flow) else flow >> Cut()
