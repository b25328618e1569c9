"""Many callers at a time: with the settings that nobody wrote, none waits for the others' replies."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spolia.models.http.chat import ChatModel
from spolia.types import Message, Prompt

STREAMS = 200
CHOICE = {"message": {"role": "assistant", "content": "Nokia did."}, "finish_reason": "stop"}
BODY = json.dumps({"choices": [CHOICE], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}).encode()
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class AnswersAllTogether(asyncio.Protocol):
    """Answers nobody before so many requests are there; fewer wait for ever."""

    there: list[asyncio.Transport]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.seen = transport, b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, blank, body = self.seen.partition(b"\r\n\r\n")
        if blank and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            self.there.append(self.transport)
            if len(self.there) == STREAMS:
                for transport in self.there:
                    transport.write(REPLY)


@pytest.mark.slow
def test_two_hundred_streams_are_under_way_together() -> None:
    kind = type("Held", (AnswersAllTogether,), {"there": []})
    loop = asyncio.new_event_loop()

    async def serve() -> asyncio.Server:
        return await loop.create_server(kind, "127.0.0.1", 0, backlog=STREAMS)

    server = loop.run_until_complete(serve())
    running = threading.Thread(target=loop.run_forever, daemon=True)
    running.start()
    port = server.sockets[0].getsockname()[1]
    model = ChatModel("any", f"http://127.0.0.1:{port}/v1", api_key_env="", timeout_s=20.0, retries=0)
    try:
        with ThreadPoolExecutor(STREAMS) as threads:
            prompts = [Prompt((Message("user", f"Who employed {number}?"),)) for number in range(STREAMS)]
            assert {reply.text for reply in threads.map(model.generate, prompts)} == {"Nokia did."}
    finally:
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        server.close()
        loop.close()
