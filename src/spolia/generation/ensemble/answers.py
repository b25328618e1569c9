"""REPLUG at the level of answers: each passage is answered from alone, and equal answers add up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from spolia.errors import ModelRejected, ModelUnavailable, WiringError
from spolia.generation.ensemble.weights import weights
from spolia.generation.generate import Generate
from spolia.generation.reader import Reader
from spolia.models.parsers.same import plain_words
from spolia.models.prompted import Prompted
from spolia.models.protocols import CHAT, LOGPROBS, LanguageModel
from spolia.operator import Operator
from spolia.surrounding import degrade, emit, gather
from spolia.types import Answer, Failure, Ranking
from spolia.wiring import refuse_counts

Reply = tuple[Answer, float]


@dataclass(frozen=True)
class AnswerEnsemble(Prompted, Operator[Ranking, Answer]):
    """Answer from each passage alone, and give the answer that weighs most: p(y|q) = Σ_d λ_d · exp(mean_t ln p(y_t)).

    λ = softmax(s / τ) over the scores of the passages. Answers are the same where their words are, in any case and
    with any punctuation; of equal weights the one of the better passage. Replies that abstain count where all do. A
    passage that could not be answered from is left out, and the weights of the others sum to 1 again; one has to be
    left, and the result is degraded. The answer cites the passages that gave it first.

    Args:
        llm: a model with the capability `logprobs`.
        prompt: name of a shipped prompt file, or path of one, as for `Reader`.
        max_passages: the best so many are answered from, each with a call.
        temperature: τ of the softmax over scores; the replies are the most probable ones.
        max_characters: of a passage.
        max_tokens: longest reply.
        abstention: as for `Reader`.

    Raises:
        ModelUnavailable: when no passage could be answered from, as the first error.
        ModelRejected: likewise; also where the model states no log-probabilities.

    Source: Shi et al., "REPLUG: Retrieval-augmented black-box language models", NAACL 2024.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("Who?"), tuple(Hit(Node(id, f"It was {id}."), 1.0) for id in ("Nokia", "Sony", "nokia")))
    >>> rows = (("Sony", "Sony [1]"), ("Nokia", "Nokia [1]"), ("nokia", "NOKIA! [1]"))
    >>> AnswerEnsemble(ScriptedModel(rows, frozenset(("chat", "logprobs"))))(found).text
    'Nokia [1]'
    """

    llm: LanguageModel
    prompt: str = "brief"
    max_passages: int = 10
    temperature: float = 1.0
    max_characters: int = 20_000
    max_tokens: int = 128
    abstention: str = "I do not know."

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT, LOGPROBS))}

    prompt_file = Reader.prompt_file

    def __post_init__(self) -> None:
        refuse_counts(self, "max_passages", "max_characters", "max_tokens")
        refuse_no_temperature(self, self.temperature)

    def apply(self, value: Ranking, /) -> Answer:
        best = value.cut(self.max_passages)
        if not best.hits:
            emit(self.abstention)
            return Answer(self.abstention, stop_reason="abstained", evidence=best)
        found = gather([partial(self._reply, best.but(hits=(hit,))) for hit in best.hits])
        left = [at for at, reply in enumerate(found) if not _failed(reply)]
        if not left:
            raise next(reply.raised() for reply in found if isinstance(reply, Failure))
        shares = weights([best.hits[at].score for at in left], self.temperature)
        replies = [reply for reply in found if not isinstance(reply, Failure)]
        answer = heaviest([(*reply, share) for reply, share in zip(replies, shares, strict=True)])
        emit(answer.text)
        return answer.but(evidence=best)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.max_passages

    def _reply(self, one: Ranking) -> Reply:
        """The answer from one passage, and exp(mean ln p) of its tokens."""
        reader = Reader(self.llm, self.prompt, 1, self.max_characters, self.max_tokens, abstention=self.abstention)
        generation = Generate(self.llm, self.max_tokens, logprobs=True)(reader.prompted(one))
        mean = math.fsum(token.logprob for token in generation.tokens) / max(1, len(generation.tokens))
        if not generation.tokens or not mean <= 0:
            raise ModelRejected(
                f"{self.llm.name} states no log-probabilities. Take 'logprobs' out of its capabilities."
            )
        return reader.answered(generation, one), math.exp(mean)


def heaviest(replies: list[tuple[Answer, float, float]]) -> Answer:
    """The answer with the highest sum of confidence times share over those that say the same; the first of equal ones.

    >>> heaviest([(Answer("Oslo"), 0.9, 0.4), (Answer("Salo"), 0.5, 0.4), (Answer("salo."), 0.9, 0.2)]).text
    'Salo'
    """
    said = [reply for reply in replies if not reply[0].abstained] or replies
    totals: dict[str, float] = {}
    for answer, confidence, share in said:
        words = plain_words(answer.text)
        totals[words] = totals.get(words, 0.0) + share * confidence
    best = max(totals, key=lambda words: totals[words])
    return next(answer for answer, *_ in said if plain_words(answer.text) == best)


def refuse_no_temperature(op: Operator[Ranking, Answer], temperature: float) -> None:
    """Refuse what no softmax can be taken with."""
    if not 0 < temperature < math.inf:
        raise WiringError(f"{op.short}: temperature is {temperature}. Write a number above 0.")


def _failed(reply: Reply | Failure) -> bool:
    """Whether a passage is left out; any other error than a model's is raised."""
    if not isinstance(reply, Failure):
        return False
    if not isinstance(reply.error, (ModelUnavailable, ModelRejected)):
        raise reply.raised()
    degrade(f"A passage could not be answered from and is left out: {reply.message}")
    return True
