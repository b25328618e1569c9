"""Documents sent over HTTP until a search finds them: one small file, and 10,000 files.

    python benchmarks/documents_http.py [--files 10000] [--out FILE]

The server is a process of its own, with uvicorn and a store in a folder; no embedder. One file is sent by `PUT`, and a
search is repeated until it finds it; the median of `SINGLES`. Then passages of MuSiQue and 2WikiMultihopQA, one file
each, are sent as forms of `IN_A_FORM` files on two connections; the end is when all their tasks are done, and then the
server lists each document. The same with one file a request, on eight connections, is measured with fewer files.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from ingest import DATA, SETS
from results import publish
from server import cpu_s, started

from spolia.evaluation.data.dataset import DataSet

SINGLES, IN_A_FORM, ONE_BY_ONE = 20, 500, 500
PAUSE_S, TASK_PAUSE_S = 0.01, 0.1
LAZYLLM_PER_S = 42  # its document service on the same kind of files, measured apart from this project
BOUNDARY = "passages-of-the-benchmark"

File = tuple[str, bytes]


def serving(folder: Path) -> None:
    """Serve until the process is ended."""
    from spolia import BM25, Corpus, Extract
    from spolia.server.process import serve
    from spolia.server.service import ServedFlow, Service
    from spolia.services.documents import Documents

    corpus = Corpus(str(folder / "n.spolia"))
    search = BM25(corpus.group())
    flow = ServedFlow("flow", search >> Extract(), search)
    documents = Documents(corpus)
    tell = lambda url, token: print(json.dumps({"url": url, "token": token}), flush=True)  # noqa: E731
    serve(Service(corpus, [flow], flow), tell, documents=documents)


class Client:
    """One connection to the server."""

    def __init__(self, at: dict[str, str]) -> None:
        self.at = at
        self.connection = HTTPConnection(urlsplit(at["url"]).netloc)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        headers = {"Authorization": f"Bearer {self.at['token']}", "Content-Type": kind}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        reply = response.read()
        assert response.status in (200, 202), (response.status, reply)
        return json.loads(reply)

    def put(self, file: File) -> int:
        return int(self.ask("PUT", f"/v1/documents/{file[0]}", file[1])["task"])

    def send(self, files: Sequence[File]) -> int:
        """A form with files; the last task."""
        body = b"".join(
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
            + text
            + b"\r\n"
            for name, text in files
        )
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        return int(self.ask("POST", "/v1/documents", body + f"--{BOUNDARY}--\r\n".encode(), kind)["tasks"][-1]["task"])

    def finds(self, word: str) -> bool:
        return bool(self.ask("POST", "/v1/search", json.dumps({"question": word}).encode())["hits"])

    def wait(self, task: int) -> None:
        while (task_reply := self.ask("GET", f"/v1/tasks/{task}"))["state"] in ("waiting", "working"):
            time.sleep(TASK_PAUSE_S)
        assert task_reply["state"] == "done", task_reply

    def names(self) -> Iterator[str]:
        last_name = ""
        while page := self.ask("GET", f"/v1/documents?limit=1000&after={last_name}")["documents"]:
            yield from (row["name"] for row in page)
            last_name = page[-1]["name"]


def single(address: dict[str, str], number: int) -> float:
    """Seconds until a search finds one more document."""
    client, began = Client(address), time.perf_counter()
    client.put((f"one{number}.md", f"The word zebra{number} stands in this document alone.".encode()))
    while not client.finds(f"zebra{number}"):
        time.sleep(PAUSE_S)
    return time.perf_counter() - began


def many(
    address: dict[str, str], pid: int, batches: Sequence[Sequence[File]], threads: int, send: Any
) -> dict[str, float]:
    """Send lots of files on some connections, and wait for their tasks."""
    cpu_before, began = cpu_s(pid), time.perf_counter()
    clients = [Client(address) for _ in range(threads)]

    def work(number: int) -> list[int]:
        return [send(clients[number], batch) for batch in batches[number::threads]]

    with ThreadPoolExecutor(threads) as pool:
        tasks = list(chain.from_iterable(pool.map(work, range(threads))))
    upload_seconds = time.perf_counter() - began
    last = Client(address)
    for task in tasks[-threads:]:
        last.wait(task)
    last.wait(max(tasks))
    seconds, number = time.perf_counter() - began, sum(map(len, batches))
    names = set(Client(address).names())
    assert all(name in names for batch in batches for name, _ in batch)
    return {
        "files": number, "sent_s": upload_seconds, "searchable_s": seconds, "per_s": number / seconds,
        "cpu_ms_a_file": (cpu_s(pid) - cpu_before) / number * 1e3,
    }  # fmt: skip


def passages(count: int) -> list[File]:
    all_passages = chain.from_iterable(DataSet(str(DATA / name)).passages() for name in SETS)
    return [
        (f"passages/{index:05}.txt", f"{passage.title} ({index})\n{passage.text}".encode())
        for index, passage in enumerate(islice(all_passages, count))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serving(options.serve)
        sys.exit()
    files = passages(options.files + ONE_BY_ONE)
    with tempfile.TemporaryDirectory() as folder, started("--serve", folder) as (pid, address):
        client = Client(address)
        client.wait(client.put(("first.md", b"It makes the store.")))
        times = sorted(single(address, number) for number in range(SINGLES))
        batches = [[file] for file in files[options.files :]]
        result = {
            "one file until searchable, s": {"p50": median(times), "most": times[-1]},
            "one file a request": many(address, pid, batches, 8, lambda client, batch: client.put(batch[0])),
            "forms": many(
                address, pid,
                [files[start : start + IN_A_FORM] for start in range(0, options.files, IN_A_FORM)], 2, Client.send,
            ),
            "peers_measured_apart_files_per_s": {"LazyLLM": LAZYLLM_PER_S},
        }  # fmt: skip
    publish("documents_http", result, options.out)


if __name__ == "__main__":
    main()
