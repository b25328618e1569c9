"""What is read out of the replies of a model that writes questions and answers."""

import re
from dataclasses import dataclass
from typing import Any

from spolia.generation.reader import abstains
from spolia.indexing.transforms.llm_transform import Questions
from spolia.models.parsers import Headed, Parser, refuses, says_nothing, spoken
from spolia.models.parsers.json_object import loose

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
        said = _BOXED.sub(r"\1", spoken(reply))
        if says_nothing(said) or _NONE.match(said):
            return ()
        said = _in_json(said).get("question", said)
        lines = [line.strip() for line in _FENCE.sub("", said).splitlines() if line.strip()]
        if not lines or refuses(" ".join(lines)):
            raise ValueError("it must be one question")
        lines = [line for at, line in enumerate(lines) if _LABELLED.match(line) and line.rstrip("*_ :：")] or lines
        at = next((at for at, line in enumerate(lines) if _ENDS.search(line)), None)
        at = at if at is not None else next((at for at, line in enumerate(lines) if _asks(line)), None)
        if at is None:
            raise ValueError("it must be one question, with a question mark at its end")
        found = _TALK.sub("", " ".join(lines[_begin(lines, at) : at + 1]))
        if (last := max(found.rfind(mark) for mark in _MARKS)) >= 0 and not _ENDS.search(found):
            found = found[: last + 1]
        return Questions().parse(found)[:1]


def _asks(line: str) -> bool:
    """Whether a line has a question in it."""
    return any(mark in line for mark in "?？؟") or _UNMARKED.search(line) is not None


def _begin(lines: list[str], at: int) -> int:
    """Where the question of a line begins: a line that begins in mid-sentence goes on with the one before."""
    while at and lines[at][:1].islower() and not re.search(r"[.!?:;]$", lines[at - 1]):
        at -= 1
    return at


def _in_json(said: str) -> dict[str, Any]:
    """The texts and lists of a JSON object, by name; empty without one."""
    text = _FENCE.sub("", said)
    begins = re.search(r"^[^\S\n]*+(\{)", text, re.MULTILINE)
    if begins is None:
        return {}
    try:
        found = loose(text, begins.start(1))
    except ValueError:
        return {}
    named = found.items() if isinstance(found, dict) else ()
    return {str(name).strip().casefold(): one for name, one in named if isinstance(one, str | list)}


@dataclass(frozen=True)
class AnswerWithQuotes(Parser[tuple[str, tuple[str, ...]]]):
    """An answer and the sentences that it follows from; no sentences where the reply says that it does not know.

    >>> AnswerWithQuotes().parse("Answer: 508\\nQuotes:\\n- “Clovis made Paris his capital in 508.”")
    ('508', ('Clovis made Paris his capital in 508.',))
    >>> AnswerWithQuotes().parse("I do not know.")
    ('I do not know.', ())
    """

    def parse(self, reply: str) -> tuple[str, tuple[str, ...]]:
        said = spoken(reply)
        if leaves_open(said):
            return said, ()
        stated = _in_json(said)
        if isinstance(stated.get("answer"), str) and isinstance(stated.get("quotes"), list):
            found = {"answer": stated["answer"].strip(), "quotes": "\n".join(map(str, stated["quotes"]))}
        else:
            found = Headed(("answer", "quotes")).parse(reply)
        if leaves_open(found["answer"]):
            return found["answer"], ()
        if not found["answer"]:
            raise ValueError("it must have an answer after 'Answer:'")
        lines = (_AROUND.sub("", line) for line in found["quotes"].splitlines())
        return found["answer"], tuple(dict.fromkeys(line for line in lines if line))


@dataclass(frozen=True)
class HopQuestions(Parser[tuple[str, ...]]):
    """Two to four simple questions with their answers, and the question that asks all; nothing for the word `none`.

    >>> said = "First question: Where is X?\\nFirst answer: Y\\nSecond question: Who runs Y?\\nSecond answer: Z\\n"
    >>> HopQuestions().parse(said + "Question: Who runs the town of X?")
    ('Where is X?', 'Y', 'Who runs Y?', 'Z', 'Who runs the town of X?')
    """

    def parse(self, reply: str) -> tuple[str, ...]:
        if says_nothing(spoken(reply)):
            return ()
        found = Headed((*_HOPS[:4], "question"), optional=_HOPS[4:]).parse(reply)
        last = max(at for at, name in enumerate(_HOPS) if found.get(name))
        names = (*_HOPS[: last + 1 + (last % 2 == 0)], "question")
        if missing := [name for name in names if not found.get(name)]:
            raise ValueError(f"it must have a text after '{missing[0].capitalize()}:'")
        *simple, question = (found[name] for name in names)
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
    """Whether an answer says that it is not known, or that the passages do not say.

    >>> leaves_open("I don't know."), leaves_open("段落中没有提到。"), leaves_open("Nobody knows it, said Ann.")
    (True, True, False)
    """
    return abstains(answer, False) or _UNSAID.match(answer) is not None
