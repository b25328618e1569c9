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
LANGUAGE_SAMPLE = 20_000
"""Characters of a document by which its language is judged."""

_WORD = re.compile(r"\w+(?:['’\-]\w+)*")
_TAIL = re.compile(r"['’]s?\Z|-[^\W\d_](?=[^\W\d_]*\Z)")  # 's, -based
_GAP = re.compile(r"[ \u00a0\t]{1,2}|[ \t]?\n[ \t]{0,3}|-|&|[ \u00a0]&[ \u00a0]")
_INITIAL_GAP = re.compile(r"\.[ \u00a0]?|[ \u00a0]")


def _split_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LINKS = _split_set("of for de del della di da do dos das des du van von zu ter bin ibn al el")
_AFTER_LINKS = _split_set("the der den la las le los")
_GERMAN = _split_set(
    "der die das den dem des ein eine einer eines einem einen und oder ist sind war waren wird werden wurde wurden "
    "nicht mit auf für von zu im zum zur bei nach aus durch über sich auch als wie dass"
)
_COMMON = _split_set(  # capitalised only because of where they stand, in the languages that are met most
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
    """Word of a sentence; `is_initial`: it is the first."""

    start: int
    end: int
    text: str
    is_initial: bool

    @property
    def is_capital(self) -> bool:
        return self.text[0].isupper()

    @property
    def is_upper(self) -> bool:
        """Return whether all its letters are capitals, of which there are at least two."""
        return sum(map(str.isupper, self.text)) > 1 and not any(map(str.islower, self.text))


def find_words(text: str) -> list[list[Word]]:
    return [
        [
            Word(match.start(), match.end(), match[0], number == 0)
            for number, match in enumerate(_WORD.finditer(text, *span))
        ]
        for span in sentences(text)
    ]


def capitalises_nouns(text: str) -> bool:
    """Return whether a text is in German, where every noun has a capital.

    The capitals alone do not tell: some English passages have as many, all of them in names.
    """
    lowered = [word[0].lower() for word in _WORD.finditer(text[:LANGUAGE_SAMPLE])]
    return sum(word in _GERMAN for word in lowered) >= GERMAN * max(1, len(lowered))


def find_names(text: str, *, nouns: bool) -> Iterator[tuple[int, int]]:
    """Yield spans of the names in a text; `nouns` says that the language writes all nouns with capitals."""
    by_sentence = find_words(text)
    all_words = list(chain(*by_sentence))
    small_words = {word.text for word in all_words if not word.is_capital}
    name_words = {word.text for word in all_words if word.is_capital and not word.is_initial}
    for sentence in by_sentence:
        for run in _find_runs(text, sentence, links=not nouns):
            name = run
            while name and (not name[0].is_capital or _is_common(name, small_words, name_words)):
                name = name[1:]
            if name and _is_name(name, name_words, nouns):
                yield name[0].start, _find_end(text, name[-1])


def _find_runs(text: str, sentence: list[Word], *, links: bool) -> Iterator[list[Word]]:
    """Yield capitalised words that follow each other, with the small words and numbers that belong to them."""
    run: list[Word] = []
    waiting: list[Word] = []  # small words after a run, which belong to it where it goes on
    for word in sentence:
        if run and not _is_joined(text, (waiting or run)[-1], word):
            yield run
            run, waiting = [], []
        if word.is_capital or (run and not waiting and _is_name_number(run[-1], word)):
            run, waiting = [*run, *waiting, word], []
        elif run and links and word.text in (_AFTER_LINKS if waiting else _LINKS) and len(waiting) < 2:
            waiting = [*waiting, word]
        elif run:
            yield run
            run, waiting = [], []
    if run:
        yield run


def _is_joined(text: str, last: Word, word: Word) -> bool:
    gap = _INITIAL_GAP if len(last.text) == 1 and last.is_capital else _GAP
    return not _tail_length(last.text) and gap.fullmatch(text, last.end, word.start) is not None


def _is_name_number(name: Word, word: Word) -> bool:
    """Return whether a word may be the number of a name, as in Apollo 11; no year."""
    return word.text.isdecimal() and len(word.text) <= 3 and name.text.isalpha()


def _is_common(run: list[Word], small_words: set[str], name_words: set[str]) -> bool:
    """Return whether the first word of a run has a capital only because a sentence or a quotation begins."""
    first, lower = run[0], run[0].text.lower()
    if first.is_upper or not (first.is_initial or len(run) == 1):
        return False
    return (lower in _COMMON and (len(run) == 1 or first.text not in name_words)) or (
        first.is_initial and lower in small_words
    )


def _is_name(run: list[Word], name_words: set[str], nouns: bool) -> bool:
    first, capitals = run[0], sum(word.is_capital for word in run)
    if len(run) > LONGEST or (len(run) == 1 and len(first.text) < 2):
        return False
    if len(run) == 1 and first.is_initial:
        return first.is_upper or (first.text in name_words and not nouns)
    return capitals > 1 or first.is_upper or not nouns or any(word.text.isdecimal() for word in run)


def _find_end(text: str, last: Word) -> int:
    """Return where a name with this last word ends: without what does not belong to it, after the stop of `U.S.`"""
    is_dotted = len(last.text) == 1 and text[last.start - 1 : last.start] == text[last.end : last.end + 1] == "."
    return last.end + 1 if is_dotted else last.end - _tail_length(last.text)


def _tail_length(word: str) -> int:
    """Count the characters at the end of a word that do not belong to the name in it."""
    match = _TAIL.search(word)
    return len(word) - match.start() if match and not word[match.start() + 1 : match.end()].isupper() else 0


@dataclass(frozen=True)
class Mention:
    """Stretch of a text that names something: where it begins, how it is written, of which kind it is."""

    start: int
    text: str
    kind: str


def normalise_name(name: str) -> str:
    """Return the form in which equal names are equal: NFKC, without case, blanks collapsed."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def make_entities(mentions: Iterable[Mention]) -> Iterator[Piece]:
    """Yield one piece for each distinct name, as it is first written; name and kind are its metadata."""
    names: set[str] = set()
    for mention in sorted(mentions, key=lambda mention: mention.start):
        name = normalise_name(mention.text)
        if name and name not in names:
            names.add(name)
            yield Piece(mention.text, mention.start, meta=(("entity", name), ("type", mention.kind)))


Kind: TypeAlias = Literal["name", "acronym", "quote", "year", "number"]
ALL: tuple[Kind, ...] = ("name", "acronym", "quote", "year", "number")
CAPITALS_WINDOW = 60
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
        return tuple(piece for piece in make_entities(_find_mentions(value)) if dict(piece.meta)["type"] in self.kinds)


def _find_mentions(part: Part) -> Iterator[Mention]:
    """Yield what the rules find; the first at a place says of which kind it is."""
    text = part.node.text
    for match in _QUOTE.finditer(text):
        if _is_title(quote := match[match.lastindex or 0]):
            yield Mention(match.start(match.lastindex or 0), quote, "quote")
    for match in _ACRONYM.finditer(text):
        if _is_acronym(match[0]) and not _is_shouted(text, match.start()):
            yield Mention(match.start(), match[0], "acronym")
    for match in _YEAR.finditer(text):
        yield Mention(match.start(), match[0], "year")
    for match in _NUMBER.finditer(text):
        yield Mention(match.start(), match[0], "number")
    for start, end in find_names(text, nouns=capitalises_nouns(part.document.text)):
        yield Mention(start, text[start:end], "acronym" if _is_acronym(text[start:end]) else "name")


def _is_acronym(text: str) -> bool:
    letters = [letter for letter in text.removesuffix("s") if letter.isalpha()]
    compact = len(text) <= 10 or "." in text
    return compact and " " not in text and len(letters) > 1 and all(map(str.isupper, letters))


def _is_shouted(text: str, position: int) -> bool:
    """Return whether most of what stands around a place in its line is written in capitals."""
    line = (
        text[max(0, position - CAPITALS_WINDOW) : position].rpartition("\n")[2]
        + text[position : position + CAPITALS_WINDOW].partition("\n")[0]
    )
    words = [word for word in line.split() if len(word) > 1]
    capitals = sum(map(str.isupper, words))
    return capitals > 3 and 2 * capitals > len(words)


def _is_title(quoted: str) -> bool:
    """Return whether a quotation is a title, not speech or a word that is doubted."""
    if quoted != quoted.strip() or quoted[-1] in ".,;!?…。" or len(quoted.split()) > QUOTED_WORDS:
        return False
    return not quoted[0].islower() and any(map(str.isalnum, quoted))
