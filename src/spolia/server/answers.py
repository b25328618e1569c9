"""Routes of Spolia's own: answers, also as events while the flow still works on them, passages, flows."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from functools import partial
from typing import Any, Literal, NotRequired, Protocol

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spolia.core.markdown import MarkdownStream
from spolia.core.operator import Operator, inside
from spolia.core.run_context import Done, Emitted, Event, Retracted
from spolia.errors import Cancelled, ServerStopping
from spolia.filters.text import condition_of
from spolia.journal.cache import Cache
from spolia.journal.trace import ForwardingJournal, Journal, step_name
from spolia.run import Run
from spolia.run.lane import Lane
from spolia.server.error_replies import error_object, refusal, told
from spolia.server.json_reply import JsonReply
from spolia.server.keys import KeyHolder
from spolia.server.replies import alias_reply, passages, search_reply
from spolia.server.reply_schemas import AliasReply, AnswerReply, SearchReply, StageReply, TypedDict
from spolia.server.service import ServedFlow, Service
from spolia.types import Answer, Message, Query, Ranking

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes events on as they come
)  # fmt: skip
BEAT, BEAT_S = b": \n\n", 10.0
"""A comment, and the seconds between two, so that no proxy closes a stream while a flow works on its first text."""


class EventForm(Protocol):
    """How what happens is written as events."""

    def text(self, piece: str) -> bytes: ...
    def retracted(self, characters: int) -> bytes: ...
    def done(self, answer: Answer, run: Run, lane: Lane) -> bytes: ...


def event(data: Any, name: str = "") -> bytes:
    """One event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


class EventStream(Response):
    """The events of a flow. Its headers come immediately, so what fails later is the last event."""

    def __init__(
        self, service: Service, holder: KeyHolder, flow: ServedFlow, query: Query, form: Any, cache: Cache | None
    ) -> None:
        self.service, self.holder, self.flow, self.query, self.form = service, holder, flow, query, form
        self.cache = cache
        self.background, self.sent = None, ""
        self.markdown = None if service.live_markdown else MarkdownStream()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        running = self.service.run(self.holder, cache=self.cache)
        with running as run, self.service.stopped_when_left(run, receive), run.lane() as lane:
            form: EventForm = self.form(run)
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            beat = asyncio.create_task(_beat(send))
            part = b""
            try:
                async with aclosing(self.service.events(self.flow, self.query)) as lots:
                    async for lot in lots:
                        if part := b"".join([self.written(one, form, run, lane) for one in lot]):
                            await send({"type": "http.response.body", "body": part, "more_body": True})
            except Cancelled:
                if not self.service.is_stopping:
                    return  # the client has left
                part = self.failure(ServerStopping("The server is stopping. Ask again."))
            except Exception as error:
                part = self.failure(error)
            else:
                part = b""
            finally:
                beat.cancel()
            await send({"type": "http.response.body", "body": part, "more_body": False})

    def failure(self, error: Exception) -> bytes:
        """The last event of a stream that failed; the error is logged and counted as a reply would be."""
        refusal(error)
        self.service.metrics.errors.labels(told(error)[2]).inc()
        return event(error_object(*told(error)), "error")

    def written(self, one: Event, form: EventForm, run: Run, lane: Lane) -> bytes:
        """Final text, and what ends the answer. A step that takes its answer from the cache emits no text, so the end
        sends what is missing."""
        if isinstance(one, Emitted):
            if not one.final or not one.text:
                return b""
            self.sent += one.text
            text = one.text if self.markdown is None else self.markdown.feed(one.text)
            return form.text(text) if text else b""
        if isinstance(one, Retracted):
            self.sent = self.sent[: -one.characters]
            characters = one.characters if self.markdown is None else self.markdown.retract(one.characters)
            return form.retracted(characters) if characters else b""
        if not isinstance(one, Done):
            return b""
        answer = one.value
        if self.sent.strip() == answer.text.strip():
            rest = "" if self.markdown is None else self.markdown.end()
            missing = form.text(rest) if rest else b""
        else:
            sent = len(self.sent) if self.markdown is None else self.markdown.retract(len(self.sent))
            missing = (form.retracted(sent) if sent else b"") + form.text(self.service.shown(answer.text))
        return missing + form.done(answer, run, lane)


async def _beat(send: Send) -> None:
    while True:
        await send({"type": "http.response.body", "body": BEAT, "more_body": True})
        await asyncio.sleep(BEAT_S)


QUESTION: Any = Field(min_length=1, max_length=32_000)
WHERE: Any = Field(
    default_factory=list, max_length=100, description="Conditions: year>=2020, 'tag in a,b', kind!=draft."
)


