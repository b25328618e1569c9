"""What serving costs beside the flow: CPU time of a request, streams at the same time, a client that leaves.

    python benchmarks/server.py [--peers VENV] [--long] [--out FILE]

Every server is a process of its own; CPU time is that process's, all threads together. The empty flow answers at once.
Streams ask a simulated model: first word after 200 ms, then 24 words in 5 s; each fifth request fails with status 503
before. The model writes question and time into its first word, which tells answers apart and how late they come.
"Flow alone" is a process without a server that runs the same flow as often, as many at the same time, with a journal, a
cache and an account as the server has them, and reads its events with `Operator.stream`. Both take turns.
With `--peers`, Hayhooks serves an empty wrapper in turn; it is installed into that environment if it is not there
(network). With `--long`, a server gives 10,000 streams, to see whether its memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from results import publish

from spolia import BM25, Answer, Corpus, Extract, Hit, Node, Query, Ranking, Reader, Run, step, sync
from spolia.journal import Runs
from spolia.models import ChatModel
from spolia.server.service import MAX_CACHED_RESULTS

FIRST_S, WORDS, EACH_S, FAULTY = 0.2, 24, 0.2, 5
STREAMS, STARTS_PER_S, TURNS = 400, 40, 3
LONG, EARLY = 10_000, 1_000
REQUESTS, ROUNDS, LEAVERS = 500, 7, 20
PAGES = Path(__file__).resolve().parents[1] / "docs" / "how-to"
ASKED, TURNS_OF_ANSWERS, WARM_TURNS = 50, 42, 6
"""Short turns: what else the machine does then costs the server and the flow alike."""
TICKS = os.sysconf("SC_CLK_TCK")
WRITTEN_S = 0.1
"""Seconds until what a turn left to write has been written, by journal and audit log."""
WRAPPER = """from hayhooks import BasePipelineWrapper


class PipelineWrapper(BasePipelineWrapper):
    def setup(self) -> None:
        pass

    def run_api(self, question: str) -> str:
        return "Nothing."
