"""Entities by rules: names, acronyms, quoted titles, years and numbers, without any model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from spolia.errors import WiringError
from spolia.indexing.transforms.capitals import capital_runs, capitalises_nouns
from spolia.indexing.transforms.entities import Mention, entities
from spolia.misfits import refuse_misfits
from spolia.operator import Operator
from spolia.stores.definition import Part, Pieces

Kind: TypeAlias = Literal["name", "acronym", "quote", "year", "number"]
ALL: tuple[Kind, ...] = ("name", "acronym", "quote", "year", "number")
AROUND = 60
"""Characters before and after a word by which it is judged whether all is in capitals."""
QUOTED_WORDS = 8
"""Words between quotation marks at most: longer ones are speech."""

_ACRONYM = re.compile(r"(?<![\w.])(?:(?:[^\W\d_]\.){2,}|[^\W\d_][^\W_]{1,9}(?:-\d{1,4})?)(?![\w-])")
_QUOTE = re.compile(
    r"“([^“”\n]{2,80})”|„([^„“”\n]{2,80})[“”]|«\s?([^«»\n]{2,80}?)\s?»|「([^「」\n]{2,40})」|『([^『』\n]{2,40})』"
    r"|《([^《》\n]{2,40})》|(?<!\w)\"([^\"\n]{2,80})\"(?!\w)"
)
_YEAR = re.compile(r"(?:(?<![\w.,/:+$€£¥-])|(?<=\b\d{4}-))(?:1\d{3}|20\d{2})(?![\w%:/]|[.,]\d|-(?!\d{4}\b)\w)")
_NUMBER = re.compile(
    r"(?<![\w.,/:\[-])(?:[$€£¥]\s?\d[\d.,]*\d|[$€£¥]\s?\d|\d[\d.,]*\d\s?[%€£°]|\d\s?[%€£]|\d+[.,]\d[\d.,]*(?<=\d)|\d{3,})(?![\w\]]|-\d\d?\b)"
)


@dataclass(frozen=True)
class RuleEntities(Operator[Part, Pieces]):
    """One node for each distinct entity of a text, as it is first written; the metadata have `entity` and `type`.

    `entity` is the name in normal form (NFKC, without case, blanks collapsed). The rules, each a type:

    - `name`: a run of capitalised words, with what joins them (`Duke of York`, `Apollo 11`, `J. Smith`). A word that
      begins a sentence belongs to a name when others follow it and it is not written small elsewhere in the text;
      alone, when it stands inside a sentence too. In a text that capitalises all its nouns, as German does, a name has
      two such words, one after the other. Scripts without case have no names by this rule.
    - `acronym`: at most ten letters and digits with two capitals at least and nothing small (`NATO`, `U.S.`,
      `COVID-19`), unless all around it is in capitals.
    - `quote`: up to eight words between quotation marks that are no sentence: titles, in every script.
    - `year`: 1000 to 2099. `number`: other numbers with three digits, decimals, per cent or a currency.

    The same text gives the same entities, always, but for one thing: whether nouns are capitalised is judged by the
    beginning of the whole document.

    Args:
        kinds: which of the rules.

    >>> from spolia.types import Document, Node
    >>> text = "In 1969 the crew of Apollo 11 took the NASA film “First Steps” to Neil Armstrong."
    >>> found = RuleEntities()(Part(Node("d", text), Document("d", text)))
    >>> [(piece.text, piece.meta[1][1]) for piece in found]  # doctest: +NORMALIZE_WHITESPACE
    [('1969', 'year'), ('Apollo 11', 'name'), ('NASA', 'acronym'), ('First Steps', 'quote'),
     ('Neil Armstrong', 'name')]
    """

    kinds: tuple[Kind, ...] = ALL

    def __post_init__(self) -> None:
        if isinstance(self.kinds, str):
            refuse_misfits(self)
        if unknown := [kind for kind in self.kinds if kind not in ALL]:
            raise WiringError(f"There is no rule {unknown[0]!r}. Write some of: {', '.join(ALL)}.")

    def apply(self, value: Part, /) -> Pieces:
        return tuple(piece for piece in entities(_mentions(value)) if dict(piece.meta)["type"] in self.kinds)


def _mentions(part: Part) -> Iterator[Mention]:
    """What the rules find; the first at a place says of which kind it is."""
    text = part.node.text
    for found in _QUOTE.finditer(text):
        if _is_title(quoted := found[found.lastindex or 0]):
            yield Mention(found.start(found.lastindex or 0), quoted, "quote")
    for found in _ACRONYM.finditer(text):
        if _is_acronym(found[0]) and not _shouted(text, found.start()):
            yield Mention(found.start(), found[0], "acronym")
    for found in _YEAR.finditer(text):
        yield Mention(found.start(), found[0], "year")
    for found in _NUMBER.finditer(text):
        yield Mention(found.start(), found[0], "number")
    for start, end in capital_runs(text, nouns=capitalises_nouns(part.document.text)):
        yield Mention(start, text[start:end], "acronym" if _is_acronym(text[start:end]) else "name")


def _is_acronym(text: str) -> bool:
    letters = [letter for letter in text.removesuffix("s") if letter.isalpha()]
    compact = len(text) <= 10 or "." in text
    return compact and " " not in text and len(letters) > 1 and all(map(str.isupper, letters))


def _shouted(text: str, at: int) -> bool:
    """Whether most of what stands around a place in its line is written in capitals."""
    line = text[max(0, at - AROUND) : at].rpartition("\n")[2] + text[at : at + AROUND].partition("\n")[0]
    words = [word for word in line.split() if len(word) > 1]
    shouted = sum(map(str.isupper, words))
    return shouted > 3 and 2 * shouted > len(words)


def _is_title(quoted: str) -> bool:
    """Whether what stands between quotation marks is a title, not speech or a word that is doubted."""
    if quoted != quoted.strip() or quoted[-1] in ".,;!?…。" or len(quoted.split()) > QUOTED_WORDS:
        return False
    return not quoted[0].islower() and any(map(str.isalnum, quoted))
