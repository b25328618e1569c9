"""Prompts about a query's text, and parsers of the replies. Each parser reads `none` as nothing."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from spolia.core.operator import Operator
from spolia.core.type_compatibility import refuse_counts
from spolia.models.parsers import Lines, Parser, Text, list_texts, refuses, says_nothing, strip_thoughts
from spolia.models.parsers.lines import unwrap_text
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.protocols import LanguageModel
from spolia.types import Query

_LABEL = re.compile(
    r"^\W*+(?:here(?: is|['’]s) )?(?:(?:the|a|my|your) )?"
    r"(?:(?:rewritten|search|new|next|follow[- ]?up|intermediate|simpler?|abstract|step[- ]?back|general|better|"
    r"改写后?的?)\s*){0,2}(?:question|query|search|passage|问题|查询|質問|질문)(?:\s*#?\d{1,2})?[\s*_]*[:：][\s*_]*",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"^[^\w\n]*+(?:(?:(?:sub[- ]?)?question|step|q|子?问题|子?問題|步骤|步驟|第|(?:하위 )?질문|단계|"
    r"サブ質問|質問|ステップ|手順)\s*+)?"
    r"#?(\d{1,2})\s*+(?:(?:步|个问题|단계|번)\s*+)?[.:)）：、．]+\**\s*(\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_TAG = re.compile(r"</?\w+(?:\s[^<>]*)?>")
_ANSWER_OF = re.compile(r"[#＃](\d{1,3})(?!\d)")
_QUOTED = re.compile(
    r"""(?:\*\*|__)?(?:"([^"]+)"|“([^”]+)”|«([^»]+)»|「([^」]+)」|『([^』]+)』|`([^`]+)`|'([^']+)')(?:\*\*|__)?"""
)


@dataclass(frozen=True)
class Searches(Parser[tuple[str, ...]]):
    """Texts to search for, one a line: without numbers, bullets, blank lines, quotes and repetitions.

    >>> Searches().parse("Sure:\\n1. author of Emma\\n\\n2) author of Emma\\n3. who wrote 'Emma'")
    ('author of Emma', "who wrote 'Emma'")
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        if says_nothing(strip_thoughts(reply)):
            return ()
        # all of them: repetitions are left out before any are cut
        lines = (_strip_quotes(line) for line in Lines(1000).parse(reply))
        texts: dict[str, str] = {}
        for line in lines:
            if normalize_text(line) and not line.endswith((":", "：")):  # a line with a colon announces the others
                texts.setdefault(normalize_text(line), line)
        if not texts:
            raise ValueError("it must be what to search for, one a line")
        return tuple(texts.values())


@dataclass(frozen=True)
class Steps(Parser[tuple[str, ...]]):
    """Sub-questions, one a line; `#1` in one stands for the answer of the first. Numbers follow the order of the lines.

    >>> Steps().parse("Sub-questions:\\n1: Who employs Olsen?\\n2: Who employs Olsen?\\n3: Where is #2?")
    ('Who employs Olsen?', 'Where is #1?')
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        reply_text = strip_thoughts(reply)
        if says_nothing(reply_text):
            return ()
        lines = Lines(1000).parse(reply)
        matches = (
            []
            if list_texts(reply_text)
            else [(int(number), text) for number, text in _STEP.findall(_TAG.sub("", reply_text))]
        )
        if len(matches) == len(lines):  # the lines go on where a step does
            matches = [(number, line) for (number, _), line in zip(matches, lines, strict=True)]
        numbered = matches if len(matches) > 1 else list(enumerate(lines, 1))
        places: dict[str, int] = {}
        new_numbers: dict[int, int] = {}
        steps: list[str] = []
        for number, text in numbered:
            step = _ANSWER_OF.sub(
                lambda needed: f"#{_renumber(needed, new_numbers)}", _strip_quotes(_LABEL.sub("", text))
            )
            if normalize_text(step) and normalize_text(step) not in places and not refuses(step):
                steps.append(step)
                places[normalize_text(step)] = len(steps)
            # A repeated step stands for the first one; 0 for one that was left out, which `_renumber` refuses.
            new_numbers[number] = places.get(normalize_text(step), 0)
        if not steps:
            raise ValueError("it must be questions, one a line, with their numbers")
        return tuple(steps)


@dataclass(frozen=True)
class OneText(Parser[str]):
    """One text, without quotes, bold type, fences, and a number or label before it; may be empty. No refusal.

    >>> OneText().parse("Here it is:\\n2. Sub-question 2: Where is Nokia?")
    'Where is Nokia?'
    >>> OneText().parse('**Rewritten query:** "author of Emma"'), OneText().parse("None.")
    ('author of Emma', '')
    """

    def parse(self, reply: str) -> str:
        text = unwrap_text(Text().parse(reply))
        if refuses(text):
            raise ValueError("it must be the text that was asked for, and it is a refusal")
        return "" if says_nothing(text) else _strip_quotes(_LABEL.sub("", text))


def _renumber(match: re.Match[str], new_numbers: dict[int, int]) -> int:
    """Return the number of the step whose answer is needed."""
    if not new_numbers.get(int(match[1])):
        raise ValueError(f"a line may use the answers of lines before it alone, and one uses {match[0]}")
    return new_numbers[int(match[1])]


def _strip_quotes(text: str) -> str:
    """Return a text on one line, without bold type and quotes around it."""
    line = " ".join(text.split()).strip("*_ ")
    quoted = _QUOTED.fullmatch(line)
    return next(filter(None, quoted.groups())) if quoted else line


def normalize_text(text: str) -> str:
    """Return a text without case, blanks and punctuation, so that equal meanings compare equal. C# is not C++."""
    return " ".join(re.findall(r"[\w#+]+", text.casefold()))


Out = TypeVar("Out", covariant=True)


class QueryLLM(Operator[Query, Out], Generic[Out]):
    """Base of operators that ask a language model about the text of a query.

    A subclass is a frozen dataclass with these fields, and writes `apply` with `self.said(query)`. The question is in
    the user's message, between tags that it cannot close; no word of it is in the system's. A reply that cannot be read
    is sent back once (`Role`); then the query goes on as it was, and the result is counted as degraded.

    Args:
        llm: the language model.
        role: prompt file, reader of the reply, what holds when it cannot be read. The file has a place `{{question}}`
            and may have those of the class.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read, or lacks `{{question}}`.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.
    """

    llm: LanguageModel
    role: Role[Any]
    max_tokens: int
    temperature: float

    counts: ClassVar[tuple[str, ...]] = ("max_tokens",)
    shows: ClassVar[tuple[str, ...]] = ("question",)
    """Places that no prompt of it may lack."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, *self.counts)

    def read_reply(self, query: Query, **places: str | tuple[str, ...]) -> Any:
        """Return the parsed reply about the query's text; `places` fill the other places of the prompt."""
        return self.ask(self.brief(query, **places))

    @property
    def ask(self) -> Ask:
        return Ask(self.llm, self.role, self.max_tokens, self.temperature)

    def brief(self, query: Query, **places: str | tuple[str, ...]) -> Brief:
        self.role.refuse_without(*self.shows)
        return Brief.from_texts(query.sample, question=query.text, **places)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.ask.calls()
