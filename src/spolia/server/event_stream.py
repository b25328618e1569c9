"""An answer as server-sent events, while the flow still works on it."""

from __future__ import annotations

import json
from contextlib import aclosing
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
            has_begun = False
            try:
                async with aclosing(self.service.events(self.flow, self.query)) as lots:
                    async for lot in lots:
                        if part := b"".join(written(one, form, run, lane) for one in lot):
                            if not has_begun:
                                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                            has_begun = True
                            await send({"type": "http.response.body", "body": part, "more_body": True})
            except Cancelled as error:
                if has_begun:
                    return
                raise ClientLeft from error
            except Exception as error:
                if not has_begun:
                    raise
                refusal(error)
                part = event(error_object(*told(error)))
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def written(one: Event, form: EventForm, run: Run, lane: Lane) -> bytes:
    """Final text, and what ends the answer."""
    match one:
        case Emitted(text, final=True) if text:
            return form.text(text)
        case Retracted(characters):
            return form.retracted(characters)
        case Done(answer):
            return form.done(answer, run, lane)
    return b""