class Turn(BaseModel):
    """A message of the conversation before the question."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["user", "assistant"]
    content: str


class AnswerRequest(BaseModel):
    """A question. Without `flow` the first flow answers."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"question": "What causes the tides?"}]})

    question: str = QUESTION
    flow: str = ""
    where: list[str] = WHERE
    history: list[Turn] = Field(default_factory=list, max_length=1_000)
    stream: bool = Field(default=False, description="Send events: text, retracted, done.")


class SearchRequest(BaseModel):
    """A question. Without `flow`, words and meaning are searched where the store has vectors, else words."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"question": "causes of tides", "top_k": 3}]}
    )

    question: str = QUESTION
    flow: str = ""
    where: list[str] = WHERE
    top_k: int = Field(default=10, ge=1, le=100)
    stages: bool = Field(default=False, description="Also give what each step found, with scores.")


class FlowReply(TypedDict):
    """A flow: its steps, and how often it calls language models at most; null for no bound. `alias`: what an alias
    stands for."""

    name: str
    steps: list[str]
    max_calls: int | None
    alias: NotRequired[AliasReply]


class FlowList(TypedDict):
    """All flows; the first one answers if a request names none."""

    flows: list[FlowReply]


def asked_query(service: Service, asked: AnswerRequest | SearchRequest) -> Query:
    """The question with its conditions on the fields that the store has."""
    condition = condition_of(asked.where, service.corpus.snapshot().schema) if asked.where else None
    turns = asked.history if isinstance(asked, AnswerRequest) else ()
    return Query(asked.question, filter=condition, history=tuple(Message(one.role, one.content) for one in turns))


def answered(service: Service, run: Run, flow: ServedFlow, asked: AnswerRequest) -> AnswerReply:
    with run.lane() as lane:
        query = asked_query(service, asked)
        return service.reply(flow, run, lane, query, flow.answer(query))


def searched(service: Service, run: Run, flow: ServedFlow, asked: SearchRequest) -> SearchReply:
    with run.lane() as lane:
        hits = passages(flow.search(asked_query(service, asked))).cut(asked.top_k).hits
        return search_reply(hits, run, lane, flow.search, question=asked.question, name=flow.name)


def add_answer_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/answer", response_model=AnswerReply)
    async def answer(request: Request, asked: AnswerRequest) -> Response:
        """Answer a question with citations; abstain where nothing answers it."""
        flow, holder = service.flow(asked.flow), request.scope["holder"]
        request.scope["flow"] = flow.name
        cache = service.request_cache(request.headers)
        if asked.stream:
            query = asked_query(service, asked)
            return EventStream(service, holder, flow, query, lambda run: AnswerEvents(service, flow, query), cache)
        with service.run(holder, cache=cache) as run:
            work = partial(answered, service, run, flow, asked)
            return JsonReply(await service.called(run, work, request.receive))

    @app.post("/v1/search", response_model=SearchReply)
    async def search(request: Request, asked: SearchRequest) -> Response:
        """Find passages. It goes on without a language model."""
        flow = service.flow(asked.flow) if asked.flow else service.searching
        request.scope["flow"] = flow.name
        stages = Stages(service.request_journal()) if asked.stages else None
        with service.run(request.scope["holder"], stages) as run:
            reply = await service.called(run, partial(searched, service, run, flow, asked), request.receive)
        return JsonReply(reply if stages is None else reply | {"stages": stages.found})

    @app.get("/v1/flows", response_model=FlowList)
    async def flows() -> Response:
        """The flows that are served."""
        return JsonReply({"flows": [_described(one) for one in service.served.values()]})


def _described(flow: ServedFlow) -> FlowReply:
    steps = [type(one).__name__ for one in inside(flow.answer) if isinstance(one, Operator)]
    found: FlowReply = {"name": flow.name, "steps": steps, "max_calls": flow.answer.calls()}
    return found if flow.promotion is None else found | {"alias": alias_reply(flow.promotion)}


class Stages(ForwardingJournal):
    """Notes which passages each step found."""

    def __init__(self, journal: Journal | None) -> None:
        super().__init__(journal)
        self.found: list[StageReply] = []

    def record(self, row: tuple[Any, ...], detail: Any = None) -> None:
        if isinstance(found := row[-1], Ranking):
            hits = [(hit.node.id, float(hit.score)) for hit in found.hits]
            self.found.append({"step": step_name(row[4]), "seconds": row[6], "hits": hits})
        super().record(row, detail)


class AnswerEvents:
    """Events of Spolia's own: `text`, `retracted` (number of void characters), `done` with the whole answer."""

    def __init__(self, service: Service, flow: ServedFlow, query: Query) -> None:
        self.service, self.flow, self.query = service, flow, query

    def text(self, piece: str) -> bytes:
        return event(piece, "text")

    def retracted(self, characters: int) -> bytes:
        return event(characters, "retracted")

    def done(self, answer: Answer, run: Run, lane: Lane) -> bytes:
        return event(self.service.reply(self.flow, run, lane, self.query, answer), "done")
