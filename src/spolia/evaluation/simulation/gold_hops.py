"""What a question needs to be answered, hop by hop, and where that is stated."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from spolia.core.sentences import sentences
from spolia.pre_retrieval.query_llm import alike
from spolia.types import Item, SubQuestion, Value

_WORD = re.compile(r"\w+")
_REFERENCE = re.compile(r"#(\d{1,2})(?!\d)")


@lru_cache(maxsize=1 << 16)
def plain(text: str) -> str:
    """The words of a text in one case, with one blank between them and around them.

    >>> plain("The  Moon, pulls!")
    ' the moon pulls '
    """
    return f" {' '.join(_WORD.findall(unicodedata.normalize('NFKC', text).casefold()))} "


@dataclass(frozen=True)
class Hop(Value):
    """A sub-question of a question.

    Args:
        question: with `#1` for the answer of the first hop.
        answer: what it is answered by.
        stated: sentences of its gold passage, any of which states the answer, as `plain` has them.
        passage: its gold passage.
    """

    question: str
    answer: str
    stated: tuple[str, ...] = ()
    passage: str = ""

    @property
    def needs(self) -> tuple[int, ...]:
        """Numbers of the hops whose answers its question has places for."""
        return tuple(int(number) for number in _REFERENCE.findall(self.question))

    def asked(self, answers: Mapping[int, str]) -> str:
        """The question with answers in their places; as it is where one is missing."""
        return _REFERENCE.sub(lambda found: answers.get(int(found[1]), found[0]), self.question)

    def is_visible(self, passages: Iterable[str], *, strict: bool = True) -> bool:
        """Whether a passage states the answer.

        Args:
            strict: in the words of the gold passage; else a passage that holds the answer and half of the other words
                of a sentence that states it will do.
        """
        for passage in map(plain, passages):
            if any(sentence in passage for sentence in self.stated):
                return True
            if not strict and plain(self.answer) in passage and any(_overlaps(one, passage) for one in self.stated):
                return True
        return False


def _overlaps(sentence: str, passage: str) -> bool:
    words, held = set(sentence.split()), set(passage.split())
    return 2 * len(words & held) >= len(words)


@dataclass(frozen=True)
class GoldChain(Value):
    """A question with its hops.

    Args:
        pseudo: whether the hops were made of several gold passages, since the data set has no decomposition.
    """

    item: Item
    hops: tuple[Hop, ...]
    pseudo: bool = False

    @classmethod
    def of(cls, item: Item, texts: Mapping[str, tuple[str, str]]) -> "GoldChain":
        """The chain of an item.

        Args:
            texts: title and text of the gold passages, by id.
        """
        held = {one: texts[one] for group in item.gold for one in group[:1] if isinstance(one, str) and one in texts}
        gold = list(held.values())
        if item.decomposition:
            free = [held[one] for one in held if all(one != hop.gold_id for hop in item.decomposition)]
            answers = [one.answer for one in item.decomposition]
            hops = tuple(
                _hop(_referring(one.question, item.question, answers[:at]), one.answer, _passage(one, texts, free))
                for at, one in enumerate(item.decomposition)
            )
            return cls(item, hops)
        answer = item.answers[0] if item.answers else ""
        if len(gold) < 2:
            return cls(item, (_hop(item.question, answer, gold[0][1] if gold else ""),))
        return cls(item, _bridge(item.question, answer, gold) or tuple(map(_alone, gold)), pseudo=True)

    def answered(self, chain: Sequence[tuple[str, str]], passages: Sequence[str]) -> dict[int, str]:
        """Answers of the hops that are resolved, by number: said in the chain, or visible with all that they need."""
        said = {alike(question): answer for question, answer in chain}
        found: dict[int, str] = {}
        for number, hop in enumerate(self.hops, 1):
            if any(needed not in found for needed in hop.needs):
                continue
            asked = alike(hop.asked(found))
            if asked in said:
                found[number] = said[asked]
            elif all(found[needed] == self.hops[needed - 1].answer for needed in hop.needs) and hop.is_visible(
                passages
            ):
                found[number] = hop.answer
        return found

    def is_resolved(self, found: Mapping[int, str]) -> bool:
        """Whether each hop has its gold answer."""
        return all(plain(found.get(number, "")) == plain(hop.answer) for number, hop in enumerate(self.hops, 1))


def _passage(hop: SubQuestion, texts: Mapping[str, tuple[str, str]], free: Sequence[tuple[str, str]]) -> str:
    """The gold passage of a hop; of one that names none, the gold passage of no other hop that holds its answer."""
    if hop.gold_id:
        return texts.get(hop.gold_id, ("", ""))[1]
    wanted = plain(hop.answer)
    return next((text for _, text in free if wanted in plain(text)), free[0][1] if free else "")


def _referring(hop: str, question: str, answers: Sequence[str]) -> str:
    """A hop's question with `#1` for the first answer where it names that, and the whole question does not.

    Decompositions that are triples name the answers that lead to them: "Denys Desjardins >> place of birth".

    >>> _referring("Denys Desjardins >> place of birth", "Where was its director born?", ["Denys Desjardins"])
    '#1 >> place of birth'
    """
    subject, arrow, relation = hop.partition(" >> ")
    if not arrow or plain(subject) in plain(question):
        return hop
    words = set(plain(subject).split())
    shares = [len(words & set(plain(answer).split())) for answer in answers]
    return f"#{shares.index(max(shares)) + 1}{arrow}{relation}" if any(shares) else hop


def _hop(question: str, answer: str, passage: str) -> Hop:
    wanted = plain(answer)
    stated = tuple(one for start, end in sentences(passage) if wanted in (one := plain(passage[start:end])))
    return Hop(question, answer, stated or ((plain(passage),) if passage else ()), passage)


def _alone(gold: tuple[str, str]) -> Hop:
    """A passage that is needed for itself: what it says first is its answer."""
    title, text = gold
    start, end = next(iter(sentences(text)), (0, len(text)))
    return _hop(title, text[start:end], text)


def _bridge(question: str, answer: str, gold: Sequence[tuple[str, str]]) -> tuple[Hop, ...]:
    """Two hops, where one of two passages names the other's title; else none."""
    for (_, first), (title, second) in ((gold[0], gold[1]), (gold[1], gold[0])) if len(gold) == 2 else ():
        if title and plain(title) in plain(first) and plain(answer) in plain(second):
            return (_hop(question, title, first), _hop(f"{question} #1", answer, second))
    return ()


__all__ = ["GoldChain", "Hop", "plain"]
