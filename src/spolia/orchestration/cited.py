"""What several answers cite, with numbers that mean the same in all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spolia.types import Answer, Citation, Ranking

_MARKER = re.compile(r"(\s*)\[(\d{1,4})\]")


def together(answers: Sequence[Answer]) -> tuple[list[str], list[list[Citation]]]:
    """The texts of the answers with marks in one numbering, and the citations of each number, from 1.

    >>> one = Answer("Nokia [1].", (Citation("1", "a", "d", "", "..."),))
    >>> two = Answer("Salo [1], Nokia [2].", (Citation("1", "b", "d", "", "..."), Citation("2", "a", "d", "", "...")))
    >>> together((one, two))[0]
    ['Nokia [1].', 'Salo [2], Nokia [1].']
    """
    numbers: dict[tuple[object, ...], int] = {}
    cited: list[list[Citation]] = []
    texts = []
    for answer in answers:
        named: dict[str, int] = {}
        for marker in dict.fromkeys(citation.marker for citation in answer.citations):
            own = [citation for citation in answer.citations if citation.marker == marker]
            place = tuple((citation.node, citation.uri, citation.span) for citation in own)
            if place not in numbers:
                numbers[place] = len(numbers) + 1
                cited.append([citation.but(marker=str(numbers[place])) for citation in own])
            named[marker] = numbers[place]
        texts.append(_MARKER.sub(lambda mark, named=named: _renamed(mark, named), answer.text))  # type: ignore[misc]
    return texts, cited


def _renamed(mark: re.Match[str], named: dict[str, int]) -> str:
    """The mark with its number in all answers; what names nothing is taken out."""
    return f"{mark[1]}[{named[mark[2]]}]" if mark[2] in named else ""


def evidence_of(answers: Sequence[Answer]) -> Ranking | None:
    """All that any of them was made from, each hit once."""
    rankings = [answer.evidence for answer in answers if answer.evidence is not None]
    if not rankings:
        return None
    hits = {(hit.node.id, hit.node.uri): hit for ranking in reversed(rankings) for hit in reversed(ranking.hits)}
    order = dict.fromkeys((hit.node.id, hit.node.uri) for ranking in rankings for hit in ranking.hits)
    return rankings[0].but(hits=tuple(hits[key] for key in order), source="fused")
