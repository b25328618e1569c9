"""Any server that speaks the OpenAI chat protocol: OpenAI, vLLM, llama.cpp, Ollama, LM Studio and others.

https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from spolia.errors import ModelError, ModelRejected
from spolia.models.protocols import CHAT, LOGPROBS, STREAM, Capabilities
from spolia.models.replies import estimated_tokens
from spolia.types import Generation, Prompt, Usage, Value

OnText = Callable[[str], None]


@dataclass(frozen=True)
class ChatModel(Value):
    """The address of a language model. It holds no secret: the key is read from the environment at each call.

    Args:
        model: what the server calls it.
        base_url: where the API begins, for example `http://127.0.0.1:8000/v1`. The prompts, with what is quoted from
            documents in them, and the key are sent there and nowhere else: redirects are refused.
        api_key_env: name of the environment variable with the key; nothing is sent where it is empty or not set.
        capabilities: what the server can do beyond `chat`: `stream`, `logprobs`.
        connect_timeout_s: seconds until it takes a connection.
        timeout_s: seconds without a byte from it.
        deadline_s: seconds for one `generate`, with all attempts and waits.
        retries: attempts after the first, where the failure may pass. None once text has been handed out.
        wait_s: about how long to wait before the second attempt; twice as long before each further one (between half
            and all of it, at random, so that callers spread). A server's `Retry-After` counts where it is longer.
        max_wait_s: the longest wait; where the server asks for more, the call fails at once.
        max_concurrent: requests to this server at a time, in this process.
        usd_per_million: price of a million tokens sent, and generated.

    >>> ChatModel("qwen3", "http://127.0.0.1:8000/v1").name
    'qwen3'
    """

    model: str
    base_url: str
    api_key_env: str = "OPENAI_API_KEY"
    capabilities: frozenset[str] = Capabilities((CHAT, STREAM))
    connect_timeout_s: float = 5.0
    timeout_s: float = 60.0
    deadline_s: float = 300.0
    retries: int = 3
    wait_s: float = 0.5
    max_wait_s: float = 30.0
    max_concurrent: int = 8
    usd_per_million: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "capabilities", Capabilities(self.capabilities))
        object.__setattr__(self, "base_url", checked_url(self.base_url))
        for name in ("connect_timeout_s", "timeout_s", "deadline_s", "max_concurrent"):
            if not 0 < getattr(self, name) <= 1e6:
                raise ModelError(f"ChatModel got {name}={getattr(self, name)}. Write 0 < number <= 1000000.")

    @property
    def name(self) -> str:
        return self.model

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> str:
        return f"{self.base_url}|{self.model}"

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
        if CHAT not in self.capabilities:
            raise ModelRejected(f"{self._who} does not chat. Write capabilities={{'chat'}} if it does.")
        if logprobs and LOGPROBS not in self.capabilities:
            raise ModelRejected(
                f"{self._who} states no log-probabilities. Write capabilities={{'chat', 'logprobs'}} if it does."
            )
        streamed = on_text is not None and STREAM in self.capabilities
        body = self._body(prompt, max_tokens, temperature, stop, logprobs, streamed)
        from spolia.models.asking import Call  # urllib3 is only imported when a server is asked

        return Call(self, body, self._bound(prompt, max_tokens), logprobs, on_text).persist()

    @property
    def _who(self) -> str:
        return f"{self.model} at {self.base_url}"

    def _body(
        self, prompt: Prompt, max_tokens: int, temperature: float, stop: Sequence[str], logprobs: bool, streamed: bool
    ) -> bytes:
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        found: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": max_tokens}
        found |= {"temperature": temperature, "seed": prompt.sample}
        if stop:
            found["stop"] = list(stop)
        if logprobs:
            found["logprobs"] = True
        if streamed:
            found |= {"stream": True, "stream_options": {"include_usage": True}}
        return json.dumps(found).encode()

    def _bound(self, prompt: Prompt, max_tokens: int) -> Usage:
        sent = sum(estimated_tokens(message.content) + 8 for message in prompt.messages)
        return self.priced(Usage(calls=1, input_tokens=sent, output_tokens=max_tokens))

    def priced(self, usage: Usage) -> Usage:
        sent, written = self.usd_per_million
        return usage.but(cost_usd=(usage.input_tokens * sent + usage.output_tokens * written) / 1e6)


def checked_url(url: str) -> str:
    """An address where an API begins, without a slash at its end.

    Raises:
        ModelError: it is none, or holds a secret.
    """
    try:
        parts = urlsplit(url)
        secret = bool(parts.username or parts.password or parts.query or parts.fragment)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        secret = valid = False
    if secret:
        raise ModelError(
            "base_url holds more than an address (a user, a password, a query), which would be stored with the flow. "
            "Write the address alone, and name the key's variable in api_key_env."
        )
    if not valid:
        raise ModelError(f"base_url is {url!r}, no web address. Write for example 'http://127.0.0.1:8000/v1'.")
    return url.rstrip("/")
