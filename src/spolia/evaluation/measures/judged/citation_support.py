"""Support of an answer's sentences by the passages that they cite."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from spolia.core.sentences import sentences
from spolia.evaluation.measures.answers.answer_text import require_answer
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements, judging_role
from spolia.evaluation.measures.measure import Result
from spolia.models.parsers import YesNo
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.protocols import LanguageModel
from spolia.types import Answer, Item

CitedSentence: TypeAlias = tuple[str, tuple[str, ...]]
"""A sentence without its markers, and the passages that it cites."""

SUPPORTED: Role[bool | None] = judging_role("supported", YesNo())
_MARKER = re.compile(r"\[(\d{1,4})\]")
_LEADING = re.compile(r"(?:\[\d{1,4}\]\s?)+")


@dataclass(frozen=True)
class _Support(JudgedMeasure):
    llm: LanguageModel
    role: Role[bool | None] = SUPPORTED

    def judge_support(self, pairs: Sequence[CitedSentence]) -> list[bool | None]:
        """Return whether each sentence follows from its passages; a sentence without passages does not."""
        citing = [(sentence, passages) for sentence, passages in pairs if passages]
        briefs = [Brief.from_texts(passages=passages, statement=sentence) for sentence, passages in citing]
        verdicts = iter(judgements(Ask(self.llm, self.role), briefs))
        # No call is made for a sentence that cites nothing: its verdict is known.
        return [next(verdicts) if passages else False for _, passages in pairs]


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

    notation: ClassVar[str] = "ALCE-R"

    def score(self, result: Result, item: Item) -> float | None:
        verdicts = self.judge_support(cited_sentences(require_answer(result)))
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

    notation: ClassVar[str] = "ALCE-P"

    def score(self, result: Result, item: Item) -> float | None:
        pairs = [pair for pair in cited_sentences(require_answer(result)) if pair[1]]
        verdicts = self.judge_support(pairs)
        needed_by_pair = [
            self._judge_needed(*pair, bool(supported)) for pair, supported in zip(pairs, verdicts, strict=True)
        ]
        needed = [flag for flags in needed_by_pair for flag in flags]
        return None if not needed or None in verdicts or None in needed else sum(map(bool, needed)) / len(needed)

    def _judge_needed(self, sentence: str, passages: tuple[str, ...], supported: bool) -> list[bool | None]:
        """Return for each citation whether it suffices alone, or the others do not suffice without it."""
        # No call is needed: a sentence that does not follow needs none, and a single citation is all of it.
        if not supported or len(passages) == 1:
            return [supported] * len(passages)
        alone_verdicts = self.judge_support([(sentence, (passage,)) for passage in passages])
        remainders = [(sentence, passages[:index] + passages[index + 1 :]) for index in range(len(passages))]
        # Only citations that do not suffice alone need a second call.
        remainder_verdicts = self.judge_support(
            [pair for pair, enough in zip(remainders, alone_verdicts, strict=True) if not enough]
        )
        needed_verdicts = iter([None if verdict is None else not verdict for verdict in remainder_verdicts])
        return [True if enough else next(needed_verdicts) if enough is False else None for enough in alone_verdicts]


def cited_sentences(answer: Answer) -> list[CitedSentence]:
    """Split an answer into sentences and what each cites; markers after a full stop belong to the sentence before them.

    >>> from spolia.types import Citation
    >>> answer = Answer("It is salt. [1] It is old.", (Citation("1", "n", "d", "a.txt", "Salt."),))
    >>> cited_sentences(answer)
    [('It is salt.', ('Salt.',)), ('It is old.', ())]
    """
    if answer.abstained:
        return []
    quotes: dict[str, str] = {}
    for citation in answer.citations:  # a marker may stand for several smaller passages
        quotes[citation.marker] = (
            f"{quotes[citation.marker]}\n{citation.quote}" if citation.marker in quotes else citation.quote
        )
    parts: list[tuple[str, list[str]]] = []
    for start, end in sentences(answer.text):
        text = answer.text[start:end]
        if parts and (leading := _LEADING.match(text)):
            parts[-1][1].extend(_MARKER.findall(leading[0]))
            text = text[leading.end() :]
        if plain := " ".join(_MARKER.sub(lambda marker: "" if marker[1] in quotes else marker[0], text).split()):
            parts.append((plain.replace(" .", "."), _MARKER.findall(text)))
    return [
        (text, tuple(dict.fromkeys(quotes[marker] for marker in markers if marker in quotes)))
        for text, markers in parts
    ]
