"""Rerankers that score hits by a model, under one contract: cross-encoders, token vectors, next words, replies."""

import math
import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia import models
from spolia.core.call_bounds import unknown
from spolia.core.operator import Operator
from spolia.core.run_context import access, degrade, note
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import ModelError, ModelRejected, ModelUnavailable, WiringError
from spolia.models.parsers import Order, YesNo
from spolia.models.parsers.numbers import complete_order
from spolia.models.prompting import template
from spolia.models.prompting.likelihood import Continuation, FirstTokens, Likelihood
from spolia.models.prompting.role import Ask, Brief, Prompted, Role, replies
from spolia.models.prompting.template import shorten
from spolia.models.protocols import (
    ForetellsTokens,
    ImageScorer,
    LanguageModel,
    Scorer,
    ScoresContinuations,
    TokenEmbedder,
)
from spolia.stores.backends.rows import picture_of
from spolia.stores.corpus import Corpus, refuse_no_corpus
from spolia.types import Failure, Hit, Node, Prompt, Ranking, Token
from spolia.types.outcomes import require_successes

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


class ModelReranker(Operator[Ranking, Ranking]):
    """Base of rerankers that score hits by a model.

    The best `judged` hits are judged by the question that was asked (`Query.question`) and what a reader would be shown
    of them; the others are left out. The best `top_k` come back with their new scores, best first, equal ones in the
    order that they had. An empty ranking asks nobody.

    A model that fails, or gives no score for any of them, leaves the hits in the order and with the scores that they
    had, and that is recorded: the result is degraded, so that it is counted and not cached. A hit whose score is NaN
    comes last; an infinite one counts as the largest number of its sign.

    A subclass is a frozen dataclass with these fields, and writes `scores`.

    Args:
        top_k: hits to return, at most.
        judged: hits that are judged, at most; the others are left out.
        strict: a model that fails is an error; else the hits keep their order, and that is recorded.

    Raises:
        ModelUnavailable: where `strict`, when the model could not be asked.
        ModelRejected: where `strict`, when it refused.
        ModelError: when it gave another number of scores than there are hits.
        BudgetSpent: the budget does not allow the call, which is not sent.
    """

    top_k: int
    judged: int
    strict: bool

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k", "judged")
        if self.top_k > self.judged:
            raise WiringError(
                f"{self.short}: {self.top_k} hits are to come back of {self.judged} that are judged. "
                f"Write judged={self.top_k} or more."
            )

    @abstractmethod
    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        """Return a score for each text, in their order; higher is better, NaN if it has none."""

    def scores_of(self, question: str, nodes: Sequence[Node], /) -> Sequence[float]:
        """Return a score for each node, by the text that a reader sees."""
        return self.scores(question, [node.shown_text for node in nodes])

    def apply(self, value: Ranking, /) -> Ranking:
        best = value.cut(self.judged)
        if not best.hits:
            return best
        try:
            scores = self.scores_of(value.query.question, best.nodes)
        except (ModelUnavailable, ModelRejected) as error:  # a server that is down costs the order, not the answer
            if self.strict:
                raise
            degrade(f"{type(self).__name__} could not be asked ({error}); the hits keep their order.", error=error)
            return best.cut(self.top_k)
        return best.but(hits=self._order_hits(best.hits, scores)).cut(self.top_k)

    def reads(self, value: Ranking, /) -> object:
        judged_hits = tuple((hit.node, hit.found) for hit in value.cut(self.judged).hits)
        return value.query.question, value.source, judged_hits

    def _order_hits(self, hits: Sequence[Hit], scores: Sequence[float]) -> tuple[Hit, ...]:
        if len(scores) != len(hits):  # scores of the wrong hits would go unnoticed
            raise ModelError(
                f"{type(self).__name__} was given {len(hits)} texts and got {len(scores)} scores. Correct the model."
            )
        finite = [_to_finite(float(score)) for score in scores]
        finite_scores = [score for score in finite if score is not None]
        if len(finite_scores) < len(finite):
            message = f"{type(self).__name__}: {len(finite) - len(finite_scores)} of {len(finite)} texts have no score."
            degrade(message, partly=bool(finite_scores))
        if not finite_scores:
            return tuple(hits)
        lowest = min(finite_scores)  # what has no score comes last, with the lowest, so that scores stay in order
        order = sorted(range(len(hits)), key=lambda at: (finite[at] is None, -(finite[at] or 0.0)))
        return tuple(hits[index].but(score=lowest if (score := finite[index]) is None else score) for index in order)


