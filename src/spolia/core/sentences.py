"""Sentence boundaries in any script, by rules alone: fast, exact offsets, no dictionary to install.

A mark that ends a sentence is believed unless what stands around it says otherwise: an initial, an abbreviation, a
decimal, a list number, a lower-case word after it. A line break ends a sentence unless the text is wrapped: the line
was full, or the next one goes on with a lower-case word. Thai and Lao write no mark; there a space between two long
phrases ends a sentence.
"""

import re
from collections.abc import Iterator

from spolia.core.patterns import pattern

_NARROW = ".!?…"  # need a blank after them
_WIDE = (  # end a sentence wherever they stand: CJK, Arabic, Devanagari, Burmese, Khmer, Ethiopic, Tibetan, Armenian
    "。！？｡‽\u061f\u06d4\u0964\u0965\u104b\u17d4\u17d5\u1362\u1367\u0f0d\u0589\u037e\u0df4\u1803\u1809\ua4ff\ua60e"
)
_CLOSERS = "\"'”’»›)\\]}」』】〉》）］｝〕＂＇*_"
_LINES = "\n\r\f\v\x85\u2028\u2029"
_BREAK = pattern(  # begins with a class of characters, which `re` searches for before it tries the rest
    f"[{_NARROW}{_WIDE}．{_LINES}]"
    f"(?:(?P<narrow>(?<=[{_NARROW}])(?<![{_NARROW}]{{2}})[{_NARROW}]*+)"
    f"[{_CLOSERS}]*+(?:\\[\\d{{1,3}}\\])*+(?=\\s|\\Z)"
    f"|(?P<wide>(?:(?<=[{_WIDE}])|(?<=．)(?!\\d))[{_WIDE}{_NARROW}]*+[{_CLOSERS}]*+)(?!(?<=[」』”])[とっ、，])"
    f"|(?P<line>(?<=[{_LINES}])\\s*+))"
)
_PARAGRAPH_END = pattern(r"\n[^\S\n]*\n|\r[^\S\r\n]*\r|\f|\u2029")
_BEFORE_WORD = pattern(r"[\s(\[{\"'“‘«—–/]")
_WORD_AFTER = pattern(r"[\s\"'“”‘’«»(\[{¿¡*_—–-]*([^\W_]+)")
_ITEM = pattern(r"(?:[-*+•·‣◦▪●○■□▶►–—]|\(?\d{1,3}[.)]|\(?[A-Za-z][.)]|\(?[ivxIVX]{1,4}[.)]|#{1,6}|[|>])(?=\s)")
_DENSE = pattern("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff]")
_THAI = pattern("[\u0e01-\u0e4e\u0e81-\u0ece]")
_THAI_SPACE = pattern('(?<=[\u0e01-\u0e4e\u0e81-\u0ece"”’)])[ \u00a0\u200b]+(?=[\u0e01-\u0e4e\u0e81-\u0ece"“‘(])')


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# After these a sentence ends only if the next word is one that often begins one.
_ABBREVIATIONS = _words(
    "mr mrs ms dr prof st mt ft gen col lt sgt capt cmdr adm maj rev hon gov sen rep pres messrs mme mlle sra srta hr "
    "bzw vgl ca cca cf vs viz eg ie approx resp al dept univ ud uds ing etc jr sr inc ltd co corp bros plc am pm usw "
    "ph ave blvd rd no op"
)
# After these it ends unless a number follows.
_NUMBERED = _words(
    "fig figs eq eqs tab nr nos vol vols pp ed eds sec chap art kap bd jan feb mar apr jun jul aug sep sept oct nov "
    "dec no pág"
)
_AFTER_ORDINAL = _words(
    "januar februar märz april mai juni juli august september oktober november dezember jahrhundert"
)
_STARTERS = _words(
    "the an in on at it its he she they we you his her their this that these those there here when while where after "
    "before since although though however but and so if as for from by with to of one some many most both all each "
    "every other another what who why how then later today during until despite according also"
)
THAI_PHRASE = 40  # fewest characters of a Thai or Lao sentence; a shorter stretch counts as a phrase within one
WRAPPED = 40  # characters in the longest line of wrapped text at least; half of it in scripts of wide characters
MEASURED = 10_000  # the width of a paragraph is measured again after as many characters


def sentences(text: str) -> list[tuple[int, int]]:
    """Return the spans of the sentences, in order, without the blanks around them: every other character is in exactly
    one.

    >>> text = "Dr. J. Smith paid $3.50. Why? 他来了。走吧！"
    >>> [text[start:end] for start, end in sentences(text)]
    ['Dr. J. Smith paid $3.50.', 'Why?', '他来了。', '走吧！']
    """
    return list(each_sentence(text))


