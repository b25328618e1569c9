"""Questions that ask the same in almost the same words."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.evaluation.creation.draft import QuestionDraft
from spolia.indexing.transforms.rule_entities import RuleEntities
from spolia.stores.definition import Part
from spolia.types import Document, Node

_WIDTH = 3
_ENTITIES = RuleEntities()


@dataclass(frozen=True)
class DropNearDuplicates(Operator[Sequence[QuestionDraft], tuple[QuestionDraft, ...]]):
    """Drop each question that says almost the same as an earlier one that is kept.

    Similarity is Jaccard's index J(A, B) = |A ∩ B| / |A ∪ B| of the sets of three characters in a row, after NFKC,
    without case, punctuation and blanks. It is computed exactly, not estimated. Questions with other names (by the
    rules of `RuleEntities`), other numbers or another answer ask different things, however alike they are; the very
    same question (J = 1) is always dropped, since its answer would be ambiguous.

    Args:
        at_least: J from which on two questions are the same, above 0, up to 1.

    Source: Broder, "On the resemblance and containment of documents", 1997.

    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> asked = ("Who ruled Paris in 508?", "So who ruled Paris in 508?", "Who ruled Paris in 510?")
    >>> drafts = [QuestionDraft("factoid", (), question=question) for question in asked]
    >>> [draft.reason for draft in DropNearDuplicates()(drafts)]
    ['', 'almost the same as: Who ruled Paris in 508?', '']
    """

    at_least: float = 0.85

    def __post_init__(self) -> None:
        if not 0 < self.at_least <= 1:
            raise WiringError(f"at_least is {self.at_least}. Write a similarity above 0, up to 1.")

    def apply(self, value: Sequence[QuestionDraft], /) -> tuple[QuestionDraft, ...]:
        results: list[QuestionDraft] = []
        sizes: dict[int, int] = {}
        places_of: defaultdict[str, list[int]] = defaultdict(list)
        for index, draft in enumerate(value):
            if not draft.is_kept:
                results.append(draft)
                continue
            pieces = shingles(draft.question)
            # Only questions that share a piece can be similar, and the counts give Jaccard's index
            # exactly.
            shared = Counter(earlier for piece in pieces for earlier in places_of[piece])
            similarity = {earlier: n / (len(pieces) + sizes[earlier] - n) for earlier, n in shared.items()}
            duplicates = [
                earlier
                for earlier, j in similarity.items()
                if j == 1 or (j >= self.at_least and _asks_the_same(draft, value[earlier]))
            ]
            if duplicates:
                reason = f"almost the same as: {value[min(duplicates)].question[:80]}"
                results.append(draft.but(dropped_by=type(self).__name__, reason=reason))
                continue
            sizes[index] = len(pieces)
            for piece in pieces:
                places_of[piece].append(index)
            # Questions that an earlier batch let pass are compared again with each batch.
            passed = () if type(self).__name__ in draft.passed else (type(self).__name__,)
            results.append(draft.but(passed=(*draft.passed, *passed)))
        return tuple(results)


def _asks_the_same(first: QuestionDraft, second: QuestionDraft) -> bool:
    """Return whether names, numbers and answers do not tell two questions apart."""
    names = [{dict(piece.meta)["entity"] for piece in _ENTITIES(_part(draft.question))} for draft in (first, second)]
    numbers = [sorted(re.findall(r"\d+", draft.question)) for draft in (first, second)]
    answers = [{plain(answer) for answer in draft.answers} for draft in (first, second)]
    is_of_same = names[0] == names[1] and numbers[0] == numbers[1]
    return is_of_same and (not all(answers) or bool(answers[0] & answers[1]))


def _part(text: str) -> Part:
    return Part(Node("", text), Document("", text))


def plain(text: str) -> str:
    """Return a text without case, punctuation and blanks."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[str]:
    """Return the sets of characters that follow each other in a text; the text itself if it is shorter.

    >>> sorted(shingles("A b-C d")), sorted(shingles("Éa"))
    (['abc', 'bcd'], ['éa'])
    """
    letters = plain(text)
    return frozenset(letters[start : start + _WIDTH] for start in range(max(1, len(letters) - _WIDTH + 1)))
