"""Servers that speak the OpenAI chat protocol (https://platform.openai.com/docs/api-reference/chat)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spolia.errors import ModelError, ModelRejected
from spolia.models import http
from spolia.models.http.remote import Remote
from spolia.models.http.replies import estimate_tokens, read_next_tokens
from spolia.models.protocols import CHAT, LOGPROBS, NEXT_TOKENS, STREAM, STRUCTURED, Capabilities, check_capabilities
from spolia.types import Generation, Prompt, Token, Usage
from spolia.types.value import added_field

OnText = Callable[[str], None]
CAPABILITIES = (CHAT, STREAM, LOGPROBS, NEXT_TOKENS, STRUCTURED)


@dataclass(frozen=True)
class ChatModel(Remote):
    """Address of a language model that chats; its settings are those of every `Remote`.

    Args:
        capabilities: all that the server can do: by default `chat` and `stream`; `logprobs`, `next_tokens`
            (the most probable next tokens), `structured` (replies held to a JSON schema).
        thought_tokens: what it may think beside its answer, added to the longest reply that a step asks for.
        thinking: switch it on or off where the server's chat template can (`enable_thinking`: vLLM, SGLang, llama.cpp);
            None as the server does.
        reasoning_effort: `minimal`, `low`, `medium`, `high`, where the model knows it; empty as the server does.
        top_p: share of the probability that is drawn from, above 0, up to 1.
        extra: further settings of the request, a JSON object: `{"top_k": 20}`.

    Where the server answers that it does not take `max_tokens` (`max_completion_tokens` then), `temperature` or `seed`,
    this process asks this model without it from then on, and each trace says so.

    >>> ChatModel("qwen3", "http://127.0.0.1:8000/v1").name
    'qwen3'
    """

    capabilities: frozenset[str] = Capabilities((CHAT, STREAM))
    thought_tokens: int = added_field(0)
    thinking: bool | None = added_field(None)
    reasoning_effort: str = added_field("")
    top_p: float = added_field(1.0)
    extra: str = added_field("")

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", check_capabilities(self.capabilities, CAPABILITIES))
        super().__post_init__()
        if self.thought_tokens < 0 or not 0 < self.top_p <= 1:
            settings = f"thought_tokens={self.thought_tokens}, top_p={self.top_p}"
            raise ModelError(f"ChatModel got {settings}. Write a number of at least 0, and one above 0, up to 1.")
        if not isinstance(self._extra, dict):
            raise ModelError(f"ChatModel got extra={self.extra!r:.80}. Write a JSON object: '{{\"top_k\": 20}}'.")

    def fingerprint(self) -> str:
        """Return its address and the settings that differ from the defaults."""
        names = ("thought_tokens", "thinking", "reasoning_effort", "top_p", "extra")
        # Defaults are left out, so that results stay cached when a setting is added.
        changed = {name: value for name in names if (value := getattr(self, name)) != getattr(type(self), name)}
        return f"{super().fingerprint()}|{changed}" if changed else super().fingerprint()

    @property
    def _extra(self) -> Any:
        try:
            return json.loads(self.extra or "{}")
        except ValueError:
            return None

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
        """Return the reply to a prompt; streamed for `on_text` where the server can. `prompt.sample` is the seed."""
        body = self._body(prompt, max_tokens, temperature, stop, logprobs)
        return self._request_reply(prompt, body, logprobs, on_text)

    def structured(
        self,
        prompt: Prompt,
        schema: Mapping[str, Any],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        on_text: OnText | None = None,
    ) -> Generation:
        """Return the reply to a prompt, which the server holds to a JSON schema."""
        self._require(STRUCTURED, "holds no reply to a schema")
        body = self._body(prompt, max_tokens, temperature, (), False)
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": dict(schema)}}
        return self._request_reply(prompt, body, False, on_text)

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """Return the most probable first tokens of a reply, best first; OpenAI gives at most 20."""
        self._require(NEXT_TOKENS, "does not state the most probable next tokens")
        # One token, without those to think that `_body` adds.
        body = self._body(prompt, 1, 0.0, (), True) | {"top_logprobs": top, "max_tokens": 1}
        bound = self._bound(prompt, 1)
        return http.request.JsonCall(self, "chat/completions", body, bound, read_next_tokens).persist()

    def _request_reply(
        self, prompt: Prompt, body: dict[str, Any], logprobs: bool, on_text: OnText | None
    ) -> Generation:
        self._require(CHAT, "does not chat")
        if logprobs:
            self._require(LOGPROBS, "states no log-probabilities")
        if on_text is not None and STREAM in self.capabilities:
            # without the option a stream states no usage
            body |= {"stream": True, "stream_options": {"include_usage": True}}

        bound = self.add_price(self._bound(prompt, body["max_tokens"]))
        return http.request.ChatCall(self, body, bound, logprobs, on_text).persist()

    def _require(self, capability: str, complaint: str) -> None:
        if capability not in self.capabilities:
            names = ", ".join(map(repr, sorted({*self.capabilities, CHAT, capability})))
            in_file = f"model: {self.model}, base_url: {self.base_url}, capabilities: [{names}]"
            raise ModelRejected(
                f"{self.label} {complaint}. Write capabilities={{{names}}} if it does; in a flow file, in place of "
                f"{{use: llm}}, write {{ChatModel: {{{in_file}}}}}."
            )

    def _body(
        self, prompt: Prompt, max_tokens: int, temperature: float, stop: Sequence[str], logprobs: bool
    ) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        body |= {"max_tokens": max_tokens + self.thought_tokens, "temperature": temperature, "seed": prompt.sample}
        body |= {"top_p": self.top_p} if self.top_p < 1 else {}
        body |= {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        if self.thinking is not None:
            body["chat_template_kwargs"] = {"enable_thinking": self.thinking}
        # The user's own settings come last but for those that the caller relies on.
        body |= self._extra
        if stop:
            body["stop"] = list(stop)
        if logprobs:
            body["logprobs"] = True
        return body

    def _bound(self, prompt: Prompt, max_tokens: int) -> Usage:
        # The chat template adds a few tokens to each message.
        input_tokens = sum(estimate_tokens(message.content) + 8 for message in prompt.messages)
        return Usage(calls=1, input_tokens=input_tokens, output_tokens=max_tokens)
