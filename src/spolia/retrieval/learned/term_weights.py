"""Learned weights for the words of a question, before a search by words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import TYPE_CHECKING, Any

from spolia.core.operator import Operator
from spolia.core.run_context import access, record_access
from spolia.errors import WeightsError
from spolia.models.trained_weights import TrainedWeights
from spolia.retrieval.term_counts import counts_of
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.types import Query

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

PART = "rewriter"
FEATURES = (
    "rarity",  # idf of its rarest term, as a share of the highest possible
    "rarity_squared",
    "near_rarity",  # the mean rarity of the words beside it
    "capital",  # begins with a capital, and is not the first word
    "digit",  # has one
    "place",  # from 0 for the first word to 1 for the last
    "length",  # in characters, up to 12 as 1
)
STEPS_OF_WEIGHT = 4
"""A word of weight 1 is written four times: BM25 counts how often the query has a term."""
LARGEST = 4.0
"""No word weighs more, and none less than its inverse, which is rounded to one time."""
MOST_WORDS = 64
"""A longer question has a document pasted into it: it is searched as it is."""


@dataclass(frozen=True)
class WeightedTerms(Operator[Query, Query]):
    """The query with each word as often as it counts: BM25 adds up a term's score for each time. Put it before `BM25`.

        times(t) = round(4 · exp(θ · (x(t) - mean of x)))

    x(t) are the features of a word: how rare it and its neighbours are in the group, whether it has a capital or a
    digit, its place and its length. The group's terms are counted once for each generation, and kept in memory. The
    reader still answers the original question. The query goes on as it is where all words count the same, where there
    are more than 64, and in a script without blanks.

    Args:
        group: the nodes that are searched next; rarity is counted over those that the asker may read.
        weights: the θ that `spolia train rewriter` wrote.

    Raises:
        WeightsError: on first use, when the weights are missing, damaged, or of another part.

    Source: Ma et al., "Query rewriting in retrieval-augmented large language models", EMNLP 2023, whose rewriter is a
    T5 trained by the reader's score; here the rewriting is a weight for each word.

    >>> from spolia import Corpus
    >>> WeightedTerms(Corpus("notes.spolia").group(), TrainedWeights("my-rewriter")).takes() is Query
    True
    """

    group: NodeGroup
    weights: TrainedWeights

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_group(self.group, type(self).__name__)

    def apply(self, value: Query, /) -> Query:
        record_access(self.weights)
        theta = read_weights(self.weights)
        words, features = term_features(value.text, self.group.snapshot(), self.group.name, access())
        text = repeat_words(words, [sum(a * b for a, b in zip(theta, row, strict=True)) for row in features])
        return value.rewritten(text) if text else value


def read_weights(weights: TrainedWeights) -> list[float]:
    """Return θ, in the order of `FEATURES`."""
    weights_by_name: Any = weights.plain(PART).get("weights")
    if not isinstance(weights_by_name, dict) or set(weights_by_name) != set(FEATURES):
        raise WeightsError(f"{weights.place} has not the {len(FEATURES)} weights of a rewriter. Train it again.")
    theta = [weights_by_name[name] for name in FEATURES]
    if not all(isinstance(number, int | float) and isfinite(number) for number in theta):
        raise WeightsError(f"{weights.place} has a weight that is not a finite number. Train it again.")
    return theta


def term_features(
    text: str, snapshot: Snapshot, group: str, principals: frozenset[str]
) -> tuple[list[str], list[tuple[float, ...]]]:
    """Return the words of a question that the index has terms for, and the features of each, less their means."""
    analyzer, counts = snapshot.manifest(group).analyzer, counts_of(snapshot, group, principals)
    words = [word for word in text.split() if analyzer.terms(word)]
    if not 1 < len(words) <= MOST_WORDS:
        return words, [(0.0,) * len(FEATURES)] * len(words)
    top = log(1 + (counts.count + 0.5) / 0.5)
    rare = [
        max(log(1 + (counts.count - n + 0.5) / (n + 0.5)) for n in (len(counts.find_term(t)[0]) for t in terms)) / top
        for terms in map(analyzer.terms, words)
    ]
    rows = []
    for place, word in enumerate(words):
        neighbours = [rare[neighbour] for neighbour in (place - 1, place + 1) if 0 <= neighbour < len(words)]
        bare = word.lstrip("\"'“‘«(")
        rows.append(
            (
                rare[place],
                rare[place] ** 2,
                sum(neighbours) / len(neighbours),
                float(place > 0 and bare[:1].isupper()),
                float(any(sign.isdigit() for sign in word)),
                place / (len(words) - 1),
                min(len(word), 12) / 12,
            )
        )
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return words, [tuple(a - b for a, b in zip(row, means, strict=True)) for row in rows]


def repeat_words(words: Sequence[str], logs: Sequence[float]) -> str:
    """Repeat each word as often as the logarithm of its weight says; return nothing where all count the same.

    >>> repeat_words(["the", "old", "mill"], [-0.7, 0.0, 0.5])
    'the the old old old old mill mill mill mill mill mill mill'
    >>> repeat_words(["the", "mill"], [0.1, 0.1])
    ''
    """
    bound = log(LARGEST)
    # Bounded on both sides: no word drowns the others, and none is lost.
    times = [round(STEPS_OF_WEIGHT * exp(min(bound, max(-bound, weight)))) for weight in logs]
    if len(set(times)) < 2:
        return ""
    return " ".join(word for word, count in zip(words, times, strict=True) for _ in range(count))
