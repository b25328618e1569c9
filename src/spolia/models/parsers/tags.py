"""Texts in tags: `<answer>Nokia</answer>`."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from spolia.core.run_context import note
from spolia.errors import WiringError
from spolia.models.marks import THOUGHTS
from spolia.models.parsers.parser import LONGEST, Parser, says_nothing, spoken, thought_in
from spolia.types.answers import CitationFault
from spolia.types.value import later

THOUGHT = "thought"
"""The tag of a thought that a prompt asks for."""
_FENCE = re.compile(r"^[^\S\n]*+(?:```|~~~)\w*[^\S\n]*+$", re.MULTILINE)
_EMPHASIS = ("**", "__", "`", "*")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "「": "」"}


@dataclass(frozen=True)
class Tags(Parser[dict[str, str]]):
    """The text within each of some tags, the last where one comes several times.

    Case, blanks, full-width letters and what servers escape in tags do not matter, nor fences and emphasis around the
    texts; square brackets and braces may stand for angle brackets. A tag that is not closed ends where the next one of
    these begins, or with the reply. Texts are without blanks around them, and may be empty.

    The tag `thought` is there too where the model thinks elsewhere: in `<think>`, or in a field of its reply.

    Args:
        names: of the tags, all of which have to be there.
        optional: of tags that may be there.
        one_of: of tags of which one has to be there with a text, or the word `none` alone for none of them.

    >>> Tags(optional=("thought",), one_of=("search", "answer")).parse("<think>Who?</think><search>Olsen</search>")
    {'thought': 'Who?', 'search': 'Olsen'}
    >>> Tags(("thought", "answer")).parse("Sure! <Thought>It was Nokia.</thought>\\n**<answer>Nokia</answer>**")
    {'thought': 'It was Nokia.', 'answer': 'Nokia'}
    """

    names: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    one_of: tuple[str, ...] = later(())

    def __post_init__(self) -> None:
        needed = (*self.names, *self.one_of)
        if not needed or not all(re.fullmatch(r"\w[\w -]*", name) for name in self._every):
            raise WiringError(f"Tags has names={self.names!r:.80}. Write names of letters: ('answer',).")

    @property
    def _every(self) -> tuple[str, ...]:
        return (*self.names, *self.optional, *self.one_of)

    @property
    def form(self) -> str:
        needed = [f"<{name}>...</{name}>" for name in self.names]
        either = " or ".join(f"<{name}>...</{name}>" for name in self.one_of)
        return " ".join((*needed, either)).strip()

    @property
    def reads_thoughts(self) -> bool:
        return THOUGHT in self._every

    def parse(self, reply: str) -> dict[str, str]:
        every = self._every
        found = dict(_texts(_shown(reply, every)[:LONGEST], every))
        if THOUGHT in every and not found.get(THOUGHT) and (thought := thought_in(reply[:LONGEST])):
            found[THOUGHT] = thought
        if self.one_of and not self.names and says_nothing(spoken(reply)):
            return {}
        if missing := [name for name in self.names if name not in found]:
            raise ValueError(f"it must have {missing[0]} in a tag")
        if self.one_of and not any(map(found.get, self.one_of)):
            raise ValueError(f"it must have {' or '.join(self.one_of)} in a tag")
        return {name: found[name] for name in every if name in found}


@dataclass(frozen=True)
class AnswerText(Parser[str]):
    """The text of an answer: that in its tag, else all that the reply says, without fences around it.

    A reply that only acts, as a model does that has not understood that it is to conclude, holds no answer.

    Args:
        actions: tags whose texts are not an answer.

    >>> AnswerText().parse("Known. <answer>Nokia</answer>"), AnswerText().parse("Nokia. <search>Salo</search>")
    ('Nokia', 'Nokia.')
    """

    actions: tuple[str, ...] = ("search", "lookup", "source", "evaluation")

    def parse(self, reply: str) -> str:
        every = ("answer", *self.actions)
        said = _shown(reply, every)[:LONGEST]
        answer = dict(_texts(said, every)).get("answer")
        text = bare_of_fences(said[: mark.start()] if (mark := _mark(every).search(said)) else said)
        if not (answer or text):
            raise ValueError(
                "it must be the answer itself, without a tag of an action" if said else "it must not be empty"
            )
        return answer or text


def bare_of_fences(text: str) -> str:
    """A text without the fences of code."""
    return _FENCE.sub("", text).strip()


def _shown(reply: str, names: tuple[str, ...]) -> str:
    """The reply with tags in one form, without thoughts, unless their tag is one of `names`."""
    said = spoken(reply, tuple(name for name in THOUGHTS if name in map(plain_name, names)))
    if "<" not in said and "＜" not in said:
        said = said.replace("&lt;", "<").replace("&gt;", ">")
    return said.replace("＜", "<").replace("＞", ">").replace("／", "/").replace("\\<", "<").replace("\\>", ">")


def _texts(said: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Name and text of each tag, in order."""
    ways = {plain_name(name): name for name in names}
    marks = list(_mark(names).finditer(said))
    open_ = ""
    for at, mark in enumerate(marks):
        name, closes = ways[plain_name(mark[2])], bool(mark[1])
        text = bare(said[mark.end() : marks[at + 1].start() if at + 1 < len(marks) else len(said)])
        if closes or (open_ == name and (mark[3] or not text)):  # `<answer>Nokia<answer>`: its slash was forgotten
            open_ = ""
            continue
        open_ = "" if mark[3] else name
        yield name, "" if mark[3] else text