"""


@step
def nothing(query: Query) -> Answer:
    return Answer("Nothing.")


@step
def one_passage(query: Query) -> Ranking:
    return Ranking(query, (Hit(Node("n", "The moon causes the tide.", uri="tides.md"), 1.0),))


# The servers.


async def model() -> None:
    """A simulated model. `GET` tells when each connection with a reply in progress was lost."""
    numbers, lost = itertools.count(), list[float]()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):  # the client has closed it
            await answer(reader, writer)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if head.startswith(b"GET"):
                body = json.dumps(lost).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                continue
            request_body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head.lower())[1]))  # type: ignore[index]
            if next(numbers) % FAULTY == FAULTY - 1:
                writer.write(b"HTTP/1.1 503 Gone\r\nContent-Length: 0\r\n\r\n")
                continue
            question = re.findall(rb"Question (\d+)\.", request_body)[-1].decode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            left = asyncio.ensure_future(reader.read(1))
            for number in range(WORDS):
                await asyncio.wait([left], timeout=EACH_S if number else FIRST_S)
                if left.done():
                    lost.append(time.monotonic())
                    return
                word = f" w{number}" if number else f"q{question}at{time.monotonic():.6f}"
                chunk(writer, {"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
            chunk(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            left.cancel()
            await asyncio.wait([left])

    server = await asyncio.start_server(serve_connection, "127.0.0.1", 0, backlog=1024)
    print(json.dumps({"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"}), flush=True)
    await server.serve_forever()


def chunk(writer: asyncio.StreamWriter, data: Any) -> None:
    part = f"data: {json.dumps(data)}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(part), part))


def reading(url: str) -> Any:
    return one_passage >> Reader(ChatModel("simulated", url, api_key_env="", max_concurrent=512, retries=9))


def serving(kind: str, url: str, folder: Path) -> None:
    """Serve until the process is ended."""
    from spolia.server.process import serve
    from spolia.server.service import ServedFlow, Service

    flow = {"streams": lambda: reading(url), "answers": lambda: answering(folder)}.get(kind, lambda: nothing)()
    served, runs = (
        ServedFlow("flow", flow, flow),
        None if kind == "bare" else Runs(folder / f"{kind}.db", entries=MAX_CACHED_RESULTS),
    )
    service = Service(Corpus(str(folder / f"{kind}.spolia")), [served], served, runs=runs, max_concurrent=512)
    serve(service, lambda position, token: print(json.dumps({"url": position, "token": token}), flush=True))


def answering(folder: Path) -> Any:
    """A flow without a model over a store of the pages, which is made if it is not there."""
    corpus = Corpus(str(folder / "answers.spolia"))
    if not Path(corpus.path).exists():
        sync(PAGES, corpus)
    return BM25(corpus.group()) >> Extract()


def flow_alone(folder: Path) -> None:
    """Ask the questions of each turn that a line names: CPU-ms of one, bare and as a server records it."""
    flow, runs = answering(folder), Runs(folder / "answers alone.db", entries=MAX_CACHED_RESULTS)
    flow(Query("What is first?"))
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        queries = [Query(body["question"]) for body in turn_of_questions(int(line))]
        began = time.process_time()
        for query in queries:
            flow(query)
        bare = time.process_time() - began
        for query in queries:
            with Run(journal=runs.journal, cache=runs.cache) as run, run.lane():
                flow(query)
        time.sleep(WRITTEN_S)
        recorded = time.process_time() - began - bare
        print(json.dumps({"bare": bare / ASKED * 1e3, "recorded": recorded / ASKED * 1e3}), flush=True)


def turn_of_questions(turn: int) -> list[dict[str, str]]:
    return [{"question": question(number)} for number in range(turn * ASKED, (turn + 1) * ASKED)]


@cache
def words_of_pages() -> list[str]:
    return re.findall(r"[a-z]{4,}", "".join(path.read_text() for path in sorted(PAGES.glob("*.md"))))


def question(number: int) -> str:
    """A question that no other one equals, in words of the pages."""
    words = words_of_pages()
    return f"How does {' '.join(words[number * 5 % len(words) :][:5])} work in case {number}?"


def without_server(url: str, folder: Path, first: int) -> None:
    """The same streams without a server: CPU-ms of each."""
    from concurrent.futures import ThreadPoolExecutor

    flow, runs = reading(url), Runs(folder / "alone.db", entries=MAX_CACHED_RESULTS)

    def answer_question(number: int) -> None:
        time.sleep((number - first) / STARTS_PER_S)
        with Run(journal=runs.journal, cache=runs.cache) as run, run.lane():
            for _ in flow.stream(Query(f"Question {number}.")):
                pass

    with ThreadPoolExecutor(STREAMS) as pool:
        list(pool.map(answer_question, [first]))
        began = time.process_time()
        list(pool.map(answer_question, range(first + 1, first + 1 + STREAMS)))
    print(json.dumps({"cpu_ms": (time.process_time() - began) / STREAMS * 1e3}), flush=True)


# What is measured.


@contextmanager
def process_of(*command: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, __file__, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def started(*command: object) -> Iterator[tuple[int, dict[str, str]]]:
    """A process and the first line that it prints."""
    with process_of(*command) as process:
        assert process.stdout is not None
        yield process.pid, json.loads(process.stdout.readline())


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_ns(pid: int) -> int:
    """CPU time of the threads that a process has: of short turns, clock ticks would tell little."""
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in Path(f"/proc/{pid}/task").iterdir())


def megabytes(pid: int, name: str) -> float:
    return int(re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]


def asked(url: str, path: str, bodies: Iterable[Any], token: str) -> None:
    """Requests one after the other, on one connection."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for body in bodies:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        assert response.read(), response.status
        assert response.status == 200, response.status
    connection.close()


