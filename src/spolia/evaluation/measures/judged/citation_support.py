"""Whether what an answer says follows from the passages that it cites there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spolia.core.sentences import sentences
from spolia.evaluation.measures.answers.answer_text import answer_in
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements, judging_role
from spolia.evaluation.measures.measure import Result
from spolia.models.parsers import YesNo
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Item

Cited: TypeAlias = tuple[str, tuple[str, ...]]
"""A sentence without its markers, and the passages that it cites."""

SUPPORTED: Role[bool | None] = judging_role("supported", YesNo())
_MARKER = re.compile(r"\[(\d{1,4})\]")
_LEADING = re.compile(r"(?:\[\d{1,4}\]\s?)+")


@dataclass(frozen=True)
class _Support(JudgedMeasure):
    llm: LanguageModel
    role: Role[bool | None] = SUPPORTED

    def supports(self, pairs: Sequence[Cited]) -> list[bool | None]:
        """Whether each sentence follows from the passages beside it; from no passage nothing does."""
        asked = [(sentence, passages) for sentence, passages in pairs if passages]
        briefs = [Brief.of(passages=passages, statement=sentence) for sentence, passages in asked]
        told = iter(judgements(Ask(self.llm, self.role), briefs))
        return [next(told) if passages else False for _, passages in pairs]


@dataclass(frozen=True)
class SupportRecall(_Support):
    """Share of the answer's sentences that follow from all that they cite; one that cites nothing does not.

    An abstention is undetermined, and so is an answer with an undetermined sentence. One call for each sentence that
    cites.

    Args:
        llm: the judge, in place of the paper's entailment model.
        role: prompt file with the places `{{passages}}` and `{{statement}}`, and the reader of the reply.

    Source: citation recall of ALCE, Gao et al. 2023.

    >>> from spolia import Citation, ScriptedModel
    >>> answer = Answer("It is salt. [1] It is old.", (Citation("1", "n", "d", "a.txt", "Salt, all of it."),))
    >>> measure = SupportRecall(ScriptedModel(("yes",)))
    >>> str(measure), measure.score(answer, Item("q", "?"))
    ('ALCE-R(llm="scripted")', 0.5)
    """

    called: ClassVar[str] = "ALCE-R"

    def score(self, result: Result, item: Item) -> float | None:
        verdicts = self.supports(cited_sentences(answer_in(result)))
        return None if not verdicts or None in verdicts else sum(map(bool, verdicts)) / len(verdicts)


@dataclass(frozen=True)
class SupportPrecision(_Support):
    """Share of the citations that are needed, or suffice alone, for a sentence that follows from all that it cites.

    An answer without citations is undetermined. Up to two calls for each citation beside those of `ALCE-R`, which a
    cache shares.

    Args:
        llm: the judge, in place of the paper's entailment model.
        role: prompt file with the places `{{passages}}` and `{{statement}}`, and the reader of the reply.

    Source: citation precision of ALCE, Gao et al. 2023.

    >>> from spolia import Citation, ScriptedModel
    >>> cited = (Citation("1", "n", "d", "a.txt", "Salt, all of it."), Citation("2", "m", "d", "a.txt", "Owls."))
    >>> measure = SupportPrecision(ScriptedModel((("Salt", "yes"), ("", "no"))))
    >>> str(measure), measure.score(Answer("It is white [1][2].", cited), Item("q", "?"))
    ('ALCE-P(llm="scripted")', 0.5)
    """

    called: ClassVar[str] = "ALCE-P"

    def score(self, result: Result, item: Item) -> float | None:
        pairs = [pair for pair in cited_sentences(answer_in(result)) if pair[1]]
        verdicts = self.supports(pairs)
        found = [self._needed(*pair, bool(whole)) for pair, whole in zip(pairs, verdicts, strict=True)]
        needed = [one for each in found for one in each]
        return None if not needed or None in verdicts or None in needed else sum(map(bool, needed)) / len(needed)

    def _needed(self, sentence: str, passages: tuple[str, ...], whole: bool) -> list[bool | None]:
        """Of each citation: whether it suffices alone, or the others do not suffice without it."""
        if not whole or len(passages) == 1:
            return [whole] * len(passages)
        alone = self.supports([(sentence, (passage,)) for passage in passages])
        others = [(sentence, passages[:at] + passages[at + 1 :]) for at in range(len(passages))]
        without = self.supports([pair for pair, enough in zip(others, alone, strict=True) if not enough])
        rest = iter([None if verdict is None else not verdict for verdict in without])
        return [True if enough else next(rest) if enough is False else None for enough in alone]


def cited_sentences(answer: Answer) -> list[Cited]:
    """The sentences of an answer and what each cites; markers after a full stop belong to the sentence before them.

    >>> from spolia.types import Citation
    >>> answer = Answer("It is salt. [1] It is old.", (Citation("1", "n", "d", "a.txt", "Salt."),))
    >>> cited_sentences(answer)
    [('It is salt.', ('Salt.',)), ('It is old.', ())]
    """
    if answer.abstained:
        return []
    quotes: dict[str, str] = {}
    for one in answer.citations:  # a marker may stand for several smaller passages
        quotes[one.marker] = f"{quotes[one.marker]}\n{one.quote}" if one.marker in quotes else one.quote
    found: list[tuple[str, list[str]]] = []
    for start, end in sentences(answer.text):
        text = answer.text[start:end]
        if found and (leading := _LEADING.match(text)):
            found[-1][1].extend(_MARKER.findall(leading[0]))
            text = text[leading.end() :]
        if plain := " ".join(_MARKER.sub(lambda marker: "" if marker[1] in quotes else marker[0], text).split()):
            found.append((plain.replace(" .", "."), _MARKER.findall(text)))
    return [
        (text, tuple(dict.fromkeys(quotes[marker] for marker in markers if marker in quotes)))
        for text, markers in found
    ]
