"""A model that writes and judges questions about a fictional world, from nothing but what its prompt shows.

It has no memory and knows no fact: it reads the sentences of the passages, and the words of the question. With `errs`
it makes the mistakes of real models in that share of its replies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from spolia.core.sentences import sentences
from spolia.evaluation.simulation.world import RELATIONS, FactKind, _nested_question
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.types import Prompt

UNKNOWN = "I do not know."
ABSENT = ("What is the favourite dish of {a}?", "Which instrument does {a} play on Sundays?")
"""What no document of the world says."""


@dataclass(frozen=True)
class Fact:
    """A sentence of a passage, and what it says."""

    relation: str
    a: str
    b: str
    sentence: str
    passage: int


def pattern(template: str) -> re.Pattern[str]:
    """A sentence or question with places, as a regular expression."""
    a, b = "(?P<a>[^.?]+?)", "(?P<b>[^.?]+?)"
    return re.compile(re.escape(template).replace(r"\{a\}", a).replace(r"\{b\}", b), re.DOTALL)


SAID = [(one.name, pattern(said)) for one in RELATIONS for said in one.sentences]
ASKED = {one.name: pattern(one.question) for one in RELATIONS}
DESCRIBED = {one.name: pattern(one.phrase) for one in RELATIONS}
BEGAN = re.compile(r"(?P<a>[^.?]+) was (?:born|founded|published|chartered) in (?P<b>[0-9]{4})\.")
COMPARED = re.compile(r"Which is from an earlier year, (?P<one>.+) or (?P<other>.+)\?")


def facts_of(passages: Sequence[str]) -> list[Fact]:
    """What passages say, sentence by sentence."""
    return [fact for number, text in enumerate(passages) for fact in _read_facts(text, number)]


def _read_facts(text: str, passage: int) -> Iterator[Fact]:
    for start, end in sentences(text):
        sentence = text[start:end].strip()
        if year := BEGAN.fullmatch(sentence):
            yield Fact("year", year["a"], year["b"], sentence, passage)
        for name, sentence_pattern in SAID:
            match = sentence_pattern.fullmatch(sentence)
            if match and not year:
                yield Fact(name, match["a"], match["b"], sentence, passage)


def parse_question(question: str) -> tuple[str, tuple[str, ...]] | None:
    """What a question starts from, and the relations that lead to its answer; None for another question."""
    for name, question_pattern in ASKED.items():
        if match := question_pattern.fullmatch(question):
            about, path = match["a"], [name]
            while inner := next(
                ((relation, m) for relation, w in DESCRIBED.items() if (m := w.fullmatch(about))), None
            ):
                path.append(inner[0])
                about = inner[1]["a"]
            return about, tuple(path[::-1])
    return None


def answer_from(question: str, passages: Sequence[str]) -> tuple[str, tuple[Fact, ...]] | None:
    """The answer that passages give to a question, and the facts that say so."""
    facts = facts_of(passages)
    if compared := COMPARED.fullmatch(question):
        years = [next((f for f in facts if (f.relation, f.a) == ("year", compared[first])), None) for first in (1, 2)]
        first, second = years
        return (
            (min(first, second, key=lambda f: f.b).a, (first, second))
            if first and second and first.b != second.b
            else None
        )
    if (start_and_relations := parse_question(question)) is None:
        return None
    entity, used = start_and_relations[0], list[Fact]()
    for relation in start_and_relations[1]:
        fact = next((fact for fact in facts if (fact.relation, fact.a) == (relation, entity)), None)
        if fact is None:
            return None
        used.append(fact)
        entity = fact.b
    return entity, tuple(used)


_BLOCK = re.compile(r'<passages number="\d+">\n(.*?)\n</passages>', re.DOTALL)
_NUMBERED = re.compile(r"^\[\d+\] (.*?)(?=^\[\d+\] |\n<question>)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class WorldModel(ScriptedModel):
    """Writes and judges questions about a fictional world.

    Args:
        errs: share of replies with a mistake.
    """

    replies: tuple[tuple[str, str], ...] = (("", ""),)
    name: str = "world"
    errs: float = 0.0

    def _reply(self, prompt: Prompt) -> str:
        text = prompt.text
        chance = int.from_bytes(blake2b(text.encode(), digest_size=4).digest()) / 2**32
        passages = _BLOCK.findall(text) or [match.strip() for match in _NUMBERED.findall(text)]
        question = question_match[1] if (question_match := re.search(r"<question>(.*)</question>", text)) else ""
        mistake = int(chance / self.errs * 97) if chance < self.errs else None
        for begins, reply in (
            ("You write one question that the passage answers", self._factoid),
            ("You write one question that needs all", self._joined),
            ("You write one question that compares", self._compared),
            ("You write one question that fits", self._lacking),
            ("You answer a question from the passages alone", self._answer),
        ):
            if begins in text:
                return reply(passages, question, mistake)
        if "You check an answer" in text:
            answer_match, truth = re.search(r"<answer>(.*)</answer>", text), answer_from(question, passages)
            return "yes" if answer_match and truth and answer_match[1] == truth[0] else "no"
        if "You judge whether" in text:
            return "No." if " it " in question else "Yes."
        answer_and_facts = answer_from(question, passages)
        return f"{answer_and_facts[0]} [1]." if answer_and_facts else UNKNOWN

    def _factoid(self, passages: Sequence[str], _: str, mistake: int | None) -> str:
        facts = [fact for fact in facts_of(passages) if fact.relation != "year"]
        if not facts:
            return "none"
        fact = facts[len(passages[0]) % len(facts)]
        question = relation_named(fact.relation).question.format(a=fact.a)
        wrong = ("What does the passage say?", "When was it founded?", f"Is it {fact.b} that {fact.a} is about?",
                 "I'm sorry, but I cannot help with that.", "", question[:12], f"```json\n[\"{question}\"]\n```",
                 f"<think>Which one? So?</think>\n{question}", f"Sure! Here is one:\n\n1. {question}")  # fmt: skip
        return question if mistake is None else wrong[mistake % len(wrong)]

    def _joined(self, passages: Sequence[str], _: str, mistake: int | None) -> str:
        for way in (list(passages), list(passages)[::-1]):
            facts = [[fact for fact in facts_of([passage]) if fact.relation != "year"] for passage in way]
            for path in paths(facts):
                if len(dict.fromkeys([path[0].a, *(fact.b for fact in path)])) <= len(path):
                    continue
                relations = [relation_named(fact.relation) for fact in path]
                if mistake is not None and mistake % 2:  # a question of the first passage alone
                    return hops(path[::-1], _nested_question(relations[:1], path[0].a))
                if mistake is not None:  # a question that names a link
                    return hops(path, _nested_question(relations[1:], path[1].a))
                return hops(path, _nested_question(relations, path[0].a))
        return "none"

    def _compared(self, passages: Sequence[str], _: str, mistake: int | None) -> str:
        years = [fact for fact in facts_of(passages) if fact.relation == "year"]
        if len({fact.passage for fact in years}) < 2:
            return "none"
        first, second = years[0], years[0 if mistake is not None else -1]
        return f"Which is from an earlier year, {first.a} or {second.a}?"

    def _lacking(self, passages: Sequence[str], _: str, mistake: int | None) -> str:
        facts = facts_of(passages)
        if not facts:
            return "none"
        if mistake is not None:  # which another document answers, or this one
            return next(
                (
                    relation_named(relation.name).question.format(a=fact.b)
                    for fact in facts
                    if fact.relation != "year"
                    for relation in RELATIONS
                    if relation.subject == relation_named(fact.relation).target
                ),
                "none",
            )
        return ABSENT[len(passages[0]) % 2].format(a=facts[0].a)

    def _answer(self, passages: list[str], question: str, mistake: int | None) -> str:
        answer_and_facts = answer_from(question, passages)
        if answer_and_facts is None:
            return UNKNOWN if mistake is None else "Answer: Nobody\nQuotes:\nNobody at all."
        answer, facts = answer_and_facts
        quoted = [fact.sentence for fact in facts]
        if mistake is not None:
            used = {fact.passage for fact in facts}
            other_sentences = [
                facts_of([text])[0].sentence for number, text in enumerate(passages) if number not in used
            ]
            wrong: tuple[tuple[str, list[str]], ...] = (
                (answer, [*quoted, *other_sentences]), (answer, [text.replace(" ", " so ", 1) for text in quoted]),
                (answer, quoted[:1]), (answer, []), (facts[0].a, quoted), (facts[-1].b + " or so", quoted),
            )  # fmt: skip
            answer, quoted = wrong[mistake % len(wrong)]
        return "\n".join((f"Answer: {answer}", "Quotes:", *quoted))


def relation_named(relation: str) -> FactKind:
    """A relation by its name."""
    return next(kind for kind in RELATIONS if kind.name == relation)


def paths(facts: Sequence[Sequence[Fact]]) -> Iterator[list[Fact]]:
    """Facts that follow each other, one of each passage."""
    for first in facts[0]:
        if len(facts) == 1:
            yield [first]
        else:
            yield from ([first, *rest] for rest in paths(facts[1:]) if rest[0].a == first.b)


def hops(path: Sequence[Fact], question: str) -> str:
    """The reply with the simple questions of a path."""
    lines = []
    for ordinal, fact in zip(("First", "Second", "Third", "Fourth"), path, strict=False):
        lines += [
            f"{ordinal} question: {relation_named(fact.relation).question.format(a=fact.a)}",
            f"{ordinal} answer: {fact.b}",
        ]
    return "\n".join((*lines, f"Question: {question}"))
