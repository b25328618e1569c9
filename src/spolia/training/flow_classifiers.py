"""The classifiers of published flows, trained on gold and on what the flow's own model answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from spolia.core.operator import Operator, Retriever
from spolia.core.run_context import check_cancelled
from spolia.evaluation.measures.answers.string_match import Accuracy
from spolia.flows.adaptive_rag import ARMS, adaptive_rag, routed, strategies
from spolia.models.protocols import Embedder, LanguageModel
from spolia.models.text_classifier import Part, TrainedClassifier
from spolia.models.trained_weights import TrainedWeights
from spolia.orchestration.arm_choice import PickArm
from spolia.orchestration.similarity_router import ByClassifier
from spolia.run import Run
from spolia.training.classifier import ClassifierTrainer, LabelledText
from spolia.types import Answer, Item, Query


class FlowClassifier(ClassifierTrainer):
    """Base of the trainers of this module.

    Args:
        llm: the model of the flow.
        search: its retriever.
        embedder: with one, the classifier also reads vectors.
        settings: those of `ClassifierTrainer`.
    """

    def __init__(
        self, llm: LanguageModel, search: Retriever, embedder: Embedder | None = None, **settings: Any
    ) -> None:
        super().__init__(embedder, **settings)
        self.llm, self.search = llm, search

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"model": self.llm.name}


class RouterTrainer(FlowClassifier):
    """Trains the router of Adaptive-RAG: no retrieval, one, or several.

    The label of a question is the cheapest strategy of the flow that answers rightly (an accepted answer occurs in the
    answer). Where none does, it is what its data set says of it: `several` where the gold names several passages,
    `one` where it names one; without gold it is left out. A strategy is asked only where no cheaper one was right.

    Source: Jeong et al., "Adaptive-RAG", NAACL 2024. There a question without a right answer takes the label of its
    data set, single-hop or multi-hop; the published code drops it.
    """

    part: ClassVar[Part] = "router"
    labels = tuple(name for name, _ in ARMS)

    def labelled(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        right = Accuracy()
        every = list(strategies(self.llm, self.search).values())
        found = []
        for item in filter(right.applies, items):
            check_cancelled()
            with Run.current() or Run(share=True):
                answers = (flow(Query(item.question)) for flow in every)
                cheapest = next((at for at, answer in enumerate(answers) if right.score(answer, item) == 1), None)
            label = cheapest if cheapest is not None else min(len(item.gold), 2) or None
            if label is not None:
                found.append(LabelledText(item.id, item.question, "", label))
        return found

    def untrained(self) -> Operator[Query, Answer]:
        return adaptive_rag(self.llm, self.search)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        scores = ByClassifier(TrainedClassifier(self.part, weights, self.embedder), self.labels)
        return routed(self.llm, self.search, scores >> PickArm("one"))
