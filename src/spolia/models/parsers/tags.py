"""Parsers of texts in tags: `<answer>Nokia</answer>`."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from spolia.core.run_context import note
from spolia.errors import WiringError
from spolia.models.marks import THOUGHTS
from spolia.models.parsers.parser import LONGEST, Parser, extract_thought, says_nothing, strip_thoughts
from spolia.types.answers import CitationFault
from spolia.types.value import added_field

THOUGHT = "thought"
"""The tag of a thought that a prompt asks for."""
_FENCE = re.compile(r"^[^\S\n]*+(?:```|~~~)\w*[^\S\n]*+$", re.MULTILINE)
_EMPHASIS = ("**", "__", "`", "*")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "「": "」"}


@dataclass(frozen=True)
class Tags(Parser[dict[str, str]]):
    """Parser of the text within each of some tags, the last where one comes several times.

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
    one_of: tuple[str, ...] = added_field(())

    def __post_init__(self) -> None:
        needed = (*self.names, *self.one_of)
        if not needed or not all(re.fullmatch(r"\w[\w -]*", name) for name in self._all_names):
            raise WiringError(f"Tags has names={self.names!r:.80}. Write names of letters: ('answer',).")

    @property
    def _all_names(self) -> tuple[str, ...]:
        return (*self.names, *self.optional, *self.one_of)

    @property
    def form(self) -> str:
        needed = [f"<{name}>...</{name}>" for name in self.names]
        either = " or ".join(f"<{name}>...</{name}>" for name in self.one_of)
        return " ".join((*needed, either)).strip()

    @property
    def reads_thoughts(self) -> bool:
        return THOUGHT in self._all_names

    def parse(self, reply: str) -> dict[str, str]:
        names = self._all_names
        texts = dict(_texts(_normalize_tags(reply, names)[:LONGEST], names))
        if THOUGHT in names and not texts.get(THOUGHT) and (thought := extract_thought(reply[:LONGEST])):
            texts[THOUGHT] = thought
        if self.one_of and not self.names and says_nothing(strip_thoughts(reply)):
            return {}
        if missing := [name for name in self.names if name not in texts]:
            raise ValueError(f"it must have {missing[0]} in a tag")
        if self.one_of and not any(map(texts.get, self.one_of)):
            raise ValueError(f"it must have {' or '.join(self.one_of)} in a tag")
        return {name: texts[name] for name in names if name in texts}


@dataclass(frozen=True)
class AnswerText(Parser[str]):
    """Parser of an answer: the text in its tag, else the whole reply, without fences around it.

    A reply that only acts, as a model does that has not understood that it is to conclude, holds no answer.

    Args:
        actions: tags whose texts are not an answer.

    >>> AnswerText().parse("Known. <answer>Nokia</answer>"), AnswerText().parse("Nokia. <search>Salo</search>")
    ('Nokia', 'Nokia.')
    """

    actions: tuple[str, ...] = ("search", "lookup", "source", "evaluation")

    def parse(self, reply: str) -> str:
        names = ("answer", *self.actions)
        normalized = _normalize_tags(reply, names)[:LONGEST]
        answer = dict(_texts(normalized, names)).get("answer")
        text = strip_fences(
            normalized[: mark.start()] if (mark := _tag_pattern(names).search(normalized)) else normalized
        )
        if not (answer or text):
            raise ValueError(
                "it must be the answer itself, without a tag of an action" if normalized else "it must not be empty"
            )
        return answer or text


def strip_fences(text: str) -> str:
    """Return a text without the fences of code."""
    return _FENCE.sub("", text).strip()


def _normalize_tags(reply: str, names: tuple[str, ...]) -> str:
    """Return the reply with tags in one form, without thoughts, unless their tag is one of `names`."""
    text = strip_thoughts(reply, tuple(name for name in THOUGHTS if name in map(normalize_name, names)))
    # Escaped brackets are text where real ones are there too.
    if "<" not in text and "＜" not in text:
        text = text.replace("&lt;", "<").replace("&gt;", ">")
    return text.replace("＜", "<").replace("＞", ">").replace("／", "/").replace("\\<", "<").replace("\\>", ">")


