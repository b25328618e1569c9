"""Small classifiers trained on this machine: a question and a text, their features or vectors, few units."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

from spolia.core.sentences import sentences
from spolia.deferred import numpy as np
from spolia.errors import WeightsError, WiringError
from spolia.models.protocols import Embedder
from spolia.models.trained_weights import TrainedWeights
from spolia.types import Value

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

JOINT = "\n\f\n"
"""Between the two texts of which a classifier reads both: two passages, or an answer and its passages."""
HEAD = 5
_PAIR = re.compile(r"^Q: (.*)\nA: (.*)$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_MARK = re.compile(r"\[\d+\]")
_NOTHING = re.compile(
    r"no relevant information|\bI do not know\b|\bnot (?:known|stated|mentioned)\b|^\s*$", re.IGNORECASE
)
_HOP = re.compile(r"\b(?:of|that|which|who|whose|where)\b|'s\b|’s\b", re.IGNORECASE)
_QUESTION_KINDS = tuple(
    re.compile(expression, re.IGNORECASE)
    for expression in (
        r"\b(?:older|younger|earlier|later|first|before|more|same|both|between|or)\b",
        r"^(?:is|are|was|were|do|does|did|has|have|can)\b",
        r"\b(?:when|year|date|century|how (?:many|much|old|long))\b",
        r"\b(?:who|whom|whose)\b",
        r"\b(?:where|country|city|place|county|state|located)\b",
    )
)


class QuestionFeatures(NamedTuple):
    """Features of a question.

    Fields:
        length: ln of its words.
        capitals: its words with a capital, without the first.
        hops: how many hops it seems to have: 1, and 1 for each "of", "that", "'s" …
        digits: 1 if it has one.
        rarest: the highest idf of its words.
        compares, yes_no, asks_when, asks_who, asks_where: 1 if it has such a word.
    """

    length: float
    capitals: float
    hops: float
    digits: float
    rarest: float
    compares: float
    yes_no: float
    asks_when: float
    asks_who: float
    asks_where: float

    @classmethod
    def from_texts(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> QuestionFeatures:
        question_words = words(question)
        return cls(
            length=log(1 + len(question_words)),
            capitals=float(len(_names(question))),
            hops=1.0 + len(_HOP.findall(question)),
            digits=float(any(map(str.isdigit, question))),
            rarest=max((idf.get(word, rare) for word in question_words), default=0.0),
            **_kinds(question),
        )


class PassageFeatures(NamedTuple):
    """Features of a text for a question. Shares are of the idf of the question's words.

    Fields:
        covered: share that is in the text.
        titled: share that is in its first line.
        stated: largest share in one of its sentences.
        names: share of the question's words with a capital that are in the text.
        title: share of the first line's words that are in the question.
        length: ln of its words.
    """

    covered: float
    titled: float
    stated: float
    names: float
    title: float
    length: float

    @classmethod
    def from_texts(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> PassageFeatures:
        question_words, text_words, title_words = words(question), set(words(text)), words(text.partition("\n")[0])
        weights = {word: idf.get(word, rare) for word in question_words}
        question_names = _names(question)
        return cls(
            covered=_share(weights, text_words),
            titled=_share(weights, set(title_words)),
            stated=max((_share(weights, set(words(text[start:end]))) for start, end in sentences(text)), default=0.0),
            names=sum(name in text_words for name in question_names) / (len(question_names) or 1),
            title=sum(word in weights for word in title_words) / (len(title_words) or 1),
            length=log(1 + len(text_words)),
        )


class PairFeatures(NamedTuple):
    """Features of two passages and a question.

    Fields:
        lower_share, higher_share: the smaller and the larger share of the question that one of them covers.
        added: what the other adds to that.
        linked: in how many of them the first line of the other occurs.
        shared: ln of how many words with a capital both have, and the question has not.
        overlap: share of all words that both have.
    """

    lower_share: float
    higher_share: float
    added: float
    linked: float
    shared: float
    overlap: float

    @classmethod
    def from_texts(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> PairFeatures:
        weights = {word: idf.get(word, rare) for word in words(question)}
        first, _, second = text.partition(JOINT)
        word_sets = set(words(first)), set(words(second))
        covered = sorted(_share(weights, word_set) for word_set in word_sets)
        links = sum(occurs_in(a.partition("\n")[0], b) for a, b in ((first, second), (second, first)))
        shared = {*_names(first)}.intersection(_names(second)).difference(weights)
        return cls(
            lower_share=covered[0],
            higher_share=covered[1],
            added=_share(weights, word_sets[0] | word_sets[1]) - covered[1],
            linked=float(links),
            shared=log(1 + len(shared)),
            overlap=len(word_sets[0] & word_sets[1]) / (len(word_sets[0] | word_sets[1]) or 1),
        )


class AnswerFeatures(NamedTuple):
    """Features of an answer for its question and its passages.

    Fields:
        length: ln of its words.
        stated: 1 if it occurs in the passages.
        sentence_share: largest share of the question, by idf, in a sentence in which it occurs.
        in_question: 1 if it occurs in the question.
        number: 1 if it has a digit.
        dated: 1 if it has a digit, and the question asks when or how many.
        undated: 1 if it has none, and the question does.
    """

    length: float
    stated: float
    sentence_share: float
    in_question: float
    number: float
    dated: float
    undated: float

    @classmethod
    def from_texts(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> AnswerFeatures:
        answer, _, passages = text.partition(JOINT)
        answer = _MARK.sub("", answer).strip(" .\n")
        weights = {word: idf.get(word, rare) for word in words(question)}
        passage_sentences = [passages[start:end] for start, end in sentences(passages)]
        number, asks_when = any(map(str.isdigit, answer)), _kinds(question)["asks_when"]
        return cls(
            length=log(1 + len(words(answer))),
            stated=float(occurs_in(answer, passages)),
            sentence_share=max(
                (
                    _share(weights, set(words(sentence)))
                    for sentence in passage_sentences
                    if occurs_in(answer, sentence)
                ),
                default=0.0,
            ),
            in_question=float(occurs_in(answer, question)),
            number=float(number),
            dated=asks_when * number,
            undated=asks_when * (not number),
        )


def _kinds(question: str) -> dict[str, float]:
    """Return which of `_QUESTION_KINDS` a question has, as features."""
    values = (float(pattern.search(question) is not None) for pattern in _QUESTION_KINDS)
    return dict(zip(("compares", "yes_no", "asks_when", "asks_who", "asks_where"), values, strict=True))


def _names(text: str) -> list[str]:
    """Return the words with a capital, without the first, in lower case."""
    return [word.casefold() for word in _WORD.findall(text)[1:] if word[0].isupper()]


def _share(weights: Mapping[str, float], text_words: set[str]) -> float:
    return sum(weight for word, weight in weights.items() if word in text_words) / (sum(weights.values()) or 1.0)


class ChainFeatures(NamedTuple):
    """Features of a chain that may suffice. A pair counts as found if its answer says something, and its sub-question
    is not the question itself.

    Fields:
        steps: pairs.
        failures: pairs that are not found.
        last_failed: 1 if the last one is such.
        answers: different answers of pairs that are found.
        covered: share of the question's rare words that are in sub-questions that are found, by idf.
        uncovered: the idf of the words that are in neither those nor their answers.
        head: share of the question's first five words in the last sub-question.
        chained: 1 if the last sub-question holds an earlier answer.
        loose: answers that no sub-question holds.
        length: ln of the question's words.
        capitals: the question's words with a capital, without the first.
        hops: how many hops the question seems to have: 1, and 1 for each "of", "that", "'s" …
        hops_left: those minus the answers found.
        answer_in_question: 1 if the question already holds the last answer.
        new: 1 if the last answer is none that an earlier pair had.
        number: 1 if the last answer has a digit.
        compares, yes_no, asks_when, asks_who, asks_where: 1 if the question has such a word.
        dated: 1 if the question has a word of `asks_when`, and the last answer a digit.
    """

    steps: float
    failures: float
    last_failed: float
    answers: float
    covered: float
    uncovered: float
    head: float
    chained: float
    loose: float
    length: float
    capitals: float
    hops: float
    hops_left: float
    answer_in_question: float
    new: float
    number: float
    compares: float
    yes_no: float
    asks_when: float
    asks_who: float
    asks_where: float
    dated: float

    @classmethod
    def from_texts(cls, question: str, chain: str, idf: Mapping[str, float], rare: float) -> ChainFeatures:
        """Compute the features of a question and its chain as `Chain.written` gives it; `rare` is the idf of an unknown
        word."""
        question_words, pairs = words(question), _PAIR.findall(chain)
        weights = {word: idf.get(word, rare) for word in question_words}
        failed = [
            _NOTHING.search(answer) is not None or words(sub_question) == question_words
            for sub_question, answer in pairs
        ]
        answered_pairs = [pair for pair, fails in zip(pairs, failed, strict=True) if not fails]
        answers = [answer.casefold().strip(" .") for _, answer in answered_pairs]
        asked_words = {word for sub_question, _ in answered_pairs for word in words(sub_question)}
        covered_words = asked_words | {word for answer in answers for word in words(answer)}
        last_sub_question, last_answer = (
            (pairs[-1][0].casefold(), pairs[-1][1].casefold().strip(" .")) if pairs else ("", "")
        )
        last_failed = bool(failed) and failed[-1]
        hops = 1.0 + len(_HOP.findall(question))
        number = float(any(map(str.isdigit, last_answer)))
        kinds = _kinds(question)
        return cls(
            steps=float(len(pairs)),
            failures=float(sum(failed)),
            last_failed=float(last_failed),
            answers=float(len(set(answers))),
            covered=sum(weight for word, weight in weights.items() if word in asked_words)
            / (sum(weights.values()) or 1.0),
            uncovered=sum(weight for word, weight in weights.items() if word not in covered_words),
            head=len(set(question_words[:HEAD]).intersection(words(last_sub_question))) / HEAD,
            chained=float(any(answer in last_sub_question for answer in answers[: len(answers) - (not last_failed)])),
            loose=float(
                sum(all(answer not in sub_question.casefold() for sub_question, _ in pairs) for answer in set(answers))
            ),
            length=log(1 + len(question_words)),
            capitals=float(sum(word[0].isupper() for word in question.split()[1:])),
            hops=hops,
            hops_left=hops - len(set(answers)),
            answer_in_question=float(bool(last_answer) and last_answer in question.casefold()),
            new=float(not last_failed and bool(answers) and answers[-1] not in answers[:-1]),
            number=number,
            **kinds,
            dated=number * kinds["asks_when"],
        )


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, each once, in their order."""
    # not a set: its order would differ from process to process
    return list(dict.fromkeys(_WORD.findall(text.casefold())))


