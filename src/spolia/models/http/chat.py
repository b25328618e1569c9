"""Servers that speak the OpenAI chat protocol (https://platform.openai.com/docs/api-reference/chat)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spolia.errors import ModelRejected
from spolia.models.http.remote import Remote
from spolia.models.http.replies import estimated_tokens, next_of_chat
from spolia.models.protocols import CHAT, LOGPROBS, NEXT_TOKENS, STREAM, STRUCTURED, Capabilities, able
from spolia.types import Generation, Prompt, Token, Usage

OnText = Callable[[str], None]
ABLE = (CHAT, STREAM, LOGPROBS, NEXT_TOKENS, STRUCTURED)


@dataclass(frozen=True)
class ChatModel(Remote):
    """The address of a language model that chats; its settings are those of every `Remote`.

    Args:
        capabilities: all that the server can do: `chat` and `stream` where nothing is said, `logprobs`, `next_tokens`
            (the most probable next tokens), `structured` (replies held to a JSON schema).

    >>> ChatModel("qwen3", "http://127.0.0.1:8000/v1").name
    'qwen3'
    """

    capabilities: frozenset[str] = Capabilities((CHAT, STREAM))

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
        on_text: OnText | None = None,
    ) -> Generation:
        """The reply to a prompt; streamed where `on_text` is given and the server can. `prompt.sample` is the seed."""
        body = self._body(prompt, max_tokens, temperature, stop, logprobs)
        return self._generated(prompt, body, logprobs, on_text)

    def structured(
        self,
        prompt: Prompt,
        schema: Mapping[str, Any],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        on_text: OnText | None = None,
    ) -> Generation:
        """The reply to a prompt, which the server holds to a JSON schema."""
        self._must(STRUCTURED, "holds no reply to a schema")
        body = self._body(prompt, max_tokens, temperature, (), False)
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(schema)}}
        return self._generated(prompt, body, False, on_text)

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """The most probable first tokens of a reply, best first; OpenAI gives at most 20."""
        self._must(NEXT_TOKENS, "does not state the most probable next tokens")
        body = self._body(prompt, 1, 0.0, (), True) | {"top_logprobs": top}
        bound = self._bound(prompt, 1)
        from spolia.models.http.request import Posting  # urllib3 is only imported when a server is asked

        return Posting(self, "chat/completions", body, bound, next_of_chat).persist()

    def _generated(self, prompt: Prompt, body: dict[str, Any], logprobs: bool, on_text: OnText | None) -> Generation:
        self._must(CHAT, "does not chat")
        if logprobs:
            self._must(LOGPROBS, "states no log-probabilities")
        if on_text is not None and STREAM in self.capabilities:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        from spolia.models.http.request import ChatCall  # urllib3 is only imported when a server is asked

        bound = self.priced(self._bound(prompt, body["max_tokens"]))
        return ChatCall(self, json.dumps(body).encode(), bound, logprobs, on_text).persist()

    def _must(self, capability: str, lacking: str) -> None:
        if capability not in self.capabilities:
            all_of_it = ", ".join(map(repr, sorted({*self.capabilities, CHAT, capability})))
            raise ModelRejected(f"{self.who} {lacking}. Write capabilities={{{all_of_it}}} if it does.")

    def _body(
        self, prompt: Prompt, max_tokens: int, temperature: float, stop: Sequence[str], logprobs: bool
    ) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        found: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": max_tokens}
        found |= {"temperature": temperature, "seed": prompt.sample}
        if stop:
            found["stop"] = list(stop)
        if logprobs:
            found["logprobs"] = True
        return found

    def _bound(self, prompt: Prompt, max_tokens: int) -> Usage:
        sent = sum(estimated_tokens(message.content) + 8 for message in prompt.messages)
        return Usage(calls=1, input_tokens=sent, output_tokens=max_tokens)