def _to_finite(score: float) -> float | None:
    """Return a score as a finite number; None for NaN."""
    if math.isnan(score):
        return None
    # an infinite score would leave fusions without a scale
    return max(-sys.float_info.max, min(sys.float_info.max, score))


class PromptReranker(Prompted, ModelReranker):
    """Base of rerankers that send one prompt for each hit, concurrently if the model waits.

    One hit that cannot be judged leaves all in their order (`ModelReranker`): scores of some and not of others would
    tell which calls failed, not which hits are good.

    A subclass is a frozen dataclass with these fields and those of `ModelReranker`, and writes `ask_model` and `score`.

    Args:
        llm: the language model.
        prompt: the prompt file.
        characters: of a hit that the model is shown, at most.

    Raises:
        ModelError: the prompt file cannot be read, or lacks a place.
    """

    llm: LanguageModel
    prompt: str
    characters: int

    language: ClassVar[str] = template.ENGLISH
    places: ClassVar[tuple[str, ...]] = ("passage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "characters")

    @abstractmethod
    def ask_model(self, prompts: Sequence[Prompt], question: str, /) -> Sequence[tuple[Token, ...] | Failure]:
        """Ask the model, and return the tokens that it gives for each hit."""

    @abstractmethod
    def score(self, tokens: tuple[Token, ...], /) -> float:
        """Return the score of a hit by the tokens of the model; NaN if they hold none."""

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        prompt_template = self.template(question)
        prompts = [
            Prompt(prompt_template.fill({"question": question, "passage": text[: self.characters]})) for text in texts
        ]
        if long := sum(len(text) > self.characters for text in texts):
            note(f"{type(self).__name__} is shown the first {self.characters} characters of {long} hits.")
        return [self.score(tokens) for tokens in require_successes(self.ask_model(prompts, question))]

    def reads(self, value: Ranking, /) -> object:
        return super().reads(value), self.template(value.query.question).digest

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.judged


@dataclass(frozen=True)
class CrossEncoder(ModelReranker):
    """Score each hit by a `Scorer`: a cross-encoder on this machine, or a hosted reranker (`RerankModel`).

    score(q, d) = scorer(q, d), whatever its scale.

    Args:
        scorer: the model. All texts are given to it in one call.
        top_k, judged, strict: as for every `ModelReranker`.

    Source: Nogueira, Cho, "Passage re-ranking with BERT", 2019.

    >>> from spolia import Hit, Node, Query, Ranking, RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "a blue sea"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> with OpenAIServer() as server:
    ...     [(hit.node.id, hit.score) for hit in CrossEncoder(RerankModel("any", server.url))(found)]
    [('b', 1.0), ('a', 0.0)]
    """

    scorer: Scorer
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(question, texts)


SEPARATOR = " [SEP] "
"""Between instruction and question, as TART was trained."""


@dataclass(frozen=True)
class TART(ModelReranker):
    """Score each hit by a cross-encoder that was trained to follow an instruction.

    score(q, d) = scorer(instruction [SEP] q, d).

    Args:
        scorer: the model, as `facebook/tart-full-flan-t5-xl`. All texts are given to it in one call.
        instruction: the purpose of a passage.
        top_k, judged, strict: as for every `ModelReranker`.

    Source: Asai et al., "Task-aware retrieval with instructions", ACL Findings 2023.

    >>> from spolia import Hit, Node, Query, Ranking, RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> found = Ranking(Query("stones"), (Hit(Node("a", "stones"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> with OpenAIServer() as server:
    ...     reranked = TART(RerankModel("any", server.url), instruction="Find red things.")(found)
    ...     server.requests[0].body["query"], [hit.node.id for hit in reranked]
    ('Find red things. [SEP] stones', ['b', 'a'])
    """

    scorer: Scorer
    instruction: str = "Find passages to answer the question."
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(f"{self.instruction}{SEPARATOR}{question}", texts)


@dataclass(frozen=True)
class ColBERT(ModelReranker):
    """Score each hit by late interaction of token vectors, made when it is asked.

    score(q, d) = Σ_i max_j q_i · d_j over the vectors of length 1 of the question's and the hit's tokens. There is no
    padding in it, so that a score does not depend on what else is judged.

    Args:
        embedder: gives a vector for each token.
        top_k, judged, strict: as for every `ModelReranker`.

    Source: Khattab, Zaharia, "ColBERT: efficient and effective passage search via contextualized late interaction over
    BERT", SIGIR 2020.

    >>> from spolia.testing.hash_embedder import HashingTokens
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "a red sea"), 2.0), Hit(Node("b", "red stones"), 1.0)))
    >>> [(hit.node.id, round(hit.score, 6)) for hit in ColBERT(HashingTokens(256))(found)][0]
    ('b', 2.0)
    """

    embedder: TokenEmbedder
    top_k: int = 10
    judged: int = 100
    strict: bool = False

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        query_vectors = self.embedder.embed_tokens([question], kind="query").row(0)
        scores: list[float] = models.vectors.max_sims(
            query_vectors, self.embedder.embed_tokens(texts, kind="passage")
        ).tolist()
        return scores


@dataclass(frozen=True)
class MonoT5(PromptReranker):
    """Score each hit by the probability that a language model goes on with one word and not the other.

    score(q, d) = p(true) / (p(true) + p(false)), the softmax over the two words as first token of the reply. A word
    that is not among the `top` most probable tokens counts as the least of these; where both are not, there is no
    score, and neither where a word has a log-probability that is NaN or above 0. Case and blanks around a token do not
    matter.

    The shipped prompt is for models that follow instructions. Models trained as rerankers need the prompt that they
    were trained with: monoT5 `prompt="spolia:post_retrieval/prompts/mono_t5.txt"` and, since it reads 512 tokens,
    `characters=1500`; others `relevant="yes", irrelevant="no"`.

    Args:
        llm: a model with the capability `next_tokens`.
        prompt: file with the places `{{question}}` and `{{passage}}`.
        relevant: the word for relevant; its first token counts.
        irrelevant: the word for irrelevant.
        top: tokens that are asked for.
        characters: of a hit that the model is shown, at most.
        top_k, judged, strict: as for every `ModelReranker`.

    Source: Nogueira, Jiang, Pradeep, Lin, "Document ranking with a pretrained sequence-to-sequence model", 2020.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("Who employed Olsen?"), (Hit(Node("a", "Nokia employed Olsen."), 1.0),))
    >>> with OpenAIServer(ServedReply("true false", logprob=-0.5)) as server:
    ...     (hit,) = MonoT5(CompletionModel("any", server.url))(found).hits
    >>> round(hit.score, 3)  # of log-probabilities -0.5 and -1.0
    0.622
    """

    llm: ForetellsTokens
    top_k: int = 10
    judged: int = 20  # each is a call of the model
    prompt: str = "spolia:post_retrieval/prompts/relevance.txt"
    relevant: str = "true"
    irrelevant: str = "false"
    top: int = 20
    characters: int = 4_000
    strict: bool = False

    version: ClassVar[int] = 2
    prompts: ClassVar[tuple[str, ...]] = ("post_retrieval/relevance", "post_retrieval/mono_t5")

    places: ClassVar[tuple[str, ...]] = ("question", "passage")

    def ask_model(self, prompts: Sequence[Prompt], question: str, /) -> Sequence[tuple[Token, ...] | Failure]:
        return FirstTokens(self.llm, top=self.top).batch(prompts)

    def score(self, tokens: tuple[Token, ...], /) -> float:
        relevant, irrelevant = (_find_logprob(tokens, word) for word in (self.relevant, self.irrelevant))
        if relevant is None and irrelevant is None:
            return math.nan
        lowest = min(token.logprob for token in tokens)
        return _share(lowest if relevant is None else relevant, lowest if irrelevant is None else irrelevant)


def _find_logprob(tokens: Sequence[Token], word: str) -> float | None:
    """Return the log-probability of a word in all spellings; None if no token is one, NaN if one has no probability.

    >>> tokens = (Token(" True", math.log(0.5)), Token("true", math.log(0.25)), Token("t", -3.0))
    >>> round(math.exp(_find_logprob(tokens, "true")), 6), _find_logprob(tokens, "false")
    (0.75, None)
    """
    logprobs = [token.logprob for token in tokens if token.text.strip(" \t\n▁Ġ").lower() == word.lower()]
    if not all(logprob <= 0 for logprob in logprobs):
        return math.nan
    return (
        math.log(math.fsum(map(math.exp, logprobs)))
        if logprobs and max(logprobs) > -700  # exp below -745 is 0, which has no logarithm
        else max(logprobs, default=None)
    )


def _share(first: float, second: float) -> float:
    """Return exp(first) / (exp(first) + exp(second)), however small both are."""
    difference = first - second
    return 0.0 if difference < -700 else 1 / (1 + math.exp(-difference))  # exp overflows above 709


@dataclass(frozen=True)
class UPR(PromptReranker):
    """Score each hit by the likelihood that a language model asks the question when it is shown the hit.

    score(q, d) = Σ_t ln p(q_t | q_<t, d, instruction) over the tokens of the question; at most 0. It needs no training.
    Where a token has a log-probability that is NaN or above 0, there is no score.

    Args:
        llm: a model with the capability `scores`.
        prompt: file with the place `{{passage}}`; the question is what follows it.
        characters: of a hit that the model is shown, at most.
        top_k, judged, strict: as for every `ModelReranker`.

    Source: Sachan et al., "Improving passage retrieval with zero-shot question generation", EMNLP 2022.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("Who employed Olsen?"), (Hit(Node("a", "Nokia employed Olsen."), 1.0),))
    >>> with OpenAIServer(ServedReply(logprob=-0.1)) as server:
    ...     (hit,) = UPR(CompletionModel("any", server.url))(found).hits
    >>> round(hit.score, 6)  # here each character of the question costs 0.1, and so does the blank before it
    -2.0
    """

    llm: ScoresContinuations
    top_k: int = 10
    judged: int = 20
    prompt: str = "spolia:post_retrieval/prompts/question_likelihood.txt"
    characters: int = 4_000
    strict: bool = False

    version: ClassVar[int] = 2

    def ask_model(self, prompts: Sequence[Prompt], question: str, /) -> Sequence[tuple[Token, ...] | Failure]:
        return Likelihood(self.llm).batch([Continuation(prompt, f" {question}") for prompt in prompts])

    def score(self, tokens: tuple[Token, ...], /) -> float:
        return math.fsum(token.logprob if token.logprob <= 0 else math.nan for token in tokens)


ROLE: Role[tuple[int, ...]] = Role("spolia:post_retrieval/prompts/rank.txt", Order(), default="[1]")


@dataclass(frozen=True)
class RankGPT(ModelReranker):
    """Order hits by a language model that is shown `window` of them at a time: [2] > [1] > [3].

    Of more hits than a window holds, the last ones are ordered first; then the window moves up by `step`, so that what
    is good climbs to the top. Passages that a reply does not name follow in their old order; numbers that name nothing,
    or come again, are skipped. So a reply always gives a permutation. One that cannot be read leaves its window as
    it was, after being sent back once (`Role`).

    score = 1 / rank, since the model says an order and no numbers.

    Args:
        llm: the language model.
        judged: hits that are ordered, at most; the others are left out.
        window: hits that the model sees together.
        step: by how many the window moves; below `window`, so that windows overlap.
        role: prompt with the places `{{question}}`, `{{passages}}` and `{{count}}`, reader of the reply, what holds
            when it cannot be read.
        characters: of a hit that the model is shown, at most.
        max_tokens: longest reply.
        top_k, strict: as for every `ModelReranker`.

    Source: Sun et al., "Is ChatGPT good at search? Investigating large language models as re-ranking agents", EMNLP
    2023.

    >>> from spolia import Hit, Node, Query, Ranking, ScriptedModel
    >>> found = Ranking(Query("Who?"), tuple(Hit(Node(id, f"Text {id}."), 1.0) for id in "abc"))
    >>> [(hit.node.id, hit.score) for hit in RankGPT(ScriptedModel(("[3] > [1]",)), top_k=2)(found)]
    [('c', 1.0), ('a', 0.5)]
    """

    llm: LanguageModel
    top_k: int = 10
    judged: int = 100
    window: int = 20
    step: int = 10
    role: Role[tuple[int, ...]] = ROLE
    characters: int = 2_000
    max_tokens: int = 512
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "step", "characters", "max_tokens")
        refuse_counts(self, "window", minimum=2)
        if self.step >= self.window:
            raise WiringError(
                f"{self.short}: a window of {self.window} that moves by {self.step} compares nothing across windows. "
                f"Write a step below {self.window}."
            )

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        if long := sum(len(text) > self.characters for text in texts):
            note(f"RankGPT is shown the first {self.characters} characters of {long} hits.")
        order = list(range(len(texts)))
        for start in window_starts(len(texts), self.window, self.step):
            places = order[start : start + self.window]
            order[start : start + self.window] = [
                places[index] for index in self._order_window(question, places, texts)
            ]
        scores = [0.0] * len(texts)
        for rank, index in enumerate(order, 1):
            scores[index] = 1 / rank  # the model gives an order only
        return scores

    def calls(self, rows: int | None = None, /) -> int | None:
        return len(window_starts(self.judged, self.window, self.step)) * self.role.calls

    def _order_window(self, question: str, places: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Return positions in `places`, best first."""
        passages = [texts[place][: self.characters] for place in places]
        ask = Ask(self.llm, self.role, self.max_tokens)
        numbers = ask.reply(question=question, passages=tuple(passages), count=str(len(passages)))
        return [number - 1 for number in complete_order(numbers, len(passages))]


def window_starts(count: int, window: int, step: int) -> list[int]:
    """Return the starts of the windows over `count` hits, from the end to the beginning; one hit needs none.

    >>> window_starts(45, 20, 10), window_starts(20, 20, 10), window_starts(1, 20, 10)
    ([25, 15, 5, 0], [0], [])
    """
    if count < 2:
        return []
    offsets = list(range(count - window, 0, -step)) if count > window else []
    return [*offsets, 0]


USEFUL: Role[bool] = Role("spolia:post_retrieval/prompts/useful.txt", YesNo(), default="yes")


@dataclass(frozen=True)
class Critique(Operator[Ranking, Ranking]):
    """The hits that a language model finds of use for the question, one call for each; order and scores stay.

    What cannot be judged stays: a verdict that cannot be read, a call that fails. Where the model drops all of them,
    the best one stays all the same. Either is recorded, and the result counted as degraded.

    Args:
        llm: the language model.
        role: prompt with the places `{{passage}}` and `{{question}}`, reader of the verdict, what holds when it cannot
            be read.
        characters: of a hit that are shown, at most.
        max_tokens: longest reply.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read.

    Source: LLM-Critique in Gao et al., "Modular RAG", 2024 (arXiv 2407.21059).

    >>> from spolia import Hit, Node, Query, ScriptedModel
    >>> texts = {"a": "Ships wait for the tide.", "b": "Salt is dug in mines."}
    >>> found = Ranking(Query("Why do ships wait?"), tuple(Hit(Node(id, text), 1.0) for id, text in texts.items()))
    >>> [hit.node.id for hit in Critique(ScriptedModel((("Salt", "no"), "yes")))(found)]
    ['a']
    """

    llm: LanguageModel
    role: Role[bool] = USEFUL
    characters: int = 8_000
    max_tokens: int = 64

    def __post_init__(self) -> None:
        refuse_counts(self, "characters", "max_tokens")

    def apply(self, value: Ranking, /) -> Ranking:
        question = value.query.question
        briefs = [
            Brief.from_texts(question=question, passage=shorten(node.shown_text, self.characters))
            for node in value.nodes
        ]
        verdicts = replies(Ask(self.llm, self.role, self.max_tokens), briefs)
        # A failure stays, too.
        useful = tuple(hit for hit, judgement in zip(value.hits, verdicts, strict=True) if judgement is not False)
        if value.hits and not useful:
            message = f"{self.llm.name} found none of {len(value.hits)} hits of use; the best one stays."
            degrade(message, partly=True)
            useful = value.hits[:1]
        return value.but(hits=useful)

    calls = unknown


@dataclass(frozen=True)
class PictureReranker(ModelReranker):
    """Score each hit by its content: the picture if the node shows one, else its text, tables included.

    score(q, d) = scorer(q, picture of d), else scorer(q, text of d). All are given to the model in one call, so that
    their scores compare. A node shows a picture if its group was cut by `Regions("image")` and the store holds the
    picture. The asker is sent only what the asker may read.

    Args:
        corpus: the store that holds the pictures.
        scorer: the model, as `RerankModel("jina-reranker-m0", "https://api.jina.ai/v1")`.
        top_k, judged, strict: as for every `ModelReranker`.

    Source: Jina AI, "jina-reranker-m0", 2025.

    >>> from spolia import Corpus, RerankModel
    >>> PictureReranker(Corpus("notes.spolia"), RerankModel("jina-reranker-m0", "https://api.jina.ai/v1")).judged
    20
    """

    corpus: Corpus
    scorer: ImageScorer
    top_k: int = 10
    judged: int = 20
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_corpus(self.corpus, "PictureReranker(corpus)")

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(question, texts)

    def scores_of(self, question: str, nodes: Sequence[Node], /) -> Sequence[float]:
        snapshot, principals = self.corpus.snapshot(), access()
        return self.scorer.scores_of(
            question, [_read_picture(snapshot, node, principals) or node.shown_text for node in nodes]
        )


def _read_picture(snapshot: "Snapshot", node: Node, principals: frozenset[str]) -> bytes:
    """Return the picture that a node shows; empty if it shows none."""
    # Most nodes show no picture: their documents are not read for one.
    document = snapshot.find_document(node.document, principals) if "image" in dict(node.meta) else None
    image = picture_of(node, document) if document is not None else ""
    return snapshot.image(node.document, image, principals) if image else b""
