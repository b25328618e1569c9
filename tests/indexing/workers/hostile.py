"""Readers that do what hostile files make readers do."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from spolia.errors import EncryptedDocument, MissingExtra
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Box, Boxes, Document, Heading, Region, Value


@dataclass(frozen=True)
class Obeying(Value):
    """Does what the blob says."""

    name = "obeying"
    version = 1
    media_type = "text/plain"
    suffixes = (".do",)

    def read(self, blob: Blob, /) -> Reading:
        order, _, rest = blob.data.decode().partition(" ")
        done = getattr(self, f"_{order}")(rest)
        return done if isinstance(done, Reading) else Reading(blob.document(self, str(done)))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        with TemporaryDirectory() as folder:
            for number in range(int(blob.data)):
                content = b"part %d" % number
                file = Path(folder, str(number))
                file.write_bytes(content)
                yield Blob(f"{blob.uri}/{number}", file if blob.uri == "files" else content)
                file.unlink()
        if blob.uri == "bad":
            raise EncryptedDocument("the last one is locked")
        if blob.uri == "dies":
            os.abort()

    def _say(self, text: str) -> str:
        return text

    def _print(self, text: str) -> str:
        sys.stdout.write(text * 1000)
        sys.stdout.flush()
        os.write(1, b"raw")
        return "printed"

    def _crash(self, text: str) -> str:
        ctypes.string_at(0)
        return ""

    def _abort(self, text: str) -> str:
        os.abort()

    def _crash_once(self, path: str) -> str:
        if not Path(path).exists():
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "again"

    def _hang(self, text: str) -> str:
        while True:
            pass

    def _sleep(self, text: str) -> str:
        time.sleep(float(text))
        return "slept"

    def _fill(self, text: str) -> str:
        return str(len([bytes(10_000_000) + b"x" for _ in range(1_000)]))

    def _write(self, path: str) -> str:
        with open(path, "wb") as file:
            for _ in range(1_000):
                file.write(bytes(1_000_000))
        return "written"

    def _exit(self, text: str) -> str:
        os._exit(3)

    def _deep(self, text: str) -> str:
        return self._deep(text)

    def _raise(self, text: str) -> str:
        raise ValueError(text)

    def _locked(self, text: str) -> str:
        raise EncryptedDocument("it is locked")

    def _lack(self, text: str) -> str:
        raise MissingExtra("salt", "pepper", "Reading a.do")

    def _pid(self, text: str) -> str:
        return str(os.getpid())

    def _half(self, text: str) -> str:
        return "half a pair \ud800"

    def _full(self, text: str) -> Reading:
        box = Box(2, 1.5, 2.5, 3.5, 4.5)
        table = Region("table", 0, 3, (("a", "b"), ("1", "")), "", "Table 1", box)
        return Reading(
            Document(
                "id", "one\ntwo ü", "a.do", "Title", "text/plain", (0, 4), (Heading(4, 2, "two"),),
                (("year", 1999), ("rate", 0.5), ("open", True), ("none", None)), (), (table,),
                Boxes.from_lines([(0, 3, box), (4, 9, box)]),
            ),
            "utf-8", (1,), (2,), (("notes", 3),), (Blob("img", b"\x00\xff"),), ("careful",), "ears", ((0, "a b.png"),),
        )  # fmt: skip
