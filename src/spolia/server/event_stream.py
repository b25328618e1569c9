"""An answer as server-sent events, while the flow still works on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from spolia.core.run_context import Done, Emitted, Event, Retracted
from spolia.errors import Cancelled
from spolia.run import Run
from spolia.run.lane import Lane
from spolia.server.error_replies import error_object, refusal, told
from spolia.server.keys import KeyHolder
from spolia.server.service import ClientLeft, ServedFlow, Service
from spolia.types import Answer, Query

HEADERS = ((b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"))


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
    """The events of a flow. It begins with the first text, so that what fails before it has a status of its own."""

    def __init__(self, service: Service, holder: KeyHolder, flow: ServedFlow, query: Query, form: Any) -> None:
        self.service, self.holder, self.flow, self.query, self.form = service, holder, flow, query, form
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.service.run(self.holder) as run, self.service.stopped_when_left(run, receive), run.lane() as lane:
            form: EventForm = self.form(run)
            events = written(self.flow.answer.astream(self.query), form, run, lane)
            try:
                first = await anext(events)
            except Cancelled as error:
                raise ClientLeft from error
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await _body(send, first)
            try:
                async for part in events:
                    await _body(send, part)
            except Cancelled:
                return
            except Exception as error:
                refusal(error)
                status, message, code = told(error)
                await _body(send, event(error_object(status, message, code)))
            await _body(send, b"", more=False)


async def _body(send: Send, part: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": more})


async def written(events: AsyncIterator[Event], form: EventForm, run: Run, lane: Lane) -> AsyncIterator[bytes]:
    """Final text as it comes, and what ends the answer."""
    async for one in events:
        match one:
            case Emitted(text, final=True) if text:
                yield form.text(text)
            case Retracted(characters):
                yield form.retracted(characters)
            case Done(answer):
                yield form.done(answer, run, lane)