def _texts(reply: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each tag, in order."""
    names_by_plain = {normalize_name(name): name for name in names}
    marks = list(_tag_pattern(names).finditer(reply))
    open_name = ""
    for index, mark in enumerate(marks):
        name, closes = names_by_plain[normalize_name(mark[2])], bool(mark[1])
        text = strip_marks(reply[mark.end() : marks[index + 1].start() if index + 1 < len(marks) else len(reply)])
        if closes or (open_name == name and (mark[3] or not text)):  # `<answer>Nokia<answer>`: its slash was forgotten
            open_name = ""
            continue
        open_name = "" if mark[3] else name
        yield name, "" if mark[3] else text


def _tag_pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """Compile the pattern of an opening tag, a closing one (group 1), or one that is both (group 3)."""
    # Of two names of which one begins with the other, the longer is tried first.
    longest_first = sorted(names, key=len, reverse=True)
    alternatives = "|".join(r"[\s_-]?".join(map(re.escape, re.split(r"[\s_-]+", name))) for name in longest_first)
    opens, closes = r"[<\[{]{1,2}\s{0,3}(/|\\/)?\s{0,3}", r"\s{0,3}:?\s{0,3}(/)?[>\]}]{1,2}"
    return re.compile(rf"{opens}({alternatives})(?:\s[^<>\]}}\n/]{{0,100}})?{closes}", re.IGNORECASE)


def normalize_name(name: str) -> str:
    """Return a name without blanks, dashes and underscores, in one case."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def strip_marks(text: str) -> str:
    """Return a text without blanks, fences, and emphasis or quotes around all of it.

    >>> strip_marks(' ```text\\n**"Nokia"**\\n``` ')
    'Nokia'
    """
    text = strip_fences(text)
    for mark in ("**", "__", "`"):  # one half of what surrounds more than this text
        if text.count(mark) == 1:
            text = text.removeprefix(mark).removesuffix(mark).strip()
    # Models nest at most a few: bold type around quotes around code.
    for _ in range(3):
        text = _strip_pair(text)
    return text


def _strip_pair(text: str) -> str:
    """Return a text without one pair of marks around it, if there is one."""
    for mark in _EMPHASIS:
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and text.count(mark) == 2:
            return text[len(mark) : -len(mark)].strip()
    inner_text = text[1:-1]
    if inner_text and _QUOTES.get(text[0]) == text[-1] and text[0] not in inner_text and text[-1] not in inner_text:
        return inner_text.strip()
    return text


_OPENS, _CLOSES = r"[\[【<({〔［]", r"[\]】>)}〕］]"


@dataclass(frozen=True)
class ControlTokens(Parser[tuple[str, ...]]):
    """Parser of the tokens of a vocabulary that a reply holds, in their order, as the vocabulary writes them.

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
        if not self.tokens or not all(_normalize_token(token) for token in self.tokens):
            raise WiringError(f"ControlTokens has tokens={self.tokens!r:.80}. Write some: ('Relevant', 'Irrelevant').")

    def parse(self, reply: str) -> tuple[str, ...]:
        text = unicodedata.normalize("NFKC", strip_thoughts(reply)[:LONGEST])
        vocabulary = _plain_vocabulary(self.tokens)
        tokens = [
            vocabulary[word] for mark in _MARK.finditer(text) if (word := _normalize_token(mark[1])) in vocabulary
        ]
        if not tokens:
            tokens = [vocabulary[word] for line in text.splitlines() if (word := _normalize_token(line)) in vocabulary]
        if len(tokens) < self.at_least:
            raise ValueError(f"it must have one of these in square brackets: {', '.join(self.tokens)}")
        return tuple(tokens)


_MARK = re.compile(rf"{_OPENS}{{1,2}}([^\[\]【】<>(){{}}〔〕\n]{{1,80}}){_CLOSES}{{1,2}}")


@lru_cache(maxsize=256)
def _plain_vocabulary(tokens: tuple[str, ...]) -> Mapping[str, str]:
    return {_normalize_token(token): token for token in tokens}


def _normalize_token(token: str) -> str:
    """Return a token as letters and digits alone."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", token)).casefold()


def strip_tokens(reply: str, tokens: tuple[str, ...]) -> str:
    """Return a reply without the tokens of a vocabulary.

    >>> strip_tokens("[Relevant]It was [1] Nokia.[Utility:5]</s>", ("Relevant", "Utility:5"))
    'It was [1] Nokia.'
    """
    vocabulary = _plain_vocabulary(tokens)
    text = strip_thoughts(reply)
    return _MARK.sub(lambda mark: "" if _normalize_token(mark[1]) in vocabulary else mark[0], text).strip()


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
    """Filter that brings the markers of a reply into one form, `[1][2]`, and takes out those that name no passage.

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
        self._pending: list[str] = []
        self._has_text = False

    def feed(self, piece: str) -> str:
        """Add a piece of the reply; return the text that is final now."""
        self._pending.append(piece)
        if not piece.strip():  # a marker takes the blanks before it with it
            return ""
        text = "".join(self._pending)
        # Only the end is searched: an open marker is never longer than that.
        open_marker = _OPENED.search(text, max(0, len(text) - _LONGEST_MARKER - 3))
        cut = len(text[: open_marker.start() if open_marker else None].rstrip())
        self._pending = [text[cut:]]
        return self._settle(text[:cut])

    def end(self) -> str:
        """Return the rest of the text."""
        text, self._pending = "".join(self._pending), []
        return self._settle(text.rstrip())

    def faults(self, needs_marks: bool = True) -> tuple[CitationFault, ...]:
        """Return the faults of the whole reply's citations (`Answer.faults`), and record them.

        Args:
            needs_marks: the prompt asks for them, so that an answer without any is out of order.
        """
        if not self.passages:
            return ()
        for marker in self.unknown:
            note(f"The reply cites {marker}, but only passages 1 to {self.passages} were shown; taken out.")
        if self.unknown:
            note("The reply cites a number that no passage has.", is_counted=True)
        is_uncited = needs_marks and not self.used
        if is_uncited:
            note("The answer cites none of the passages that were shown.", is_counted=True)
        faults: dict[CitationFault, bool] = {"uncited": is_uncited, "unknown": bool(self.unknown)}
        return tuple(name for name, holds in faults.items() if holds)

    def _settle(self, text: str) -> str:
        settled = _MARKER.sub(self._resolve_marker, text)
        settled = settled if self._has_text else settled.lstrip()
        self._has_text = self._has_text or bool(settled)
        return settled

    def _resolve_marker(self, marker: re.Match[str]) -> str:
        numbers = _expand_numbers(marker.group(2))
        valid = [number for number in numbers if 1 <= number <= self.passages]
        if len(valid) < len(numbers):
            self.unknown.append(marker.group().strip())
        self.used += [number for number in valid if number not in self.used]
        return marker.group(1) + "".join(f"[{number}]" for number in valid) if valid else ""


def _expand_numbers(text: str) -> list[int]:
    """Return the numbers of a marker, ranges written out.

    >>> _expand_numbers("1, 3-5 and 9")
    [1, 3, 4, 5, 9]
    """
    numbers: list[int] = []
    for match in _NUMBER.finditer(text):
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        # A range such as 1-9999 must not fill the memory.
        numbers += range(first, min(last, first + 99) + 1) if first <= last else (first, last)
    return list(dict.fromkeys(numbers))
