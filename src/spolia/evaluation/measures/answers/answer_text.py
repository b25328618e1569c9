"""Text of an answer, and base classes of the measures that compare it with the gold answers."""

import re
import string
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Measure, Result, check_item
from spolia.types import Answer, Item

UNANSWERABLE = "unanswerable"
"""The type of items that should not be answered."""
_MARKER = re.compile(r"[ \t]?\[(\d{1,4})\]")


class AnswerMeasure(Measure):
    """A measure of what an answer says: the best over the accepted answers.

    To abstain from a question that has an answer scores 0.
    """

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        check_item(self, item)
        if item.answers and require_answer(result).abstained:
            return 0.0
        return self.score_text(extract_text(result), item.answers)

    @abstractmethod
    def score_text(self, text: str, answers: Sequence[str]) -> float | None:
        """Score a text against the accepted answers."""


@dataclass(frozen=True)
class WordMeasure(AnswerMeasure):
    """A measure of the words of an answer, each accepted one by itself.

    Args:
        words: how a text is cut into words, a name of `TOKENISERS`; `unicode` for any script.
    """

    words: str = "squad"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tokeniser(self.notation, self.words)

    def score_text(self, text: str, answers: Sequence[str]) -> float:
        tokenise = TOKENISERS[self.words]
        words = tokenise(text)
        # A question that is unanswerable has no accepted answer: the right text is empty.
        return max(self.score_words(words, tokenise(answer)) for answer in answers or ("",))

    @abstractmethod
    def score_words(self, answer: list[str], gold: list[str]) -> float:
        """Score the words of an answer against those of an accepted one."""


def extract_text(result: Result) -> str:
    """Return the text of an answer without its citation markers; empty if it abstains.

    >>> from spolia.types import Citation
    >>> cited = (Citation("1", "n", "d", "a.txt", "..."),)
    >>> extract_text(Answer("Since 508 [1], say some [sic].", cited))
    'Since 508, say some [sic].'
    >>> extract_text(Answer("I do not know.", stop_reason="abstained"))
    ''
    """
    answer = require_answer(result)
    if answer.abstained:
        return ""
    markers = {citation.marker for citation in answer.citations}
    return _MARKER.sub(lambda match: "" if match[1] in markers else match[0], answer.text) if markers else answer.text


class NoAnswer(MeasureError):
    """Error for a ranking where a measure needs an answer."""


def require_answer(result: Result) -> Answer:
    """Return the answer; `NoAnswer` if the result is a ranking."""
    if not isinstance(result, Answer):
        raise NoAnswer(
            f"A {type(result).__name__} is not an answer to measure. Measure a flow that ends in one, for example with "
            "Extract or Reader."
        )
    return result


def is_unanswerable(item: Item) -> bool:
    """Return whether the right reply is to abstain."""
    return item.type == UNANSWERABLE


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_ROUGE = re.compile(r"[^a-z0-9]+")
# Scripts without blanks between words: a letter with its marks counts as a word.
_UNSPACED = re.compile(
    "[\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46][\u0e31\u0e34-\u0e3a\u0e47-\u0e4e]*"  # Thai
    "|[\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd\u0ec0-\u0ec6\u0edc-\u0edf][\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece]*"  # Lao
    "|[\u1000-\u102a\u103f\u1050-\u1055][\u102b-\u103e\u1056-\u1059]*"  # Burmese
    "|[\u1780-\u17b3][\u17b4-\u17d3]*"  # Khmer
    "|[\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
    "|[\U00020000-\U000323af]"
)
# In the order of the script: a rule sees the blanks that the rules before it have set.
_13A = (
    (re.compile(r"([{-~\[-` -&(-+:-@/])"), r" \1 "),
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)
_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))


def normalise(text: str) -> str:
    """Normalise an answer as SQuAD's script does, with its order of steps.

    Source: Rajpurkar et al. 2016, the evaluation script of SQuAD 1.1.

    >>> normalise("The U.S. – an A-10!")
    'us – a10'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def squad(text: str) -> list[str]:
    return normalise(text).split()


def rouge(text: str) -> list[str]:
    return _NO_ROUGE.sub(" ", text.lower()).split()


def mteval(text: str) -> list[str]:
    """Split into words as NIST's mteval-v13a.pl does, which is sacrebleu's `13a` (Post 2018).

    >>> mteval("It costs $1,000.50 (twice).")
    ['It', 'costs', '$', '1,000.50', '(', 'twice', ')', '.']
    """
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    # The rules look at the neighbours of a mark, which the first and the last character lack.
    text = f" {text} "
    for pattern, replacement in _13A:
        text = pattern.sub(replacement, text)
    return text.split()


def characters(text: str) -> list[str]:
    return [character for character in text if not character.isspace()]


def unicode_words(text: str) -> list[str]:
    """Split a text of any script into words.

    >>> unicode_words("The Ｃafé’s 3,5 m"), unicode_words("東京タワー333m、東京")
    (['the', 'café', 's', '3', '5', 'm'], ['東', '京', 'タ', 'ワ', 'ー', '333m', '東', '京'])
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _UNSPACED.sub(r" \g<0> ", plain).translate(_SEPARATORS).split()


class _SeparatorTable(dict[int, str]):
    """Translation table that turns every character but letters, marks and numbers into a blank, each looked up once."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        replacement = character if unicodedata.category(character)[0] in "LMN" else " "
        self[code] = replacement
        return replacement


_SEPARATORS = _SeparatorTable()

TOKENISERS: Mapping[str, Callable[[str], list[str]]] = {
    "squad": squad,
    "rouge": rouge,
    "13a": mteval,
    "characters": characters,
    "unicode": unicode_words,
}


def check_tokeniser(notation: str, words: str) -> None:
    """Raise MeasureError for an unknown way to cut a text into words."""
    if words not in TOKENISERS:
        names = ", ".join(f'"{name}"' for name in TOKENISERS)
        raise MeasureError(f"{notation} knows no words {words!r}. Write one of: {names}.")
