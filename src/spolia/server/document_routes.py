"""Routes for documents that users send (upload, list, view, change, delete) and for their tasks."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, cast

from fastapi import FastAPI, Form, Header, Query, Request, UploadFile
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from spolia.errors import NotAllowed, NotFound, QueryError
from spolia.server.json_reply import JsonReply
from spolia.server.keys import KeyHolder
from spolia.server.reply_schemas import SpanReply, TypedDict
from spolia.services.callbacks import task_data
from spolia.services.documents import Documents, SentDocument, Transfer, Upload, check_readers, name_in_base
from spolia.services.jobs import NEWEST, Job, JobState
from spolia.services.knowledge_bases import KnowledgeBase, Requester, base_of
from spolia.services.publisher import Reparse
from spolia.types import Node, Scalar

EVERYBODY = "*"
MOST_IN_MEMORY = 1 << 20
"""Bytes of an upload; a longer one is received in a file."""
PageLimit = Annotated[int, Query(ge=1, le=1_000)]
Key = Annotated[
    str, Header(alias="Idempotency-Key", max_length=200, description="A repeated key gives the first task.")
]
Callback = Annotated[
    str, Query(max_length=2_000, description="An https:// address to which the server posts the ended task, signed.")
]
Access = Annotated[list[str], Query(description="Who may read it: `*` for everybody; by default the key's user.")]
Paths = Annotated[list[str], Form(description="Paths of files and folders on the server.")]
PageNumber = Annotated[int, Query(ge=0, le=2**31, description="A page of the document, from 1; 0 for all.")]
Dpi = Annotated[int, Query(ge=10, le=300, description="Dots per inch.")]
BeforeTask = Annotated[int, Query(ge=1, le=NEWEST, description="The last task of the list before.")]
AfterNumber = Annotated[int, Query(ge=0, le=2**31)]
DOWNLOAD = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
"""Browsers save what users have sent, and do not show it as a page of this server."""
Metadata = Annotated[str, Query(max_length=8_000, description='Fields to filter by, as JSON: {"year": 2026}.')]


class DeliveryReply(TypedDict):
    """A callback. `state`: waiting, working, done or failed; `reason` says why the last attempt failed."""

    state: str
    attempts: int
    reason: str


class TaskReply(TypedDict):
    """A change of a document. `state`: waiting, working, done, failed or cancelled; `reason` says why it failed.
    `ended` is null until then. `callback` is null if the request named none."""

    task: int
    change: str
    document: str
    state: str
    reason: str
    made: float
    ended: float | None
    callback: DeliveryReply | None


class TaskList(TypedDict):
    """Tasks of the key, newest first."""

    tasks: list[TaskReply]


class DocumentReply(TypedDict):
    """A document and its fields. `state`: done; failed, so that its last version could not be read, and the one before
    it, if any, is searched, with the `reason`; or waiting, until a change has ended."""

    name: str
    title: str
    metadata: dict[str, Any]
    state: str
    reason: str


class GroupReply(TypedDict):
    """State of a document in a node group: done, failed or waiting; `reason` says why."""

    group: str
    state: str
    reason: str


class DocumentStatusReply(DocumentReply):
    """A document with its state in each node group."""

    groups: list[GroupReply]


class NodeReply(TypedDict):
    """A node of a document: its number in the group, where it stands, its text."""

    node: str
    number: int
    place: str
    span: SpanReply | None
    text: str
    context: str


class NodeList(TypedDict):
    """Nodes of a document in the order of its text."""

    nodes: list[NodeReply]


Fields = dict[str, str | int | float | None]


class PatchRequest(BaseModel):
    """Fields to change (null removes one), and the new readers of the document, `*` for everybody."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"metadata": {"year": 2026, "draft": None}}]}
    )

    metadata: Fields = {}
    access: list[str] | None = None


