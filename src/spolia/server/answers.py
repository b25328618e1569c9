"""Spolia's own routes: answers (also as events while the flow still works), passages, flows."""

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
from spolia.core.operator import Operator, walk_values
from spolia.core.run_context import Done, Emitted, Event, Retracted
from spolia.errors import Cancelled, ServerStopping
from spolia.filters.text import condition_of
from spolia.journal.cache import Cache
from spolia.journal.trace import ForwardingJournal, Journal, step_type_name
from spolia.run import Run
from spolia.run.lane import Lane
from spolia.server.error_replies import classify_error, error_object, flow_error_response
from spolia.server.json_reply import JsonReply
from spolia.server.keys import KeyHolder
from spolia.server.replies import alias_reply, passages, search_reply
from spolia.server.reply_schemas import AliasReply, AnswerReply, SearchReply, StageReply, TypedDict
from spolia.server.service import ServedFlow, Service
from spolia.types import Answer, Message, Query, Ranking

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes events on as they come
)  # fmt: skip
HEARTBEAT, HEARTBEAT_S = b": \n\n", 10.0
"""A comment, and the seconds between two, so that no proxy closes a stream while a flow works on its first text."""


class EventForm(Protocol):
    """Form of the events of a stream: Spolia's own, or OpenAI's chunks."""

    def text(self, piece: str) -> bytes: ...
    def retracted(self, characters: int) -> bytes: ...
    def done(self, answer: Answer, run: Run, lane: Lane) -> bytes: ...


def event(data: Any, name: str = "") -> bytes:
    """Format one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


class EventStream(Response):
    """Response with the events of a flow. Its headers go out first, so a later failure is the last event."""

    def __init__(
        self, service: Service, holder: KeyHolder, flow: ServedFlow, query: Query, form: Any, cache: Cache | None
    ) -> None:
        self.service, self.holder, self.flow, self.query, self.form = service, holder, flow, query, form
        self.cache = cache
        self.background, self.sent_text = None, ""
        self.markdown = None if service.live_markdown else MarkdownStream()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        running = self.service.run(self.holder, cache=self.cache)
        with running as run, self.service.stop_if_client_leaves(run, receive), run.lane() as lane:
            form: EventForm = self.form(run)
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            heartbeat = asyncio.create_task(_send_heartbeats(send))
            part = b""
            try:
                async with aclosing(self.service.events(self.flow, self.query)) as batches:
                    async for batch in batches:
                        if part := b"".join([self.render_event(flow_event, form, run, lane) for flow_event in batch]):
                            await send({"type": "http.response.body", "body": part, "more_body": True})
            except Cancelled:
                if not self.service.is_stopping:
                    return  # the client has left
                part = self.render_failure(ServerStopping("The server is stopping. Ask again."))
            except Exception as error:
                part = self.render_failure(error)
            else:
                part = b""  # the last batch is sent already
            finally:
                heartbeat.cancel()
            await send({"type": "http.response.body", "body": part, "more_body": False})

    def render_failure(self, error: Exception) -> bytes:
        """Return the last event of a stream that failed; log and count the error as a reply would."""
        flow_error_response(error)
        self.service.metrics.errors.labels(classify_error(error)[2]).inc()
        return event(error_object(*classify_error(error)), "error")

    def render_event(self, flow_event: Event, form: EventForm, run: Run, lane: Lane) -> bytes:
        """Return the bytes of one event of the flow: its final text, or its end. A step that takes its answer from the
        cache emits no text, so the end sends what is missing."""
        if isinstance(flow_event, Emitted):
            if not flow_event.final or not flow_event.text:
                return b""
            self.sent_text += flow_event.text
            text = flow_event.text if self.markdown is None else self.markdown.feed(flow_event.text)
            return form.text(text) if text else b""
        if isinstance(flow_event, Retracted):
            self.sent_text = self.sent_text[: -flow_event.characters]
            characters = (
                flow_event.characters if self.markdown is None else self.markdown.retract(flow_event.characters)
            )
            return form.retracted(characters) if characters else b""
        if not isinstance(flow_event, Done):
            return b""
        answer = flow_event.value
        if self.sent_text.strip() == answer.text.strip():
            rest = "" if self.markdown is None else self.markdown.end()
            missing = form.text(rest) if rest else b""
        else:
            sent_characters = (
                len(self.sent_text) if self.markdown is None else self.markdown.retract(len(self.sent_text))
            )
            missing = (form.retracted(sent_characters) if sent_characters else b"") + form.text(
                self.service.client_text(answer.text)
            )
        return missing + form.done(answer, run, lane)


async def _send_heartbeats(send: Send) -> None:
    while True:
        await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
        await asyncio.sleep(HEARTBEAT_S)


QUESTION: Any = Field(min_length=1, max_length=32_000)
CONDITIONS: Any = Field(
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
    where: list[str] = CONDITIONS
    history: list[Turn] = Field(default_factory=list, max_length=1_000)
    stream: bool = Field(default=False, description="Send events: text, retracted, done.")


class SearchRequest(BaseModel):
    """A question. Without `flow`, words and meaning are searched where the store has vectors, else words."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"question": "causes of tides", "top_k": 3}]}
    )

    question: str = QUESTION
    flow: str = ""
    where: list[str] = CONDITIONS
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
    """List of all flows; the first one answers if a request names none."""

    flows: list[FlowReply]


