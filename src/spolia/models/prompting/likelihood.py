"""Operators that ask for probabilities: of the first tokens of a reply, and of the tokens of a given text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from spolia.core.operator import Operator
from spolia.core.run_context import degrade, record_exchange
from spolia.errors import WiringError
from spolia.models.prompting.role import Brief, Role
from spolia.models.protocols import ForetellsTokens, ScoresContinuations, require_capabilities
from spolia.types import Message, Prompt, Token, Value
from spolia.types.outcomes import require_successes


@dataclass(frozen=True)
class FirstTokens(Operator[Brief | Prompt, tuple[Token, ...]]):
    """Get the most probable first tokens of the reply to a prompt, best first, each with ln p. One call, and nothing is
    generated beyond one token.

    Args:
        llm: a model with the capability `next_tokens`.
        role: whose prompt file a brief is asked with; its parser reads nothing. None where prompts are given.
        top: tokens, at most; many servers state no more than 20.

    Raises:
        ModelRejected: the model states no probabilities.
        ModelUnavailable: the server cannot be reached.

    >>> FirstTokens.needs
    {'llm': frozenset({'next_tokens'})}
    """

    llm: ForetellsTokens
    role: Role[Any] | None = None
    top: int = 20

    cached: ClassVar[bool] = True

    def apply(self, value: Brief | Prompt, /) -> tuple[Token, ...]:
        prompt = self.reads(value)
        tokens = require_capabilities(self.llm, ForetellsTokens).next_tokens(prompt, top=self.top)
        record_exchange(self.llm.name, prompt, tokens)
        return tokens

    def reads(self, value: Brief | Prompt, /) -> Prompt:
        if isinstance(value, Prompt):
            return value
        if self.role is None:
            raise WiringError(
                f"{self.short} is given a brief, and has no role to ask it with. Write role=..., or give a Prompt."
            )
        return self.role.prompt_for(dict(value.places))


OPENING = "A text:"
"""What the first token of a text follows, since servers tell nothing of a text that follows nothing."""
CONTEXT_CHARACTERS = 4_000
"""Characters before a text that are shown with it at most, so that a model's window holds both."""


IMPOSSIBLE = 1e6
"""Self-information of a token whose probability is 0, in nats, so that it can be added up and compared."""


@dataclass(frozen=True)
class Continuation(Value):
    """Text, and the prompt that it follows.

    >>> Continuation.from_texts("It fell.", "The tide rose.").prompt.text
    'A text:\\n\\nThe tide rose.\\n'
    """

    prompt: Prompt
    text: str

    @classmethod
    def from_texts(cls, text: str, *preceding: str) -> Self:
        """Make a text follow others, of which the last characters count."""
        parts = [part[-CONTEXT_CHARACTERS:] for part in preceding if part.strip()]
        return cls(Prompt((Message("user", "\n\n".join((OPENING, *parts)) + "\n"),)), text)


@dataclass(frozen=True)
class Likelihood(Operator[Continuation, tuple[Token, ...]]):
    """Get the tokens of a text, each with ln p(x_t | the text before), at most 0. Nothing is generated.

    Args:
        llm: a model with the capability `scores`.

    Raises:
        ModelRejected: the model states no log-probabilities of given texts.
        ModelUnavailable: the server cannot be reached.

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> with OpenAIServer(ServedReply(logprob=-0.5)) as server:
    ...     Likelihood(CompletionModel("any", server.url))(Continuation.from_texts("Paris."))
    (Token(text='\\nParis.', logprob=-3.5),)
    """

    llm: ScoresContinuations

    cached: ClassVar[bool] = True

    def apply(self, value: Continuation, /) -> tuple[Token, ...]:
        if not value.text:
            return ()
        tokens = require_capabilities(self.llm, ScoresContinuations).continuation(value.prompt, value.text)
        record_exchange(self.llm.name, value.prompt, tokens)
        return tokens


@dataclass(frozen=True)
class Surprise(Value):
    """Stretch of a text, from start to end, and its self-information in nats: -ln p, at least 0."""

    start: int
    end: int
    nats: float


def surprises(llm: ScoresContinuations, texts: Sequence[Continuation]) -> list[list[Surprise]]:
    """Measure how much each text surprises a model; all at the same time. ModelRejected if it states no
    log-probabilities."""
    scored = require_successes(Likelihood(llm).batch(texts))
    return [align_tokens(tokens, continuation.text) for tokens, continuation in zip(scored, texts, strict=True)]


def align_tokens(tokens: Sequence[Token], text: str) -> list[Surprise]:
    """Return the places of the tokens of a text. Together they cover it: a stretch that no token names belongs to the
    token before, and a token that cannot be found (a piece of a character) counts for the one after.

    >>> align_tokens((Token(" Pa", -1.0), Token("ris", -2.0), Token("?", -0.5)), "Paris.")
    [Surprise(start=0, end=2, nats=1.0), Surprise(start=2, end=6, nats=2.5)]
    """
    if unknown := sum(not token.logprob <= 0 for token in tokens):  # NaN is not
        message = f"{unknown} of {len(tokens)} tokens have no log-probability, and count as foretold."
        degrade(message, partly=unknown < len(tokens))
    starts: list[int] = []
    nats: list[float] = []
    position, pending = 0, 0.0
    for token in tokens:
        surprise = min(IMPOSSIBLE, max(0.0, -token.logprob))  # 0 for what is none
        place = _find_token(token.text, text, position, first=not starts)
        if place is None:
            pending += surprise
            continue
        starts.append(place[0])
        nats.append(surprise + pending)
        position, pending = place[1], 0.0
    if not starts:
        return [Surprise(0, len(text), pending)] if text else []
    nats[-1] += pending
    starts[0] = 0
    ends = [*starts[1:], len(text)]
    return [
        Surprise(start, end, token_nats)
        for start, end, token_nats in zip(starts, ends, nats, strict=True)
        if end > start
    ]


def _find_token(token: str, text: str, start: int, first: bool) -> tuple[int, int] | None:
    """Return start and end of a token from a place of the text on; the first may have begun before the text."""
    for spelling in (token, token.lstrip()) if first else (token,):
        if spelling and text.startswith(spelling, start):
            return start, start + len(spelling)
    # Tokenizers drop or add a few characters between tokens; further on would be another token.
    index = text.find(token.strip(), start, start + len(token) + 20) if token.strip() else -1
    return None if index < 0 else (index, index + len(token.strip()))