def occurs_in(phrase: str, text: str) -> bool:
    """Return whether the words of one text occur in another, in a row; False for a text without words."""
    normalized = " ".join(_WORD.findall(phrase.casefold()))
    return bool(normalized) and f" {normalized} " in f" {' '.join(_WORD.findall(text.casefold()))} "


Part: TypeAlias = Literal["sufficiency", "router", "evaluator", "pairs", "verifier"]
Features: TypeAlias = Callable[[str, str, Mapping[str, float], float], tuple[float, ...]]
FEATURES: Mapping[Part, tuple[Features, ...]] = {
    "sufficiency": (ChainFeatures.from_texts,),
    "router": (QuestionFeatures.from_texts,),
    "evaluator": (QuestionFeatures.from_texts, PassageFeatures.from_texts),
    "pairs": (QuestionFeatures.from_texts, PassageFeatures.from_texts, PairFeatures.from_texts),
    "verifier": (QuestionFeatures.from_texts, PassageFeatures.from_texts, AnswerFeatures.from_texts),
}
"""By part, what is counted of a question and a text."""


def build_inputs(
    part: Part, rows: Sequence[tuple[str, str]], idf: Mapping[str, float], rare: float, embedder: Embedder | None
) -> Floats:
    """Return one row of numbers for each question and text: the features of a part, and with an embedder q·t and t
    beside them; q if there is no text."""
    features = [[number for compute in FEATURES[part] for number in compute(*row, idf, rare)] for row in rows]
    matrix = np.array(features, np.float64).reshape(len(rows), -1)
    if embedder is None:
        return matrix
    question_vectors = embedder.embed([question for question, _ in rows], kind="query").astype(np.float64)
    if not any(text for _, text in rows):
        return np.hstack([matrix, question_vectors])
    text_vectors = embedder.embed([text for _, text in rows], kind="passage").astype(np.float64)
    return np.hstack([matrix, question_vectors * text_vectors, text_vectors])