def each_sentence(text: str) -> Iterator[tuple[int, int]]:
    """Yield `sentences` one after the other, for texts whose sentences should not all be in memory."""
    start, is_spaced = 0, text.isascii() or _THAI.search(text) is None  # ASCII needs no search
    for end in _find_ends(text):
        piece = text[start:end]
        if body := piece.strip():
            first = start + piece.index(body[0])
            last = first + len(body)
            if is_spaced:
                yield first, last
            else:
                yield from _split_phrases(text, first, last)
        start = end


def _find_ends(text: str) -> Iterator[int]:
    lines = _Lines(text)
    for match in _BREAK.finditer(text):
        kind = match.lastgroup
        if kind == "wide" or (lines.is_end(match) if kind == "line" else _is_end(text, match)):
            yield match.end()
    yield len(text)


def _is_end(text: str, match: re.Match[str]) -> bool:
    """Return whether a mark before a blank ends a sentence."""
    next_match = _WORD_AFTER.match(text, match.end(), match.end() + 80)  # bounded: blanks may go on for pages
    word = next_match[1] if next_match else ""
    if word and word[0].islower():
        return False
    index = match.start()
    if match["narrow"] or text[index] != ".":
        return True
    head = text[max(0, index - 40) : index]  # bounded, or a long line is copied for each of its full stops
    if not head or head[-1].isspace():
        return True
    previous = _BEFORE_WORD.split(head.rsplit(None, 1)[-1])[-1]
    return not previous or _is_end_after(previous, word, text, index - len(previous))


def _is_end_after(previous: str, word: str, text: str, index: int) -> bool:
    """Return whether a full stop ends a sentence between two words, of which the first begins at `index`."""
    bare, follows = previous.replace(".", "").casefold(), word.casefold()
    if bare.isdecimal():
        is_item = len(bare) <= 3 and _begins_line(text, index)
        return not is_item and not (len(bare) <= 2 and follows in _AFTER_ORDINAL)
    if bare in _NUMBERED and word[:1].isdecimal():
        return False
    initial = len(previous) == 1 and previous.isupper()
    acronym = "." in previous and len(previous) <= 7 and bare.isalpha()
    if initial or acronym or bare in _ABBREVIATIONS:
        return not word or follows in _STARTERS
    return True


def _begins_line(text: str, index: int) -> bool:
    head = text[max(0, index - 12) : index].rstrip(" \t")
    return not head or head[-1] in _LINES


class _Lines:
    """Line breaks of a text, with those of wrapped text told from those that end something."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = 0  # of the present line
        self.measured_until = -1  # end of the paragraph whose width is known
        self.width = 0

    def is_end(self, match: re.Match[str]) -> bool:
        text, start, next_start = self.text, self.start, match.end()
        self.start = next_start
        if next_start == len(text) or len(f"{match[0]}.".splitlines()) > 2 or _ITEM.match(text, next_start):
            return True
        line = text[start : match.start()]
        if text[next_start].islower() and (len(line) >= WRAPPED // 2 or (start == 0 and " " in line)):
            return False  # a text that begins in the middle of a line is a piece of another
        if match.start() > self.measured_until:
            self._measure(start)
        if self.width < (WRAPPED // 2 if _DENSE.match(text, next_start) else WRAPPED):
            return True
        room = self.width - (match.start() - start) - self.width // 8  # wrapped text is not always flush
        return len(text[next_start : next_start + 25].split(maxsplit=1)[0]) < room

    def _measure(self, start: int) -> None:
        """Measure the longest line of the paragraph in which `start` is."""
        limit = min(len(self.text), start + MEASURED)
        end = _PARAGRAPH_END.search(self.text, start, limit)
        self.measured_until = end.start() if end else limit
        self.width = max(
            (len(line.rstrip()) for line in self.text[start : self.measured_until].splitlines()), default=0
        )


def _split_phrases(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return a sentence, cut at spaces between long phrases where the script has no other sign."""
    phrases: list[tuple[int, int]] = []
    if end - start > THAI_PHRASE and _THAI.search(text, start, end):
        for space in _THAI_SPACE.finditer(text, start, end):
            if space.start() - start >= THAI_PHRASE and end - space.end() >= THAI_PHRASE // 2:
                phrases.append((start, space.start()))
                start = space.end()
    phrases.append((start, end))
    return phrases