def _mark(names: tuple[str, ...]) -> re.Pattern[str]:
    """An opening tag, a closing one (group 1), or one that is both (group 3)."""
    longest_first = sorted(names, key=len, reverse=True)
    written = "|".join(r"[\s_-]?".join(map(re.escape, re.split(r"[\s_-]+", name))) for name in longest_first)
    opens, closes = r"[<\[{]{1,2}\s{0,3}(/|\\/)?\s{0,3}", r"\s{0,3}:?\s{0,3}(/)?[>\]}]{1,2}"
    return re.compile(rf"{opens}({written})(?:\s[^<>\]}}\n/]{{0,100}})?{closes}", re.IGNORECASE)


def plain_name(name: str) -> str:
    """A name without blanks, dashes and underscores, in one case."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def bare(text: str) -> str:
    """A text without blanks, fences, and emphasis or quotes around all of it.

    >>> bare(' ```text\\n**"Nokia"**\\n``` ')
    'Nokia'
    """
    text = bare_of_fences(text)
    for mark in ("**", "__", "`"):  # one half of what surrounds more than this text
        if text.count(mark) == 1:
            text = text.removeprefix(mark).removesuffix(mark).strip()
    for _ in range(3):
        text = _inner(text)
    return text


def _inner(text: str) -> str:
    """A text without one pair of marks around it, where there is one."""
    for mark in _EMPHASIS:
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and text.count(mark) == 2:
            return text[len(mark) : -len(mark)].strip()
    inside = text[1:-1]
    if inside and _QUOTES.get(text[0]) == text[-1] and text[0] not in inside and text[-1] not in inside:
        return inside.strip()
    return text


_OPENS, _CLOSES = r"[\[【<({〔［]", r"[\]】>)}〕］]"


@dataclass(frozen=True)
class ControlTokens(Parser[tuple[str, ...]]):
    """The tokens of a vocabulary that a reply holds, in their order, as the vocabulary writes them.

    A token is written in brackets of any kind; case, blanks, bars, underscores and bold type within them do not matter.
    Other text in brackets stays text. A reply that is nothing but a token without brackets, or a line of
    it, counts too, if none is in brackets.

    Args:
        tokens: without brackets: `("Retrieval", "No Retrieval", "Utility:5")`.
        at_least: how many of them the reply must have.

    >>> ControlTokens(("Relevant", "Irrelevant", "Utility:5")).parse("[relevant] It was Nokia. <Utility: 5>")
    ('Relevant', 'Utility:5')
    """

    tokens: tuple[str, ...]
    at_least: int = 1

    def __post_init__(self) -> None:
        if not self.tokens or not all(_plain_token(token) for token in self.tokens):
            raise WiringError(f"ControlTokens has tokens={self.tokens!r:.80}. Write some: ('Relevant', 'Irrelevant').")

    def parse(self, reply: str) -> tuple[str, ...]:
        said = unicodedata.normalize("NFKC", spoken(reply)[:LONGEST])
        known = _known(self.tokens)
        found = [known[word] for mark in _MARK.finditer(said) if (word := _plain_token(mark[1])) in known]
        if not found:
            found = [known[word] for line in said.splitlines() if (word := _plain_token(line)) in known]
        if len(found) < self.at_least:
            raise ValueError(f"it must have one of these in square brackets: {', '.join(self.tokens)}")
        return tuple(found)


_MARK = re.compile(rf"{_OPENS}{{1,2}}([^\[\]【】<>(){{}}〔〕\n]{{1,80}}){_CLOSES}{{1,2}}")


@lru_cache(maxsize=256)
def _known(tokens: tuple[str, ...]) -> Mapping[str, str]:
    return {_plain_token(token): token for token in tokens}


def _plain_token(token: str) -> str:
    """A token as letters and digits alone."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", token)).casefold()


