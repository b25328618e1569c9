"""OpenAI's chat API: each flow is a model.

The last message of the user is the question, the messages before it are its history. `spolia` is the one field that
OpenAI's form does not have: the reply of `/v1/answer`, with citations. A parameter has its effect, or the reply names
it as one without effect (what a flow decides itself, such as the temperature), or the client gets an error.
"""

from __future__ import annotations

import json
import time
from typing import Any, Literal, NotRequired, cast

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from spolia.errors import UnsupportedParameter
from spolia.run import Run
from spolia.run.lane import Lane
from spolia.server.answers import EventStream, event
from spolia.server.json_reply import JsonReply
from spolia.server.replies import alias_reply
from spolia.server.reply_schemas import AliasReply, AnswerReply, TypedDict
from spolia.server.service import ServedFlow, Service
from spolia.types import Answer, Message, Query

DONE = b"data: [DONE]\n\n"
TEXT_PLACEHOLDER = "\0 text"
"""In the place of a text; no name of a flow has it."""
INCOMPLETE_REASONS = ("cap", "budget")
"""Reasons of an answer that may be incomplete: OpenAI's `length`."""
WITHOUT_EFFECT = (
    "temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens", "max_completion_tokens",
    "reasoning_effort", "verbosity",
)  # fmt: skip
"""What a flow decides itself. The reply names those that a request has."""
LABELS = (
    "user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier",
    "parallel_tool_calls",
)  # fmt: skip
"""What says nothing of the answer."""
NEUTRAL: tuple[Any, ...] = (None, False, 0, "", [], {}, "none", "auto", {"type": "text"}, ["text"])
"""Values with which a parameter that is not supported asks for nothing."""


class MessagePart(BaseModel):
    """A part of a message. A question has parts of type `text` only; others are left out of the history."""

    type: str
    text: str = ""


class ChatMessage(BaseModel):
    """A message. Those of the system and of tools have no effect: a flow has its own prompts and searches itself."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[MessagePart] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""

    def refuse_other_parts(self) -> None:
        other_types = (
            [part.type for part in self.content if part.type != "text"] if isinstance(self.content, list) else []
        )
        if other_types:
            raise UnsupportedParameter(
                f"A question is text; {other_types[0]!r:.40} is not read. Leave it out.", "messages"
            )


class StreamOptions(BaseModel):
    """Options of a stream. `include_usage`: send a last chunk with the tokens."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """A chat, as OpenAI's clients send it."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"model": "naive", "messages": [{"role": "user", "content": "What causes the tides?"}]}]
        },
    )

    model: str
    messages: list[ChatMessage] = Field(min_length=1, max_length=1_000)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = 1
    seed: int | None = Field(default=None, description="A cached answer is used for requests of one seed.")
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)

    def refuse_unsupported(self) -> None:
        """Raise UnsupportedParameter for the first parameter that the answer would not obey."""
        for name, value in (self.model_extra or {}).items():
            if name not in WITHOUT_EFFECT + LABELS and value not in NEUTRAL:
                raise UnsupportedParameter(f"The parameter {name!r:.80} is not supported. Leave it out.", name)
        last = self.messages[-1]
        last.refuse_other_parts()
        if last.role != "user" or not last.text.strip():
            raise UnsupportedParameter("The last message must be the user's question, as text.", "messages")

    @property
    def without_effect(self) -> list[str]:
        """Return the parameters of the request that the flow decides itself."""
        values = self.model_dump(exclude_none=True, include=set(WITHOUT_EFFECT)) | (self.model_extra or {})
        return [name for name in WITHOUT_EFFECT if values.get(name) is not None]

    @property
    def query(self) -> Query:
        """Return the question, with the earlier messages that have a text as its history."""
        *history, last = (
            (message.role, message.text) for message in self.messages if message.role in ("user", "assistant")
        )
        return Query(last[1], history=tuple(Message(role, text) for role, text in history if text.strip()))

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class UsageReply(TypedDict):
    """Tokens of the language models."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class MessageReply(TypedDict):
    """The answer; its citations follow as footnotes."""

    role: Literal["assistant"]
    content: str


class ChoiceReply(TypedDict):
    """The one choice."""

    index: int
    message: MessageReply
    finish_reason: Literal["stop", "length"]


class ChatAnswerReply(AnswerReply):
    """The reply of `/v1/answer`, and which parameters of the request had no effect."""

    without_effect: NotRequired[list[str]]


class ChatReply(TypedDict):
    """Answer in OpenAI's form; `spolia` holds the reply of `/v1/answer`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceReply]
    usage: UsageReply
    spolia: ChatAnswerReply


