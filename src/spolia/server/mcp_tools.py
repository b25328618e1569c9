"""Tools of the server for agents, by the Model Context Protocol over HTTP at `/mcp`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import ValidationError
from starlette.applications import Starlette

from spolia.errors import SpoliaError
from spolia.run import Run
from spolia.server.answers import AnswerRequest, SearchRequest, answer_question, search_passages
from spolia.server.document_routes import (
    DocumentList,
    TaskReply,
    choose_readers,
    document_list,
    require_writer,
    task_reply,
)
from spolia.server.error_replies import classify_error
from spolia.server.keys import KeyHolder
from spolia.server.reply_schemas import AnswerReply, SearchReply
from spolia.server.service import ServedFlow, Service
from spolia.services.documents import Documents

T = TypeVar("T")


class ToolServer(MCPServer):
    """Server whose tools explain errors in words that an agent can act on."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        schema: dict[str, Any] = next(
            (item.input_schema for item in await self.list_tools() if item.name == name), {"properties": {}}
        )
        # Else ignored: an agent would not learn that a filter has no effect.
        if unknown := arguments.keys() - schema["properties"].keys():
            argument_names = ", ".join(schema["properties"]) or "none"
            raise ToolError(f"{name} has no argument {min(unknown)!r:.80}. It has: {argument_names}.")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                wrong = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in cause.errors()]
                raise ToolError(f"{name}: {'; '.join(wrong)}. Correct the arguments and call it again.") from cause
            if isinstance(cause, SpoliaError):
                raise ToolError(classify_error(cause)[1]) from cause
            raise


def build_mcp_server(service: Service, documents: Documents | None = None) -> MCPServer:
    """Build the server of the tools: search and answer, and documents if the server takes them, for the holder of the
    calling key."""
    instructions = "Find passages in the user's documents, and answer questions from them."
    server = ToolServer("spolia", instructions=instructions, log_level="WARNING")

    async def run(context: Context[Any, Any], flow: ServedFlow, work: Callable[[Run], T]) -> T:
        request: Any = context.request_context.request
        request.scope["flow"] = flow.name
        with service.run(request.scope["holder"]) as run:
            # A tool's request has no message of a client that leaves, so this never returns.
            return await service.run_in_thread(run, lambda: work(run), asyncio.Event().wait)  # type: ignore[arg-type]

    @server.tool()
    async def search(question: str, context: Context[Any, Any], top_k: int = 5, where: list[str] = []) -> SearchReply:  # noqa: B006
        """Find passages of the documents, best first. `where` are conditions on metadata, such as year>=2020."""
        search_request = SearchRequest(question=question, top_k=top_k, where=where)

        def work(run: Run) -> SearchReply:
            reply = search_passages(service, run, service.search_flow, search_request)
            for hit in reply["hits"]:  # an agent may write them into its answer
                hit["text"] = service.client_text(hit["text"])
            return reply

        return await run(context, service.search_flow, work)

    @server.tool()
    async def answer(question: str, context: Context[Any, Any], flow: str = "", where: list[str] = []) -> AnswerReply:  # noqa: B006
        """Answer a question from the documents, with citations."""
        answer_request = AnswerRequest(question=question, flow=flow, where=where)
        served = service.flow(flow)
        return await run(context, served, lambda run: answer_question(service, run, served, answer_request))

    if documents is not None:
        _add_document_tools(server, documents)
    return server


def _add_document_tools(server: MCPServer, documents: Documents) -> None:
    def holder(context: Context[Any, Any]) -> KeyHolder:
        request: Any = context.request_context.request
        key_holder: KeyHolder = request.scope["holder"]
        return key_holder

    @server.tool()
    async def list_documents(context: Context[Any, Any], after: str = "", limit: int = 100) -> DocumentList:
        """List the documents that were added, by name; `after` is the last name of the list before."""
        return await asyncio.to_thread(
            # Agents write any number.
            lambda: document_list(documents, holder(context), after, max(1, min(limit, 1_000)))
        )

    @server.tool()
    async def add_document(name: str, text: str, context: Context[Any, Any]) -> TaskReply:
        """Add a text under a name such as notes/tides.md, or replace the document with this name."""

        def work() -> TaskReply:
            user = holder(context)
            readers = choose_readers(documents, user, [], name)
            task = documents.add(name, text.encode(), access=readers, requester=require_writer(user))
            return task_reply(documents, task)

        return await asyncio.to_thread(work)


def build_mcp_application(server: MCPServer) -> Starlette:
    """Build the application of one route, without sessions. `RequestChecks` checks the server's names before it."""
    own = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return server.streamable_http_app(stateless_http=True, json_response=True, transport_security=own)
