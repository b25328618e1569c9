"""Hops of a question: what each needs to be answered, and which passages state it."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from spolia.core.sentences import sentences
from spolia.pre_retrieval.query_llm import normalize_text
from spolia.types import Item, SubQuestion, Value

_WORD = re.compile(r"\w+")
_REFERENCE = re.compile(r"#(\d{1,2})(?!\d)")
_QUALIFIER = re.compile(r"\s*\([^()]*\)$")


# The same passages are compared with each hop in every prompt that shows them.
@lru_cache(maxsize=1 << 16)
def plain(text: str) -> str:
    """Return the words of a text in one case, with one blank between them and around them.

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
        companions: what else has to be stated, where several passages together answer it.
    """

    question: str
    answer: str
    stated: tuple[str, ...] = ()
    passage: str = ""
    companions: "tuple[Hop, ...]" = ()

    @property
    def needs(self) -> tuple[int, ...]:
        """Return the numbers of the hops whose answers its question has places for."""
        return tuple(int(number) for number in _REFERENCE.findall(self.question))

    def fill_question(self, answers: Mapping[int, str]) -> str:
        """Fill answers into the places of the question; a place whose answer is missing stays."""
        return _REFERENCE.sub(lambda match: answers.get(int(match[1]), match[0]), self.question)

    def is_visible(self, passages: Iterable[str], *, strict: bool = True) -> bool:
        """Return whether a passage states the answer, and passages state all companions.

        Args:
            strict: in the words of the gold passage; else a passage that holds the answer and half of the other words
                of a sentence that states it will do.
        """
        texts = list(passages)
        return any(self.is_stated_in(text, strict=strict) for text in texts) and all(
            companion.is_visible(texts, strict=strict) for companion in self.companions
        )

    @property
    def parts(self) -> "tuple[Hop, ...]":
        """Return the hops that have to be stated, each by a passage of its own."""
        return (*self.companions, self)

    def is_supported(self, passage: str) -> bool:
        """Return whether a passage states at least a part of it."""
        return any(part.is_stated_in(passage) for part in self.parts)

    def is_stated_in(self, passage: str, *, strict: bool = True) -> bool:
        """Return whether one passage states the answer."""
        text = plain(passage)
        if any(sentence in text for sentence in self.stated):
            return True
        return not strict and plain(self.answer) in text and any(_overlaps(sentence, text) for sentence in self.stated)


def _overlaps(sentence: str, passage: str) -> bool:
    words, passage_words = set(sentence.split()), set(passage.split())
    return 2 * len(words & passage_words) >= len(words)


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
    def from_item(cls, item: Item, texts: Mapping[str, tuple[str, str]]) -> "GoldChain":
        """Return the chain of an item.

        Args:
            texts: title and text of the gold passages, by id.
        """
        # The members of a group are alternatives, so its first member stands for it.
        texts_by_id = {id: texts[id] for group in item.gold for id in group[:1] if isinstance(id, str) and id in texts}
        gold = list(texts_by_id.values())
        if item.decomposition:
            free_passages = [
                texts_by_id[id] for id in texts_by_id if all(id != hop.gold_id for hop in item.decomposition)
            ]
            answers = [hop.answer for hop in item.decomposition]
            hops = tuple(
                _make_hop(
                    _insert_reference(hop.question, item.question, answers[:index]),
                    hop.answer,
                    _find_passage(hop, texts, free_passages),
                )
                for index, hop in enumerate(item.decomposition)
            )
            return cls(item, hops)
        answer = item.answers[0] if item.answers else ""
        if len(gold) < 2:
            return cls(item, (_make_hop(item.question, answer, gold[0][1] if gold else ""),))
        return cls(item, _pseudo_hops(item.question, answer, gold), pseudo=True)

    def resolve_hops(
        self, chain: Sequence[tuple[str, str]], passages: Sequence[str], free_hops: Collection[int] = ()
    ) -> dict[int, str]:
        """Return the answers of the hops that are resolved, by number: stated in the chain, or visible with all that
        they need.

        Args:
            free_hops: numbers of the hops that need no passage, nor any other hop.
        """
        chain_answers = {normalize_text(question): answer for question, answer in chain}
        answers: dict[int, str] = {}
        for number, hop in enumerate(self.hops, 1):
            if any(needed not in answers for needed in hop.needs):
                if number in free_hops:
                    answers[number] = hop.answer
                continue
            question = normalize_text(hop.fill_question(answers))
            if question in chain_answers:
                answers[number] = chain_answers[question]
            elif number in free_hops or (
                all(answers[needed] == self.hops[needed - 1].answer for needed in hop.needs)
                and hop.is_visible(passages)
            ):
                answers[number] = hop.answer
        return answers

    def is_resolved(self, answers: Mapping[int, str]) -> bool:
        """Return whether each hop has its gold answer."""
        return all(
            number in answers and plain(answers[number]) == plain(hop.answer) for number, hop in enumerate(self.hops, 1)
        )


def _find_passage(
    hop: SubQuestion, texts: Mapping[str, tuple[str, str]], free_passages: Sequence[tuple[str, str]]
) -> str:
    """Return the gold passage of a hop; if it names none, the gold passage of no other hop that holds its answer."""
    if hop.gold_id:
        return texts.get(hop.gold_id, ("", ""))[1]
    answer = plain(hop.answer)
    return next(
        (text for _, text in free_passages if answer in plain(text)), free_passages[0][1] if free_passages else ""
    )


def _insert_reference(hop: str, question: str, answers: Sequence[str]) -> str:
    """Write `#1` into a hop's question for the first answer, if it names that and the whole question does not.

    Decompositions that are triples name the answers that lead to them: "Denys Desjardins >> place of birth".

    >>> _insert_reference("Denys Desjardins >> place of birth", "Where was its director born?", ["Denys Desjardins"])
    '#1 >> place of birth'
    """
    subject, arrow, relation = hop.partition(" >> ")
    if not arrow or plain(subject) in plain(question):
        return hop
    words = set(plain(subject).split())
    shares = [len(words & set(plain(answer).split())) for answer in answers]
    return f"#{shares.index(max(shares)) + 1}{arrow}{relation}" if any(shares) else hop


def _make_hop(question: str, answer: str, passage: str) -> Hop:
    plain_answer = plain(answer)
    stated = tuple(
        sentence for start, end in sentences(passage) if plain_answer in (sentence := plain(passage[start:end]))
    )
    # If no sentence has the answer, all of the passage has to be visible.
    return Hop(question, answer, stated or ((plain(passage),) if passage else ()), passage)


def _pseudo_hops(question: str, answer: str, gold: Sequence[tuple[str, str]]) -> tuple[Hop, ...]:
    """Make the hops of a question without a decomposition.

    Each passage by itself, where the question names all of their titles; a bridge from one passage to the other; else
    one hop that needs all of them. So no hop asks for a name that neither the question nor an earlier answer holds.
    """
    plain_question = plain(question)
    if all(title and plain(_bare_title(title)) in plain_question for title, _ in gold):
        return tuple(_single_hop(_bare_title(title), text) for title, text in gold)
    return _bridge(question, answer, gold) or (_joint_hop(question, answer, gold),)


def _bare_title(title: str) -> str:
    """Remove the qualifier of a title: "Lilu (mythology)" is "Lilu"."""
    return _QUALIFIER.sub("", title) or title


def _single_hop(question: str, text: str) -> Hop:
    """Make the hop of a passage that is needed for itself: its first sentence is the answer."""
    start, end = next(iter(sentences(text)), (0, len(text)))
    return _make_hop(question, text[start:end], text)


def _bridge(question: str, answer: str, gold: Sequence[tuple[str, str]]) -> tuple[Hop, ...]:
    """Make two hops if one of two passages names the other's title; else none."""
    for (_, first), (title, second) in ((gold[0], gold[1]), (gold[1], gold[0])) if len(gold) == 2 else ():
        name = _bare_title(title)
        is_new = name and plain(name) not in plain(question)
        if is_new and plain(name) in plain(first) and plain(answer) in plain(second):
            return (_make_hop(question, name, first), _make_hop(f"{question} #1", answer, second))
    return ()


def _joint_hop(question: str, answer: str, gold: Sequence[tuple[str, str]]) -> Hop:
    """Make a hop of the question itself, which its passages answer together."""
    texts = [text for _, text in gold]
    last = next((index for index, text in enumerate(texts) if plain(answer) in plain(text)), len(texts) - 1)
    companions = tuple(_single_hop(question, text) for index, text in enumerate(texts) if index != last)
    stating = (
        _make_hop(question, answer, texts[last])
        if plain(answer) in plain(texts[last])
        else _single_hop(question, texts[last])
    )
    return Hop(question, answer, stating.stated, texts[last], companions)


__all__ = ["GoldChain", "Hop", "plain"]
