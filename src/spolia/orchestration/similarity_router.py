"""Routers by a question's keywords, metadata and meaning, or by a trained classifier."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_origin

from spolia.core.operator import Operator
from spolia.core.run_context import note
from spolia.core.type_compatibility import refuse_numbers
from spolia.deferred import numpy as np
from spolia.errors import WeightsError, WiringError
from spolia.filters import Condition
from spolia.models.protocols import Embedder, embed_checked, refuse_no_embedder
from spolia.models.text_classifier import TrainedClassifier
from spolia.types import ArmScores, Query, lazy_property

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors

# scripts in which no blank ends a word
_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
Arms = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class ByKeywords(Operator[Query, ArmScores]):
    """Score arms by their keywords in the query: score(q, F_j) = |K_j ∩ K_q| / |K_q|; 0 where K_q is empty.

    K_j are the arm's keywords; K_q those of all arms that occur in the query, as whole words in any case, or that its
    filter asks for as values. A keyword of several words occurs if they follow each other.

    Args:
        arms: keywords by arm.

    Raises:
        WiringError: for no arm, or a keyword without a letter or digit.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), metadata routing (with its equation's indices mended).

    >>> by_words = ByKeywords((("law", ("court", "statute")), ("medicine", ("dose", "Paracetamol"))))
    >>> by_words(Query("Which dose of paracetamol does the court name?")).by_arm
    {'law': 0.3333333333333333, 'medicine': 0.6666666666666666}
    """

    arms: Arms

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_arm(self.arms, self.short)
        if odd := [word for _, words in self.arms for word in words if not _words(word)]:
            raise WiringError(f"{self.short}: the keyword {odd[0]!r} has no letter. Write words.")

    def gives(self, input_type: Any, /) -> Any:
        super().gives(input_type)
        return scores_of(arm for arm, words in self.arms if words)

    def apply(self, value: Query, /) -> ArmScores:
        leaves = value.filter.leaves() if isinstance(value.filter, Condition) else ()
        filter_values = (str(operand) for leaf in leaves for operand in leaf.operands())
        sources = [" ".join(_words(text)) for text in (value.text, *filter_values)]
        matched = {word for _, words in self.arms for word in map(_plain, words) if _occurs(word, sources)}
        return ArmScores(tuple((arm, _share(set(map(_plain, words)) & matched, matched)) for arm, words in self.arms))


def scores_of(arms: Iterable[str]) -> Any:
    """Return the type of scores from 0 to 1 of some arms, by which `check` knows what a router may name."""
    return Annotated[ArmScores, tuple(arms)]


def arms_of(kind: Any) -> tuple[str, ...] | None:
    """Return the arms that a type of scores names; None if they are unknown."""
    return kind.__metadata__[0] if get_origin(kind) is Annotated else None


def refuse_no_arm(arms: Iterable[tuple[str, object]], caller: str) -> None:
    """Refuse an empty list of arms, and two arms of one name."""
    names = [name for name, _ in arms]
    if not names or len(set(names)) < len(names):
        raise WiringError(f"{caller} has the arms {', '.join(names) or 'none'}. Write each arm once, at least one.")


def _share(part: set[str], whole: set[str]) -> float:
    return len(part) / len(whole) if whole else 0.0


def _occurs(keyword: str, sources: Iterable[str]) -> bool:
    """Return whether a keyword occurs in one of the texts: as whole words; anywhere in scripts without blanks."""
    if _UNSPACED.search(keyword):
        return any(keyword in source for source in sources)
    return any(f" {keyword} " in f" {source} " for source in sources)


def _plain(keyword: str) -> str:
    return " ".join(_words(keyword))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


@dataclass(frozen=True)
class ByMeaning(Operator[Query, ArmScores]):
    """Score arms by the similarity of the query to their descriptions: P(F_j|q) = softmax_j(s_j / τ).

    s_j is the highest cosine of the query with the arm's descriptions: sentences about it, or questions that belong to
    it. Where no arm has at least `threshold`, all scores are 0: the question is about something else. The order
    of arms and of descriptions does not matter.

    Args:
        embedder: of queries, and of descriptions as passages.
        arms: descriptions by arm.
        temperature: τ; a low one makes the scores of the best arm near 1.
        threshold: cosine, at least; -1 for none.

    Raises:
        WiringError: for no arm, one without a description, a temperature that is not above 0.
        ModelError: the embedder does not give vectors.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), semantic routing (a softmax of similarities, where the
    paper has one of probabilities).

    >>> from spolia.testing import HashingEmbedder
    >>> arms = (("tides", ("Why does the sea rise and fall?",)), ("salt", ("Where is salt dug?",)))
    >>> scores = ByMeaning(HashingEmbedder(), arms)(Query("Why does the sea fall?")).by_arm
    >>> scores["tides"] > 0.9 > 0.1 > scores["salt"]
    True
    """

    embedder: Embedder
    arms: Arms
    temperature: float = 0.1
    threshold: float = 0.2

    version: ClassVar[int] = 2  # 2: vectors that are none raise an error
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "ByMeaning", Embedder)
        refuse_no_arm(self.arms, self.short)
        if empty := [arm for arm, texts in self.arms if not any(text.strip() for text in texts)]:
            raise WiringError(f"{self.short}: the arm {empty[0]!r} has no description. Write a sentence about it.")
        refuse_numbers(self, "a number above 0", "temperature")

    def reads(self, value: Query, /) -> object:
        return value.text, value.vector

    def gives(self, input_type: Any, /) -> Any:
        super().gives(input_type)
        return scores_of(arm for arm, _ in self.arms)

    def apply(self, value: Query, /) -> ArmScores:
        similarities = self._cosines(value)
        best = max(similarities.values())
        if best < self.threshold:
            note(f"No arm is similar enough: {best:.2f} at most, below {self.threshold}.")
            return ArmScores.from_scores(dict.fromkeys(similarities, 0.0))
        # The best is subtracted so that exp cannot overflow at a low temperature.
        weights = {arm: math.exp((score - best) / self.temperature) for arm, score in similarities.items()}
        return ArmScores.from_scores({arm: weight / math.fsum(weights.values()) for arm, weight in weights.items()})

    def _cosines(self, query: Query) -> dict[str, float]:
        vector = query.vector if query.vector is not None else embed_checked(self.embedder, (query.text,), "query")[0]
        query_vector = np.asarray(vector, dtype=float)
        length = float(np.linalg.norm(query_vector)) or 1.0  # a vector of zeros has no direction: its cosines are 0
        cosines = {}
        for arm, vectors in self._description_vectors.items():
            cosines[arm] = max(math.fsum(row * query_vector) / length for row in vectors.astype(float))
        return cosines

    @lazy_property
    def _description_vectors(self) -> dict[str, "Vectors"]:
        """Return the vectors of the descriptions, embedded once."""
        return {arm: embed_checked(self.embedder, texts, "passage") for arm, texts in self.arms}


@dataclass(frozen=True)
class ByClassifier(Operator[Query, ArmScores]):
    """Score arms by a classifier of questions that `spolia train router` wrote: P(F_j|q).

    Args:
        classifier: its weights.
        arms: the names that it was trained with.

    Raises:
        WiringError: for no arm.
        WeightsError: when it runs: the weights are missing, or of other arms.

    Source: Jeong et al., "Adaptive-RAG: learning to adapt retrieval-augmented large language models through question
    complexity", NAACL 2024, of whose classifier this is a small one.

    >>> from spolia.models import TrainedWeights
    >>> router = ByClassifier(TrainedClassifier("router", TrainedWeights("my-router")), ("none", "one", "several"))
    >>> router.classifier.name
    'router@none'
    """

    classifier: TrainedClassifier
    arms: tuple[str, ...]

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_arm([(arm, None) for arm in self.arms], self.short)

    def reads(self, value: Query, /) -> object:
        return value.text

    def gives(self, input_type: Any, /) -> Any:
        super().gives(input_type)
        return scores_of(self.arms)

    def apply(self, value: Query, /) -> ArmScores:
        probabilities = self.classifier.by_label(value.text)
        if {*probabilities} != {*self.arms}:
            raise WeightsError(
                f"{self.classifier.name} was trained with the arms {', '.join(probabilities)}, and here they are "
                f"{', '.join(self.arms)}. Write those, or train it again."
            )
        return ArmScores.from_scores({arm: probabilities[arm] for arm in self.arms})
