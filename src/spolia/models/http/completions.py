"""Servers with OpenAI's older protocol, which continues a text and states the log-probability of a given one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from typing import Any, TypeVar

from spolia.errors import EmptyReply, ModelRejected
from spolia.models import http
from spolia.models.http.remote import Remote
from spolia.models.http.replies import as_mapping, estimate_tokens, missing_capability, rank_tokens
from spolia.models.protocols import CHAT, LOGPROBS, NEXT_TOKENS, SCORES, Capabilities, check_capabilities
from spolia.types import Generation, Prompt, Token, Usage

Out = TypeVar("Out")
CAPABILITIES = (CHAT, LOGPROBS, NEXT_TOKENS, SCORES)


@dataclass(frozen=True)
class CompletionModel(Remote):
    """Address of a language model that continues texts; its settings are those of every `Remote`.

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
        object.__setattr__(self, "capabilities", check_capabilities(self.capabilities, CAPABILITIES))
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
        """Return the continuation of a prompt; `on_text` gets it in one piece."""
        if logprobs:
            self._require(LOGPROBS)
        body: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": prompt.sample}
        body |= {"stop": list(stop)} if stop else {}
        body |= {"logprobs": 1} if logprobs else {}
        generation = self._request(join_messages(prompt), body, lambda choice: _generation(choice, logprobs))
        if on_text is not None:
            on_text(generation.text)
        return generation

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """Return the tokens of `text`, each with its log-probability after the prompt and the tokens before it.

        A token that begins in the prompt and ends in `text` counts; one token more is generated, since some servers
        refuse to generate none, and left out.
        """
        self._require(SCORES)
        prefix = join_messages(prompt)
        full_text = prefix + text
        body = {"max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
        return self._request(full_text, body, lambda choice: _tokens_between(choice, len(prefix), len(full_text)))

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """Return the most probable next tokens, best first."""
        self._require(NEXT_TOKENS)
        return self._request(
            join_messages(prompt), {"max_tokens": 1, "temperature": 0.0, "logprobs": top}, _next_tokens
        )

    def _require(self, capability: str) -> None:
        if capability not in self.capabilities:
            raise ModelRejected(f"{self.label} was not given {capability!r}. Add it to capabilities if it can.")

    def _request(self, text: str, body: dict[str, Any], read: Callable[[Mapping[str, Any]], Out]) -> Out:
        bound = Usage(calls=1, input_tokens=estimate_tokens(text), output_tokens=body["max_tokens"])
        body = {"model": self.model, "prompt": text, **body}
        return http.request.JsonCall(
            self, "completions", body, bound, lambda reply: read(_first_choice(reply))
        ).persist()


def join_messages(prompt: Prompt) -> str:
    """Return a prompt as one text."""
    return "\n\n".join(message.content for message in prompt.messages)


def _first_choice(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ModelRejected("it replied without a choice. Check that base_url ends in /v1.")
    return as_mapping(choices[0])


def _generation(choice: Mapping[str, Any], logprobs: bool) -> Generation:
    text, tokens = choice.get("text"), tuple(_tokens(choice)) if logprobs else ()
    if not isinstance(text, str) or not text:
        raise EmptyReply(f"the reply has no text (finish_reason {choice.get('finish_reason')}): ask again.")
    if logprobs and not tokens:
        raise missing_capability("log-probabilities", LOGPROBS)
    return Generation(text, "length" if choice.get("finish_reason") == "length" else "stop", tokens)


def _tokens(choice: Mapping[str, Any]) -> Iterator[Token]:
    logprobs = as_mapping(choice.get("logprobs"))
    texts, numbers = logprobs.get("tokens"), logprobs.get("token_logprobs")
    if isinstance(texts, list) and isinstance(numbers, list) and len(texts) == len(numbers):
        for text, number in zip(texts, numbers, strict=True):
            is_valid = isinstance(number, (int, float)) and number <= 0.0
            yield Token(str(text), float(number) if is_valid else float("nan"))  # the first of a text has none


def _tokens_between(choice: Mapping[str, Any], start: int, end: int) -> tuple[Token, ...]:
    """Return the tokens that end within a part of the text that was sent."""
    tokens = list(_tokens(choice))
    stated = as_mapping(choice.get("logprobs")).get("text_offset")
    ends = list(accumulate(len(token.text) for token in tokens))
    if isinstance(stated, list) and len(stated) == len(tokens) and all(isinstance(offset, int) for offset in stated):
        # Stated offsets are better than lengths: a token may hold a part of a character.
        ends = [*stated[1:], end + 1] if stated else []
    selected = tuple(token for token, token_end in zip(tokens, ends, strict=True) if start < token_end <= end)
    if end > start and (not selected or not all(isfinite(token.logprob) for token in selected)):
        raise missing_capability(
            "log-probabilities of a text that is given to it (echo, with a prompt before it)", SCORES
        )
    return selected


def _next_tokens(choice: Mapping[str, Any]) -> tuple[Token, ...]:
    top = as_mapping(choice.get("logprobs")).get("top_logprobs")
    first = as_mapping(top[0]) if isinstance(top, list) and top else {}
    return rank_tokens(Token(text, float(p)) for text, p in first.items() if isinstance(p, (int, float)))