class ReparseRequest(BaseModel):
    """Documents to make again. `rebuild`: read and split again, ask models again; `embed`: embed all texts again, after
    a server has changed its model under one name; `missing`: only what could not be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"names": ["notes/tides.md"], "how": how} for how in ("embed", "missing")]},
    )

    names: list[str] = Field(max_length=1_000)
    how: Reparse = "rebuild"


class TransferRequest(BaseModel):
    """Documents to copy or move to another knowledge base, with their fields and readers; nothing is embedded again."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"names": ["notes/tides.md"], "to": "archive", "how": "copy"}]}
    )

    names: list[str] = Field(max_length=1_000)
    to: str
    how: Transfer = "copy"


class BaseRequest(BaseModel):
    """A knowledge base. `access`: who may add documents to it, and reads them unless an upload names others; `*` for
    everybody, and then a document is for the user of its key."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"description": "Minutes of meetings", "access": ["staff"]}]}
    )

    description: str = Field(default="", max_length=2_000)
    access: list[str] = Field(default=[EVERYBODY], max_length=1_000)


class BaseReply(TypedDict):
    """A knowledge base, and how many of its documents the key's user may read. Search it with the condition
    `base=NAME`."""

    name: str
    description: str
    access: list[str]
    is_own: bool
    documents: int


class BaseList(TypedDict):
    """Knowledge bases by name."""

    bases: list[BaseReply]


class DocumentList(TypedDict):
    """Documents by name."""

    documents: list[DocumentReply]


def add_document_routes(app: FastAPI, documents: Documents) -> None:
    async def reply_accepted(work: Callable[[], int]) -> Response:
        return JsonReply(await run_in_threadpool(lambda: task_reply(documents, work())), 202)

    @app.post("/v1/documents", response_model=TaskList, status_code=202)
    async def add_many(
        request: Request, files: list[UploadFile] = [], paths: Paths = [], metadata: Metadata = "{}",  # noqa: B006
        access: Access = [], key: Key = "", callback: Callback = ""  # noqa: B006
    ) -> Response:  # fmt: skip
        """Add documents, or replace those with their names: a form, with a field `files` for each of up to 1,000, or a
        field `paths` for files and folders of the server, which are named as the folder that it takes files from."""
        holder, fields = request.scope["holder"], _parse_fields(metadata)
        requester = require_writer(holder)
        if bool(files) == bool(paths):
            raise QueryError("Send a form with fields `files`, or with fields `paths`.")

        def work() -> TaskList:
            if paths:
                added = documents.folders.files(paths, documents.readers)
                documents.refuse_names(added, requester)  # they are added a hundred at a time
                options: dict[str, Any] = {"metadata": fields, "callback": callback, "requester": requester, "key": key}
                readers_by_base = {
                    base: choose_readers(documents, holder, access, f"{base}/") for base in map(base_of, added)
                }
                return _load_task_list(
                    documents, documents.add_paths(added, access=lambda name: readers_by_base[base_of(name)], **options)
                )
            names = [file.filename or "" for file in files]
            uploads = [
                Upload(
                    name,
                    file.file,
                    fields,
                    choose_readers(documents, holder, access, name),
                    key and f"{key}|{name}",
                    callback,
                )
                for name, file in zip(names, files, strict=True)
            ]
            return _load_task_list(documents, documents.add_all(uploads, requester=requester))

        return JsonReply(await run_in_threadpool(work), 202)

    @app.get("/v1/documents", response_model=DocumentList)
    async def listed(request: Request, after: str = "", limit: PageLimit = 100) -> Response:
        """List documents sent to this server that the key's user may read, and the key's that wait or have failed."""
        return JsonReply(await run_in_threadpool(document_list, documents, request.scope["holder"], after, limit))

    @app.put("/v1/documents/{name:path}", response_model=TaskReply, status_code=202)
    async def add(
        request: Request, name: str, metadata: Metadata = "{}", access: Access = [], key: Key = "",  # noqa: B006
        callback: Callback = "",
    ) -> Response:  # fmt: skip
        """Add a document, or put it in the place of the one with its name. The body is the file."""
        holder, fields = request.scope["holder"], _parse_fields(metadata)
        requester = require_writer(holder)
        await run_in_threadpool(documents.refuse_names, [name], requester)  # before the body is read
        readers = await run_in_threadpool(choose_readers, documents, holder, access, name)
        options: dict[str, Any] = {"metadata": fields, "access": readers}
        options |= {"requester": requester, "key": key, "callback": callback}
        with SpooledTemporaryFile(MOST_IN_MEMORY) as file:
            upload = UploadFile(cast(BinaryIO, file))  # writes in a thread what is no longer in memory
            async for piece in request.stream():
                await upload.write(piece)
            await upload.seek(0)
            return await reply_accepted(lambda: documents.add(name, upload.file, **options))

    @app.post("/v1/documents/reparse", response_model=TaskList, status_code=202)
    async def reparse(request: Request, body: ReparseRequest, key: Key = "", callback: Callback = "") -> Response:
        """Make documents again of the bytes that were sent, or their vectors."""

        def work() -> TaskList:
            options: dict[str, Any] = {
                "requester": require_writer(request.scope["holder"]),
                "key": key,
                "callback": callback,
            }
            return _load_task_list(documents, documents.reparse(body.names, body.how, **options))

        return JsonReply(await run_in_threadpool(work), 202)

    @app.post("/v1/documents/transfer", response_model=TaskList, status_code=202)
    async def transfer(request: Request, body: TransferRequest, key: Key = "", callback: Callback = "") -> Response:
        """Copy or move documents to another knowledge base. A move is two tasks: the old document goes when the new one
        is there."""

        def work() -> TaskList:
            options: dict[str, Any] = {
                "requester": require_writer(request.scope["holder"]),
                "key": key,
                "callback": callback,
            }
            return _load_task_list(documents, documents.transfer(body.names, body.to, body.how, **options))

        return JsonReply(await run_in_threadpool(work), 202)

    @app.get("/v1/bases", response_model=BaseList)
    async def bases(request: Request) -> Response:
        """List the knowledge bases that the key's user may add to or can read documents in."""
        return JsonReply({"bases": await run_in_threadpool(base_list, documents, request.scope["holder"])})

    @app.put("/v1/bases/{base}", response_model=BaseReply)
    async def put_base(request: Request, base: str, body: BaseRequest) -> Response:
        """Add a knowledge base, or change your own."""

        def work() -> BaseReply:
            holder = request.scope["holder"]
            requester = require_writer(holder)
            name_in_base("a document", base)  # raises an error for a name that no document can have
            readers = tuple(check_readers(base, _parse_readers(body.access)))
            documents.put_base(KnowledgeBase(base, body.description, requester.owner, readers), requester=requester)
            return next(reply for reply in base_list(documents, holder) if reply["name"] == base)

        return JsonReply(await run_in_threadpool(work))

    @app.delete("/v1/bases/{base}", response_model=TaskList, status_code=202)
    async def delete_base(request: Request, base: str, callback: Callback = "") -> Response:
        """Delete a knowledge base of your own with all its documents, if all of them are yours."""

        def work() -> TaskList:
            requester = require_writer(request.scope["holder"])
            return _load_task_list(documents, documents.delete_base(base, requester=requester, callback=callback))

        return JsonReply(await run_in_threadpool(work), 202)

    @app.patch("/v1/documents/{name:path}", response_model=TaskReply, status_code=202)
    async def patch(
        request: Request, name: str, body: PatchRequest, key: Key = "", callback: Callback = ""
    ) -> Response:
        """Change fields and readers of a document; nothing is embedded again."""
        requester = require_writer(request.scope["holder"])
        if not all(value is None or _is_scalar(value) for value in body.metadata.values()):
            raise QueryError(
                'metadata: Write texts and finite numbers, such as {"year": 2026}; null takes a field away.'
            )
        readers = None if body.access is None else _parse_readers(body.access)
        options: dict[str, Any] = {"requester": requester, "key": key, "callback": callback}
        return await reply_accepted(lambda: documents.patch(name, body.metadata, readers, **options))

    @app.get("/v1/documents/{name:path}/nodes", response_model=NodeList)
    async def nodes(
        request: Request,
        name: str,
        group: str = "chunk",
        page: PageNumber = 0,
        after: AfterNumber = 0,
        limit: PageLimit = 100,
    ) -> Response:
        """List the nodes of a document in a node group: all, or those on a page; `after` is the last number of the
        previous list."""

        def work() -> NodeList:
            principals = request.scope["holder"].principals
            document_nodes = documents.nodes(name, group, principals, page=page, after_number=after, limit=limit)
            return {"nodes": [_node_reply(node) for node in document_nodes]}

        return JsonReply(await run_in_threadpool(work))

    @app.get("/v1/documents/{name:path}/original", response_class=Response)
    async def original(request: Request, name: str) -> Response:
        """Return the bytes of a document as they were sent."""
        data = await run_in_threadpool(documents.original, name, request.scope["holder"].principals)
        return Response(data, headers=DOWNLOAD, media_type="application/octet-stream")

    @app.get("/v1/documents/{name:path}/pages/{page}", response_class=Response)
    async def page_image(request: Request, name: str, page: int, dpi: Dpi = 100) -> Response:
        """Draw a page of a PDF as PNG; a point of a citation's box is dpi / 72 pixels."""
        principals = request.scope["holder"].principals
        image = await run_in_threadpool(lambda: documents.page_image(name, page, principals, dpi=dpi))
        return Response(image, headers={"X-Content-Type-Options": "nosniff"}, media_type="image/png")

    @app.get("/v1/documents/{name:path}", response_model=DocumentStatusReply)
    async def status(request: Request, name: str) -> Response:
        """Return a document with its state in each node group."""
        return JsonReply(await run_in_threadpool(status_reply, documents, request.scope["holder"], name))

    @app.delete("/v1/documents/{name:path}", response_model=TaskReply, status_code=202)
    async def delete(request: Request, name: str, key: Key = "", callback: Callback = "") -> Response:
        """Delete a document of the key's user."""
        requester = require_writer(request.scope["holder"])
        return await reply_accepted(lambda: documents.delete(name, requester=requester, key=key, callback=callback))

    @app.get("/v1/tasks", response_model=TaskList)
    async def tasks(
        request: Request, state: JobState | None = None, limit: PageLimit = 100, before: BeforeTask = NEWEST
    ) -> Response:
        """List changes that the key has asked for, newest first."""

        def work() -> TaskList:
            owner = request.scope["holder"].name
            return task_list(documents, documents.queue.jobs(state or "", owner, limit=limit, before_id=before))

        return JsonReply(await run_in_threadpool(work))

    @app.get("/v1/tasks/{task}", response_model=TaskReply)
    async def one_task(request: Request, task: int) -> Response:
        """Return a change that the key has asked for."""

        def work() -> TaskReply:
            load_own_task(documents, request.scope["holder"], task)
            return task_reply(documents, task)

        return JsonReply(await run_in_threadpool(work))

    @app.post("/v1/tasks/{task}/cancel", response_model=TaskReply)
    async def cancel(request: Request, task: int) -> Response:
        """Cancel a change that has not begun."""

        def work() -> TaskReply:
            load_own_task(documents, request.scope["holder"], task)
            documents.cancel(task)
            return task_reply(documents, task)

        return JsonReply(await run_in_threadpool(work))


