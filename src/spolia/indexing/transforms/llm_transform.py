"""Base of the transforms that ask a language model, and the parsers of its replies about a text."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Generic, TypeVar

from spolia.core.operator import Operator
from spolia.core.run_context import note
from spolia.core.type_compatibility import refuse_numbers
from spolia.models.parsers import Lines, Parser, refuses, says_nothing, strip_thoughts
from spolia.models.parsers.json_object import parse_loose
from spolia.models.parsers.lines import CLOSING, RULE
from spolia.models.prompting.role import Ask, Role
from spolia.models.prompting.template import Setting, shorten
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Part, Piece, Pieces

LONGEST_PHRASE = 6
"""Words; what has more is a sentence, and so is what has more than `LONGEST_NAME` characters."""
LONGEST_NAME = 80

_FENCE = re.compile(r"^[^\S\n]*+```.*$", re.MULTILINE)
_LABEL = re.compile(r"^[^\W\d][\w ]{0,30}[:：]\s+")
_BETWEEN = re.compile(r"[,;、，；]")
_QUOTES = " \t*_`\"'“”„‘’«»「」『』."
_QUESTION_MARK = re.compile(r"[?？؟;]")
_TURN = re.compile(
    r"(?:^(?:[^\S\n]|[*_#>•-])*+(?:\d{1,3}[.)]\s*+)?|(?<=[?？])[^\S\n]+)[*_]*+"
    r"(?:(q|question|问题?|問題?|질문|문|質問)|a|answer|答案?|回答|답변?|대답)"
    r"\s*+[(（#]?(?:(?:\d{0,3}|[一二三四五六七八九十]{1,3})[)）]?[*_]*+\s*+[:：]|\d{1,3}[*_]*+[.)、])[*_]*+\s*+",
    re.IGNORECASE | re.MULTILINE,
)
_DOTTED = re.compile(r"^[^\S\n]*+[*_]*+(?:(q)|a)[*_]*+\.[*_]*+[^\S\n]++", re.IGNORECASE | re.MULTILINE)
"""`Q. …` and `A. …`, which may be letters of a list too."""
_HEADING = re.compile(r"\s*+#{1,6}\s")


def _clean_lines(reply: str) -> list[str]:
    """Return the lines without bullets, fences, repetitions, and lines that only introduce others."""
    lines = Lines(1000).parse(_FENCE.sub("", reply) or reply)
    return [line for line in lines if not line.endswith((":", "："))]


@dataclass(frozen=True)
class Phrases(Parser[tuple[str, ...]]):
    """Words and short phrases, one a line, or on one line between commas; each once, whatever its case.

    >>> Phrases().parse("Keywords: tide, Moon, 'tide'")
    ('tide', 'Moon')
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        if says_nothing(reply := strip_thoughts(reply)):
            return ()
        lines = _clean_lines(reply)
        phrases = _BETWEEN.split(_LABEL.sub("", lines[0])) if len(lines) == 1 else lines
        distinct: dict[str, str] = {}
        for phrase in (phrase.strip(_QUOTES) for phrase in phrases):
            if 0 < len(phrase) <= LONGEST_NAME and len(phrase.split()) <= LONGEST_PHRASE:
                distinct.setdefault(phrase.casefold(), phrase)
        if not distinct:
            raise ValueError("it must be words or short phrases, one a line")
        return tuple(distinct.values())


