"""What asking a model costs beside the model: the share of the ideal throughput, and CPU time per call.

    python benchmarks/model_client.py [--out FILE]

A server in a process of its own answers every chat request after 200 ms. Flows ask it one call after the other, each in
a thread; ideal is flows / 0.2 s. CPU time is that of the client's process, all threads together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from results import publish

from spolia.models.http.chat import ChatModel
from spolia.types import Message, Prompt

LATENCY_S = 0.2
FLOWS = (1, 50, 200)
CALLS = 25
REPEATS = 3
REPLY = json.dumps(
    {
        "choices": [{"message": {"role": "assistant", "content": "Nokia did."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 3},
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(REPLY)
QUESTION = Prompt((Message("system", "Answer from the passages. " * 10), Message("user", "Who employed Olsen? " * 50)))


class Slow(asyncio.Protocol):
    """Answers each request after a while; one after the other on a connection, as HTTP/1.1 has it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.seen = transport, b""

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, blank, body = self.seen.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]) if blank else 0
        if blank and len(body) >= length:
            self.seen = body[length:]
            asyncio.get_running_loop().call_later(LATENCY_S, self.transport.write, HEAD + REPLY)


def serve(port: Connection) -> None:
    """Serve until the process is ended."""

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Slow, "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def measure(url: str, flows: int) -> dict[str, float]:
    """Throughput and cost of some flows at the same time; connections are open before it begins."""
    model = ChatModel("any", url, api_key_env="", max_concurrent=flows)
    ready, waits = threading.Barrier(flows + 1), []

    def flow() -> None:
        model.generate(QUESTION)
        ready.wait()
        for _ in range(CALLS):
            began = time.perf_counter()
            model.generate(QUESTION)
            waits.append(time.perf_counter() - began)
        ready.wait()

    threads = [threading.Thread(target=flow) for _ in range(flows)]
    for thread in threads:
        thread.start()
    ready.wait()
    began, cpu = time.perf_counter(), time.process_time()
    ready.wait()
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    for thread in threads:
        thread.join()
    calls = flows * CALLS
    return {
        "share_of_ideal": calls / took * LATENCY_S / flows,
        "cpu_ms_per_call": cpu / calls * 1000,
        "calls_per_s": calls / took,
        "p99_s": statistics.quantiles(waits, n=100)[98],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    multiprocessing.set_start_method("spawn")
    mine, its = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(its,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{mine.recv()}/v1"
    result: dict[str, object] = {}
    for flows in FLOWS:
        runs = sorted((measure(url, flows) for _ in range(REPEATS)), key=lambda run: run["share_of_ideal"])
        result[str(flows)] = {name: round(number, 4) for name, number in runs[REPEATS // 2].items()}
        print(f"{flows} flows: {result[str(flows)]}", flush=True)
    server.terminate()
    publish(
        "model_client", {"latency_s": LATENCY_S, "calls_per_flow": CALLS, "median_of": REPEATS, "flows": result}, out
    )


if __name__ == "__main__":
    main()