def document_list(documents: Documents, holder: KeyHolder, after_name: str = "", limit: int = 100) -> DocumentList:
    sent_documents = documents.list_documents(holder.principals, after_name, limit, holder.name)
    return {"documents": [_document_reply(document) for document in sent_documents]}


def base_list(documents: Documents, holder: KeyHolder) -> list[BaseReply]:
    """List the knowledge bases that the holder may add to or can read documents in."""
    counts = Counter(map(base_of, documents.names(holder.principals)))
    requester = requester_of(holder)
    bases = {
        name: candidate
        for name, candidate in documents.bases.all().items()
        if candidate.admits(requester) or counts[name]
    }
    replies: list[BaseReply] = []
    for name in sorted(bases.keys() | counts.keys() - {""}):  # documents outside of folders belong to no knowledge base
        base = bases.get(name, KnowledgeBase(name))
        is_own = name in bases and requester.is_owner(base.owner)
        readers = (list(base.access) or [EVERYBODY]) if is_own else []  # only its owner learns who may read it
        fields = {"description": base.description, "access": readers, "is_own": is_own, "documents": counts[name]}
        replies.append(cast(BaseReply, {"name": name, **fields}))
    return replies


def requester_of(holder: KeyHolder) -> Requester:
    return Requester(holder.name, None if holder.admin else holder.principals, holder.principal or holder.name)