def probabilities(logits: Floats) -> Floats:
    """Return the softmax of (0, f) over the last axis: with one number f, 1 − p and p = 1 / (1 + exp(-f))."""
    exponentials = np.concatenate([np.zeros((*logits.shape[:-1], 1)), logits], axis=-1)
    # The highest is subtracted so that exp cannot overflow.
    exponentials = np.exp(exponentials - exponentials.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True), np.float64)


def logits_of(layers: Sequence[tuple[Floats, Floats]], rows: Floats) -> Floats:
    """Return the last layer over tanh of those before it: one number for each label but the first."""
    for weight, bias in layers[:-1]:
        rows = np.tanh(rows @ weight + bias)
    weight, bias = layers[-1]
    return rows @ weight + bias


@dataclass(frozen=True, eq=False)
class TextClassifier:
    """Classifier p = softmax(0, f), f = the last layer over tanh of those before it, over standardised inputs.

    Args:
        part: which features it reads.
        labels: between which it decides, the first one with f = 0.
        embedder: its name; empty for none.
        idf, rare: of the words of the training questions, and of a word that is in none of them.
        mean, scale: of each input in training; the scale is 0 where all were alike.
        layers: weights and biases.
    """

    part: Part
    labels: tuple[str, ...]
    embedder: str
    idf: Mapping[str, float]
    rare: float
    mean: Floats
    scale: Floats
    layers: Sequence[tuple[Floats, Floats]]

    @classmethod
    def from_plain(cls, part: Part, plain: Mapping[str, Any]) -> TextClassifier:
        """Read a classifier from plain data; WeightsError if something is missing or does not fit."""

        def numbers(value: Any, *shape: int) -> Floats:
            array = np.array(value, np.float64)
            if array.ndim != len(shape) or not np.isfinite(array).all():
                raise ValueError("weights must be finite numbers")
            return array

        try:
            layers = [(numbers(layer["weight"], 0, 0), numbers(layer["bias"], 0)) for layer in plain["layers"]]
            idf = {str(word): float(numbers(value)) for word, value in plain["idf"].items()}
            mean, scale = numbers(plain["mean"], 0), numbers(plain["scale"], 0)
            widths, labels = [len(mean), *(len(bias) for _, bias in layers)], tuple(map(str, plain["labels"]))
            if [weight.shape for weight, _ in layers] != [*pairwise(widths)] or len(scale) != len(mean):
                raise ValueError("its layers do not fit together")
            if not layers or widths[-1] != len(labels) - 1 or not widths[-1]:
                raise ValueError("its last layer has one unit for each label but the first")
            return cls(part, labels, str(plain["embedder"]), idf, float(numbers(plain["rare"])), mean, scale, layers)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise WeightsError(f"These are not weights of a {part} classifier ({error}). Train it again.") from error

    def probabilities(self, rows: Sequence[tuple[str, str]], embedder: Embedder | None = None) -> Floats:
        """Return the probability of each label for each question and text."""
        inputs = build_inputs(self.part, rows, self.idf, self.rare, embedder)
        if inputs.shape[1] != len(self.mean):
            raise WeightsError(
                f"The classifier was trained on {len(self.mean)} numbers a text, and here there are {inputs.shape[1]}: "
                "its embedder gives vectors of another width. Give it the one that it was trained with."
            )
        return probabilities(logits_of(self.layers, (inputs - self.mean) * self.scale))


