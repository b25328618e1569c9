"""Small classifiers that were trained on this machine: a question and a text, their features or vectors, few units."""

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
_ASKED = tuple(
    re.compile(one, re.IGNORECASE)
    for one in (
        r"\b(?:older|younger|earlier|later|first|before|more|same|both|between|or)\b",
        r"^(?:is|are|was|were|do|does|did|has|have|can)\b",
        r"\b(?:when|year|date|century|how (?:many|much|old|long))\b",
        r"\b(?:who|whom|whose)\b",
        r"\b(?:where|country|city|place|county|state|located)\b",
    )
)


class QuestionFeatures(NamedTuple):
    """What a question looks like.

    Fields:
        length: ln of its words.
        capitals: its words with a capital, without the first.
        hops: how many hops it seems to have: 1, and 1 for each "of", "that", "'s" …
        digits: 1 if it has one.
        rarest: the highest idf of its words.
        compares, yes_no, when, who, where: 1 if it has such a word.
    """

    length: float
    capitals: float
    hops: float
    digits: float
    rarest: float
    compares: float
    yes_no: float
    when: float
    who: float
    where: float

    @classmethod
    def of(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> QuestionFeatures:
        whole = words(question)
        return cls(
            length=log(1 + len(whole)),
            capitals=float(len(_names(question))),
            hops=1.0 + len(_HOP.findall(question)),
            digits=float(any(map(str.isdigit, question))),
            rarest=max((idf.get(word, rare) for word in whole), default=0.0),
            **_kinds(question),
        )


class PassageFeatures(NamedTuple):
    """What a text holds of a question. Shares are of the idf of the question's words.

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
    def of(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> PassageFeatures:
        whole, held, title = words(question), set(words(text)), words(text.partition("\n")[0])
        weights = {word: idf.get(word, rare) for word in whole}
        named = _names(question)
        return cls(
            covered=_share(weights, held),
            titled=_share(weights, set(title)),
            stated=max((_share(weights, set(words(text[start:end]))) for start, end in sentences(text)), default=0.0),
            names=sum(name in held for name in named) / (len(named) or 1),
            title=sum(word in weights for word in title) / (len(title) or 1),
            length=log(1 + len(held)),
        )


class PairFeatures(NamedTuple):
    """What two passages are to each other and to a question.

    Fields:
        least, most: the smaller and the larger share of the question that one of them covers.
        added: what the other adds to that.
        linked: in how many of them the first line of the other occurs.
        shared: ln of how many words with a capital both have, and the question has not.
        alike: share of all words that both have.
    """

    least: float
    most: float
    added: float
    linked: float
    shared: float
    alike: float

    @classmethod
    def of(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> PairFeatures:
        weights = {word: idf.get(word, rare) for word in words(question)}
        one, _, other = text.partition(JOINT)
        held = set(words(one)), set(words(other))
        covered = sorted(_share(weights, some) for some in held)
        links = sum(is_said(a.partition("\n")[0], b) for a, b in ((one, other), (other, one)))
        shared = {*_names(one)}.intersection(_names(other)).difference(weights)
        return cls(
            least=covered[0],
            most=covered[1],
            added=_share(weights, held[0] | held[1]) - covered[1],
            linked=float(links),
            shared=log(1 + len(shared)),
            alike=len(held[0] & held[1]) / (len(held[0] | held[1]) or 1),
        )


class AnswerFeatures(NamedTuple):
    """What an answer is to its question and its passages.

    Fields:
        length: ln of its words.
        said: 1 if it occurs in the passages.
        beside: largest share of the question, by idf, in a sentence in which it occurs.
        named: 1 if it occurs in the question.
        number: 1 if it has a digit.
        dated: 1 if it has a digit, and the question asks when or how many.
        undated: 1 if it has none, and the question does.
    """

    length: float
    said: float
    beside: float
    named: float
    number: float
    dated: float
    undated: float

    @classmethod
    def of(cls, question: str, text: str, idf: Mapping[str, float], rare: float) -> AnswerFeatures:
        answer, _, passages = text.partition(JOINT)
        answer = _MARK.sub("", answer).strip(" .\n")
        weights = {word: idf.get(word, rare) for word in words(question)}
        told = [passages[start:end] for start, end in sentences(passages)]
        number, when = any(map(str.isdigit, answer)), _kinds(question)["when"]
        return cls(
            length=log(1 + len(words(answer))),
            said=float(is_said(answer, passages)),
            beside=max((_share(weights, set(words(one))) for one in told if is_said(answer, one)), default=0.0),
            named=float(is_said(answer, question)),
            number=float(number),
            dated=when * number,
            undated=when * (not number),
        )


def _kinds(question: str) -> dict[str, float]:
    """Which of the words of `_ASKED` a question has."""
    found = (float(pattern.search(question) is not None) for pattern in _ASKED)
    return dict(zip(("compares", "yes_no", "when", "who", "where"), found, strict=True))


def _names(text: str) -> list[str]:
    """The words with a capital, without the first, in lower case."""
    return [word.casefold() for word in _WORD.findall(text)[1:] if word[0].isupper()]


def _share(weights: Mapping[str, float], held: set[str]) -> float:
    return sum(weight for word, weight in weights.items() if word in held) / (sum(weights.values()) or 1.0)


class ChainFeatures(NamedTuple):
    """What speaks for a chain to suffice. A pair counts as found if its answer says something, and its sub-question is
    not the question itself.

    Fields:
        steps: pairs.
        failures: pairs that are not found.
        last_failed: 1 if the last one is such.
        found: different answers of pairs that are found.
        asked: share of the question's rare words that are in sub-questions that are found, by idf.
        open: the idf of the words that are in neither those nor their answers.
        head: share of the question's first five words in the last sub-question.
        chained: 1 if the last sub-question holds an earlier answer.
        loose: answers that no sub-question holds.
        length: ln of the question's words.
        capitals: the question's words with a capital, without the first.
        hops: how many hops the question seems to have: 1, and 1 for each "of", "that", "'s" …
        left: those minus the answers found.
        named: 1 if the question already holds the last answer.
        new: 1 if the last answer is none that an earlier pair had.
        number: 1 if the last answer has a digit.
        compares, yes_no, when, who, where: 1 if the question has such a word.
        dated: 1 if the question has a word of `when`, and the last answer a digit.
    """

    steps: float
    failures: float
    last_failed: float
    found: float
    asked: float
    open: float
    head: float
    chained: float
    loose: float
    length: float
    capitals: float
    hops: float
    left: float
    named: float
    new: float
    number: float
    compares: float
    yes_no: float
    when: float
    who: float
    where: float
    dated: float

    @classmethod
    def of(cls, question: str, written: str, idf: Mapping[str, float], rare: float) -> ChainFeatures:
        """Those of a question and its chain as `Chain.written` gives it; `rare` is the idf of an unknown word."""
        whole, pairs = words(question), _PAIR.findall(written)
        weights = {word: idf.get(word, rare) for word in whole}
        failed = [_NOTHING.search(said) is not None or words(asked) == whole for asked, said in pairs]
        held = [pair for pair, fails in zip(pairs, failed, strict=True) if not fails]
        answers = [said.casefold().strip(" .") for _, said in held]
        known = {word for asked, _ in held for word in words(asked)}
        told = known | {word for one in answers for word in words(one)}
        last_asked, last_said = (pairs[-1][0].casefold(), pairs[-1][1].casefold().strip(" .")) if pairs else ("", "")
        last_failed = bool(failed) and failed[-1]
        hops = 1.0 + len(_HOP.findall(question))
        number = float(any(map(str.isdigit, last_said)))
        kinds = _kinds(question)
        return cls(
            steps=float(len(pairs)),
            failures=float(sum(failed)),
            last_failed=float(last_failed),
            found=float(len(set(answers))),
            asked=sum(weight for word, weight in weights.items() if word in known) / (sum(weights.values()) or 1.0),
            open=sum(weight for word, weight in weights.items() if word not in told),
            head=len(set(whole[:HEAD]).intersection(words(last_asked))) / HEAD,
            chained=float(any(one in last_asked for one in answers[: len(answers) - (not last_failed)])),
            loose=float(sum(all(one not in asked.casefold() for asked, _ in pairs) for one in set(answers))),
            length=log(1 + len(whole)),
            capitals=float(sum(word[0].isupper() for word in question.split()[1:])),
            hops=hops,
            left=hops - len(set(answers)),
            named=float(bool(last_said) and last_said in question.casefold()),
            new=float(not last_failed and bool(answers) and answers[-1] not in answers[:-1]),
            number=number,
            **kinds,
            dated=number * kinds["when"],
        )


def words(text: str) -> list[str]:
    """The words of a text in lower case, each once, in their order."""
    return list(dict.fromkeys(_WORD.findall(text.casefold())))


def is_said(words_of: str, text: str) -> bool:
    """Whether the words of one text occur in another, in a row; words of nothing do not."""
    wanted = " ".join(_WORD.findall(words_of.casefold()))
    return bool(wanted) and f" {wanted} " in f" {' '.join(_WORD.findall(text.casefold()))} "


Part: TypeAlias = Literal["sufficiency", "router", "evaluator", "pairs", "verifier"]
Features: TypeAlias = Callable[[str, str, Mapping[str, float], float], tuple[float, ...]]
FEATURES: Mapping[Part, tuple[Features, ...]] = {
    "sufficiency": (ChainFeatures.of,),
    "router": (QuestionFeatures.of,),
    "evaluator": (QuestionFeatures.of, PassageFeatures.of),
    "pairs": (QuestionFeatures.of, PassageFeatures.of, PairFeatures.of),
    "verifier": (QuestionFeatures.of, PassageFeatures.of, AnswerFeatures.of),
}
"""By part, what is counted of a question and a text."""


def inputs(
    part: Part, rows: Sequence[tuple[str, str]], idf: Mapping[str, float], rare: float, embedder: Embedder | None
) -> Floats:
    """One row of numbers for each question and text: the features of a part, and with an embedder q·t and t beside
    them; q where there is no text.
    """
    counted = [[number for of in FEATURES[part] for number in of(*row, idf, rare)] for row in rows]
    found = np.array(counted, np.float64).reshape(len(rows), -1)
    if embedder is None:
        return found
    asked = embedder.embed([question for question, _ in rows], kind="query").astype(np.float64)
    if not any(text for _, text in rows):
        return np.hstack([found, asked])
    texts = embedder.embed([text for _, text in rows], kind="passage").astype(np.float64)
    return np.hstack([found, asked * texts, texts])


def probabilities(logits: Floats) -> Floats:
    """The softmax of (0, f) over the last axis: with one number f, 1 − p and p = 1 / (1 + exp(-f))."""
    raised = np.concatenate([np.zeros((*logits.shape[:-1], 1)), logits], axis=-1)
    raised = np.exp(raised - raised.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True), np.float64)


def logits_of(layers: Sequence[tuple[Floats, Floats]], rows: Floats) -> Floats:
    """The last layer over tanh of those before it: one number for each label but the first."""
    for weight, bias in layers[:-1]:
        rows = np.tanh(rows @ weight + bias)
    weight, bias = layers[-1]
    return rows @ weight + bias


@dataclass(frozen=True, eq=False)
class TextClassifier:
    """p = softmax(0, f), f = the last layer over tanh of those before it, over standardised inputs.

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
    def of(cls, part: Part, plain: Mapping[str, Any]) -> TextClassifier:
        """From plain data; WeightsError where something is missing or does not fit."""

        def numbers(value: Any, *shape: int) -> Floats:
            found = np.array(value, np.float64)
            if found.ndim != len(shape) or not np.isfinite(found).all():
                raise ValueError("weights must be finite numbers")
            return found

        try:
            layers = [(numbers(one["weight"], 0, 0), numbers(one["bias"], 0)) for one in plain["layers"]]
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
        """Of each question and text, the probability of each label."""
        found = inputs(self.part, rows, self.idf, self.rare, embedder)
        if found.shape[1] != len(self.mean):
            raise WeightsError(
                f"The classifier was trained on {len(self.mean)} numbers a text, and here there are {found.shape[1]}: "
                "its embedder gives vectors of another width. Give it the one that it was trained with."
            )
        return probabilities(logits_of(self.layers, (found - self.mean) * self.scale))


@dataclass(frozen=True)
class TrainedClassifier(Value):
    """The address of a trained classifier of a question and a text: a `Scorer`, by the probability of its last label.

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
        """For each text the probability of the last label."""
        return tuple(self._probabilities(query, texts)[:, -1].tolist()) if len(texts) else ()

    def by_label(self, query: str, text: str = "") -> dict[str, float]:
        """The probability of each label."""
        return dict(zip(self._read().labels, self._probabilities(query, [text])[0].tolist(), strict=True))

    def _probabilities(self, query: str, texts: Sequence[str]) -> Floats:
        weights = self._read()
        named = self.embedder.name if self.embedder else ""
        if weights.embedder != named:
            raise WeightsError(
                f"{self.weights.place} was trained with the embedder {weights.embedder or 'none'!r}, not "
                f"{named or 'none'!r}. Give it that one."
            )
        return weights.probabilities([(query, text) for text in texts], self.embedder)

    def _read(self) -> TextClassifier:
        return classifier_of(self.part, self.weights.fingerprint() or "", self.weights)


@lru_cache(maxsize=16)
def classifier_of(part: Part, sha256: str, weights: TrainedWeights) -> TextClassifier:
    """The weights, read once for each state of the file."""
    return TextClassifier.of(part, weights.plain(part))
