"""Parsers of verdicts: one of some words that a reply may name."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from spolia.errors import WiringError
from spolia.models.parsers.parser import Parser, normalize_reply

Label = TypeVar("Label")

_LABEL = (
    r"(?:answer(?: type)?|label|verdict|judge?ment|decision|conclusion|result|output|category|class(?:ification)?|type|"
    r"choice|option|route|action|status|grade|antwort|réponse|respuesta|"
    r"答案|标签|結論|结论|判断|判定|回答|答え|정답|답변|답|결론|판단)"
    r"[\s\"')\]]*(?:is|was|would be|must be|has to be|should be|[:=]|-+>|→|–|—|은|는|이|가|は|が|是|为|為)"
    r"(?:[\s\"'(\[{<:「『“”:=>$]|\\boxed|\\text|answer|a\b|an\b|the\b|是)*"
)
_BEGIN = r"[\W_]*(?:(?:well|oh|hmm|sure|so|therefore|thus|hence|definitely|certainly|clearly|option|choice)\b[\W_]*)*"
_JOINED = r"(?!\s*(?:and|or|oder|et|und|nor|vs|versus|和|或|및|또는|と|か)\b)"
_NEGATED = re.compile(
    r"(?:\b(?:not|never|neither|nor|without|isn't|rather than|instead of|than|nicht|kein\w*)|n't)"
    r"(?:\s+(?:an?|the|be|to|just))*[\W_]*$",
    re.IGNORECASE,
)


class Words(Generic[Label]):
    """Patterns of the ways to write each choice.

    Args:
        choices: pattern → choice.
        flags: of the patterns.
        ends: whether they begin and end where words do; not in scripts that write no blanks between them.
    """

    def __init__(self, choices: Mapping[str, Label], flags: int = re.IGNORECASE, ends: bool = True) -> None:
        self._choices = list(choices.values())
        # Of two spellings of which one begins with the other, the longer is tried first.
        longest_first = sorted(range(len(self._choices)), key=lambda index: -len(list(choices)[index]))
        patterns = list(choices)
        alternatives = "|".join(f"(?P<c{index}>{patterns[index]})" for index in longest_first)
        begin, end = (r"(?<!\w)", r"(?!\w)") if ends else ("", "")
        self._word = re.compile(rf"{begin}(?:{alternatives}){end}", flags)
        boundary = "" if flags else r"(?:(?-i:(?<=[A-Z]))|(?![ \t]+\w))"  # `the answer is a river` names no option A
        self._labelled = re.compile(rf"(?:{_LABEL})(?:{alternatives}){end}{boundary}{_JOINED}", re.IGNORECASE)
        self._first = re.compile(rf"(?i:{_BEGIN})(?:{alternatives}){end}{_JOINED}", flags)

    def find_choice(self, text: str) -> Label | None:
        """Return the choice that is clear; None if none is."""
        if labelled := [self._choice(match) for match in self._labelled.finditer(text)]:
            return labelled[-1]
        if match := self._first.match(text):
            return self._choice(match)
        for part in _narrower_parts(text):
            choices = set(self._named_choices(part))
            if len(choices) == 1:
                return choices.pop()
        return None

    def _named_choices(self, part: str) -> Iterator[Label]:
        for match in self._word.finditer(part):
            # A negation stands right before its word: 30 characters are enough.
            if not _NEGATED.search(part[max(0, match.start() - 30) : match.start()]):
                yield self._choice(match)

    def _choice(self, match: re.Match[str]) -> Label:
        return self._choices[int((match.lastgroup or "c0")[1:])]


def _narrower_parts(text: str) -> Iterator[str]:
    """Yield the whole, its first or last line, its last line, its last sentence, and the last clause of that."""
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    yield text
    if len(lines) > 1 and not lines[0].rstrip().endswith((":", "?")):
        first, last = lines[0], lines[-1]
        yield first if len(first) < len(last) and len(first) < 40 else last
    yield lines[-1]
    sentence = [part for part in re.split(r"(?<=[.!?。:;])\s*", lines[-1]) if part.strip()][-1:]
    yield from sentence
    yield from [part for part in re.split(r"[,，、]", "".join(sentence)) if part.strip()][-1:]


@dataclass(frozen=True)
class OneOf(Parser[str]):
    """Parser of one of some words, in any spelling and with any text around it.

    A single letter counts only as a capital, unless it is the whole reply.

    >>> OneOf(("yes", "no")).parse("**Yes**, because nobody else did.")
    'yes'
    >>> OneOf(("relevant", "not relevant")).parse("Label: NOT_RELEVANT")
    'not relevant'
    """

    options: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.options or not all(re.search(r"\w", option) for option in self.options):
            raise WiringError(f"OneOf has options={self.options!r:.80}. Write the words: ('yes', 'no').")

    def parse(self, reply: str) -> str:
        text = normalize_reply(reply)
        letters = re.sub(r"[\W_]+", "", text).casefold()
        for option in self.options:
            if letters == re.sub(r"[\W_]+", "", option).casefold():
                return option
        if (choice := _option_words(self.options).find_choice(text)) is not None:
            return choice
        raise ValueError(f"it must be exactly one of: {', '.join(self.options)}")


@lru_cache(maxsize=256)
def _option_words(options: tuple[str, ...]) -> Words[str]:
    letters = all(len(option) == 1 for option in options)
    options_by_pattern = {_option_pattern(option): option for option in options}
    return Words(options_by_pattern, 0 if letters else re.IGNORECASE, ends=all(map(str.isascii, options)))


def _option_pattern(option: str) -> str:
    """Return the pattern of an option, with any blank or mark between its words."""
    parts = [re.escape(part) for part in re.split(r"[\s_-]+", option) if part]
    return r"[\s_-]*".join(parts) or re.escape(option)


_YES = (
    "yes|yeah|yep|yup|ja|oui|sí|"
    "(?:当然|當然)?是的?|对的?|對的?|正确|正確|可以|能|足够|有|"
    "够了|足以|需要|예|네|응|충분합니다|필요합니다|맞습니다|맞아요|그렇습니다|참|"
    "はい|ええ|そうです|その通り|正しい|真"
)
_NO = (
    r"no(?![ \t]+[a-z])|nope|nah|nein|non|"
    "否|不是的?|不对|不對|不正确|错误|不可以|不能|不够|没有|沒有|無|无|假|"
    "不足够|不足以|不需要|아니[오요]?|아뇨|아닙니다|충분하지 않습니다|부족합니다|필요하지 않습니다|필요 없습니다|"
    "틀렸습니다|틀립니다|그렇지 않습니다|거짓|"
    "いいえ|いえ|ううん|そうではありません|違います|正しくない|正しくありません|偽"
)
_POLITE = r"(?:입니다|です|だ)?"
_STRONG = Words({f"(?:{_YES}){_POLITE}": True, f"(?:{_NO}){_POLITE}": False})
_WEAK = Words({"true|correct|right|y": True, "false|incorrect|wrong|n": False})
_NO_FIRST = re.compile(r"[\W_]*no\b", re.IGNORECASE)


@dataclass(frozen=True)
class YesNo(Parser[bool]):
    """Parser of yes (True) or no (False); also in Chinese, Korean, Japanese, German, French and Spanish.

    >>> YesNo().parse("No.")
    False
    >>> YesNo().parse("答案：是的，文中有。"), YesNo().parse("아니요, 없습니다."), YesNo().parse("はい")
    (True, False, True)
    """

    def parse(self, reply: str) -> bool:
        text = normalize_reply(reply)
        if (verdict := _STRONG.find_choice(text)) is not None:
            return verdict
        if _NO_FIRST.match(text):  # `no doubt` is no verdict, but a reply that begins so is
            return False
        if (verdict := _WEAK.find_choice(text)) is not None:
            return verdict
        raise ValueError("it must be exactly one of: yes, no")
