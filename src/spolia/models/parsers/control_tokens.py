"""Control tokens, as tuned models write them (Self-RAG): `[Relevant]`, `[Utility:5]`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from spolia.errors import WiringError
from spolia.models.parsers.parser import Parser, spoken

_LONGEST = 200_000
"""Characters that are looked at."""
_OPENS, _CLOSES = r"[\[【<({〔［]", r"[\]】>)}〕］]"


@dataclass(frozen=True)
class ControlTokens(Parser[tuple[str, ...]]):
    """The tokens of a vocabulary that a reply holds, in their order, as the vocabulary writes them.

    A token stands in brackets of any kind; case, blanks, bars, underscores and bold type within them do not matter.
    What stands in brackets and is no token is text. A reply that is nothing but a token without brackets, or a line of
    it, counts too, where there is none in brackets.

    Args:
        tokens: without brackets: `("Retrieval", "No Retrieval", "Utility:5")`.
        at_least: so many have to be there.

    >>> ControlTokens(("Relevant", "Irrelevant", "Utility:5")).parse("[relevant] It was Nokia. <Utility: 5>")
    ('Relevant', 'Utility:5')
    """

    tokens: tuple[str, ...]
    at_least: int = 1

    def __post_init__(self) -> None:
        if not self.tokens or not all(_plain(token) for token in self.tokens):
            raise WiringError(f"ControlTokens has tokens={self.tokens!r:.80}. Write some: ('Relevant', 'Irrelevant').")

    def parse(self, reply: str) -> tuple[str, ...]:
        said = unicodedata.normalize("NFKC", spoken(reply)[:_LONGEST])
        known = _known(self.tokens)
        found = [known[word] for mark in _MARK.finditer(said) if (word := _plain(mark[1])) in known]
        if not found:
            found = [known[word] for line in said.splitlines() if (word := _plain(line)) in known]
        if len(found) < self.at_least:
            raise ValueError(f"it must have one of these in square brackets: {', '.join(self.tokens)}")
        return tuple(found)


_MARK = re.compile(rf"{_OPENS}{{1,2}}([^\[\]【】<>(){{}}〔〕\n]{{1,80}}){_CLOSES}{{1,2}}")


@lru_cache(maxsize=256)
def _known(tokens: tuple[str, ...]) -> Mapping[str, str]:
    return {_plain(token): token for token in tokens}


def _plain(token: str) -> str:
    """A token as letters and digits alone."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", token)).casefold()


def without_tokens(reply: str, tokens: tuple[str, ...]) -> str:
    """What a reply says beside the tokens of a vocabulary.

    >>> without_tokens("[Relevant]It was [1] Nokia.[Utility:5]</s>", ("Relevant", "Utility:5"))
    'It was [1] Nokia.'
    """
    known = _known(tokens)
    said = spoken(reply)
    return _MARK.sub(lambda mark: "" if _plain(mark[1]) in known else mark[0], said).strip()