def build_query(service: Service, body: AnswerRequest | SearchRequest) -> Query:
    """Build the query of a request, with its conditions checked against the fields of the store."""
    condition = condition_of(body.where, service.corpus.snapshot().schema) if body.where else None
    turns = body.history if isinstance(body, AnswerRequest) else ()
    return Query(body.question, filter=condition, history=tuple(Message(turn.role, turn.content) for turn in turns))


def answer_question(service: Service, run: Run, flow: ServedFlow, body: AnswerRequest) -> AnswerReply:
    with run.lane() as lane:
        query = build_query(service, body)
        return service.reply(flow, run, lane, query, flow.answer(query))


def search_passages(service: Service, run: Run, flow: ServedFlow, body: SearchRequest) -> SearchReply:
    with run.lane() as lane:
        hits = passages(flow.search(build_query(service, body))).cut(body.top_k).hits
        return search_reply(hits, run, lane, flow.search, question=body.question, name=flow.name)


def add_answer_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/answer", response_model=AnswerReply)
    async def answer(request: Request, body: AnswerRequest) -> Response:
        """Answer a question with citations; abstain where nothing answers it."""
        flow, holder = service.flow(body.flow), request.scope["holder"]
        request.scope["flow"] = flow.name
        cache = service.request_cache(request.headers)
        if body.stream:
            query = build_query(service, body)
            return EventStream(service, holder, flow, query, lambda run: AnswerEvents(service, flow, query), cache)
        with service.run(holder, cache=cache) as run:
            work = partial(answer_question, service, run, flow, body)
            return JsonReply(await service.run_in_thread(run, work, request.receive))

    @app.post("/v1/search", response_model=SearchReply)
    async def search(request: Request, body: SearchRequest) -> Response:
        """Find passages. It goes on without a language model."""
        flow = service.flow(body.flow) if body.flow else service.search_flow
        request.scope["flow"] = flow.name
        stage_journal = StageJournal(service.request_journal()) if body.stages else None
        with service.run(request.scope["holder"], stage_journal) as run:
            reply = await service.run_in_thread(
                run, partial(search_passages, service, run, flow, body), request.receive
            )
        return JsonReply(reply if stage_journal is None else reply | {"stages": stage_journal.stages})

    @app.get("/v1/flows", response_model=FlowList)
    async def flows() -> Response:
        """List the served flows."""
        return JsonReply({"flows": [_flow_reply(flow) for flow in service.served_flows.values()]})


def _flow_reply(flow: ServedFlow) -> FlowReply:
    steps = [type(part).__name__ for part in walk_values(flow.answer) if isinstance(part, Operator)]
    reply: FlowReply = {"name": flow.name, "steps": steps, "max_calls": flow.answer.calls()}
    return reply if flow.promotion is None else reply | {"alias": alias_reply(flow.promotion)}


class StageJournal(ForwardingJournal):
    """Journal that also collects the passages that each step found."""

    def __init__(self, journal: Journal | None) -> None:
        super().__init__(journal)
        self.stages: list[StageReply] = []

    def record(self, row: tuple[Any, ...], detail: Any = None) -> None:
        if isinstance(result := row[-1], Ranking):
            hits = [(hit.node.id, float(hit.score)) for hit in result.hits]
            self.stages.append({"step": step_type_name(row[4]), "seconds": row[6], "hits": hits})
        super().record(row, detail)


class AnswerEvents:
    """Spolia's own events: `text`, `retracted` (number of void characters), `done` with the whole answer."""

    def __init__(self, service: Service, flow: ServedFlow, query: Query) -> None:
        self.service, self.flow, self.query = service, flow, query

    def text(self, piece: str) -> bytes:
        return event(piece, "text")

    def retracted(self, characters: int) -> bytes:
        return event(characters, "retracted")

    def done(self, answer: Answer, run: Run, lane: Lane) -> bytes:
        return event(self.service.reply(self.flow, run, lane, self.query, answer), "done")
