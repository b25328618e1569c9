"""The classifiers of published flows, trained on gold and on what the flow's own model answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, groupby
from typing import Any, ClassVar

from spolia.core.operator import Operator, Retriever
from spolia.core.run_context import check_cancelled
from spolia.errors import EmptyReply
from spolia.evaluation.experiment.gold_locations import is_gold, locate_gold
from spolia.evaluation.measures.answers.string_match import Accuracy
from spolia.evaluation.statistics.interval import wilson
from spolia.flows.adaptive_rag import ARMS, adaptive_rag, routed, strategies
from spolia.flows.crag import crag, cut
from spolia.flows.dr_rag import dr_rag, dynamic
from spolia.flows.naive_rag import naive_both
from spolia.generation.prompt import fit_passages, number_passages
from spolia.generation.reader import Reader
from spolia.generation.verification import RIGHT, WRONG_ANSWER, WRONG_PASSAGES, VerifyGrounding, join_passages
from spolia.models.protocols import Embedder, LanguageModel
from spolia.models.text_classifier import JOINT, Part, TrainedClassifier, occurs_in
from spolia.models.trained_weights import TrainedWeights
from spolia.orchestration.arm_choice import PickArm
from spolia.orchestration.similarity_router import ByClassifier
from spolia.run import Run
from spolia.training.classifier import NEVER, ClassifierTrainer, LabelledText, lower_bound
from spolia.types import Answer, Item, Query, Ranking

STRIP = 3
"""Sentences of a strip, in CRAG."""


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

    def classifier(self, weights: TrainedWeights) -> TrainedClassifier:
        return TrainedClassifier(self.part, weights, self.embedder)


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
                answers = (answered(flow, Query(item.question)) for flow in every)
                cheapest = next((at for at, one in enumerate(answers) if one and right.score(one, item) == 1), None)
            label = cheapest if cheapest is not None else min(len(item.gold), 2) or None
            if label is not None:
                found.append(LabelledText(item.id, item.question, "", label))
        return found

    def untrained(self) -> Operator[Query, Answer]:
        return adaptive_rag(self.llm, self.search)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        return routed(self.llm, self.search, ByClassifier(self.classifier(weights), self.labels) >> PickArm("one"))


class EvaluatorTrainer(FlowClassifier):
    """Trains the retrieval evaluator of CRAG: whether a passage that the flow finds is gold.

    It also learns of the strips to which the flow cuts passages: of a gold passage, those are relevant that hold an
    accepted answer, or that of a hop; all of them if none does.

    Its thresholds are chosen on questions that the classifier has not seen. Retrieval is correct from the lowest score
    of a question's best passage at which some passage is gold for a share of at least `sure` of the questions, with
    95 % confidence; incorrect below the highest score at which none is, for such a share; ambiguous in between.

    Args:
        web: the second source.
        sure: that share.

    Source: Yan et al., "Corrective retrieval augmented generation", 2024, whose evaluator is a T5 with thresholds set
    by hand.
    """

    part: ClassVar[Part] = "evaluator"
    version = 2
    labels = ("irrelevant", "relevant")

    def __init__(
        self,
        llm: LanguageModel,
        search: Retriever,
        web: Retriever,
        embedder: Embedder | None = None,
        *,
        sure: float = 0.9,
        **settings: Any,
    ) -> None:
        super().__init__(llm, search, embedder, **settings)
        self.web, self.sure = web, sure
        self.golden: dict[str, list[bool]] = {}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"sure": self.sure}

    def labelled(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        rows = []
        for item, found, golden in with_gold(items, self.search):
            self.golden[item.id] = golden
            passages = list(zip(found.texts, golden, strict=True))
            answers = [*item.answers, *(one.answer for one in item.decomposition)]
            for hit, gold in zip(found.hits, golden, strict=True):
                strips = [strip.node for strip in cut(hit, STRIP)]
                holding = [node for node in strips if any(occurs_in(answer, node.text) for answer in answers)] or strips
                passages += [(node.text, gold and node in holding) for node in strips]
            rows += [LabelledText(item.id, item.question, text, int(gold)) for text, gold in passages]
        return rows

    def weights(self) -> dict[str, Any]:
        found = super().weights()
        of_item = groupby(zip(self.texts, self.unseen()[:, -1].tolist(), strict=True), lambda row: row[0].item)
        chances = {item: [chance for _, chance in rows] for item, rows in of_item}
        best = [(max(chances[item][: len(gold)]), any(gold)) for item, gold in self.golden.items() if item in chances]
        upper = sure_from(best, self.sure)
        lower = min(upper, -sure_from([(-score, not held) for score, held in best], self.sure))
        shares = [sum(score >= upper for score, _ in best), sum(score < lower for score, _ in best)]
        self.notes.append(
            f"Of {len(best)} questions retrieval is correct for {shares[0]} and incorrect for {shares[1]}, which is "
            f"right for at least {self.sure:.0%} of them with 95 % confidence; the others are ambiguous."
        )
        return found | {"upper": upper, "lower": lower}

    def untrained(self) -> Operator[Query, Answer]:
        return naive_both(self.llm, self.search, self.web)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        plain = weights.plain(self.part)
        scorer, upper, lower = self.classifier(weights), float(plain["upper"]), float(plain["lower"])
        return crag(self.llm, self.search, self.web, scorer, upper, lower)


class PairTrainer(FlowClassifier):
    """Trains the classifier of DR-RAG: whether two passages help each other to answer a question.

    The passages are those of both searches of the flow. Two help each other if both are gold; where only one was found,
    each pair that has it. The threshold is the highest that keeps all but a share of `most_lost` of the gold passages,
    with 95 % confidence, of questions that the classifier has not seen.

    Args:
        more: passages of the second search.
        most_lost: that share.

    Source: Hei et al., "DR-RAG: Applying dynamic document relevance", 2024.
    """

    part: ClassVar[Part] = "pairs"
    version = 2
    labels = ("apart", "together")

    def __init__(
        self,
        llm: LanguageModel,
        search: Retriever,
        embedder: Embedder | None = None,
        *,
        more: int = 5,
        most_lost: float = 0.02,
        **settings: Any,
    ) -> None:
        super().__init__(llm, search, embedder, **settings)
        self.more, self.most_lost = more, most_lost
        self.golden: dict[str, list[bool]] = {}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"more": self.more, "most_lost": self.most_lost}

    def labelled(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        rows = []
        for item, found, golden in with_gold(items, self.search >> dynamic.but(search=self.search, more=self.more)):
            self.golden[item.id] = golden
            needed = min(2, sum(golden))
            for a, b in combinations(range(len(golden)), 2):
                helps = 0 < needed <= golden[a] + golden[b]
                rows.append(LabelledText(item.id, item.question, found.texts[a] + JOINT + found.texts[b], int(helps)))
        return rows

    def weights(self) -> dict[str, Any]:
        found = super().weights()
        best: dict[str, list[float]] = {}
        for item, rows in groupby(zip(self.texts, self.unseen()[:, -1].tolist(), strict=True), lambda row: row[0].item):
            worth = best[item] = [0.0] * len(self.golden[item])
            for (a, b), (_, chance) in zip(combinations(range(len(worth)), 2), rows, strict=True):
                worth[a], worth[b] = max(worth[a], chance), max(worth[b], chance)
        threshold = 0.0
        for tried in sorted({score for worth in best.values() for score in worth}):
            lost = [
                -sum(gold and score < tried for gold, score in zip(self.golden[item], worth, strict=True))
                / max(1, sum(self.golden[item]))
                for item, worth in best.items()
            ]
            if lower_bound(lost) < -self.most_lost:
                break
            threshold = tried
        every = [score for worth in best.values() for score in worth]
        self.notes.append(
            f"Threshold {threshold:.3f}: of questions that the classifier had not seen, "
            f"{sum(score < threshold for score in every) / len(every):.0%} of the passages are dropped, and at most "
            f"{self.most_lost:.0%} of the gold ones with 95 % confidence."
        )
        return found | {"threshold": threshold}

    def untrained(self) -> Operator[Query, Answer]:
        whole = self.search >> dynamic.but(search=self.search, more=self.more)
        return whole >> Reader(self.llm, max_passages=10)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        threshold = float(weights.plain(self.part)["threshold"])
        return dr_rag(self.llm, self.search, self.classifier(weights), self.more, threshold)


class VerifierTrainer(FlowClassifier):
    """Trains the verifier of KALMV: right, wrong passages, or wrong answer.

    Each question is searched and answered `n` times. An answer is right if an accepted one occurs in it; else the
    passages are wrong if they lack some of the gold, and if they do not, the answer is. Answers that abstain are left
    out: the flow counts them as wrong passages.

    Args:
        n: answers of a question.
        temperature: of the reader, so that they differ.

    Source: Baek et al., "Knowledge-augmented language model verification" (KALMV), EMNLP 2023.
    """

    part: ClassVar[Part] = "verifier"
    labels = (WRONG_PASSAGES, WRONG_ANSWER, RIGHT)

    def __init__(
        self,
        llm: LanguageModel,
        search: Retriever,
        embedder: Embedder | None = None,
        *,
        n: int = 3,
        temperature: float = 0.7,
        **settings: Any,
    ) -> None:
        super().__init__(llm, search, embedder, **settings)
        self.n, self.temperature = n, temperature

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"n": self.n, "temperature": self.temperature}

    @property
    def read(self) -> Reader:
        return Reader(self.llm, temperature=self.temperature)

    def labelled(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        right, read, rows = Accuracy(), self.read, []
        for item, found, _ in with_gold([item for item in items if right.applies(item)], self.search):
            shown = fit_passages(found, read.max_passages, read.max_characters)
            lacking = any(not any(is_gold(node, one) for node in shown.nodes for one in group) for group in item.gold)
            with Run.current() or Run(share=True):
                samples = (found.but(query=found.query.but(sample=sample)) for sample in range(self.n))
                answers = [answered(read, one) for one in samples]
            for answer in (one for one in answers if one and not one.abstained):
                label = RIGHT if right.score(answer, item) == 1 else WRONG_PASSAGES if lacking else WRONG_ANSWER
                text = join_passages(answer, number_passages(shown, read.max_characters))
                rows.append(LabelledText(item.id, item.question, text, self.labels.index(label)))
        return rows

    def untrained(self) -> Operator[Query, Answer]:
        return self.search >> self.read

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        return VerifyGrounding(self.search, self.read, self.classifier(weights))


def with_gold(items: Sequence[Item], search: Operator[Query, Ranking]) -> Iterator[tuple[Item, Ranking, list[bool]]]:
    """Questions with gold, as the store has it; the ranking; which of its hits are gold, or have the text of one."""
    asked = [item for item in items if item.gold]
    places = locate_gold(asked, [search]) if asked else None
    for item in asked:
        check_cancelled()
        assert places is not None
        here, found = places.locate_item(item), search(Query(item.question))
        gold = [any(is_gold(node, one) for group in here.gold for one in group) for node in found.nodes]
        texts = {text for text, is_one in zip(found.texts, gold, strict=True) if is_one}
        yield here, found, [text in texts for text in found.texts]


def answered(flow: Operator[Any, Answer], value: Query | Ranking) -> Answer | None:
    """What a flow answers; None where the model replies with nothing."""
    try:
        return flow(value)
    except EmptyReply:
        return None


def sure_from(best: Sequence[tuple[float, bool]], sure: float) -> float:
    """Return the lowest score from which on a share of at least `sure` holds, with 95 % confidence, or `NEVER`.

    Scores are tested from the highest down to the first that fails, so that the confidence holds for the chosen one.

    >>> sure_from([(0.9, True)] * 40 + [(0.2, False)] * 40, 0.9), sure_from([(0.9, True)] * 9, 0.9)
    (0.9, 2.0)
    """
    right = n = 0
    lowest = NEVER
    for score, rows in groupby(sorted(best, reverse=True), lambda row: row[0]):
        held = [holds for _, holds in rows]
        right += sum(held)
        n += len(held)
        if wilson(n, n, 0.9).low < sure:
            continue  # too few to pass, however many hold
        if wilson(right, n, 0.9).low < sure:
            break
        lowest = score
    return lowest
