"""An answer without any language model: the sentences that are most likely to hold it, word for word."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

from spolia.core.markdown import disarm
from spolia.core.operator import Operator
from spolia.core.patterns import pattern
from spolia.core.run_context import emit
from spolia.core.sentences import sentences
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.generation.sentence_vectors import sentence_vectors
from spolia.models.marks import escape_citations
from spolia.models.protocols import Embedder
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Answer, Citation, Ranking


class Clues(NamedTuple):
    """Features that speak for a sentence.

    Fields:
        rank: ln(1 + number of passages ranked before its own).
        own: share of the question's terms that it holds, from 0 to 1, weighed by idf over all the sentences found; a
            row of a table holds the terms of the table's first row too.
        near: the same share, with the title, the headings and the two sentences beside it counted in.
        pairs: share of the question's pairs of neighbouring terms that it holds.
        idle: 1 if it is a heading or a question, or adds nothing to the question, the headings and the sentences
            before it (a sentence that overlapping passages share).
        figure: 1 if a date or number is asked for in English, and it holds one that the question does not.
        definition: 1 if "What is X?" is asked, and it says "X is a …".
        whole: the same share, of its whole passage with the title and the headings, without English function words. It
            adds nothing between sentences, and counts in `confidence`.
        likeness: cosine with the question, less the mean over all the sentences found, over their standard deviation.
        passage: the highest likeness in its passage.
    """

    rank: float
    own: float
    near: float
    pairs: float
    idle: float
    figure: float
    definition: float
    whole: float
    likeness: float = 0.0
    passage: float = 0.0


# Fitted by benchmarks/extract_fit.py, but for `idle`: -99 leaves such a sentence no chance.
LEXICAL = Clues(rank=-2.53, own=9.17, near=4.42, pairs=2.26, idle=-99.0, figure=2.16, definition=5.0, whole=0.0)
EMBEDDED = Clues(
    rank=-1.11,
    own=6.80,
    near=5.60,
    pairs=0.95,
    idle=-99.0,
    figure=2.03,
    definition=5.0,
    whole=0.0,
    likeness=0.70,
    passage=1.31,
)


@dataclass(frozen=True)
class Passage:
    """Passage cut into sentences, and the title and headings above it.

    Fields:
        headings: the sentences that are headings, by their places.
        heads: by the place of a row of a table, the place of the table's first row.
    """

    context: str
    sentences: tuple[str, ...]
    headings: frozenset[int] = frozenset()
    heads: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str, spans: Sequence[tuple[int, int]], context: str = "") -> Self:
        """Build the passage of a text; the spans are its sentences."""
        heads: dict[int, int] = {}
        for place, (start, end) in enumerate(spans):
            if _BETWEEN_CELLS.search(text, start, end):
                is_next_row = place > 0 and not _BLANK_LINE.search(text, spans[place - 1][0], start)
                heads[place] = heads.get(place - 1, place) if is_next_row else place
        headings = frozenset(
            place for place, span in enumerate(spans) if place not in heads and is_heading(text, *span)
        )
        return cls(context, tuple(text[start:end] for start, end in spans), headings, heads)


def clues(
    question: str, passages: Sequence[Passage], analyzer: Analyzer, cosines: Sequence[float] | None = None
) -> list[Clues]:
    """Return the clues of every sentence, in the order of the passages, best passage first. `cosines` are those of each
    sentence with the question, None without an embedder."""
    terms = [[analyzer.terms(sentence) for sentence in passage.sentences] for passage in passages]
    question_terms = _QuestionTerms(
        question, analyzer, [frozenset(sentence_terms) for passage_terms in terms for sentence_terms in passage_terms]
    )
    earlier_sentences: set[str] = set()
    lexical: list[Clues] = []
    for rank, (passage, passage_terms) in enumerate(zip(passages, terms, strict=True)):
        context = frozenset(analyzer.terms(passage.context))
        passage_share = question_terms.share_of_subject(context.union(*passage_terms))
        heading_terms = context
        for place, sentence in enumerate(passage.sentences):
            sentence_terms = frozenset(passage_terms[place])
            if place in passage.headings:
                heading_terms = sentence_terms.union(heading_terms if place - 1 in passage.headings else context)
            row_terms = sentence_terms.union(passage_terms[passage.heads.get(place, place)])
            nearby_terms = heading_terms.union(row_terms, *passage_terms[max(0, place - 1) : place + 2])
            is_idle = (
                sentence in earlier_sentences  # chunks overlap, and a quote may not come twice
                or place in passage.headings
                or _QUESTION.search(sentence) is not None
                or sentence_terms <= heading_terms.union(question_terms.terms)
            )
            earlier_sentences.add(sentence)
            lexical.append(
                Clues(
                    rank=math.log1p(rank),
                    own=question_terms.share(row_terms),
                    near=question_terms.share(nearby_terms),
                    pairs=question_terms.pairs_in(passage_terms[place]),
                    idle=float(is_idle),
                    figure=question_terms.figure_in(sentence),
                    definition=question_terms.definition_in(sentence),
                    whole=passage_share,
                )
            )
    if cosines is None:
        return lexical
    return _add_likeness(lexical, [len(passage.sentences) for passage in passages], cosines)


def chances(sentence_clues: Sequence[Clues], weights: Clues) -> list[float]:
    """Return the probability of each sentence to hold the answer, if one does; they sum to 1."""
    scores = [sum(map(float.__mul__, weights, clue)) for clue in sentence_clues]
    # The highest score is subtracted so that exp cannot overflow.
    highest = max(scores, default=0.0)
    likelihoods = [math.exp(score - highest) for score in scores]
    total = sum(likelihoods)
    return [likelihood / total for likelihood in likelihoods]


def confidence(best: Clues, cosine: float | None) -> float:
    """Return how likely it is that the passages answer the question at all, judged by the best sentence and its
    passage.

    A logistic regression on `near` and `whole` of that sentence, and its cosine with the question, fitted on answerable
    questions of squad2_dev against as many that were asked of other articles (benchmarks/extract_fit.py). Without a
    cosine 0.46 is added, so that the default threshold refuses what 0.10 would: answers on xquad_en stay as many.
    """
    if cosine is None:
        logit = -3.83 + 2.65 * best.near + 7.79 * best.whole
    else:
        logit = -12.28 + 4.54 * best.near + 5.06 * best.whole + 18.53 * cosine
    return 1 / (1 + math.exp(-logit))


_WANTS_FIGURE = pattern(
    r"\bhow (?:many|much|long|old|far|large|big|tall|high|often|fast|deep|wide|hot|few|heavy)\b|\bpercent|\bwhen\b|"
    r"\bwhat (?:\w+ ){0,3}(?:number|population|amount|size|cost|price|age|distance|temperature|rate|fraction|ratio|"
    r"length|height|speed)\b|\b(?:what|which) (?:\w+ )?(?:year|date|century|decade|month|day|time|period|era)\b",
    re.IGNORECASE,
)
_FIGURE = pattern(
    r"\d[\d.,]*\d|\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|twenty|"
    r"thirty|forty|fifty|sixty|seventy|eighty|ninety|hundreds?|thousands?|million|billion|trillion|half|thirds?|"
    r"quarters?|dozen|percent|single|twice|both|several|january|february|march|april|may|june|july|august|september|"
    r"october|november|december|century|decade|spring|summer|autumn|winter|monday|tuesday|wednesday|thursday|friday|"
    r"saturday|sunday)\b",
    re.IGNORECASE,
)


_WANTS_DEFINITION = pattern(
    r"\s*(?:what|who)(?:['’]s| is| are| was| were) (?:(?:an?|the) )?((?:[^\s?]+ ){0,4}[^\s?]+)\s*\?*\s*$", re.IGNORECASE
)
_DEFINES = r"(?:(?:an?|the) )?{}(?: ?\([^)]*\))?(?:, [^,]*,)? (?:is|are|was|were) (?:an?|the|one)\b"
_QUESTION = pattern(r"[?？؟]['\"”’»)\]」』*_\s]*$")

FEWEST = 10


FUNCTION_WORDS = (
    "a an the this that these those of in on at to from by for with about into as and or is are was were be been am do "
    "does did has have had can could will would shall should may might must it its he she they we you i his her their "
    "our your my me us them what which who whom whose when where why how many much there not"
)
"""English words that say nothing of what a question is about. Few sentences are found, so rarity does not tell them."""


@lru_cache(maxsize=8)
def _function_terms(analyzer: Analyzer) -> frozenset[str]:
    return frozenset(analyzer.terms(FUNCTION_WORDS))


class _QuestionTerms:
    """Terms of a question, each weighed by how rare it is among the sentences found.

    idf(t) = ln(1 + (n - df + 0.5) / (df + 0.5)), Robertson and Zaragoza 2009. No word is rare among a handful of
    sentences, so n counts as `FEWEST` at least.
    """

    def __init__(self, question: str, analyzer: Analyzer, sentences: Sequence[frozenset[str]]) -> None:
        terms = analyzer.terms(question)
        df = Counter(term for sentence in sentences for term in sentence.intersection(terms))
        n = max(FEWEST, len(sentences))
        self.terms = {term: math.log(1 + (n - df[term] + 0.5) / (df[term] + 0.5)) for term in terms}
        self.subject = frozenset(self.terms).difference(_function_terms(analyzer)) or frozenset(self.terms)
        self.total = sum(self.terms.values()) or 1.0  # a question may have no terms
        self.pairs = frozenset(pairwise(terms))
        self.figures = _figures(question) if _WANTS_FIGURE.search(question) else None
        subject = _WANTS_DEFINITION.match(question)
        self.definition = (
            re.compile(_DEFINES.format(r"\s+".join(map(re.escape, subject[1].split()))), re.IGNORECASE)
            if subject
            else None
        )

    def share_of_subject(self, terms: frozenset[str]) -> float:
        return sum(map(self.terms.__getitem__, self.subject & terms)) / (
            sum(map(self.terms.__getitem__, self.subject)) or 1.0
        )

    def share(self, terms: frozenset[str]) -> float:
        return sum(idf for term, idf in self.terms.items() if term in terms) / self.total

    def pairs_in(self, terms: Sequence[str]) -> float:
        return len(self.pairs.intersection(pairwise(terms))) / len(self.pairs) if self.pairs else 0.0

    def figure_in(self, sentence: str) -> float:
        return 0.0 if self.figures is None else float(bool(_figures(sentence) - self.figures))

    def definition_in(self, sentence: str) -> float:
        return 0.0 if self.definition is None else float(self.definition.match(plain_quote(sentence)) is not None)


def _figures(text: str) -> frozenset[str]:
    return frozenset(figure.lower() for figure in _FIGURE.findall(text))


def _add_likeness(lexical: Sequence[Clues], lengths: Sequence[int], cosines: Sequence[float]) -> list[Clues]:
    mean = sum(cosines) / len(cosines) if cosines else 0.0
    # equal ones have none
    deviation = math.sqrt(sum((cosine - mean) ** 2 for cosine in cosines) / max(1, len(cosines))) or 1.0
    likeness = [(cosine - mean) / deviation for cosine in cosines]
    result: list[Clues] = []
    for length in lengths:
        passage_likeness = likeness[len(result) : len(result) + length]
        result += [
            clue._replace(likeness=value, passage=max(passage_likeness))
            for clue, value in zip(lexical[len(result) : len(result) + length], passage_likeness, strict=True)
        ]
    return result


# Thai, Lao, Burmese, Khmer, Japanese and Chinese write no spaces between words; Korean does.
_UNSPACED = pattern("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_CLAUSE_END = pattern(r"[,;:)\]—–](?=\s)|\n|[、，；：]")
_BLANK = pattern(r"\s")
LONGEST = 60
"""Words of the longest sentence that is quoted whole. 3 % of the sentences of squad_newwiki have more."""
LONGEST_WORD = 12
"""Characters of a word, on average, above which a text is no prose (encoded data, a path) and is cut by characters."""


def count_words(text: str) -> float:
    """Count words between blanks; in scripts without blanks between words, two characters count as one word.

    >>> count_words("The moon pulls."), count_words("月が引く"), count_words("東京 tower")
    (3.0, 2.0, 2.0)
    """
    if text.isascii():  # with blanks between its words: no pattern has to look for scripts without
        return float(len(text.split()))
    rest, characters = _UNSPACED.subn(" ", text)
    return len([word for word in rest.split() if any(map(str.isalnum, word))]) + characters / 2


def split_quotable(text: str, longest: int = LONGEST) -> list[tuple[int, int]]:
    """Return the spans of the sentences of a text; those with more than `longest` words are cut at their clauses.

    >>> text = "Stones, old and new, were set. All held."
    >>> [text[start:end] for start, end in split_quotable(text, longest=4)]
    ['Stones, old and new,', 'were set.', 'All held.']
    """
    lines = (line for start, end in sentences(text) for line in _split_rows(text, start, end))
    return [piece for start, end in lines for piece in _split_clauses(text, start, end, longest)]


_BETWEEN_CELLS = pattern(r"(?<=\S)(?:[ ]*\t[ \t]*|[ ]+\|[ ]+)(?=\S)")


def _split_rows(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the lines of a table, which its sentences may hold together; else the sentence."""
    lines = text[start:end].splitlines(keepends=True)
    # One line with a bar or tab may be prose; a table has at least two.
    if sum(_BETWEEN_CELLS.search(line) is not None for line in lines) < 2:
        lines = [text[start:end]]
    for line in lines:
        yield start, start + len(line)
        start += len(line)


