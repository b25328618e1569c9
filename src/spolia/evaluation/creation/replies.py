"""Parsers of the replies of a model that writes questions and answers."""

import re
from dataclasses import dataclass
from typing import Any

from spolia.generation.reader import abstains
from spolia.indexing.transforms.llm_transform import Questions
from spolia.models.parsers import Headed, Parser, refuses, says_nothing, strip_thoughts
from spolia.models.parsers.json_object import parse_loose

_AROUND = re.compile(
    r"^\s*(?:>\s*)?(?:[-*•]\s+)?(?:[⟦\[(]?\d{1,2}[\]⟧.):]+\s+)?[\"“”„「『]?|[\"“”」』]?(?:\s*[⟦\[]\d{1,2}[\]⟧]\.?)?\s*$"
)
"""What models write around a sentence that they copy: bullets, numbers of passages, quotation marks."""
MOST_HOPS = 4
"""Passages of one question, at most."""
_ORDINALS = ("first", "second", "third", "fourth")
_HOPS = tuple(f"{ordinal} {part}" for ordinal in _ORDINALS[:MOST_HOPS] for part in ("question", "answer"))


_MARKS = "?？؟;՞፧⸮"
_ENDS = re.compile(rf"[{_MARKS}][\"'”’»」』)\]}}*_`]*$")
_UNMARKED = re.compile(
    r"(?:か|까요?|나요|은가|는가|인가|습니까)[。.]?$|(?:什么|什麼|谁|誰|哪|几|幾|多少|如何|为何|為何|为什么|為什麼|怎|吗|嗎|呢).*$|"
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff][。.]?$"
)
"""Questions in scripts whose questions need no mark."""
_NONE = re.compile(r"[\W_]*none\b\s*[-–—:;.,(]", re.IGNORECASE)
_BOXED = re.compile(r"\\(?:boxed|text)\{([^{}]*)\}")
_LABELLED = re.compile(r"^[\W_]*(?:(?:final|new|my)\s+)?question\s*[*_]*[:：]", re.IGNORECASE)
_TALK = re.compile(
    r"^(?:ok(?:ay)?|sure|well|hmm|alright|certainly|of course|let me|let['’]s|here)\b[^?？]*?[.!:]\s+(?=\S)",
    re.IGNORECASE,
)
# The possessive `*+` keeps long runs of blanks from backtracking.
_FENCE = re.compile(r"^[^\S\n]*+(?:```|~~~).*$", re.MULTILINE)


