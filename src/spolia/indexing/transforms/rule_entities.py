"""Names by their capitals: runs of capitalised words, in the scripts that have two cases.

What begins a sentence is capitalised anyway: such a word belongs to a name only where the text shows that it is one.
Where all nouns are capitalised, as in German, only runs of two and more words are taken for names.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeAlias

from spolia.core.operator import Operator
from spolia.core.sentences import sentences
from spolia.core.validation import validate
from spolia.errors import WiringError
from spolia.stores.definition import Part, Piece, Pieces

LONGEST = 8
"""Words of a name at most: longer runs are titles and shouting."""
GERMAN = 0.1
"""Share of the words that are little words of German, from which on a text is taken for German."""
LOOKED_AT = 20_000
"""Characters of a document by which its language is judged."""

_WORD = re.compile(r"\w+(?:['’\-]\w+)*")
_TAIL = re.compile(r"['’]s?\Z|-[^\W\d_](?=[^\W\d_]*\Z)")  # 's, -based
_GAP = re.compile(r"[ \u00a0\t]{1,2}|[ \t]?\n[ \t]{0,3}|-|&|[ \u00a0]&[ \u00a0]")
_INITIAL_GAP = re.compile(r"\.[ \u00a0]?|[ \u00a0]")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LINKS = _set("of for de del della di da do dos das des du van von zu ter bin ibn al el")
_AFTER_LINKS = _set("the der den la las le los")
_GERMAN = _set(
    "der die das den dem des ein eine einer eines einem einen und oder ist sind war waren wird werden wurde wurden "
    "nicht mit auf für von zu im zum zur bei nach aus durch über sich auch als wie dass"
)
_COMMON = _set(  # capitalised only because of where they stand, in the languages that are met most
    "a an the this that these those he she it they we you i his her its their our my your in on at by for from to of "
    "with as and or but if when while where who what why how which there here then after before since although "
    "because so no not yes is are was were be been do does did has have had can could will would may might "
    "should must also however all any some most many each every both other another such one two three first during "
    "between under over into about against through "
    "der die das ein eine einer einem einen des dem den er sie es wir ihr ich und oder aber wenn als wie wo was wer "
    "warum im am an auf bei mit nach von vor zu zum zur für aus durch über unter zwischen nicht kein keine ist sind "
    "war waren wird werden hat haben dieser diese dieses auch noch nur so da dann doch "
    "le la les un une des du de il elle ils elles nous vous je et ou mais si quand où qui que quoi dans sur sous avec "
    "pour par ce cette ces est sont était en au aux "
    "el los las una unos unas y o pero no se su sus lo al del en con por para como cuando donde quien que este esta "
    "estos estas es son fue era "
    "il lo gli uno e ed ma non nel nella con per come questo questa sono "
    "os uma uns umas em no na nos nas ao aos com não ele ela eles "
    "de het een en of maar niet van op in is dat dit deze"
)


@dataclass(frozen=True)
class Word:
    """A word of a sentence; `initial`: it is the first."""

    start: int
    end: int
    text: str
    initial: bool

    @property
    def capital(self) -> bool:
        return self.text[0].isupper()

    @property
    def upper(self) -> bool:
        """Whether all its letters are capitals, of which there are two at least."""
        return sum(map(str.isupper, self.text)) > 1 and not any(map(str.islower, self.text))


def words(text: str) -> list[list[Word]]:
    return [
        [
            Word(found.start(), found.end(), found[0], number == 0)
            for number, found in enumerate(_WORD.finditer(text, *span))
        ]
        for span in sentences(text)
    ]


def capitalises_nouns(text: str) -> bool:
    """Whether a text is in German, where every noun has a capital.

    The capitals alone do not tell: some English passages have as many, all of them in names.
    """
    found = [word[0].lower() for word in _WORD.finditer(text[:LOOKED_AT])]
    return sum(word in _GERMAN for word in found) >= GERMAN * max(1, len(found))


def capital_runs(text: str, *, nouns: bool) -> Iterator[tuple[int, int]]:
    """Spans of the names in a text; `nouns` says that the language writes all nouns with capitals."""
    by_sentence = words(text)
    everything = list(chain(*by_sentence))
    small = {word.text for word in everything if not word.capital}
    known = {word.text for word in everything if word.capital and not word.initial}
    for sentence in by_sentence:
        for run in _runs(text, sentence, links=not nouns):
            kept = run
            while kept and (not kept[0].capital or _is_common(kept, small, known)):
                kept = kept[1:]
            if kept and _is_name(kept, known, nouns):
                yield kept[0].start, _end(text, kept[-1])


def _runs(text: str, sentence: list[Word], *, links: bool) -> Iterator[list[Word]]:
    """Capitalised words that follow each other, and the small words and numbers that belong to them."""
    run: list[Word] = []
    waiting: list[Word] = []  # small words after a run, which belong to it where it goes on
    for word in sentence:
        if run and not _joined(text, (waiting or run)[-1], word):
            yield run
            run, waiting = [], []
        if word.capital or (run and not waiting and _numbers(run[-1], word)):
            run, waiting = [*run, *waiting, word], []
        elif run and links and word.text in (_AFTER_LINKS if waiting else _LINKS) and len(waiting) < 2:
            waiting = [*waiting, word]
        elif run:
            yield run
            run, waiting = [], []
    if run:
        yield run


def _joined(text: str, last: Word, word: Word) -> bool:
    gap = _INITIAL_GAP if len(last.text) == 1 and last.capital else _GAP
    return not _tail(last.text) and gap.fullmatch(text, last.end, word.start) is not None


def _numbers(name: Word, word: Word) -> bool:
    """Whether a word may be the number of a name, as in Apollo 11; no year."""
    return word.text.isdecimal() and len(word.text) <= 3 and name.text.isalpha()


def _is_common(run: list[Word], small: set[str], known: set[str]) -> bool:
    """Whether the first word of a run has a capital only because a sentence or a quotation begins."""
    first, lower = run[0], run[0].text.lower()
    if first.upper or not (first.initial or len(run) == 1):
        return False
    return (lower in _COMMON and (len(run) == 1 or first.text not in known)) or (first.initial and lower in small)


def _is_name(run: list[Word], known: set[str], nouns: bool) -> bool:
    first, capitals = run[0], sum(word.capital for word in run)
    if len(run) > LONGEST or (len(run) == 1 and len(first.text) < 2):
        return False
    if len(run) == 1 and first.initial:
        return first.upper or (first.text in known and not nouns)
    return capitals > 1 or first.upper or not nouns or any(word.text.isdecimal() for word in run)


def _end(text: str, last: Word) -> int:
    """Where a name ends that ends with a word: before what does not belong to it, after the full stop of `U.S.`"""
    dotted = len(last.text) == 1 and text[last.start - 1 : last.start] == text[last.end : last.end + 1] == "."
    return last.end + 1 if dotted else last.end - _tail(last.text)


def _tail(word: str) -> int:
    """Characters at the end of a word that do not belong to the name in it."""
    found = _TAIL.search(word)
    return len(word) - found.start() if found and not word[found.start() + 1 : found.end()].isupper() else 0


@dataclass(frozen=True)
class Mention:
    """A stretch of a text that names something: where it begins, how it is written, of which kind it is."""

    start: int
    text: str
    kind: str


def normal(name: str) -> str:
    """The form in which equal names are equal: NFKC, without case, blanks collapsed."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def entities(mentions: Iterable[Mention]) -> Iterator[Piece]:
    """One piece for each distinct name, as it is first written; name and kind are its metadata."""
    seen: set[str] = set()
    for mention in sorted(mentions, key=lambda mention: mention.start):
        name = normal(mention.text)
        if name and name not in seen:
            seen.add(name)
            yield Piece(mention.text, mention.start, meta=(("entity", name), ("type", mention.kind)))


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
    - `quote`: up to eight words between quotation marks that are not a sentence: titles, in every script.
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
            validate(self)
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