def require_writer(holder: KeyHolder) -> Requester:
    """Return the requester behind a key that may change documents.

    Raises:
        NotAllowed: the key may not make any.
    """
    if not holder.writes:
        raise NotAllowed("This key may not change documents. Make one that may: spolia keys NAME --write.")
    return requester_of(holder)


def status_reply(documents: Documents, holder: KeyHolder, name: str) -> DocumentStatusReply:
    status = documents.status(name, holder.principals, holder.name)
    groups: list[GroupReply] = [
        {"group": group_status.group, "state": group_status.state, "reason": group_status.reason}
        for group_status in status.groups
    ]
    return {**_document_reply(status.document), "groups": groups}


def _document_reply(document: SentDocument) -> DocumentReply:
    fields = dict(document.meta)
    return {
        "name": document.name,
        "title": document.title,
        "metadata": fields,
        "state": document.state,
        "reason": document.reason,
    }


def _node_reply(node: Node) -> NodeReply:
    span = cast(SpanReply, node.span.json()) if node.span is not None else None
    return {
        "node": node.id, "number": node.number, "place": node.place, "span": span, "text": node.text,
        "context": node.context,
    }  # fmt: skip


def _parse_readers(readers: list[str]) -> list[str]:
    """Return the readers that a request names; an empty list means everybody."""
    if not readers:
        raise QueryError(f'access: Name who may read it, or write ["{EVERYBODY}"] for everybody.')
    return [] if EVERYBODY in readers else readers