@dataclass(frozen=True)
class OneQuestion(Parser[tuple[str, ...]]):
    """The question of a reply, without the text around it; nothing for the word `none`.

    It ends with a question mark, except in scripts that use none. Other text is not a question: a reply that was
    cut off, or one that follows the text in place of asking about it.

    >>> OneQuestion().parse('Sure!\\n```json\\n{"why": "Is it clear?", "question": "Who is he?"}\\n```')
    ('Who is he?',)
    >>> OneQuestion().parse("1. Who is\\nhe? (He is Ann's son.)"), OneQuestion().parse("None: it states no fact.")
    (('Who is he?',), ())
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        text = _BOXED.sub(r"\1", strip_thoughts(reply))
        if says_nothing(text) or _NONE.match(text):
            return ()
        text = _read_json(text).get("question", text)
        lines = [line.strip() for line in _FENCE.sub("", text).splitlines() if line.strip()]
        if not lines or refuses(" ".join(lines)):
            raise ValueError("it must be one question")
        # A reply may think aloud before it labels its question.
        lines = [line for index, line in enumerate(lines) if _LABELLED.match(line) and line.rstrip("*_ :：")] or lines
        index = next((index for index, line in enumerate(lines) if _ENDS.search(line)), None)
        index = index if index is not None else next((index for index, line in enumerate(lines) if _asks(line)), None)
        if index is None:
            raise ValueError("it must be one question, with a question mark at its end")
        question = _TALK.sub("", " ".join(lines[_find_start(lines, index) : index + 1]))
        if (last := max(question.rfind(mark) for mark in _MARKS)) >= 0 and not _ENDS.search(question):
            question = question[: last + 1]
        return Questions().parse(question)[:1]


def _asks(line: str) -> bool:
    """Return whether a line has a question in it."""
    return any(mark in line for mark in "?？؟") or _UNMARKED.search(line) is not None


def _find_start(lines: list[str], index: int) -> int:
    """Return where the question of a line begins: a line that begins in mid-sentence continues the one before."""
    while index and lines[index][:1].islower() and not re.search(r"[.!?:;]$", lines[index - 1]):
        index -= 1
    return index


def _read_json(reply: str) -> dict[str, Any]:
    """Return the texts and lists of a JSON object, by name; empty without one."""
    text = _FENCE.sub("", reply)
    start = re.search(r"^[^\S\n]*+(\{)", text, re.MULTILINE)
    if start is None:
        return {}
    try:
        parsed = parse_loose(text, start.start(1))
    except ValueError:
        return {}
    pairs = parsed.items() if isinstance(parsed, dict) else ()
    return {str(name).strip().casefold(): value for name, value in pairs if isinstance(value, str | list)}


@dataclass(frozen=True)
class AnswerWithQuotes(Parser[tuple[str, tuple[str, ...]]]):
    """An answer and the sentences that it follows from; no sentences where the reply says that it does not know.

    >>> AnswerWithQuotes().parse("Answer: 508\\nQuotes:\\n- “Clovis made Paris his capital in 508.”")
    ('508', ('Clovis made Paris his capital in 508.',))
    >>> AnswerWithQuotes().parse("I do not know.")
    ('I do not know.', ())
    """

    def parse(self, reply: str) -> tuple[str, tuple[str, ...]]:
        text = strip_thoughts(reply)
        if leaves_open(text):
            return text, ()
        fields = _read_json(text)
        if isinstance(fields.get("answer"), str) and isinstance(fields.get("quotes"), list):
            parts = {"answer": fields["answer"].strip(), "quotes": "\n".join(map(str, fields["quotes"]))}
        else:
            parts = Headed(("answer", "quotes")).parse(reply)
        if leaves_open(parts["answer"]):
            return parts["answer"], ()
        if not parts["answer"]:
            raise ValueError("it must have an answer after 'Answer:'")
        lines = (_AROUND.sub("", line) for line in parts["quotes"].splitlines())
        return parts["answer"], tuple(dict.fromkeys(line for line in lines if line))


@dataclass(frozen=True)
class HopQuestions(Parser[tuple[str, ...]]):
    """Two to four simple questions with their answers, and the question that asks all; nothing for the word `none`.

    >>> said = "First question: Where is X?\\nFirst answer: Y\\nSecond question: Who runs Y?\\nSecond answer: Z\\n"
    >>> HopQuestions().parse(said + "Question: Who runs the town of X?")
    ('Where is X?', 'Y', 'Who runs Y?', 'Z', 'Who runs the town of X?')
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        if says_nothing(strip_thoughts(reply)):
            return ()
        parts = Headed((*_HOPS[:4], "question"), optional=_HOPS[4:]).parse(reply)
        last = max(index for index, name in enumerate(_HOPS) if parts.get(name))
        # The last question that the reply has needs its answer, too.
        names = (*_HOPS[: last + 1 + (last % 2 == 0)], "question")
        if missing := [name for name in names if not parts.get(name)]:
            raise ValueError(f"it must have a text after '{missing[0].capitalize()}:'")
        *simple, question = (parts[name] for name in names)
        return (*simple, *OneQuestion().parse(question))


_UNSAID = re.compile(
    r"\W*(?:(?:sorry|unfortunately|抱歉|对不起)\W+)?(?:"
    r"the (?:given |provided )?(?:passages?|texts?|documents?|contexts?) (?:do(?:es)?(?: not|n['’]t)|did not) \w+|"
    r"(?:(?:it|this|that|the answer) is )?not (?:explicitly )?"
    r"(?:stated|mentioned|specified|said|given|provided|available|in the)\b|"
    r"(?:there is )?no (?:answer|information|mention)\b|(?:it )?cannot be (?:determined|answered|found)|"
    r"i (?:cannot|can['’]t|could not) (?:answer|tell|determine|find|know)|(?:unknown|unanswerable|n/?a)\W*$|"
    r"(?:[^，。]{0,8}(?:段落|文中|文章|原文|文本|本文)[中里]?)?(?:没有|沒有|并未|並未|未)"
    r"(?:提到|提及|说明|說明|给出|給出|提供|回答)|(?:无法|無法)(?:确定|確定|回答|得知)|(?:未知|不详|不詳)\W*$|"
    r"[^.,]{0,40}(?:언급|명시|제시|기재)(?:되|돼)[^.]{0,6}(?:않|없)|[^.,]{0,30}(?:답|정보|내용|언급)[이은는가]? 없|"
    r"[^.,]{0,30}나와 있지 않|알 수 없|"
    r"[^。、]{0,30}(?:記載|言及|記述|情報)[がは]?(?:ありません|ない|なし|されていな|されていませ)|"
    r"[^。、]{0,30}(?:述べら|書か|記さ|示さ)れて(?:いません|いない|おらず)|(?:分|わ)かりません|不明\W*$)",
    re.IGNORECASE,
)
"""Ways to say that the passages do not answer, at the beginning of an answer."""


def leaves_open(answer: str) -> bool:
    """Return whether an answer says that it is not known, or that the passages do not say.

    >>> leaves_open("I don't know."), leaves_open("段落中没有提到。"), leaves_open("Nobody knows it, said Ann.")
    (True, True, False)
    """
    return abstains(answer, False) or _UNSAID.match(answer) is not None