@dataclass(frozen=True)
class TrainedClassifier(Value):
    """Address of a trained classifier of a question and a text: a `Scorer`, by the probability of its last label.

    Args:
        part: what `spolia train` calls it: `sufficiency` (its text is a chain), `router` (no text), `evaluator` (a
            passage), `pairs` (two passages) or `verifier` (an answer and its passages).
        weights: the folder that `spolia train` wrote.
        embedder: the one that it was trained with; None where it was trained on features alone.

    Raises:
        WiringError: for another part.
        WeightsError: on first use, when the weights are missing, of another part, or for another embedder.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025; Jeong et al.,
    "Adaptive-RAG", NAACL 2024; Yan et al., "Corrective retrieval augmented generation", 2024; Hei et al., "DR-RAG",
    2024; Baek et al., "Knowledge-augmented language model verification", EMNLP 2023. Theirs are language models; this
    one is small.

    >>> TrainedClassifier("evaluator", TrainedWeights("trained/evaluator")).name
    'evaluator@none'
    """

    part: Part
    weights: TrainedWeights
    embedder: Embedder | None = None

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.part not in get_args(Part):
            raise WiringError(f"There is no classifier {self.part!r}. Write one of: {', '.join(get_args(Part))}.")

    @property
    def name(self) -> str:
        return f"{self.part}@{(self.weights.fingerprint() or 'none')[:8]}"

    def fingerprint(self) -> str | None:
        return self.weights.fingerprint()

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """Return for each text the probability of the last label."""
        return tuple(self._probabilities(query, texts)[:, -1].tolist()) if len(texts) else ()

    def by_label(self, query: str, text: str = "") -> dict[str, float]:
        """Return the probability of each label."""
        return dict(zip(self._read().labels, self._probabilities(query, [text])[0].tolist(), strict=True))

    def _probabilities(self, query: str, texts: Sequence[str]) -> Floats:
        classifier = self._read()
        embedder_name = self.embedder.name if self.embedder else ""
        if classifier.embedder != embedder_name:
            raise WeightsError(
                f"{self.weights.place} was trained with the embedder {classifier.embedder or 'none'!r}, not "
                f"{embedder_name or 'none'!r}. Give it that one."
            )
        return classifier.probabilities([(query, text) for text in texts], self.embedder)

    def _read(self) -> TextClassifier:
        return classifier_of(self.part, self.weights.fingerprint() or "", self.weights)


@lru_cache(maxsize=16)
def classifier_of(part: Part, sha256: str, weights: TrainedWeights) -> TextClassifier:
    """Read the weights, once for each state of the file."""
    return TextClassifier.from_plain(part, weights.plain(part))