def choose_readers(documents: Documents, holder: KeyHolder, requested: list[str], name: str) -> list[str]:
    """Return the readers of a new document: the named ones; else those of its knowledge base; else the key's user, or
    everybody if the key has none."""
    if requested:
        return _parse_readers(requested)
    base = documents.bases.all().get(base_of(name))
    if base is not None and base.access:
        return list(base.access)
    return [holder.principal] if holder.principal else list(holder.groups)


def task_reply(documents: Documents, task: int) -> TaskReply:
    return _load_task_list(documents, [task])["tasks"][0]


def _load_task_list(documents: Documents, tasks: list[int]) -> TaskList:
    return task_list(documents, documents.queue.find_jobs(tasks))


def task_list(documents: Documents, jobs: Sequence[Job]) -> TaskList:
    deliveries = documents.queue.deliveries(jobs)
    callbacks = {
        id: {"state": entry.state, "attempts": entry.attempts, "reason": entry.reason}
        for id, entry in deliveries.items()
    }
    return {"tasks": [cast(TaskReply, {**task_data(entry), "callback": callbacks.get(entry.id)}) for entry in jobs]}


def load_own_task(documents: Documents, holder: KeyHolder, task: int) -> Job:
    # One reply for both: nobody learns of others' tasks.
    if (job := documents.queue.job(task)) is None or job.owner != holder.name:
        raise NotFound(f"No task {task} of this key. `GET /v1/tasks` lists them.")
    return job


def _parse_fields(text: str) -> dict[str, Scalar]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or not all(map(_is_scalar, parsed.values())):
        raise QueryError('metadata: Write a JSON object of texts and numbers, such as {"year": 2026}.')
    return parsed


def _is_scalar(value: object) -> bool:
    """Return whether the store can hold a value as a text or number; Python also reads `NaN`, and 1e999 as infinite."""
    if isinstance(value, int):
        return abs(value) < 2**63  # SQLite's integers have 64 bits
    return isinstance(value, str) or (isinstance(value, float) and abs(value) <= sys.float_info.max)