def until_ready(url: str) -> None:
    """Wait until a server has asked its flows once."""
    place, end = urlsplit(url), time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        connection.request("GET", "/ready")
        response = connection.getresponse()
        if response.status == 200:
            return
        assert time.monotonic() < end, response.read()
        time.sleep(0.05)


def requests(folder: Path, peers: Path | None) -> dict[str, float]:
    """CPU-ms of a request for an empty answer, servers in turn; the median of the rounds."""
    with ExitStack() as stack:
        places = []
        for kind in ("bare", "with journal"):
            pid, address = stack.enter_context(started("--serve", kind, "", folder))
            places.append((kind, pid, address["url"], "/v1/answer", address["token"]))
        if peers:
            pid, url = stack.enter_context(hayhooks(folder, peers))
            places.append(("Hayhooks", pid, url, "/nothing/run", ""))
        costs: dict[str, list[float]] = {name: [] for name, *_ in places}
        for number in range(ROUNDS + 1):
            for name, pid, url, path, token in places:
                cpu_before = cpu_s(pid)
                asked(url, path, itertools.repeat({"question": "What?"}, REQUESTS), token)
                if number:  # the first round warms up
                    costs[name].append((cpu_s(pid) - cpu_before) / REQUESTS * 1e3)
    return {name: median(times) for name, times in costs.items()}


def answers(folder: Path) -> dict[str, float]:
    """CPU-ms of an answer over HTTP and of its flow alone, in turn; the median of the turns."""
    costs: dict[str, list[float]] = {"served": [], "bare": [], "recorded": []}
    answering(folder)
    with started("--serve", "answers", "", folder) as (pid, address), process_of("--flow-alone", folder) as alone:
        assert alone.stdin is not None
        assert alone.stdout is not None
        alone.stdout.readline()
        until_ready(address["url"])
        for turn in range(TURNS_OF_ANSWERS):
            cpu_before = cpu_ns(pid)
            asked(address["url"], "/v1/answer", turn_of_questions(turn), address["token"])
            time.sleep(WRITTEN_S)
            served = (cpu_ns(pid) - cpu_before) / ASKED / 1e6
            print(turn, file=alone.stdin, flush=True)
            flow = json.loads(alone.stdout.readline())
            if turn >= WARM_TURNS:
                for name, cost in (flow | {"served": served}).items():
                    costs[name].append(float(cost))
    return {name: median(times) for name, times in costs.items()}


