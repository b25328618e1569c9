"""Trainers of the classifiers of published flows, from gold and from answers of the flow's own model."""

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
from spolia.flows.adaptive_rag import ARMS, adaptive_rag, route_questions, strategies
from spolia.flows.crag import crag, cut_strips
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
    """Trainer of Adaptive-RAG's router: no retrieval, one, or several.

    The label of a question is the cheapest strategy of the flow that answers rightly (an accepted answer occurs in the
    answer). Where none does, it is what its data set says of it: `several` where the gold names several passages,
    `one` where it names one; without gold it is left out. A strategy is asked only where no cheaper one was right.

    Source: Jeong et al., "Adaptive-RAG", NAACL 2024. There a question without a right answer takes the label of its
    data set, single-hop or multi-hop; the published code drops it.
    """

    part: ClassVar[Part] = "router"
    labels = tuple(name for name, _ in ARMS)

    def label_items(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        accuracy = Accuracy()
        flows = list(strategies(self.llm, self.search).values())
        rows = []
        for item in filter(accuracy.applies, items):
            check_cancelled()
            with Run.current() or Run(share=True):
                answers = (try_answer(flow, Query(item.question)) for flow in flows)
                cheapest = next(
                    (number for number, answer in enumerate(answers) if answer and accuracy.score(answer, item) == 1),
                    None,
                )
            label = cheapest if cheapest is not None else min(len(item.gold), 2) or None  # 0 gold passages: no label
            if label is not None:
                rows.append(LabelledText(item.id, item.question, "", label))
        return rows

    def untrained(self) -> Operator[Query, Answer]:
        return adaptive_rag(self.llm, self.search)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        return route_questions(
            self.llm, self.search, ByClassifier(self.classifier(weights), self.labels) >> PickArm("one")
        )


class EvaluatorTrainer(FlowClassifier):
    """Trainer of CRAG's retrieval evaluator, which predicts whether a retrieved passage is gold.

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
        self.gold_flags: dict[str, list[bool]] = {}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"sure": self.sure}

    def label_items(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        rows = []
        for item, ranking, gold_flags in search_with_gold(items, self.search):
            self.gold_flags[item.id] = gold_flags
            passages = list(zip(ranking.texts, gold_flags, strict=True))
            answers = [*item.answers, *(hop.answer for hop in item.decomposition)]
            for hit, gold in zip(ranking.hits, gold_flags, strict=True):
                strips = [strip.node for strip in cut_strips(hit, STRIP)]
                holding = [node for node in strips if any(occurs_in(answer, node.text) for answer in answers)] or strips
                passages += [(node.text, gold and node in holding) for node in strips]
            rows += [LabelledText(item.id, item.question, text, int(gold)) for text, gold in passages]
        return rows

    def weights(self) -> dict[str, Any]:
        plain = super().weights()
        rows_by_item = groupby(
            zip(self.texts, self.unseen_probabilities()[:, -1].tolist(), strict=True), lambda row: row[0].item
        )
        chances = {item: [chance for _, chance in rows] for item, rows in rows_by_item}
        best = [
            # Passages come first in a question's rows, then their strips.
            (max(chances[item][: len(gold)]), any(gold))
            for item, gold in self.gold_flags.items()
            if item in chances
        ]
        upper = confident_threshold(best, self.sure)
        lower = min(upper, -confident_threshold([(-score, not has_gold) for score, has_gold in best], self.sure))
        shares = [sum(score >= upper for score, _ in best), sum(score < lower for score, _ in best)]
        self.notes.append(
            f"Of {len(best)} questions retrieval is correct for {shares[0]} and incorrect for {shares[1]}, which is "
            f"right for at least {self.sure:.0%} of them with 95 % confidence; the others are ambiguous."
        )
        return plain | {"upper": upper, "lower": lower}

    def untrained(self) -> Operator[Query, Answer]:
        return naive_both(self.llm, self.search, self.web)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        plain = weights.plain(self.part)
        scorer, upper, lower = self.classifier(weights), float(plain["upper"]), float(plain["lower"])
        return crag(self.llm, self.search, self.web, scorer, upper, lower)


class PairTrainer(FlowClassifier):
    """Trainer of DR-RAG's classifier, which predicts whether two passages help each other to answer a question.

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
        self.gold_flags: dict[str, list[bool]] = {}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"more": self.more, "most_lost": self.most_lost}

    def label_items(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        rows = []
        for item, ranking, gold_flags in search_with_gold(
            items, self.search >> dynamic.but(search=self.search, more=self.more)
        ):
            self.gold_flags[item.id] = gold_flags
            needed = min(2, sum(gold_flags))
            for a, b in combinations(range(len(gold_flags)), 2):
                helps = 0 < needed <= gold_flags[a] + gold_flags[b]
                rows.append(
                    LabelledText(item.id, item.question, ranking.texts[a] + JOINT + ranking.texts[b], int(helps))
                )
        return rows

    def weights(self) -> dict[str, Any]:
        plain = super().weights()
        best: dict[str, list[float]] = {}
        for item, rows in groupby(
            zip(self.texts, self.unseen_probabilities()[:, -1].tolist(), strict=True), lambda row: row[0].item
        ):
            item_scores = best[item] = [0.0] * len(self.gold_flags[item])
            for (a, b), (_, chance) in zip(combinations(range(len(item_scores)), 2), rows, strict=True):
                item_scores[a], item_scores[b] = max(item_scores[a], chance), max(item_scores[b], chance)
        threshold = 0.0
        for tried in sorted({score for item_scores in best.values() for score in item_scores}):
            lost = [
                # `lower_bound` takes changes: a loss is negative.
                -sum(gold and score < tried for gold, score in zip(self.gold_flags[item], item_scores, strict=True))
                / max(1, sum(self.gold_flags[item]))
                for item, item_scores in best.items()
            ]
            if lower_bound(lost) < -self.most_lost:
                break
            threshold = tried
        scores = [score for item_scores in best.values() for score in item_scores]
        self.notes.append(
            f"Threshold {threshold:.3f}: of questions that the classifier had not seen, "
            f"{sum(score < threshold for score in scores) / len(scores):.0%} of the passages are dropped, and at most "
            f"{self.most_lost:.0%} of the gold ones with 95 % confidence."
        )
        return plain | {"threshold": threshold}

    def untrained(self) -> Operator[Query, Answer]:
        search = self.search >> dynamic.but(search=self.search, more=self.more)
        return search >> Reader(self.llm, max_passages=10)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        threshold = float(weights.plain(self.part)["threshold"])
        return dr_rag(self.llm, self.search, self.classifier(weights), self.more, threshold)


class VerifierTrainer(FlowClassifier):
    """Trainer of KALMV's verifier: right, wrong passages, or wrong answer.

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
    def reader(self) -> Reader:
        return Reader(self.llm, temperature=self.temperature)

    def label_items(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        accuracy, reader, rows = Accuracy(), self.reader, []
        for item, ranking, _ in search_with_gold([item for item in items if accuracy.applies(item)], self.search):
            # As the reader is shown them.
            prompt_ranking = fit_passages(ranking, reader.max_passages, reader.max_characters)
            lacks_gold = any(
                not any(is_gold(node, value) for node in prompt_ranking.nodes for value in group) for group in item.gold
            )
            with Run.current() or Run(share=True):
                samples = (ranking.but(query=ranking.query.but(sample=sample)) for sample in range(self.n))
                answers = [try_answer(reader, value) for value in samples]
            for answer in (value for value in answers if value and not value.abstained):
                label = RIGHT if accuracy.score(answer, item) == 1 else WRONG_PASSAGES if lacks_gold else WRONG_ANSWER
                text = join_passages(answer, number_passages(prompt_ranking, reader.max_characters))
                rows.append(LabelledText(item.id, item.question, text, self.labels.index(label)))
        return rows

    def untrained(self) -> Operator[Query, Answer]:
        return self.search >> self.reader

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        return VerifyGrounding(self.search, self.reader, self.classifier(weights))


def search_with_gold(
    items: Sequence[Item], search: Operator[Query, Ranking]
) -> Iterator[tuple[Item, Ranking, list[bool]]]:
    """Yield each question that has gold, its ranking, and which hits are gold or have the text of a gold hit."""
    gold_items = [item for item in items if item.gold]
    places = locate_gold(gold_items, [search]) if gold_items else None
    for item in gold_items:
        check_cancelled()
        assert places is not None
        located, ranking = places.locate_item(item), search(Query(item.question))
        gold_flags = [any(is_gold(node, place) for group in located.gold for place in group) for node in ranking.nodes]
        texts = {text for text, is_gold_hit in zip(ranking.texts, gold_flags, strict=True) if is_gold_hit}
        yield located, ranking, [text in texts for text in ranking.texts]


def try_answer(flow: Operator[Any, Answer], value: Query | Ranking) -> Answer | None:
    """Return a flow's answer; None if the model replies with nothing."""
    try:
        return flow(value)
    except EmptyReply:
        return None


def confident_threshold(best: Sequence[tuple[float, bool]], sure: float) -> float:
    """Return the lowest score from which a share of at least `sure` holds, with 95 % confidence, or `NEVER`.

    Scores are tested from the highest down to the first that fails, so that the confidence holds for the chosen one.

    >>> confident_threshold([(0.9, True)] * 40 + [(0.2, False)] * 40, 0.9), confident_threshold([(0.9, True)] * 9, 0.9)
    (0.9, 2.0)
    """
    right = n = 0
    lowest = NEVER
    for score, rows in groupby(sorted(best, reverse=True), lambda row: row[0]):
        flags = [holds for _, holds in rows]
        right += sum(flags)
        n += len(flags)
        if wilson(n, n, 0.9).low < sure:
            continue  # too few to pass, however many hold
        if wilson(right, n, 0.9).low < sure:
            break
        lowest = score
    return lowest