@dataclass(frozen=True)
class Questions(Parser[tuple[str, ...]]):
    """Questions, one a line; where some lines have a question mark, only those.

    >>> Questions().parse("Sure, here you are.\\n1. Who is he?\\n2. Where is he?")
    ('Who is he?', 'Where is he?')
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        if says_nothing(reply := strip_thoughts(reply)):
            return ()
        lines = [_TURN.sub("", line).strip("*_ ") for line in _clean_lines(reply)]
        questions = [line for line in lines if _QUESTION_MARK.search(line)] or [line for line in lines if line]
        if not questions:
            raise ValueError("it must be questions, one a line")
        return tuple(dict.fromkeys(questions))


_UNANSWERED = re.compile(r"\W*(?:n ?/ ?a|i (?:do not|don['’]t) know)\W*", re.IGNORECASE)


@dataclass(frozen=True)
class QuestionsWithAnswers(Parser[tuple[tuple[str, str], ...]]):
    """Pairs of a line that begins with `Q:` and one that begins with `A:`, of one or more lines. Or JSON.

    Questions without an answer (`N/A`, `I don't know`) are left out.

    >>> QuestionsWithAnswers().parse("**Q1:** Who pulls?\\n**A1:** The moon.\\nQ: And")
    (('Who pulls?', 'The moon.'),)
    """

    def parse(self, reply: str) -> tuple[tuple[str, str], ...]:
        if says_nothing(reply := strip_thoughts(reply)):
            return ()
        stated = _find_json_pairs(reply) or [*self._find_pairs(reply, _TURN)] or self._find_pairs(reply, _DOTTED)
        pairs = {question: answer for question, answer in stated if not refuses(answer)}
        answered_pairs = {question: answer for question, answer in pairs.items() if not _UNANSWERED.fullmatch(answer)}
        if not pairs:
            raise ValueError("it must be pairs of lines, 'Q: ...' and then 'A: ...'")
        return tuple(answered_pairs.items())

    def _find_pairs(self, reply: str, turn: re.Pattern[str]) -> Iterator[tuple[str, str]]:
        lines = (
            line for line in _FENCE.sub("", reply).split("\n") if not RULE.match(line) and not CLOSING.search(line)
        )
        content = (line for line in lines if not _HEADING.match(line) or turn.match(line))
        parts = turn.split("\n".join(content))[1:]  # the word for a question or None, its text, …
        texts = (" ".join(text.split()).strip("*_ ") for text in parts[1::2])
        turns = zip((word is not None for word in parts[::2]), texts, strict=True)
        for (asks, question), (asks_again, answer) in pairwise(turns):
            if asks and not asks_again and question and answer:
                yield question, answer


_QUESTION_KEYS = ("question", "q", "问题", "問題", "问", "질문", "質問")
_ANSWER_KEYS = ("answer", "a", "答案", "答", "回答", "답변", "답", "대답")


def _find_json_pairs(reply: str) -> list[tuple[str, str]]:
    """Return the pairs of objects in JSON with a question and an answer."""
    begins = re.search(r"[\[{]\s*[\[{\"']", reply)
    if begins is None:
        return []
    objects = [line for line in reply.split("\n") if line.lstrip().startswith("{") and line.rstrip(", ").endswith("}")]
    texts = objects if begins[0][0] == "{" and len(objects) > 1 else [reply[begins.start() :]]
    pairs: list[tuple[str, str]] = []
    for text in texts:
        with suppress(ValueError):
            pairs += _walk_json(parse_loose(text.lstrip(), 0), 0)
    return pairs


def _walk_json(data: object, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        fields = {str(name).strip().casefold(): answer for name, answer in data.items()}
        question, answer = (
            next((fields[entry] for entry in names if entry in fields), None)
            for names in (_QUESTION_KEYS, _ANSWER_KEYS)
        )
        if isinstance(question, str) and question.strip() and isinstance(answer, str) and answer.strip():
            yield " ".join(question.split()), " ".join(answer.split())
            return
        if all(
            isinstance(entry, str) and entry.strip() and _QUESTION_MARK.search(str(name))
            for name, entry in data.items()
        ):
            yield from ((" ".join(str(name).split()), " ".join(str(entry).split())) for name, entry in data.items())
            return
    if isinstance(data, dict | list) and depth < 5:  # a reply may nest as deep as it likes
        for inner in data.values() if isinstance(data, dict) else data:
            yield from _walk_json(inner, depth + 1)


@dataclass(frozen=True)
class NamesWithKinds(Parser[tuple[tuple[str, str], ...]]):
    """Name and kind on each line, with a bar between them.

    >>> NamesWithKinds().parse("- Clovis | Person\\n| Paris | place |")
    (('Clovis', 'person'), ('Paris', 'place'))
    """

    def parse(self, reply: str) -> tuple[tuple[str, str], ...]:
        if says_nothing(reply := strip_thoughts(reply)):
            return ()
        rows = [
            [cell.strip(_QUOTES) for cell in line.strip("| ").split("|")] for line in _clean_lines(reply) if "|" in line
        ]
        kinds = {row[0]: row[1].casefold() for row in rows if row[0] and row[1:] and row[0].lower() != "name"}
        pairs = tuple((name, kind) for name, kind in kinds.items() if any(map(str.isalnum, name)))
        if not pairs:
            raise ValueError("it must be one entity a line, written: name | kind")
        return pairs


T = TypeVar("T")
CHARACTERS = 24_000
"""Characters of a text that a model sees, by default: some 6,000 tokens of English, 16,000 of Chinese."""


class LLMTransform(Operator[Part, Pieces], Generic[T]):
    """Base of the transforms that ask a language model one thing about the text of a node.

    A subclass is a frozen dataclass with these fields and one more, whose name is `limit`: how much the model is asked
    for, which the prompt shows at the place of that name. The subclass writes `pieces`. A blank text makes no nodes,
    and no call. A text that is too long is shortened in its middle, which the prompt shows and the trace notes. The
    cache key depends on prompt and text alone, not on ids, so that a moved or copied document costs nothing. A reply
    that cannot be read is sent back once (`Role`); then the result is counted as degraded.

    Args:
        llm: the language model.
        role: prompt file, reader of the reply, what holds when it cannot be read. The file has a place `{{text}}`, may
            have one `{{heading}}` (title and headings above the text), and those of the class.
        characters: of a text that are shown at most.
        max_tokens: longest reply.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read, or lacks `{{text}}`.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.
    """

    llm: LanguageModel
    role: Role[T]
    characters: int
    max_tokens: int

    limit: ClassVar[str]

    def __post_init__(self) -> None:
        refuse_numbers(self, "a number of at least 1", self.limit, "characters", "max_tokens")

    @abstractmethod
    def pieces(self, reply: T, part: Part, /) -> Iterable[Piece]:
        """Return the pieces that a reply stands for."""

    def places(self) -> Mapping[str, str]:
        """Return values for the prompt's places beside text and heading."""
        return {self.limit: str(getattr(self, self.limit))}

    def fanout(self, rows: int | None = None, /) -> int | None:
        return int(getattr(self, self.limit))

    def apply(self, value: Part, /) -> Pieces:
        if not value.node.text.strip():
            return ()
        if len(value.node.text) > self.characters:
            place = f"node {value.node.id} of {value.document.uri or value.document.id}"
            note(
                f"The model is shown {self.characters} of the {len(value.node.text)} characters of {place}. "
                "Write a larger characters, or a parent of smaller nodes."
            )
        self.role.refuse_without("text")
        settings = {name: Setting(setting) for name, setting in self.places().items()}
        text, heading = shorten(value.node.text, self.characters), value.node.context or value.document.title
        reply = Ask(self.llm, self.role, self.max_tokens).reply(0, text=text, heading=heading, **settings)
        return tuple(self.pieces(reply, value))

    def reads(self, value: Part, /) -> object:
        return value.node.text, value.node.context or value.document.title

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls
