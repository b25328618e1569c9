"""Which arm a question belongs to, by its words and its metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.filters import Condition
from spolia.operator import Operator
from spolia.types import ArmScores, Query

_UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
Arms = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class ByKeywords(Operator[Query, ArmScores]):
    """Score arms by their keywords in the query: score(q, F_j) = |K_j ∩ K_q| / |K_q|; 0 where K_q is empty.

    K_j are the arm's keywords; K_q those of all arms that stand in the query, as whole words in any case, or that its
    filter asks for as values. A keyword of several words stands there where they follow each other.

    Args:
        arms: keywords by arm.

    Raises:
        WiringError: for no arm, or a keyword without a letter or digit.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, metadata
    routing (with its equation's indices mended).

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

    def apply(self, value: Query, /) -> ArmScores:
        sources = [" ".join(_words(text)) for text in (value.text, *_asked_for(value))]
        found = {word for _, words in self.arms for word in map(_plain, words) if _stands(word, sources)}
        return ArmScores(tuple((arm, _share(set(map(_plain, words)) & found, found)) for arm, words in self.arms))


def refuse_no_arm(arms: Iterable[tuple[str, object]], where: str) -> None:
    """Refuse no arm at all, and two of one name."""
    names = [name for name, _ in arms]
    if not names or len(set(names)) < len(names):
        raise WiringError(f"{where} has the arms {', '.join(names) or 'none'}. Write each arm once, at least one.")


def _asked_for(query: Query) -> Iterable[str]:
    """What the filter of a query compares with."""
    leaves = query.filter.leaves() if isinstance(query.filter, Condition) else ()
    return [str(operand) for leaf in leaves for operand in leaf.operands()]


def _share(part: set[str], whole: set[str]) -> float:
    return len(part) / len(whole) if whole else 0.0


def _stands(keyword: str, sources: Iterable[str]) -> bool:
    """Whether a keyword stands in one of the texts: as whole words; anywhere in scripts without blanks."""
    if _UNSPACED.search(keyword):
        return any(keyword in source for source in sources)
    return any(f" {keyword} " in f" {source} " for source in sources)


def _plain(keyword: str) -> str:
    return " ".join(_words(keyword))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