def without_tokens(reply: str, tokens: tuple[str, ...]) -> str:
    """What a reply says beside the tokens of a vocabulary.

    >>> without_tokens("[Relevant]It was [1] Nokia.[Utility:5]</s>", ("Relevant", "Utility:5"))
    'It was [1] Nokia.'
    """
    known = _known(tokens)
    said = spoken(reply)
    return _MARK.sub(lambda mark: "" if _plain_token(mark[1]) in known else mark[0], said).strip()


_OPEN, _CLOSE = r"\[［【", r"\]］】"
_LONGEST_MARKER = 120  # characters within brackets; anything longer is no marker
_MARKER = re.compile(
    rf"(?<!\s)(\s*+)[{_OPEN}]{{1,2}}(?=[^{_OPEN}{_CLOSE}]{{1,{_LONGEST_MARKER}}}[{_CLOSE}])\s*(?:(?:passages?|sources?|n[or]\.?)\s*)?"
    rf"(\d{{1,4}}+(?:(?:\s*+(?:[-–—,，、;；&]|and)|\s)\s*+\d{{1,4}}+)*+)\s*(?:†[^{_CLOSE}]*)?[{_CLOSE}]{{1,2}}",
    re.IGNORECASE,
)
_OPENED = re.compile(rf"[{_OPEN}]{{1,2}}[^{_OPEN}{_CLOSE}]{{0,{_LONGEST_MARKER}}}[{_CLOSE}]?\Z")
_NUMBER = re.compile(r"(\d+)(?:\s*[-–—]\s*(\d+))?")


class Markers:
    """Brings the markers of a reply into one form, `[1][2]`, and takes out those that name no passage.

    The reply may be fed in any pieces: what could still become a marker is held back until it is known.

    Attributes:
        used: numbers of the passages that are cited, in the order of the reply.
        unknown: markers that were taken out.

    >>> markers = Markers(passages=2)
    >>> markers.feed("Paris [1,") + markers.feed(" 2]【7】, since 508 [9") + markers.feed("].") + markers.end()
    'Paris [1][2], since 508.'
    >>> markers.used, markers.unknown
    ([1, 2], ['【7】', '[9]'])
    """

    def __init__(self, passages: int) -> None:
        self.passages = passages
        self.used: list[int] = []
        self.unknown: list[str] = []
        self._held: list[str] = []
        self._begun = False

    def feed(self, piece: str) -> str:
        """The text that is settled by one more piece of the reply."""
        self._held.append(piece)
        if not piece.strip():  # a marker takes the blanks before it with it
            return ""
        text = "".join(self._held)
        opened = _OPENED.search(text, max(0, len(text) - _LONGEST_MARKER - 3))
        cut = len(text[: opened.start() if opened else None].rstrip())
        self._held = [text[cut:]]
        return self._settled(text[:cut])

    def end(self) -> str:
        """The rest of the text."""
        text, self._held = "".join(self._held), []
        return self._settled(text.rstrip())

    def faults(self, asked: bool = True) -> tuple[CitationFault, ...]:
        """What is out of order with the citations of the whole reply (`Answer.faults`); it is recorded.

        Args:
            asked: the prompt asks for them, so that an answer without any is out of order.
        """
        if not self.passages:
            return ()
        for marker in self.unknown:
            note(f"The reply cites {marker}, but only passages 1 to {self.passages} were shown; taken out.")
        if self.unknown:
            note("The reply cites a number that no passage has.", counted=True)
        is_uncited = asked and not self.used
        if is_uncited:
            note("The answer cites none of the passages that were shown.", counted=True)
        found: dict[CitationFault, bool] = {"uncited": is_uncited, "unknown": bool(self.unknown)}
        return tuple(name for name, holds in found.items() if holds)

    def _settled(self, text: str) -> str:
        found = _MARKER.sub(self._resolved, text)
        found = found if self._begun else found.lstrip()
        self._begun = self._begun or bool(found)
        return found

    def _resolved(self, marker: re.Match[str]) -> str:
        numbers = _numbers(marker.group(2))
        known = [number for number in numbers if 1 <= number <= self.passages]
        if len(known) < len(numbers):
            self.unknown.append(marker.group().strip())
        self.used += [number for number in known if number not in self.used]
        return marker.group(1) + "".join(f"[{number}]" for number in known) if known else ""


def _numbers(text: str) -> list[int]:
    """The numbers of a marker, ranges written out.

    >>> _numbers("1, 3-5 and 9")
    [1, 3, 4, 5, 9]
    """
    found: list[int] = []
    for match in _NUMBER.finditer(text):
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        found += range(first, min(last, first + 99) + 1) if first <= last else (first, last)
    return list(dict.fromkeys(found))