class ModelReply(TypedDict):
    """A flow as a model; `spolia` says what an alias stands for."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    spolia: NotRequired[AliasReply]


class ModelList(TypedDict):
    """List of all flows as models."""

    object: Literal["list"]
    data: list[ModelReply]


def add_chat_routes(app: FastAPI, service: Service) -> None:
    started = int(time.time())  # OpenAI's form needs a time of creation, which flows do not have

    def build_model_reply(flow: ServedFlow) -> ModelReply:
        reply: ModelReply = {"id": flow.name, "object": "model", "created": started, "owned_by": "spolia"}
        if (promotion := flow.promotion) is None:
            return reply
        return reply | {"created": int(promotion.promoted), "spolia": alias_reply(promotion)}

    @app.get("/v1/models", response_model=ModelList)
    async def models() -> Response:
        """List the served flows as models."""
        return JsonReply(
            {"object": "list", "data": [build_model_reply(flow) for flow in service.served_flows.values()]}
        )

    @app.get("/v1/models/{name}", response_model=ModelReply)
    async def one_model(name: str) -> Response:
        """Return one flow as a model."""
        return JsonReply(build_model_reply(service.flow(name)))

    @app.post("/v1/chat/completions", response_model=ChatReply)
    async def chat(request: Request, body: ChatRequest) -> Response:
        """Answer the last message of a chat; with `stream`, as server-sent events."""
        body.refuse_unsupported()
        flow, query, holder = service.flow(body.model), body.query, request.scope["holder"]
        cache = service.request_cache(request.headers, body.seed)
        request.scope["flow"] = flow.name
        if body.stream:
            return EventStream(service, holder, flow, query, lambda run: ChatEvents(service, flow, run, body), cache)
        with service.run(holder, cache=cache) as run:

            def work() -> ChatReply:
                with run.lane() as lane:
                    return build_chat_reply(service, run, lane, flow, body, flow.answer(query))

            return JsonReply(await service.run_in_thread(run, work, request.receive))


def format_footnotes(answer: Answer) -> str:
    """Return the places of the cited passages, as a text after the answer."""
    return "".join(f"\n\n[{citation.marker}] {' '.join(citation.place.split())}" for citation in answer.citations)


def usage_reply(lane: Lane) -> UsageReply:
    input_tokens, output_tokens = lane.usage.input_tokens, lane.usage.output_tokens
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }


def finish_reason(answer: Answer) -> Literal["stop", "length"]:
    return "length" if answer.stop_reason in INCOMPLETE_REASONS else "stop"


def build_chat_reply(
    service: Service, run: Run, lane: Lane, flow: ServedFlow, body: ChatRequest, answer: Answer
) -> ChatReply:
    reply = cast(ChatAnswerReply, service.reply(flow, run, lane, body.query, answer))
    if names := body.without_effect:
        reply["without_effect"] = names
    message: MessageReply = {
        "role": "assistant",
        "content": service.client_text(answer.text + format_footnotes(answer)),
    }
    return {
        "id": f"chatcmpl-{run.id}", "object": "chat.completion", "created": int(time.time()), "model": flow.name,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(answer)}],
        "usage": usage_reply(lane), "spolia": reply,
    }  # fmt: skip


class ChatEvents:
    """Chunks in OpenAI's form. That form cannot take text back: after a retraction the text begins again below."""

    def __init__(self, service: Service, flow: ServedFlow, run: Run, body: ChatRequest) -> None:
        self.service, self.flow, self.body, self.is_first = service, flow, body, True
        self.head: dict[str, Any] = {
            "id": f"chatcmpl-{run.id}", "object": "chat.completion.chunk", "created": int(time.time()),
            "model": body.model,
        }  # fmt: skip
        if body.includes_usage:
            self.head["usage"] = None  # with include_usage, OpenAI's chunks have this field, null in all but the last
        self._text_prefix, self._text_suffix = self._chunk({"content": TEXT_PLACEHOLDER}).split(
            json.dumps(TEXT_PLACEHOLDER).encode()
        )

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        return event({**self.head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})

    def text(self, piece: str) -> bytes:
        if self.is_first:
            self.is_first = False
            return self._chunk({"role": "assistant", "content": piece})
        return (
            self._text_prefix + json.dumps(piece).encode() + self._text_suffix
        )  # as `_chunk`, without what is always the same

    def retracted(self, characters: int) -> bytes:
        return self._chunk({"content": "\n\n"}, spolia={"retracted": characters})

    def done(self, answer: Answer, run: Run, lane: Lane) -> bytes:
        reply = build_chat_reply(self.service, run, lane, self.flow, self.body, answer)
        parts = (
            [self.text(footnote_text)] if (footnote_text := self.service.client_text(format_footnotes(answer))) else []
        )
        parts.append(self._chunk({}, finish_reason(answer), spolia=reply["spolia"]))
        if self.body.includes_usage:
            parts.append(event({**self.head, "choices": [], "usage": reply["usage"]}))
        return b"".join([*parts, DONE])
