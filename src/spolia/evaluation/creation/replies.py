"""What is read out of the replies of a model that writes questions and answers."""

import re
from dataclasses import dataclass

from spolia.generation.reader import abstains
from spolia.models.parsers import Headed, Parser, says_nothing, spoken

_AROUND = re.compile(
    r"^\s*(?:>\s*)?(?:[-*•]\s+)?(?:[⟦\[(]?\d{1,2}[\]⟧.):]+\s+)?[\"“”„「『]?|[\"“”」』]?(?:\s*[⟦\[]\d{1,2}[\]⟧]\.?)?\s*$"
)
"""What models write around a sentence that they copy: bullets, numbers of passages, quotation marks."""
MOST_HOPS = 4
"""Passages of one question, at most."""
_ORDINALS = ("first", "second", "third", "fourth")
_HOPS = tuple(f"{ordinal} {part}" for ordinal in _ORDINALS[:MOST_HOPS] for part in ("question", "answer"))


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
        if abstains(said, False):
            return said, ()
        found = Headed(("answer", "quotes")).parse(reply)
        if abstains(found["answer"], False):
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
        return tuple(found[name] for name in names)
