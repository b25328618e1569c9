"""Filters: why a question is no good for measuring, one reason each."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain
from typing import ClassVar

from spolia.core.call_bounds import total
from spolia.core.operator import Retriever
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import WiringError
from spolia.evaluation.creation.draft import ABSTENTION, CHARACTERS, DraftFilter, Places, QuestionDraft, shown_passages
from spolia.evaluation.creation.replies import leaves_open
from spolia.evaluation.creation.writers import ANSWER
from spolia.evaluation.measures.answers.string_match import F1, Accuracy
from spolia.generation.reader import ClosedBook, Reader
from spolia.models.parsers import YesNo
from spolia.models.prompting.role import Role
from spolia.models.protocols import LanguageModel
from spolia.stores.lexical.analysis import UNSPACED
from spolia.types import Node, Query, Quote

_SAME = F1(words="unicode")
_STANDS_IN = Accuracy(words="unicode")
ALIKE = 0.8
"""F1 of the words from which on two answers are taken for the same."""


def is_same_answer(answer: str, answers: Sequence[str]) -> bool:
    """Return whether an answer is one of others, by its words."""
    return bool(_SAME.score_text(answer, list(answers)) >= ALIKE)


def _judging_role(file: str) -> Role[bool]:
    return Role(f"spolia:evaluation/creation/prompts/{file}.txt", YesNo())


SELF_CONTAINED, ANSWERABLE = map(_judging_role, ("self_contained", "answerable"))


@dataclass(frozen=True)
class KeepAnswered(DraftFilter):
    """Drop a question whose answer says that it is not known (AutoRAG's "don't know"), or that its passages do not say.

    In English, Chinese, Korean and Japanese, by rule; `KeepAnswerable` finds the rest.

    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> answers = ("I don't know.", "The passage does not say.", "本文には記載がありません。", "Nobody")
    >>> [KeepAnswered()(QuestionDraft("factoid", (), question="Who?", answers=(one,))).reason for one in answers]
    ['its passages do not answer it', 'its passages do not answer it', 'its passages do not answer it', '']
    """

    version: ClassVar[int] = 2

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        answer = value.answers[0] if value.answers else ""
        return "" if answer and not leaves_open(answer) else "its passages do not answer it", value


@dataclass(frozen=True)
class KeepQuoted(DraftFilter):
    """Find the copied words in the passages: they become the gold. Drop a question if they do not occur.

    Blanks, the shapes of quotation marks and dashes, and a full stop at the end aside, the words have to occur letter
    by letter; words around `...` are two quotes. Each passage has to be quoted, since a question of several passages
    that quotes one alone does not need the others.

    >>> from spolia.types import Node, Span
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> node = Node("n", "Clovis made Paris his capital.", "d", span=Span(100, 130))
    >>> draft = QuestionDraft("factoid", (node,), question="Who?", evidence=("made Paris",))
    >>> [str(quote) for quote in KeepQuoted()(draft).quotes], KeepQuoted()(draft.but(evidence=("made Rome",))).reason
    (['d[107:117]'], 'no passage has these words, which the model quoted: made Rome')
    """

    version: ClassVar[int] = 2

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        if not value.evidence:
            return "the model quoted nothing", value
        quotes: list[Quote] = []
        quoted = set[str]()
        for words in chain.from_iterable(split_at_ellipsis(words, value.passages) for words in value.evidence):
            matches = [(node, span) for node in value.passages if (span := place_of(words, node.text)) is not None]
            if not matches:
                return f"no passage has these words, which the model quoted: {words[:80]}", value
            quoted |= {node.id for node, _ in matches}
            node, (start, end) = matches[0]
            offset = node.span.start if node.span is not None else 0
            quotes.append(Quote(node.document, offset + start, node.text[start:end]))
        unused = [node for node in value.passages if node.id not in quoted]
        if unused:
            return f"{len(unused)} of {len(value.passages)} passages are not quoted", value
        return "", value.but(quotes=tuple(dict.fromkeys(quotes)))


_POINTS = re.compile(
    r"\b(?:this|that|these|the (?:given|above|following|provided|present))\s+"
    r"(?:passages?|texts?|paragraphs?|excerpts?|sections?|articles?|documents?|contexts?|tables?|figures?)\b|"
    # “The text of the treaty” points at no passage.
    r"\bthe (?:passages?|texts?|excerpts?|paragraphs?)\b(?! of)|"
    r"\baccording to the (?:articles?|documents?|contexts?)\b|"
    r"(?:该|这个?|此|上述|上面的?|以上|下列)(?:段落|段|文本|文章|文档|章节|节|表格?|图)|(?:本|上|下)(?:文|段|节|表)(?:中|里|提|所|的)|"
    r"(?:이|위|위의|다음|아래|해당|주어진|본)\s?(?:글|단락|문단|문서|본문|텍스트|표|그림|절)(?=에|의|은|는|이|가|을|를|과|와|로|[^가-힣]|$)|본문(?:에|의)|윗글|"
    r"(?:この|上記の|以下の|本)(?:文章|段落|テキスト|文書|節|表|図)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class KeepSelfContained(DraftFilter):
    """Drop a question that only somebody who sees the passage understands (AutoRAG's "passage dependency").

    A question that points at "the passage", "this section" or the like is dropped without asking a model, in English,
    Chinese, Korean and Japanese. Of the others the model says whether they name what they ask about.

    Args:
        llm: the language model.
        role: prompt with the place `{{question}}`, reader of yes and no, and default.
        max_tokens: longest reply.

    >>> from spolia import ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> keep = KeepSelfContained(ScriptedModel((("Clovis", "Yes."), ("", "No."))))
    >>> asked = ("What does the passage say of Clovis?", "When was Clovis born?", "When was he born?")
    >>> [keep(QuestionDraft("factoid", (), question=question)).reason for question in asked]
    ['it points at “the passage”', '', 'nobody understands it who does not see the passage']
    """

    llm: LanguageModel
    role: Role[bool] = SELF_CONTAINED
    max_tokens: int = 16

    def __post_init__(self) -> None:
        refuse_counts(self, "max_tokens")
        self.role.refuse_without("question")

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        if match := _POINTS.search(value.question):
            return f"it points at “{match[0]}”", value
        is_clear, noted = self.ask_model(value, self.llm, self.role, self.max_tokens, {"question": value.question})
        return "" if is_clear else "nobody understands it who does not see the passage", noted

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


@dataclass(frozen=True)
class KeepAnswerable(DraftFilter):
    """Drop a question where a judge says that its passages do not give its answer, or give others too.

    Args:
        llm: the judge; better another model than the one that wrote the answer.
        role: prompt with the places `{{passages}}`, `{{question}}` and `{{answer}}`, reader of yes and no, and default.
        characters: of each passage that are shown.
        max_tokens: longest reply.

    >>> from spolia import Node, ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> draft = QuestionDraft("factoid", (Node("n", "In 508."),), question="When did it rain?", answers=("508",))
    >>> KeepAnswerable(ScriptedModel(("no",)))(draft).reason
    'the judge says that its passages do not give the answer'
    """

    llm: LanguageModel
    role: Role[bool] = ANSWERABLE
    characters: int = CHARACTERS
    max_tokens: int = 16

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")
        self.role.refuse_without("passages", "question", "answer")

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        passages = shown_passages(value, self.characters)
        places: Places = {"passages": passages, "question": value.question, "answer": value.answers[0]}
        is_right, noted = self.ask_model(value, self.llm, self.role, self.max_tokens, places)
        return "" if is_right else "the judge says that its passages do not give the answer", noted

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


_WORD = re.compile(rf"[{UNSPACED}]|[^\W_]+")


@dataclass(frozen=True)
class KeepUnleaked(DraftFilter):
    """Drop a question that gives its answer away, or that is copied from its passage. No model is asked.

    It gives the answer away if the words of the answer occur in the question, in a row; in a comparison, which names
    what it chooses from, they may. So it does where it names the answer of one of its hops. It is copied where one run
    of the passage's words makes up more than `copied` of its own: then word search finds the passage without
    understanding anything. A word is a character in scripts without blanks.

    Args:
        copied: share of the question's words, from 0 to 1.

    >>> from spolia import Node
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> node = Node("n", "Clovis made Paris his capital in 508.")
    >>> for question in ("When, if not in 508?", "Clovis made Paris his capital when?", "Who chose Paris?"):
    ...     KeepUnleaked()(QuestionDraft("factoid", (node,), question=question, answers=("508",))).reason
    'it gives its answer away'
    'it is copied from its passage: “clovis made paris his capital”'
    ''
    """

    copied: float = 0.8

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if not 0 < self.copied <= 1:
            raise WiringError(f"copied is {self.copied}. Write a share above 0, up to 1.")

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        gives_away = value.type != "comparison" and any(
            _STANDS_IN.score_text(value.question, [answer]) for answer in value.answers
        )
        if gives_away:
            return "it gives its answer away", value
        if leaked := [hop.answer for hop in value.hops[:-1] if _STANDS_IN.score_text(value.question, [hop.answer])]:
            return f"it names what one of its hops asks for: {leaked[0][:80]}", value
        question_words = _WORD.findall(value.question.casefold())
        for node in value.passages:
            words = _WORD.findall(node.text.casefold())
            # By default difflib ignores the frequent words of a passage of 200 words or more.
            run = SequenceMatcher(None, question_words, words, autojunk=False).find_longest_match()
            if run.size > self.copied * len(question_words):
                copied_words = " ".join(question_words[run.a : run.a + run.size])
                return f"it is copied from its passage: “{copied_words}”", value
        return "", value


@dataclass(frozen=True)
class KeepUnknown(DraftFilter):
    """Drop a question that a model answers rightly without any document: it measures the model, not the search.

    It is right if the words of an accepted answer occur in the reply, in a row.

    Args:
        llm: the model, best the one that is to be measured.

    >>> from spolia import ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> draft = QuestionDraft("factoid", (), question="What is the capital of France?", answers=("Paris",))
    >>> KeepUnknown(ScriptedModel(("Paris.",)))(draft).reason
    'the model answers it without any document'
    """

    llm: LanguageModel

    version: ClassVar[int] = 2

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        reply = ClosedBook(self.llm)(Query(value.question))
        is_known = not reply.abstained and _STANDS_IN.score_text(reply.text, value.answers) == 1
        return "the model answers it without any document" if is_known else "", value

    def calls(self, rows: int | None = None, /) -> int | None:
        return ClosedBook(self.llm).calls()


@dataclass(frozen=True)
class KeepMultiHop(DraftFilter):
    """Drop a question of several passages that can be answered without one of them.

    For each passage a model is shown all others. A question whose answer is not that of its last hop is dropped without
    asking: what the simple questions lead to and what the whole question asks for are two things then.

    Args:
        llm: the language model.
        role: as of `WriteAnswer`.
        characters: of each passage that are shown.
        max_tokens: longest reply.
        passages: of a question, at most; each costs a call.

    Source: Trivedi et al., "MuSiQue: Multihop questions via single-hop question composition", TACL 2022.

    >>> from spolia import Node, ScriptedModel
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> model = ScriptedModel((("the mayor of Ulm", "Answer: Bo\\nQuotes:\\n-"), ("", "I do not know.")))
    >>> passages = Node("n", "Ann was born in Ulm."), Node("m", "Bo is the mayor of Ulm.")
    >>> draft = QuestionDraft("multi-hop", passages, question="Who is the mayor?", answers=("Bo",))
    >>> KeepMultiHop(model)(draft).reason
    'it is answered without one of its passages'
    """

    llm: LanguageModel
    role: Role[tuple[str, tuple[str, ...]]] = ANSWER
    characters: int = CHARACTERS
    max_tokens: int = 512
    passages: int = 2

    version: ClassVar[int] = 3

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens", "passages")
        self.role.refuse_without("passages", "question")

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        if len(value.passages) < 2:
            return "", value
        if len(value.passages) > self.passages:
            return f"it has {len(value.passages)} passages; the filter has passages={self.passages}", value
        if value.hops and not value.evolved_from and not is_same_answer(value.hops[-1].answer, value.answers):
            return f"its answer is not that of its last hop: {value.hops[-1].answer[:80]}", value
        passages = shown_passages(value, self.characters)
        briefs: list[Places] = [
            {"passages": passages[:index] + passages[index + 1 :], "question": value.question, "abstention": ABSTENTION}
            for index in range(len(passages))
        ]
        replies, noted = self.ask_model_batch(value, self.llm, self.role, self.max_tokens, briefs)
        is_spare = any(not leaves_open(answer) and is_same_answer(answer, value.answers) for answer, _ in replies)
        return "it is answered without one of its passages" if is_spare else "", noted

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.passages * self.role.calls


@dataclass(frozen=True)
class KeepUnanswerable(DraftFilter):
    """Drop a question that the documents answer after all: a reader of what a search finds has to abstain.

    Args:
        search: finds passages among all documents.
        reader: answers from them, or abstains.

    Source: Rajpurkar et al., "Know what you don't know: Unanswerable questions for SQuAD", ACL 2018.

    >>> from spolia import Hit, Node, Query, Ranking, Reader, ScriptedModel, step
    >>> from spolia.evaluation.creation.draft import QuestionDraft
    >>> @step
    ... def search(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("n", "Clovis was born in 466."), 1.0),))
    >>> keep = KeepUnanswerable(search, Reader(ScriptedModel(("In 466 [1].",))))
    >>> keep(QuestionDraft("unanswerable", (), question="When was Clovis born?")).reason
    'the documents answer it: In 466 [1].'
    """

    search: Retriever
    reader: Reader

    waits: ClassVar[bool] = True

    def judge(self, value: QuestionDraft, /) -> tuple[str, QuestionDraft]:
        reply = self.reader(self.search(Query(value.question)))
        return "" if reply.abstained else f"the documents answer it: {reply.text[:80]}", value

    def calls(self, rows: int | None = None, /) -> int | None:
        return total((self.search.calls(), self.reader.calls()))


_LEFT_OUT = re.compile(r"\s*[\[(]?(?:\.{3,}|…+)[\])]?\s*")


def split_at_ellipsis(words: str, passages: Sequence[Node]) -> list[str]:
    """Return the words; if no passage has them, those before and after each ellipsis (`...`)."""
    if any(place_of(words, node.text) for node in passages):
        return [words]
    return [part for part in _LEFT_OUT.split(words) if part] or [words]


_SHAPES = ("'’‘‛`", '"“”„‟', "-‐‑‒–—−")


def place_of(words: str, text: str) -> tuple[int, int] | None:
    """Find where words stand first in a text, start and end; None if they do not occur.

    >>> place_of("Keld's 'mine'  closed.", "So Keld’s ‘mine’\\nclosed in May.")
    (3, 23)
    >>> place_of("the mine", "a mine")
    """
    # Models end what they copy with a full stop that the text may not have there.
    for candidate in (words, words.rstrip(" .。…")):
        pattern = r"\s+".join(map(re.escape, candidate.split()))
        # Models copy quotation marks and dashes in other shapes than the text has.
        for shapes in _SHAPES:
            pattern = re.sub(
                "|".join(re.escape(re.escape(character)) for character in shapes), f"[{re.escape(shapes)}]", pattern
            )
        if pattern and (match := re.search(pattern, text)):
            return match.span()
    return None