@contextmanager
def hayhooks(folder: Path, peers: Path) -> Iterator[tuple[int, str]]:
    """The peer with an empty wrapper."""
    binaries = peers / "bin"
    if not (binaries / "hayhooks").exists():
        venv.create(peers, with_pip=True, symlinks=True)
        subprocess.run([binaries / "python", "-m", "pip", "install", "-qq", "hayhooks"], check=True)
    (folder / "wrappers" / "nothing").mkdir(parents=True)
    (folder / "wrappers" / "nothing" / "pipeline_wrapper.py").write_text(WRAPPER)
    port = 40_000 + os.getpid() % 20_000
    command = [binaries / "hayhooks", "run", "--port", str(port), "--pipelines-dir", folder / "wrappers"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
        try:
            while True:
                try:
                    asked(url, "/nothing/run", [{"question": "What?"}], "")
                    break
                except (OSError, AssertionError):
                    assert time.monotonic() < end, "Hayhooks does not answer."
                    time.sleep(0.5)
            yield process.pid, url
        finally:
            process.kill()


async def stream(address: dict[str, str], number: int, leaves: bool = False) -> tuple[bool, float]:
    """Whether the answer came whole and is of this question, and how late its first word; or when the client left."""
    place = urlsplit(address["url"])
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 20)
    body = json.dumps(
        {"model": "flow", "stream": True, "messages": [{"role": "user", "content": f"Question {number}."}]}
    )
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {address['token']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    received, delay = b"", -1.0
    while b"[DONE]" not in received and (part := await reader.read(1 << 16)):
        received += part
        if delay < 0 and (first := re.search(rb"q(\d+)at([\d.]+)", received)):
            delay = time.monotonic() - float(first[2])
            if leaves:
                writer.transport.abort()
                return True, time.monotonic()
    writer.close()
    is_own = {int(match) for match in re.findall(rb"q(\d+)at", received)} == {number}
    return is_own and b"[DONE]" in received and f" w{WORDS - 1}".encode() in received, delay


async def streams(address: dict[str, str], first: int, count: int = STREAMS) -> list[tuple[bool, float]]:
    async def read_stream(number: int) -> tuple[bool, float]:
        await asyncio.sleep(number / STARTS_PER_S)
        return await stream(address, first + number)

    return await asyncio.gather(*map(read_stream, range(count)))


def streaming(folder: Path) -> dict[str, Any]:
    served, alone, answers = list[float](), list[float](), list[tuple[bool, float]]()
    with started("--model") as (_, llm), started("--serve", "streams", llm["url"], folder) as (pid, address):
        asyncio.run(stream(address, 0))
        idle = megabytes(pid, "VmRSS")
        for first in range(1, 1 + TURNS * STREAMS, STREAMS):
            cpu_before = cpu_s(pid)
            answers += asyncio.run(streams(address, first))
            served.append((cpu_s(pid) - cpu_before) / STREAMS * 1e3)
            with started("--without-server", llm["url"], folder, first) as (_, report):
                alone.append(float(report["cpu_ms"]))
        peak = megabytes(pid, "VmHWM")
        delays = sorted(item for whole, item in answers if whole)
        left = [asyncio.run(stream(address, 1_000_000 + number, leaves=True))[1] for number in range(LEAVERS)]
        time.sleep(0.5)
        place = urlsplit(llm["url"])
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        connection.request("GET", "/")
        stopped = json.loads(connection.getresponse().read())[-LEAVERS:]
    beyond = median(served_ms - alone_ms for served_ms, alone_ms in zip(served, alone, strict=True))
    return {
        "streams": len(answers), "lost or mixed up": sum(not whole for whole, _ in answers),
        "first word after the model's, ms": {f"p{rank}": delays[len(delays) * rank // 100] * 1e3 for rank in (50, 95)},
        "cpu_ms of a stream": {"served": median(served), "flow alone": median(alone), "beyond the flow": beyond},
        "megabytes": {"warm idle": idle, "most": peak},
        "stopped after the client left": len(stopped),
        "work stopped after, ms": max(end - begin for begin, end in zip(left, stopped, strict=True)) * 1e3,
    }  # fmt: skip


def many(folder: Path) -> dict[str, float]:
    """Memory of a server early and late in a long row of streams."""
    (folder / "many").mkdir()
    with started("--model") as (_, llm), started("--serve", "streams", llm["url"], folder / "many") as (pid, address):
        lost = sum(not whole for whole, _ in asyncio.run(streams(address, 0, EARLY)))
        early = megabytes(pid, "VmRSS")
        lost += sum(not whole for whole, _ in asyncio.run(streams(address, EARLY, LONG - EARLY)))
        return {"streams": LONG, "lost or mixed up": lost, "MB early": early, "MB late": megabytes(pid, "VmRSS")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="VENV")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--without-server", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--flow-alone", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        asyncio.run(model())
    elif options.serve:
        serving(options.serve[0], options.serve[1], Path(options.serve[2]))
    elif options.flow_alone:
        flow_alone(options.flow_alone)
    elif options.without_server:
        url, folder, first = options.without_server
        without_server(url, Path(folder), int(first))
    else:
        with tempfile.TemporaryDirectory() as folder:
            data: dict[str, Any] = {"cpu_ms of a request": requests(Path(folder), options.peers)}
            data |= streaming(Path(folder))
            if options.long:
                data["long row"] = many(Path(folder))
        publish("server", data, options.out)


if __name__ == "__main__":
    main()
