"""A small classifier that says whether a chain of sub-questions suffices: features, or vectors, and few units."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from spolia.errors import WeightsError
from spolia.models.protocols import Embedder
from spolia.models.trained_weights import TrainedWeights
from spolia.types import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

PART, HEAD = "sufficiency", 5
_PAIR = re.compile(r"^Q: (.*)\nA: (.*)$", re.MULTILINE)
_WORD = re.compile(r"\w+")
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
        kinds = [float(pattern.search(question) is not None) for pattern in _ASKED]
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
            **dict(zip(("compares", "yes_no", "when", "who", "where"), kinds, strict=True)),
            dated=number * kinds[2],
        )


def words(text: str) -> list[str]:
    """The words of a text in lower case, each once, in their order."""
    return list(dict.fromkeys(_WORD.findall(text.casefold())))


def inputs(rows: Sequence[tuple[str, str]], idf: Mapping[str, float], rare: float, embedder: Embedder | None) -> Floats:
    """One row of numbers for each question and chain: its features, and with an embedder q·c and c beside them."""
    import numpy as np

    found = np.array([ChainFeatures.of(*row, idf, rare) for row in rows], np.float64).reshape(len(rows), -1)
    if embedder is None:
        return found
    asked = embedder.embed([question for question, _ in rows], kind="query").astype(np.float64)
    chains = embedder.embed([written for _, written in rows], kind="passage").astype(np.float64)
    return np.hstack([found, asked * chains, chains])


def probabilities(layers: Sequence[tuple[Floats, Floats]], rows: Floats) -> Floats:
    """1 / (1 + exp(-f)), f = the last layer over tanh of those before it."""
    import numpy as np

    for weight, bias in layers[:-1]:
        rows = np.tanh(rows @ weight + bias)
    weight, bias = layers[-1]
    return np.asarray(1 / (1 + np.exp(-np.clip((rows @ weight + bias)[:, 0], -500, 500))), np.float64)


@dataclass(frozen=True, eq=False)
class ChainClassifier:
    """p = 1 / (1 + exp(-f)), f = the last layer over tanh of those before it, over standardised inputs.

    Args:
        embedder: its name; empty for none.
        idf, rare: of the words of the training questions, and of a word that is in none of them.
        mean, scale: of each input in training; the scale is 0 where all were alike.
        layers: weights and biases.
    """

    embedder: str
    idf: Mapping[str, float]
    rare: float
    mean: Floats
    scale: Floats
    layers: Sequence[tuple[Floats, Floats]]

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> ChainClassifier:
        """From plain data; WeightsError where something is missing or does not fit."""
        import numpy as np

        def numbers(value: Any, *shape: int) -> Floats:
            found = np.array(value, np.float64)
            if found.ndim != len(shape) or not np.isfinite(found).all():
                raise ValueError("weights must be finite numbers")
            return found

        try:
            layers = [(numbers(one["weight"], 0, 0), numbers(one["bias"], 0)) for one in plain["layers"]]
            idf = {str(word): float(numbers(value)) for word, value in plain["idf"].items()}
            mean, scale = numbers(plain["mean"], 0), numbers(plain["scale"], 0)
            widths = [len(mean), *(len(bias) for _, bias in layers)]
            if [weight.shape for weight, _ in layers] != [*pairwise(widths)] or len(scale) != len(mean):
                raise ValueError("its layers do not fit together")
            if not layers or widths[-1] != 1:
                raise ValueError("its last layer has one unit")
            return cls(str(plain["embedder"]), idf, float(numbers(plain["rare"])), mean, scale, layers)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise WeightsError(f"These are not weights of a {PART} classifier ({error}). Train it again.") from error

    def scores(self, rows: Sequence[tuple[str, str]], embedder: Embedder | None = None) -> Floats:
        """The probability of each question and chain."""
        found = inputs(rows, self.idf, self.rare, embedder)
        if found.shape[1] != len(self.mean):
            raise WeightsError(
                f"The classifier was trained on {len(self.mean)} numbers a chain, and here there are {found.shape[1]}: "
                "its embedder gives vectors of another width. Give it the one that it was trained with."
            )
        return probabilities(self.layers, (found - self.mean) * self.scale)


@dataclass(frozen=True)
class ChainScorer(Value):
    """The address of a trained classifier of chains (a `Scorer`): the probability that question and chain suffice.

    Args:
        weights: those that `train` with a `SufficiencyTrainer` wrote.
        embedder: the one that it was trained with; None where it was trained on features alone.

    Raises:
        WeightsError: on first use, when the weights are missing, or are for another embedder.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025, of which this is a small
    one in place of a language model.

    >>> ChainScorer(TrainedWeights("trained/sufficiency")).waits
    False
    """

    weights: TrainedWeights
    embedder: Embedder | None = None

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return f"sufficiency@{(self.weights.fingerprint() or 'none')[:8]}"

    def fingerprint(self) -> str | None:
        return self.weights.fingerprint()

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """One probability for each chain, as `Chain.written` gives it."""
        if not len(texts):
            return ()
        weights = classifier_of(self.weights.fingerprint() or "", self.weights)
        named = self.embedder.name if self.embedder else ""
        if weights.embedder != named:
            raise WeightsError(
                f"{self.weights.place} was trained with the embedder {weights.embedder or 'none'!r}, not "
                f"{named or 'none'!r}. Give it that one."
            )
        return tuple(weights.scores([(query, text) for text in texts], self.embedder).tolist())


@lru_cache(maxsize=16)
def classifier_of(sha256: str, weights: TrainedWeights) -> ChainClassifier:
    """The weights, read once for each state of the file."""
    return ChainClassifier.of(weights.plain(PART))
