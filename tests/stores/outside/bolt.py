"""A server that speaks as much of Bolt 5.4 as the driver needs for one transaction, with scripted rows."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Mapping
from typing import Any, Self

Struct = tuple[int, list[Any]]
SUCCESS, RECORD, FAILURE = 0x70, 0x71, 0x7F
NAMES = {0x01: "HELLO", 0x6A: "LOGON", 0x11: "BEGIN", 0x10: "RUN", 0x3F: "PULL", 0x2F: "DISCARD", 0x13: "ROLLBACK"}
NAMES |= {0x0F: "RESET", 0x02: "GOODBYE", 0x54: "TELEMETRY"}


def packed(value: Any) -> bytes:
    """A value in PackStream."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcb" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xc1" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return b"\xd2" + struct.pack(">I", len(text)) + text
    if isinstance(value, list):
        return b"\xd6" + struct.pack(">I", len(value)) + b"".join(map(packed, value))
    if isinstance(value, dict):
        pairs = b"".join(packed(key) + packed(content) for key, content in value.items())
        return b"\xda" + struct.pack(">I", len(value)) + pairs
    tag, fields = value
    return bytes((0xB0 + len(fields), tag)) + b"".join(map(packed, fields))


def unpacked(data: bytes, position: int = 0) -> tuple[Any, int]:
    """A value in PackStream, and where it ends."""
    mark, position = data[position], position + 1
    if mark < 0x80 or mark >= 0xF0:
        return (mark if mark < 0x80 else mark - 256), position
    if mark in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[mark], position
    if mark == 0xC1:
        return struct.unpack_from(">d", data, position)[0], position + 8
    if 0xC8 <= mark <= 0xCB:
        size = 1 << (mark - 0xC8)
        return int.from_bytes(data[position : position + size], "big", signed=True), position + size
    family, size = {0x80: ("text", 0), 0x90: ("list", 0), 0xA0: ("map", 0), 0xB0: ("struct", 0)}.get(
        mark & 0xF0, ("", 0)
    )
    count = mark & 0x0F
    if not family:
        family = {0xD0: "text", 0xD4: "list", 0xD8: "map"}[mark & 0xFC]
        size = 1 << (mark & 3)
        count = int.from_bytes(data[position : position + size], "big")
        position += size
    if family == "text":
        return data[position : position + count].decode(), position + count
    tag = data[position] if family == "struct" else 0
    position += family == "struct"
    values = []
    for _ in range(count * (2 if family == "map" else 1)):
        value, position = unpacked(data, position)
        values.append(value)
    if family == "map":
        return dict(zip(values[::2], values[1::2], strict=True)), position
    return (values if family == "list" else (tag, values)), position


class BoltServer:
    """Answers every statement with the same rows, or a failure; `asked` holds what it was sent.

    `by_word` has other fields and rows for statements with a word in them.
    """

    by_word: Mapping[str, tuple[list[str], list[list[Any]]]] = {}

    def __init__(self, fields: list[str], rows: list[list[Any]], failure: tuple[str, str] | None = None) -> None:
        self.fields, self.rows, self.failure = fields, rows, failure
        self.asked: list[tuple[str, list[Any]]] = []
        outer = self

        class Talk(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                assert self.rfile.read(4) == b"\x60\x60\xb0\x17"
                self.rfile.read(16)
                self.wfile.write(b"\x00\x00\x04\x05")
                left = list[list[Any]]()
                while (message := self.message()) is not None:
                    name, argument = NAMES[message[0]], message[1]
                    outer.asked.append((name, argument))
                    if name == "GOODBYE":
                        return
                    if outer.failure and name == ("LOGON" if ".Security." in outer.failure[0] else "RUN"):
                        self.send(FAILURE, {"code": outer.failure[0], "message": outer.failure[1]})
                        continue
                    more: dict[str, Any] = {}
                    if name == "HELLO":
                        more = {"server": "Neo4j/5.26.0", "connection_id": "bolt-1", "hints": {}}
                    if name == "RUN":
                        chosen = (reply for word, reply in outer.by_word.items() if word in argument[0])
                        fields, rows = next(chosen, (outer.fields, outer.rows))
                        more, left = {"fields": fields, "t_first": 0, "qid": 0}, list(rows)
                    if name == "PULL":
                        count = argument[0]["n"]
                        for row in left[:count]:
                            self.send(RECORD, row)
                        left = left[count:]
                        more = {"has_more": True} if left else {"type": "r", "t_last": 0}
                    self.send(SUCCESS, more)

            def message(self) -> Struct | None:
                data = b""
                while True:
                    head = self.rfile.read(2)
                    if len(head) < 2:
                        return None
                    size = int.from_bytes(head, "big")
                    if not size and data:
                        message: Struct = unpacked(data)[0]
                        return message
                    data += self.rfile.read(size)

            def send(self, tag: int, held: Any) -> None:
                data = packed((tag, [held]))
                self.wfile.write(len(data).to_bytes(2, "big") + data + b"\x00\x00")

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talk)
        self.server.daemon_threads = True
        self.url = f"bolt://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