def _split_clauses(text: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    """Halve a long sentence again and again, where a clause ends nearest to the middle, else at a blank."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if count_words(text[start:end]) <= longest and end - start <= LONGEST_WORD * longest:
        if start < end:
            yield start, end
        return
    middle = (start + end) // 2
    cut = _find_cut(_CLAUSE_END, text, start, end) or _find_cut(_BLANK, text, start, end) or middle
    yield from _split_clauses(text, start, cut, longest)
    yield from _split_clauses(text, cut, end, longest)


def _find_cut(pattern: re.Pattern[str], text: str, start: int, end: int) -> int | None:
    """Return the end of the match nearest to the middle; None if that lies in the first or last quarter."""
    margin = (end - start) // 4  # no piece is a scrap, and the recursion stays flat
    ends = [match.end() for match in pattern.finditer(text, start + margin, end - margin)]
    return min(ends, key=lambda position: abs(position - (start + end) // 2), default=None)


_BLANK_LINE = pattern(r"\n[^\S\n]*\n")
_HEADING_NUMBER = pattern(r"\d{1,2}(?:\.\d{1,2})*\.?\s+(?=[^\W\d_a-z])")
_NUMBER = pattern(r"(?<![\w-])\d")
_ENDED = pattern(r"[.!?…:;,。！？：；、،؛।]['\"”’»)\]」』*_]*$")
LONGEST_HEADING = 12
"""Words of the longest line that is taken for a heading."""


def is_heading(text: str, start: int, end: int) -> bool:
    """Return whether a sentence of a text is a heading: a short line without an end mark, above more text.

    It is marked by `#` or numbered, or is a paragraph of its own without a figure that no colon announces.

    >>> text = "Tides\\n\\nThe moon pulls.\\n\\nPilot:\\n\\nAda Quarry\\n\\nShe steers."
    >>> [line for line in text.split("\\n\\n") if is_heading(text, text.index(line), text.index(line) + len(line))]
    ['Tides']
    """
    line, first, last = text[start:end], start, end
    while first > 0 and text[first - 1].isspace():
        first -= 1
    while last < len(text) and text[last].isspace():
        last += 1
    lines_before, lines_after = text.count("\n", first, start), text.count("\n", end, last)
    is_line = (first == 0 or lines_before) and lines_after and last < len(text) and "\n" not in line
    if not is_line or _ENDED.search(line) or count_words(line) > LONGEST_HEADING:
        return False
    if line.startswith("#"):
        return True
    if first > 0 and (lines_before < 2 or text[first - 1] in ":："):
        return False
    if _HEADING_NUMBER.match(line):
        return True
    return lines_after >= 2 and not (line[0].islower() or _ITEM.match(line) or _NUMBER.search(line))


class PassageSentences:
    """Sentences of the passages of a ranking.

    Attributes:
        sentences: of all passages, best passage first.
        passages: the same sentences, passage by passage.
    """

    def __init__(self, ranking: Ranking) -> None:
        self.ranking, self.question = ranking, ranking.query.question
        spans = [(node, split_quotable(node.text)) for node in ranking.nodes]
        self.passages = [Passage.from_text(node.text, sentence_spans, node.context) for node, sentence_spans in spans]
        self.sentences = [sentence for passage in self.passages for sentence in passage.sentences]
        self._places = [(node, start, end) for node, sentence_spans in spans for start, end in sentence_spans]

    def quote(self, index: int, number: int) -> Citation:
        """Return the citation of a sentence, exactly as the document has it."""
        node, start, end = self._places[index]
        return Citation(str(number), node.id, node.document, node.uri, node.text[start:end], node.span_of(start, end))


_ITEM = pattern(r"^\s*(?:[-*+>•]|\d{1,3}[.)])\s+(?=\S)")
_EMPHASIS = pattern(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")


def plain_quote(quote: str) -> str:
    """Return a quote as a reply shows it: on one line, without the marks of a list item and of bold type.

    >>> plain_quote("- **One index**\\n  per generation")
    'One index per generation'
    >>> plain_quote("2 * 3 * 4"), plain_quote("1999. A year")
    ('2 * 3 * 4', '1999. A year')
    """
    return _EMPHASIS.sub(r"\2", " ".join(_ITEM.sub("", quote).split()))


HARD_LIMIT = 4
"""The longest reply, as a multiple of `words`; 1 in 100 replies would be longer."""
SHORTEST = 8
"""Words that a further quote is charged at least: a scrap costs little to say, and says little."""


@dataclass(frozen=True)
class Extract(Operator[Ranking, Answer]):
    """Quote the sentences that answer the question.

    Every sentence of the best passages gets a probability to hold the answer (`spolia.generation.extract`). A reply
    is worth P(it holds the answer) - price · its words, so it is made of the likeliest sentence and all others with
    P > price · words: short where one sentence stands out, longer where several compete. The price is set so that
    replies have `words` words on average.

    Args:
        embedder: judges likeness in meaning too, which finds more; embeds each sentence that it reads, about 25 a
            question. The process and the run's cache keep their vectors. None judges by terms alone.
        words: mean length of a reply, from 30 to 120; below, it is one sentence. In scripts without blanks, two
            characters count as a word. A single reply may be up to four times as long.
        threshold: abstain when `confidence`, from 0 to 1, is lower; 0 never abstains. The default was set on
            squad2_dev. With (without) an embedder it refuses 1 % (2 %) of the answerable questions, 86 % (45 %) of
            those asked of other articles, and 3 % (3 %) of questions written to look answerable: likeness is
            not entailment. The cosines are those of all-MiniLM-L6-v2; set it again for another embedder.
        passages: how many of the best passages are read.
        analyzer: should be the one that the passages were indexed with.
        abstention: the reply when nothing answers.
        live_markdown: leave images, HTML and links of documents as they are; by default `disarm` makes them inert in
            the reply. Citations always have the document's own words.

    Raises:
        WiringError: for numbers out of range.

    >>> from spolia.types import Hit, Node, Query, Span
    >>> text = "Ships wait for the tide. The tide is caused by the pull of the moon. So is the current."
    >>> node = Node("n1", text, document="d1", uri="tides.txt", span=Span(100, 100 + len(text)))
    >>> answer = Extract(words=20)(Ranking(Query("What causes the tide?"), (Hit(node, 1.0),)))
    >>> answer.text
    'The tide is caused by the pull of the moon. [1]'
    >>> answer.citations[0].span
    Span(start=125, end=168, pages=None, lines=None, seconds=None, page_starts=())
    """

    embedder: Embedder | None = None
    words: int = 40
    threshold: float = 0.15
    passages: int = 5
    analyzer: Analyzer = field(default_factory=Analyzer)
    abstention: str = "No passage was found that answers this."
    live_markdown: bool = False

    version: ClassVar[int] = 6  # 4: Markdown is inert; 5: no questions or headings; 6: kept only with an embedder

    @property
    def cached(self) -> bool:  # type: ignore[override]
        # Without an embedder, keeping a result costs half of computing it again.
        return self.embedder is not None

    def __post_init__(self) -> None:
        refuse_counts(self, "words", "passages")
        refuse_numbers(self, "a number from 0 to 1", "threshold")

    def apply(self, value: Ranking, /) -> Answer:
        read = PassageSentences(value.cut(self.passages))
        answer = self._answer(read, cosines([read], self.embedder)[0])
        emit(answer.text)
        return answer

    def apply_batch(self, values: Sequence[Ranking], /) -> Sequence[Answer]:
        reads = [PassageSentences(value.cut(self.passages)) for value in values]
        return [
            self._answer(*sentences_and_cosines)
            for sentences_and_cosines in zip(reads, cosines(reads, self.embedder), strict=True)
        ]

    def reads(self, value: Ranking, /) -> object:
        return (value.query.question, tuple(node.digest for node in value.cut(self.passages).nodes))

    def attach(self, out: Any, value: Any, /) -> Any:
        return out.but(evidence=value.cut(self.passages))

    def _answer(self, sentences: PassageSentences, likeness: list[float] | None) -> Answer:
        sentence_clues = clues(sentences.question, sentences.passages, self.analyzer, likeness)
        probabilities = chances(sentence_clues, LEXICAL if likeness is None else EMBEDDED)
        order = [
            index
            for index in sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
            if not sentence_clues[index].idle
        ]
        if not order or confidence(sentence_clues[order[0]], likeness[order[0]] if likeness else None) < self.threshold:
            return Answer(self.abstention, (), "abstained", sentences.ranking)
        chosen = self._choose_sentences(
            order, probabilities, [count_words(sentence) for sentence in sentences.sentences]
        )
        quotes = tuple(sentences.quote(index, number) for number, index in enumerate(chosen, 1))
        rows = [_BETWEEN_CELLS.sub(" | ", quote.quote) for quote in quotes]
        marked_quotes = [f"{escape_citations(plain_quote(row))} [{number}]" for number, row in enumerate(rows, 1)]
        text = ("\n" if any(map(_BETWEEN_CELLS.search, rows)) else " ").join(marked_quotes)
        return Answer(text if self.live_markdown else disarm(text), quotes, "answered", sentences.ranking)

    def _choose_sentences(
        self, order: Sequence[int], probabilities: Sequence[float], lengths: Sequence[float]
    ) -> list[int]:
        """Choose the likeliest sentence, and the others that are worth their words, likeliest first."""
        price, room = price_per_word(self.words), HARD_LIMIT * self.words - lengths[order[0]]
        chosen = [order[0]]
        for index in order[1:]:
            if probabilities[index] > price * max(SHORTEST, lengths[index]) and lengths[index] <= room:
                chosen.append(index)
                room -= lengths[index]
        return chosen


def cosines(reads: Sequence[PassageSentences], embedder: Embedder | None) -> list[list[float] | None]:
    """Return the cosine of each sentence with its question, or None without an embedder."""
    if embedder is None:
        return [None] * len(reads)
    questions = list(dict.fromkeys(read.question for read in reads))  # one question may have many rankings here
    question_vectors = dict(zip(questions, embedder.embed(questions, kind="query"), strict=True))
    vectors_of_reads = sentence_vectors(embedder, [[passage.sentences for passage in read.passages] for read in reads])
    return [
        [float(vector @ question_vectors[read.question]) for passage in vectors for vector in passage]
        for read, vectors in zip(reads, vectors_of_reads, strict=True)
    ]


def price_per_word(words: int) -> float:
    """Return the least chance per word that is worth saying, for replies of this many words on average.

    Measured on squad_newwiki and squad2_dev for 30, 40, 60, 80 and 120 words, with and without an embedder; a cube law
    keeps the mean length within a tenth (benchmarks/results/extract_fit.json).

    >>> round(price_per_word(30), 4), round(price_per_word(80), 4)
    (0.0108, 0.0006)
    """
    return float(0.0108 * (30 / words) ** 3)
