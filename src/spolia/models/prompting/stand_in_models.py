"""Stand-ins for models: scripted replies, and models that record requests and do not reply."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeAlias

from spolia.core.patterns import NO_PATTERN
from spolia.core.run_context import check_cancelled, record_access, reserve
from spolia.errors import ModelRejected, SpoliaError
from spolia.models.http.replies import estimate_tokens
from spolia.models.protocols import CHAT, LOGPROBS, STREAM, Capabilities, Kind, pricing_of
from spolia.types import Generation, Prompt, Token, Usage, Value
from spolia.worker_process import WorkerDied, pattern_matches

_MATCH_S = 5.0  # a pattern of the user's may backtrack without end
Script: TypeAlias = tuple[str | tuple[str, ...], ...]


@dataclass(frozen=True)
class ScriptedModel(Value):
    """Model that replies by looking at the prompt, and has no memory: the same prompt gets the same reply, in any order
    of calls.

    Args:
        replies: rows `(pattern, reply)`; the first whose regular expression is found in the prompt's text replies. A
            row may hold several replies, `(pattern, first, second)`: sample k of the prompt gets reply k, in a circle.
            Plain texts are the samples of a last row that replies to everything.
        capabilities: what it can do; anything else raises, as with a model that cannot.
        name: identifies it in traces.
        logprob: natural log-probability of every word.

    Tokens are counted in words.

    >>> model = ScriptedModel((("capital of France", "Paris."), ("", "I do not know.")))
    >>> from spolia.types import Message
    >>> model.generate(Prompt((Message("user", "What is the capital of France?"),))).text
    'Paris.'
    """

    replies: Script
    capabilities: frozenset[str] = Capabilities((CHAT, STREAM))
    name: str = "scripted"
    logprob: float = -0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", Capabilities(self.capabilities))
        if isinstance(self.replies, str):
            raise ModelRejected(f"replies is a text, not a tuple. Write ScriptedModel(({self.replies[:40]!r},)).")
        if not isinstance(self.replies, Iterable):
            raise ModelRejected(f"replies is {self.replies!r:.80}, not a tuple. Write ScriptedModel(('A reply.',)).")
        for row in self._rows():
            if len(row) < 2:
                raise ModelRejected(f"The row {row!r} has no reply. Write (pattern, reply).")
            try:
                re.compile(row[0])
            except NO_PATTERN as error:
                message = f"{row[0]!r:.200} is not a regular expression: {error}"
                raise ModelRejected(f"{message}. Write re.escape(...).") from error

    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return self.digest.hex()

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        logprobs: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        """Return the scripted reply, cut and counted like a real one."""
        for capability in (CHAT, LOGPROBS) if logprobs else (CHAT,):
            if capability not in self.capabilities:
                raise ModelRejected(
                    f"{self.name} was not given {capability!r}. Write capabilities="
                    f"{{{', '.join(map(repr, sorted({CHAT, capability, *self.capabilities})))}}}."
                )
        record_access(self)
        input_tokens = sum(len(message.content.split()) for message in prompt.messages)
        with reserve(Usage(calls=1, input_tokens=input_tokens, output_tokens=max_tokens)) as reservation:
            check_cancelled()
            words, finish_reason = _cut(self._reply(prompt), max_tokens, stop)
            reservation.settle(Usage(calls=1, input_tokens=input_tokens, output_tokens=len(words)))
            if on_text is not None:
                for piece in words if STREAM in self.capabilities else ["".join(words)]:
                    check_cancelled()
                    on_text(piece)
        tokens = tuple(Token(word, self.logprob) for word in words) if logprobs else ()
        return Generation("".join(words), finish_reason, tokens)

    def _charge(self, prompt: Prompt, tokens: int) -> None:
        """Count a call that is no chat."""
        record_access(self)
        input_tokens = sum(len(message.content.split()) for message in prompt.messages)
        with reserve(Usage(calls=1, input_tokens=input_tokens, output_tokens=tokens)) as reservation:
            reservation.settle(Usage(calls=1, input_tokens=input_tokens, output_tokens=tokens))

    def _reply(self, prompt: Prompt) -> str:
        text = prompt.text
        for row in self._rows():
            if self._is_found(row[0], text):
                return row[1 + prompt.sample % (len(row) - 1)]
        excerpt = text if len(text) <= 200 else f"{text[:100]} ... {text[-100:]}"
        raise ModelRejected(
            f"{self.name} has no reply to this prompt: {excerpt!r}. Add a row (pattern, reply), or ('', reply)."
        )

    def _is_found(self, pattern: str, text: str) -> bool:
        try:
            return pattern_matches(re.compile(pattern), "search", text, _MATCH_S)
        except WorkerDied as died:
            check_cancelled()
            raise ModelRejected(
                f"The regular expression {pattern!r:.200} of {self.name} {died}. Write one that repeats no repetition."
            ) from died

    def _rows(self) -> list[tuple[str, ...]]:
        plain = tuple(row for row in self.replies if isinstance(row, str))
        return [row for row in self.replies if not isinstance(row, str)] + ([("", *plain)] if plain else [])


def _cut(reply: str, max_tokens: int, stop: Sequence[str]) -> tuple[list[str], str]:
    """Split the reply into words with the blanks after them, up to a stop text or `max_tokens`; return why it ends,
    too."""
    ends = [reply.index(text) for text in stop if text and text in reply]
    words = re.findall(r"\s*\S+\s*|\s+", reply[: min(ends)] if ends else reply)
    return (words[:max_tokens], "length") if len(words) > max_tokens else (words, "stop")


PromptCallback: TypeAlias = Callable[[Any, Prompt, int], str | None]
"""Is given the model, a prompt and the longest reply in tokens; gives a reply, or None for none."""


class Unanswered(SpoliaError):
    """Error if a model that is not to be asked was asked."""


@dataclass(frozen=True)
class Silent(Value):
    """Stand-in for a model: records requests and does not reply. In all else it is like the model.

    Args:
        on_prompt: gets each prompt before the model raises, and may reply in its place.
    """

    model: Any
    on_prompt: PromptCallback = field(compare=False, repr=False)

    def __getattr__(self, name: str) -> Any:
        # Before its fields are set, as in copying, looking them up would never end.
        if name.startswith("__") or name in ("model", "on_prompt"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def generate(self, prompt: Prompt, *, max_tokens: int = 512, **options: Any) -> Generation:
        reply = self.on_prompt(self.model, prompt, max_tokens)
        return self._refuse() if reply is None else Generation(reply, "stop")

    def structured(self, prompt: Prompt, schema: object, *, max_tokens: int = 512, **options: Any) -> Generation:
        return self.generate(prompt, max_tokens=max_tokens)

    def continuation(self, prompt: Prompt, text: str) -> NoReturn:
        self.on_prompt(self.model, prompt, 0)
        self._refuse()

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> NoReturn:
        self.on_prompt(self.model, prompt, 1)
        self._refuse()

    def embed(self, texts: Sequence[str], *, kind: Kind) -> NoReturn:
        self._refuse()

    embed_sparse = embed

    def _refuse(self) -> NoReturn:
        raise Unanswered(f"{self.model.name} is not asked, since nothing is to be done yet.")


@dataclass(frozen=True)
class SilentScorer(Value):
    """Stand-in for a reranker, which is not asked: passages stay in their order.

    Args:
        on_cost: gets what asking the model would cost.
    """

    model: Any
    on_cost: Callable[[Usage], None] = field(compare=False, repr=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("model", "on_cost"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        return self.scores_of(query, texts)

    def scores_of(self, query: str, passages: Sequence[str | bytes]) -> tuple[float, ...]:
        """Return scores that leave the passages in their order."""
        add_price = pricing_of(self.model)
        if add_price is not None:  # a server: it reads the query with each passage
            texts = [passage for passage in passages if isinstance(passage, str)]
            tokens = sum(map(estimate_tokens, texts)) + len(texts) * estimate_tokens(query)
            self.on_cost(add_price(Usage(input_tokens=tokens)))
        return tuple(-float(rank) for rank in range(len(passages)))
