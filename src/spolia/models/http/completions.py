"""Servers with OpenAI's older protocol, which continues a text and states the log-probability of a given one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import Any, TypeVar

from spolia.errors import EmptyReply, ModelRejected
from spolia.models import http
from spolia.models.http.remote import Remote
from spolia.models.http.replies import estimated_tokens, mapping, ranked_tokens, unstated
from spolia.models.protocols import CHAT, LOGPROBS, NEXT_TOKENS, SCORES, Capabilities, able
from spolia.types import Generation, Prompt, Token, Usage

Out = TypeVar("Out")
ABLE = (CHAT, LOGPROBS, NEXT_TOKENS, SCORES)


@dataclass(frozen=True)
class CompletionModel(Remote):
    """The address of a language model that continues texts; its settings are those of every `Remote`.

    A prompt's messages are put one after the other, with an empty line between them.

    Args:
        capabilities: all that the server can do, of `chat`, `logprobs`, `next_tokens` and `scores`.

    >>> from spolia.testing import OpenAIServer
    >>> from spolia.types import Message
    >>> with OpenAIServer() as server:
    ...     model = CompletionModel("any", server.url)
    ...     [token.text for token in model.continuation(Prompt((Message("user", "The capital is"),)), " Paris.")]
    [' Paris.']
    """

    capabilities: frozenset[str] = Capabilities((CHAT, LOGPROBS, NEXT_TOKENS, SCORES))

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", able(self.capabilities, ABLE))
        super().__post_init__()

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
        """The continuation of a prompt; `on_text` gets it in one piece."""
        if logprobs:
            self._must(LOGPROBS)
        body: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": prompt.sample}
        body |= {"stop": list(stop)} if stop else {}
        body |= {"logprobs": 1} if logprobs else {}
        found = self._asked(written(prompt), body, lambda choice: _generation(choice, logprobs))
        if on_text is not None:
            on_text(found.text)
        return found

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """The tokens of `text`, each with its log-probability after the prompt and those before it.

        A token that begins in the prompt and ends in `text` counts; one token more is generated, since some servers
        refuse to generate none, and left out.
        """
        self._must(SCORES)
        before = written(prompt)
        whole = before + text
        body = {"max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
        return self._asked(whole, body, lambda choice: _between(choice, len(before), len(whole)))

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """The most probable next tokens, best first."""
        self._must(NEXT_TOKENS)
        return self._asked(written(prompt), {"max_tokens": 1, "temperature": 0.0, "logprobs": top}, _next)

    def _must(self, capability: str) -> None:
        if capability not in self.capabilities:
            raise ModelRejected(f"{self.who} was not given {capability!r}. Add it to capabilities if it can.")

    def _asked(self, text: str, body: dict[str, Any], read: Callable[[Mapping[str, Any]], Out]) -> Out:
        bound = Usage(calls=1, input_tokens=estimated_tokens(text), output_tokens=body["max_tokens"])
        body = {"model": self.model, "prompt": text, **body}
        return http.request.Posting(self, "completions", body, bound, lambda reply: read(_choice(reply))).persist()


def written(prompt: Prompt) -> str:
    """A prompt as one text."""
    return "\n\n".join(message.content for message in prompt.messages)


def _choice(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ModelRejected("it replied without a choice. Check that base_url ends in /v1.")
    return mapping(choices[0])


def _generation(choice: Mapping[str, Any], logprobs: bool) -> Generation:
    text, tokens = choice.get("text"), tuple(_tokens(choice)) if logprobs else ()
    if not isinstance(text, str) or not text:
        raise EmptyReply(f"the reply has no text (finish_reason {choice.get('finish_reason')}): ask again.")
    if logprobs and not tokens:
        raise unstated("log-probabilities", LOGPROBS)
    return Generation(text, "length" if choice.get("finish_reason") == "length" else "stop", tokens)


def _tokens(choice: Mapping[str, Any]) -> Iterator[Token]:
    said = mapping(choice.get("logprobs"))
    texts, numbers = said.get("tokens"), said.get("token_logprobs")
    if isinstance(texts, list) and isinstance(numbers, list) and len(texts) == len(numbers):
        for text, number in zip(texts, numbers, strict=True):
            known = isinstance(number, (int, float)) and number <= 0.0
            yield Token(str(text), float(number) if known else float("nan"))  # the first of a text has none


def _between(choice: Mapping[str, Any], start: int, end: int) -> tuple[Token, ...]:
    """The tokens that end within a part of the text that was sent."""
    tokens = list(_tokens(choice))
    stated = mapping(choice.get("logprobs")).get("text_offset")
    ends = list(accumulate(len(token.text) for token in tokens))
    if isinstance(stated, list) and len(stated) == len(tokens) and all(isinstance(at, int) for at in stated):
        ends = [*stated[1:], end + 1] if stated else []
    found = tuple(token for token, at in zip(tokens, ends, strict=True) if start < at <= end)
    if end > start and (not found or not all(isfinite(token.logprob) for token in found)):
        raise unstated("log-probabilities of a text that is given to it (echo, with a prompt before it)", SCORES)
    return found


def _next(choice: Mapping[str, Any]) -> tuple[Token, ...]:
    top = mapping(choice.get("logprobs")).get("top_logprobs")
    first = mapping(top[0]) if isinstance(top, list) and top else {}
    return ranked_tokens(Token(text, float(p)) for text, p in first.items() if isinstance(p, (int, float)))
