"""Test server that speaks the OpenAI protocol: simple, and the same for the same request."""

import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self, TypeAlias


def embeddings_reply(request: Mapping[str, Any], dimension: int, weights: str = "") -> dict[str, Any]:
    """Make the reply of /embeddings: a vector for each text, by hash."""
    texts = [request["input"]] if isinstance(request["input"], str) else request["input"]
    rows = [{"index": index, "embedding": vector(weights + text, dimension)} for index, text in enumerate(texts)]
    count = sum(len(text.split()) for text in texts)
    # In another order: clients must go by `index`.
    return {"object": "list", "data": rows[::-1], "usage": {"prompt_tokens": count, "total_tokens": count}}


def vector(text: str, dimension: int) -> list[float]:
    """Compute numbers from -1 to 1 that depend on the text."""
    numbers = b"".join(hashlib.sha256(f"{block}|{text}".encode()).digest() for block in range(dimension // 32 + 1))
    return [(number - 127.5) / 127.5 for number in numbers[:dimension]]


def rerank_reply(request: Mapping[str, Any]) -> dict[str, Any]:
    """Make the reply of /rerank: a text scores the share of words that it and the query have in common; best first."""
    query = _words(request["query"])
    scores = [len(query & words) / len(query | words) for words in map(_words, request["documents"])]
    rows = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
    rows.sort(key=lambda row: -row["relevance_score"])
    return {"results": rows[: request["top_n"]], "usage": {"total_tokens": 9}}


def completion_reply(request: Mapping[str, Any], text: str, logprob: float | None) -> dict[str, Any]:
    """Make the reply of /completions: the text, after the prompt with `echo`. Tokens are words with a leading blank."""
    words = re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text)
    generated = words[: request["max_tokens"]]
    echoed = re.findall(r"\s*\S+|\s+", request["prompt"]) if request.get("echo") else []
    tokens = echoed + generated
    choice: dict[str, Any] = {"index": 0, "text": "".join(tokens)}
    choice["finish_reason"] = "length" if len(generated) < len(words) else "stop"
    if request.get("logprobs") is not None and logprob is not None:
        starts = [sum(map(len, tokens[:number])) for number in range(len(tokens))]
        numbers = [None if echoed and number == 0 else logprob * len(token) for number, token in enumerate(tokens)]
        top = {word: logprob * (number + 1) for number, word in enumerate(words[: request["logprobs"]])}
        choice["logprobs"] = {"tokens": tokens, "token_logprobs": numbers, "text_offset": starts, "top_logprobs": [top]}
    return {
        "choices": [choice],
        "usage": {"prompt_tokens": len(request["prompt"].split()), "completion_tokens": len(generated)},
    }


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


Fault: TypeAlias = Literal[
    "", "reset", "hang", "stall", "drip", "truncate", "torn events", "torn pairs", "torn chunks", "no choice", "endless"
]


@dataclass(frozen=True)
class ServedReply:
    """Reply to one request.

    Args:
        text: the reply; streamed word by word when the request asks for it.
        finish_reason: `stop`, `length`, `content_filter`; `None` as some servers send.
        refusal: a refusal in place of a text.
        logprob: of every word, where the request asks for log-probabilities; None as servers that ignore them.
        usage: tokens sent and generated; None as servers that do not count.
        status: other than 200, with an error object that quotes the key, as some servers do.
        headers: more headers, for example `Retry-After` or `Location`.
        body: these bytes instead of a reply.
        fault: `reset` closes the connection before a reply; `hang` sends nothing; `stall` stops in the middle of a
            stream and `truncate` closes there, or in the middle of a body; `drip` sends a byte at a time, slowly;
            `torn chunks` a byte at a time; `torn events` half of a character's bytes in each of two events, and
            `torn pairs` half of a surrogate pair; `no choice` an empty list of choices; `endless` a stream that
            is not closed after its last event.
        dimension: of the vectors.
        weights: other ones give other vectors, as of a server that changes its model under one name.
        wait_s: how long it thinks before it answers.
        refuses: settings of a chat that end in status 400, as of OpenAI's models that think.
        thoughts: what it thinks, apart from the text.
    """

    text: str = "ok"
    finish_reason: str | None = "stop"
    refusal: str = ""
    logprob: float | None = -0.25
    usage: tuple[int, int] | None = (7, 3)
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    fault: Fault = ""
    dimension: int = 8
    weights: str = ""
    wait_s: float = 0.0
    refuses: tuple[str, ...] = ()
    thoughts: str = ""


@dataclass(frozen=True)
class ReceivedRequest:
    """A request: its JSON (or bytes), headers by lower-case name, and the caller's port, one for each connection."""

    path: str
    headers: Mapping[str, str]
    body: Any
    port: int


class OpenAIServer:
    """Server of `/v1/chat/completions`, `/completions`, `/embeddings`, `/rerank` and `/models` on a free port.

    Args:
        served: one for each request in turn; the last one is repeated.

    Attributes:
        url: the base URL.
        requests: what came in.
        most_at_once: the largest number of requests that were under way together.

    >>> from spolia.models.http.chat import ChatModel
    >>> from spolia.types import Message, Prompt
    >>> with OpenAIServer(ServedReply("Paris.")) as server:
    ...     ChatModel("any", server.url).generate(Prompt((Message("user", "Capital of France?"),))).text
    'Paris.'
    """

    def __init__(self, *served: ServedReply) -> None:
        self.requests: list[ReceivedRequest] = []
        self.most_at_once = self._at_once = 0
        self._served = list(served or (ServedReply(),))
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Responder", (_Responder,), {"serving": self}))
        self._http.daemon_threads = True
        self._http.block_on_close = False  # a reply that hangs must not hold up the end of a test
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        # The end waits for the next look, by default half a second.
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()

    def next_reply(self, request: ReceivedRequest) -> ServedReply:
        """Record a request and return its reply."""
        with self._lock:
            self.requests.append(request)
            return self._served.pop(0) if len(self._served) > 1 else self._served[0]

    def count(self, change: int) -> None:
        with self._lock:
            self._at_once += change
            self.most_at_once = max(self.most_at_once, self._at_once)


def closed_port_url() -> str:
    """Return a base URL at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


class _Responder(BaseHTTPRequestHandler):
    serving: OpenAIServer
    protocol_version = "HTTP/1.1"  # clients reuse connections only with HTTP/1.1

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, so that tests are quiet."""

    def do_GET(self) -> None:
        self.serving.next_reply(self._make_received(None))
        self._send_whole(200, json.dumps({"object": "list", "data": [{"id": "any", "object": "model"}]}).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_json = self.headers.get("Content-Type", "").startswith("application/json")
        request = json.loads(body) if is_json else {}
        served = self.serving.next_reply(self._make_received(request if is_json else body))
        self.serving.count(+1)
        with suppress(OSError):  # the caller hung up, as the test wants
            self._send_answer(served, request)
        self.serving.count(-1)

    def _make_received(self, body: Any) -> ReceivedRequest:
        headers = {name.lower(): text for name, text in self.headers.items()}
        return ReceivedRequest(self.path, headers, body, self.client_address[1])

    def _send_answer(self, served: ServedReply, request: dict[str, Any]) -> None:
        if served.wait_s:
            self.serving.stopping.wait(served.wait_s)
        if served.fault == "reset":
            self.close_connection = True
        elif served.fault == "hang":
            self.serving.stopping.wait(60)  # until the test ends
            self.close_connection = True
        elif served.body is not None:
            self._send_whole(served.status, served.body, served)
        elif served.status != 200:
            message = f"status {served.status} for {self.headers.get('Authorization', 'no key')}"
            self._send_whole(served.status, json.dumps({"error": {"message": message}}).encode(), served)
        elif refused_names := [name for name in served.refuses if name in request]:
            message = f"Unsupported parameter: '{refused_names[0]}' is not supported with this model."
            error = {"message": message, "type": "invalid_request_error", "param": refused_names[0]}
            self._send_whole(400, json.dumps({"error": error | {"code": "unsupported_parameter"}}).encode(), served)
        elif request.get("stream"):
            self._send_stream(served, request)
        else:
            self._send_whole(200, json.dumps(self._build_reply(served, request)).encode(), served)

    def _build_reply(self, served: ServedReply, request: dict[str, Any]) -> dict[str, Any]:
        if self.path.endswith("/embeddings"):
            return embeddings_reply(request, served.dimension, served.weights)
        if self.path.endswith("/rerank"):
            return rerank_reply(request)
        if self.path.endswith("/completions") and "prompt" in request:
            return completion_reply(request, served.text, served.logprob)
        return _chat_reply(served, request, "message", served.text, last=True)

    def _send_whole(self, status: int, body: bytes, served: ServedReply | None = None) -> None:
        self.send_response(status)
        for name, text in served.headers if served else ():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if served and served.fault == "truncate":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        else:
            self._send_bytes(body, served.fault if served else "")

    def _send_stream(self, served: ServedReply, request: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in _stream_events(served, request):
            if event is None:
                if served.fault == "stall":
                    self.serving.stopping.wait(60)
                self.close_connection = True
                return
            step = 1 if served.fault == "torn chunks" else len(event)
            for start in range(0, len(event), step):
                part = event[start : start + step]
                self._send_bytes(b"%x\r\n%s\r\n" % (len(part), part), served.fault)
        if served.fault == "endless":
            self.serving.stopping.wait(60)
        self.wfile.write(b"0\r\n\r\n")

    def _send_bytes(self, content: bytes, fault: str) -> None:
        if fault == "drip":
            for byte in content:
                self.wfile.write(bytes((byte,)))
                if self.serving.stopping.wait(0.05):
                    return
        else:
            self.wfile.write(content)
        self.wfile.flush()


def _stream_events(served: ServedReply, request: dict[str, Any]) -> Iterator[bytes | None]:
    """Yield the events of a stream; None where it stops."""
    pieces = [word + " " for word in (served.refusal or served.text).split(" ")]
    pieces[-1] = pieces[-1][:-1]
    for number, piece in enumerate(pieces):
        if served.fault in ("stall", "truncate") and number == len(pieces) // 2:
            yield None
            return
        last = number == len(pieces) - 1
        for part in _split_text(piece, served.fault):
            yield b"data: %s\n\n" % part.join(_split_event(served, request, piece, last))
    if served.usage is not None:
        yield b"data: %s\n\n" % json.dumps({"choices": [], "usage": _usage(served.usage)}).encode()
    yield b"data: [DONE]\n\n"


def _split_event(served: ServedReply, request: dict[str, Any], piece: str, last: bool) -> list[bytes]:
    """Return an event's JSON before and after the text."""
    event = _chat_reply(served, request, "delta", piece, last)
    if event["choices"]:
        event["choices"][0]["delta"]["refusal" if served.refusal else "content"] = "@@here@@"
    return json.dumps(event).encode().split(b"@@here@@")


def _split_text(piece: str, fault: str) -> list[bytes]:
    """Split the text, escaped as in JSON, where a fault tears it; otherwise return it in one part."""
    if fault == "torn events":
        return [bytes((byte,)) for byte in json.dumps(piece, ensure_ascii=False)[1:-1].encode()]
    escaped = json.dumps(piece)[1:-1].encode()
    if fault == "torn pairs" and b"\\ud8" in escaped:
        cut = escaped.index(b"\\ud8") + 6  # after the first half of the pair
        return [escaped[:cut], escaped[cut:]]
    return [escaped]


def _chat_reply(served: ServedReply, request: dict[str, Any], part: str, text: str, last: bool) -> dict[str, Any]:
    if served.fault == "no choice":
        return {"choices": []}
    message: dict[str, Any] = {"role": "assistant", "content": None if served.refusal else text}
    if served.refusal:
        message["refusal"] = served.refusal
    if served.thoughts:
        message["reasoning_content"] = served.thoughts
    choice = {"index": 0, part: message, "finish_reason": served.finish_reason if last else None}
    if request.get("logprobs") and served.logprob is not None:
        words = text.split() if part == "message" else [text]
        choice["logprobs"] = {"content": [_token(word, served.logprob, request) for word in words]}
    usage = {"usage": _usage(served.usage)} if served.usage is not None and part == "message" else {}
    return {"id": "1", "object": "chat.completion", "choices": [choice], **usage}


def _token(word: str, logprob: float, request: dict[str, Any]) -> dict[str, Any]:
    top = [
        {"token": "x" * number or word, "logprob": logprob * (number + 1)}
        for number in range(request.get("top_logprobs", 0))
    ]
    # In another order: clients must go by the numbers.
    return {"token": word, "logprob": logprob, **({"top_logprobs": top[::-1]} if top else {})}


def _usage(counts: tuple[int, int]) -> dict[str, int]:
    return {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)}
