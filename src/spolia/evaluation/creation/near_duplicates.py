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
        found: list[QuestionDraft] = []
        sizes: dict[int, int] = {}
        having: defaultdict[str, list[int]] = defaultdict(list)
        for at, draft in enumerate(value):
            if not draft.is_kept:
                found.append(draft)
                continue
            mine = shingles(draft.question)
            shared = Counter(other for one in mine for other in having[one])
            alike = {other: n / (len(mine) + sizes[other] - n) for other, n in shared.items()}
            same = [
                at for at, j in alike.items() if j == 1 or (j >= self.at_least and _asks_the_same(draft, value[at]))
            ]
            if same:
                reason = f"almost the same as: {value[min(same)].question[:80]}"
                found.append(draft.but(dropped_by=type(self).__name__, reason=reason))
                continue
            sizes[at] = len(mine)
            for one in mine:
                having[one].append(at)
            passed = () if type(self).__name__ in draft.passed else (type(self).__name__,)
            found.append(draft.but(passed=(*draft.passed, *passed)))
        return tuple(found)


def _asks_the_same(one: QuestionDraft, other: QuestionDraft) -> bool:
    """Whether names, numbers and answers of two questions do not tell them apart."""
    named = [{dict(piece.meta)["entity"] for piece in _ENTITIES(_part(draft.question))} for draft in (one, other)]
    numbers = [sorted(re.findall(r"\d+", draft.question)) for draft in (one, other)]
    answers = [{plain(answer) for answer in draft.answers} for draft in (one, other)]
    is_of_same = named[0] == named[1] and numbers[0] == numbers[1]
    return is_of_same and (not all(answers) or bool(answers[0] & answers[1]))


def _part(text: str) -> Part:
    return Part(Node("", text), Document("", text))


def plain(text: str) -> str:
    """A text without case, punctuation and blanks."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())


def shingles(text: str) -> frozenset[str]:
    """The sets of characters that follow each other in a text; the text itself where it is shorter.

    >>> sorted(shingles("A b-C d")), sorted(shingles("Éa"))
    (['abc', 'bcd'], ['éa'])
    """
    said = plain(text)
    return frozenset(said[at : at + _WIDTH] for at in range(max(1, len(said) - _WIDTH + 1)))
