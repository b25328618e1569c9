"""What a question needs to be answered, hop by hop, and where that is stated."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from spolia.core.sentences import sentences
from spolia.pre_retrieval.query_llm import alike
from spolia.types import Item, SubQuestion, Value

_WORD = re.compile(r"\w+")
_REFERENCE = re.compile(r"#(\d{1,2})(?!\d)")
_QUALIFIER = re.compile(r"\s*\([^()]*\)$")


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
        beside: what else has to be stated, where several passages together answer it.
    """

    question: str
    answer: str
    stated: tuple[str, ...] = ()
    passage: str = ""
    beside: "tuple[Hop, ...]" = ()

    @property
    def needs(self) -> tuple[int, ...]:
        """Numbers of the hops whose answers its question has places for."""
        return tuple(int(number) for number in _REFERENCE.findall(self.question))

    def asked(self, answers: Mapping[int, str]) -> str:
        """The question with answers in their places; as it is where one is missing."""
        return _REFERENCE.sub(lambda found: answers.get(int(found[1]), found[0]), self.question)

    def is_visible(self, passages: Iterable[str], *, strict: bool = True) -> bool:
        """Whether a passage states the answer, and passages state what is needed beside it.

        Args:
            strict: in the words of the gold passage; else a passage that holds the answer and half of the other words
                of a sentence that states it will do.
        """
        texts = list(passages)
        return any(self.is_stated_in(text, strict=strict) for text in texts) and all(
            one.is_visible(texts, strict=strict) for one in self.beside
        )

    @property
    def parts(self) -> "tuple[Hop, ...]":
        """What has to be stated, each by a passage of its own."""
        return (*self.beside, self)

    def is_supported(self, passage: str) -> bool:
        """Whether a passage states at least a part of it."""
        return any(one.is_stated_in(passage) for one in self.parts)

    def is_stated_in(self, passage: str, *, strict: bool = True) -> bool:
        """Whether one passage states the answer."""
        text = plain(passage)
        if any(sentence in text for sentence in self.stated):
            return True
        return not strict and plain(self.answer) in text and any(_overlaps(one, text) for one in self.stated)


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
        return cls(item, _pseudo_hops(item.question, answer, gold), pseudo=True)

    def answered(
        self, chain: Sequence[tuple[str, str]], passages: Sequence[str], known: Collection[int] = ()
    ) -> dict[int, str]:
        """Answers of the hops that are resolved, by number: said in the chain, or visible with all that they need.

        Args:
            known: numbers of the hops that need no passage, nor any other hop.
        """
        said = {alike(question): answer for question, answer in chain}
        found: dict[int, str] = {}
        for number, hop in enumerate(self.hops, 1):
            if any(needed not in found for needed in hop.needs):
                if number in known:
                    found[number] = hop.answer
                continue
            asked = alike(hop.asked(found))
            if asked in said:
                found[number] = said[asked]
            elif number in known or (
                all(found[needed] == self.hops[needed - 1].answer for needed in hop.needs) and hop.is_visible(passages)
            ):
                found[number] = hop.answer
        return found

    def is_resolved(self, found: Mapping[int, str]) -> bool:
        """Whether each hop has its gold answer."""
        return all(
            number in found and plain(found[number]) == plain(hop.answer) for number, hop in enumerate(self.hops, 1)
        )


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


def _pseudo_hops(question: str, answer: str, gold: Sequence[tuple[str, str]]) -> tuple[Hop, ...]:
    """Hops of a question without a decomposition.

    Each passage by itself, where the question names all of their titles; a bridge from one passage to the other; else
    one hop that needs all of them. So no hop asks for a name that neither the question nor an earlier answer holds.
    """
    asked = plain(question)
    if all(title and plain(_bare(title)) in asked for title, _ in gold):
        return tuple(_alone(_bare(title), text) for title, text in gold)
    return _bridge(question, answer, gold) or (_joint(question, answer, gold),)


def _bare(title: str) -> str:
    """A title without what tells it apart from others of its name: "Lilu (mythology)" is "Lilu"."""
    return _QUALIFIER.sub("", title) or title


def _alone(question: str, text: str) -> Hop:
    """A passage that is needed for itself: what it says first is its answer."""
    start, end = next(iter(sentences(text)), (0, len(text)))
    return _hop(question, text[start:end], text)


def _bridge(question: str, answer: str, gold: Sequence[tuple[str, str]]) -> tuple[Hop, ...]:
    """Two hops, where one of two passages names the other's title; else none."""
    for (_, first), (title, second) in ((gold[0], gold[1]), (gold[1], gold[0])) if len(gold) == 2 else ():
        name = _bare(title)
        is_new = name and plain(name) not in plain(question)
        if is_new and plain(name) in plain(first) and plain(answer) in plain(second):
            return (_hop(question, name, first), _hop(f"{question} #1", answer, second))
    return ()


def _joint(question: str, answer: str, gold: Sequence[tuple[str, str]]) -> Hop:
    """The question itself, which its passages answer together."""
    texts = [text for _, text in gold]
    last = next((at for at, text in enumerate(texts) if plain(answer) in plain(text)), len(texts) - 1)
    beside = tuple(_alone(question, text) for at, text in enumerate(texts) if at != last)
    stating = (
        _hop(question, answer, texts[last]) if plain(answer) in plain(texts[last]) else _alone(question, texts[last])
    )
    return Hop(question, answer, stating.stated, texts[last], beside)


__all__ = ["GoldChain", "Hop", "plain"]
