"""Documents that users send: upload, list, delete, and the tasks that do it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, cast

from fastapi import FastAPI, Header, Query, Request, UploadFile
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from spolia.errors import NotAllowed, NotFound, QueryError
from spolia.server.keys import KeyHolder
from spolia.server.replies import TypedDict
from spolia.services.documents import Documents, Upload
from spolia.services.jobs import Job
from spolia.types import Scalar

EVERYBODY = "*"
MOST_IN_MEMORY = 1 << 20
"""Bytes of an upload; a longer one is received in a file."""
PageLimit = Annotated[int, Query(ge=1, le=1_000)]
Key = Annotated[
    str, Header(alias="Idempotency-Key", max_length=200, description="A repeated key gives the first task.")
]
Access = Annotated[list[str], Query(description="Who may read it: `*` for everybody; by default the key's user.")]
Metadata = Annotated[str, Query(max_length=8_000, description='Fields to filter by, as JSON: {"year": 2026}.')]


class TaskReply(TypedDict):
    """A change of a document. `state`: waiting, working, done, failed or cancelled; `reason` says why it failed."""

    task: int
    change: str
    document: str
    state: str
    reason: str
    made: float
    ended: float


class TaskList(TypedDict):
    """Tasks of the key, newest first."""

    tasks: list[TaskReply]


class DocumentReply(TypedDict):
    """A document and its fields."""

    name: str
    title: str
    metadata: dict[str, Any]


class DocumentList(TypedDict):
    """Documents by name."""

    documents: list[DocumentReply]


def add_document_routes(app: FastAPI, documents: Documents) -> None:
    async def accepted(work: Callable[[], int]) -> Response:
        return JSONResponse(await run_in_threadpool(lambda: task_reply(documents, work())), 202)

    @app.post("/v1/documents", response_model=TaskList, status_code=202)
    async def add_many(
        request: Request, files: list[UploadFile], metadata: Metadata = "{}", access: Access = [], key: Key = ""  # noqa: B006
    ) -> Response:  # fmt: skip
        """Add up to 1,000 documents, or replace those with their names: a form, with a field `files` for each."""
        holder, fields = request.scope["holder"], _fields(metadata)

        def work() -> TaskList:
            names, readers = [one.filename or "" for one in files], readers_of(holder, access)
            refuse_change(documents, holder, *names)
            uploads = [
                Upload(name, one.file, fields, readers, key and f"{key}|{name}")
                for name, one in zip(names, files, strict=True)
            ]
            tasks = documents.add_all(uploads, by=holder.name)
            return {"tasks": [_task(one) for one in documents.queue.look(tasks)]}

        return JSONResponse(await run_in_threadpool(work), 202)

    @app.get("/v1/documents", response_model=DocumentList)
    async def listed(request: Request, after: str = "", limit: PageLimit = 100) -> Response:
        """Documents sent to this server that the key's user may read."""
        return JSONResponse(await run_in_threadpool(listing, documents, request.scope["holder"], after, limit))

    @app.put("/v1/documents/{name:path}", response_model=TaskReply, status_code=202)
    async def add(
        request: Request, name: str, metadata: Metadata = "{}", access: Access = [], key: Key = ""  # noqa: B006
    ) -> Response:  # fmt: skip
        """Add a document, or put it in the place of the one with its name. The body is the file."""
        holder, fields = request.scope["holder"], _fields(metadata)
        await run_in_threadpool(refuse_change, documents, holder, name)
        how: dict[str, Any] = {"metadata": fields, "access": readers_of(holder, access), "by": holder.name, "key": key}
        with SpooledTemporaryFile(MOST_IN_MEMORY) as file:
            upload = UploadFile(cast(BinaryIO, file))  # writes in a thread what is no longer in memory
            async for piece in request.stream():
                await upload.write(piece)
            await upload.seek(0)
            return await accepted(lambda: documents.add(name, upload.file, **how))

    @app.delete("/v1/documents/{name:path}", response_model=TaskReply, status_code=202)
    async def delete(request: Request, name: str, key: Key = "") -> Response:
        """Delete a document that the key's user may read."""
        holder = request.scope["holder"]
        await run_in_threadpool(refuse_change, documents, holder, name)
        return await accepted(lambda: documents.delete(name, by=holder.name, key=key))

    @app.get("/v1/tasks", response_model=TaskList)
    async def tasks(request: Request, state: str = "", limit: PageLimit = 100) -> Response:
        """Changes that the key has asked for."""
        jobs = await run_in_threadpool(lambda: documents.queue.jobs(state, request.scope["holder"].name, limit=limit))
        return JSONResponse({"tasks": [_task(one) for one in jobs]})

    @app.get("/v1/tasks/{task}", response_model=TaskReply)
    async def one_task(request: Request, task: int) -> Response:
        """A change that the key has asked for."""
        return JSONResponse(_task(await run_in_threadpool(own_task, documents, request.scope["holder"], task)))

    @app.post("/v1/tasks/{task}/cancel", response_model=TaskReply)
    async def cancel(request: Request, task: int) -> Response:
        """Cancel a change that has not begun."""

        def work() -> TaskReply:
            own_task(documents, request.scope["holder"], task)
            documents.cancel(task)
            return task_reply(documents, task)

        return JSONResponse(await run_in_threadpool(work))


def listing(documents: Documents, holder: KeyHolder, after: str = "", limit: int = 100) -> DocumentList:
    found = documents.found(holder.principals, after, limit)
    return {"documents": [{"name": one.name, "title": one.title, "metadata": dict(one.meta)} for one in found]}


def refuse_change(documents: Documents, holder: KeyHolder, *names: str) -> None:
    """Refuse a change by a key that may not make any, or of a document that its user may not read."""
    if not holder.writes:
        raise NotAllowed("This key may not change documents. Make one that may: spolia keys NAME --write.")
    for name in documents.closed(names, holder.principals):
        raise NotAllowed(f"The document {name!r:.80} is not yours. Write another name.")


def readers_of(holder: KeyHolder, said: list[str]) -> list[str]:
    """Who may read a new document: the key's user, or everybody where the key has none."""
    if EVERYBODY in said:
        return []
    return said or ([holder.principal] if holder.principal else list(holder.groups))


def task_reply(documents: Documents, task: int) -> TaskReply:
    job = documents.queue.job(task)
    assert job is not None
    return _task(job)


def own_task(documents: Documents, holder: KeyHolder, task: int) -> Job:
    if (job := documents.queue.job(task)) is None or job.owner != holder.name:
        raise NotFound(f"No task {task} of this key. `GET /v1/tasks` lists them.")
    return job


def _fields(text: str) -> dict[str, Scalar]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(map(_is_scalar, found.values())):
        raise QueryError('metadata: Write a JSON object of texts and numbers, such as {"year": 2026}.')
    return found


def _is_scalar(value: object) -> bool:
    """Whether JSON has it as a text or a number; Python also reads `NaN`, and 1e999 as infinite."""
    return isinstance(value, str) or (isinstance(value, (int, float)) and abs(value) <= sys.float_info.max)


def _task(job: Job) -> TaskReply:
    return {
        "task": job.id, "change": job.kind, "document": job.payload["name"], "state": job.state, "reason": job.reason,
        "made": job.made, "ended": job.ended,
    }  # fmt: skip
