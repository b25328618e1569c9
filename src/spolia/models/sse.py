"""Server-sent events, read as they come, and characters that were torn apart between them.

https://html.spec.whatwg.org/multipage/server-sent-events.html. Lines are split in bytes, before decoding, so that a
character may be torn between two chunks of the connection. Some servers also tear one between two *events*, writing
half of its bytes, or half of its surrogate pair, into the JSON of each: `Mended` joins them.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

DONE = "[DONE]"


def events(chunks: Iterable[bytes]) -> Iterator[str]:
    r"""The data of each event; bytes that are no UTF-8 by themselves come as lone surrogates, for `Mended`.

    >>> list(events([b": hello\n\ndata: {", b"}\r\n\r\ndata: [DO", b"NE]\n\n"]))
    ['{}', '[DONE]']
    """
    data: list[bytes] = []
    for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data).decode("utf-8", "surrogateescape")
            data = []
    if data:  # the last event of a stream that ends without a blank line
        yield b"\n".join(data).decode("utf-8", "surrogateescape")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest: list[bytes] = []
    for chunk in chunks:
        *whole, last = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line)).removesuffix(b"\r")
            rest = []
        rest.append(last)
    yield b"".join(rest).removesuffix(b"\r")


class Mended:
    r"""Text from pieces in which a character may be torn.

    >>> mended = Mended()
    >>> [mended.add("caf\udcc3"), mended.add("\udca9!"), mended.add("\ud83d"), mended.add("\ude00"), mended.end()]
    ['caf', 'é!', '', '😀', '']
    """

    def __init__(self) -> None:
        self._high = ""
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, piece: str) -> str:
        """What is complete by now; the rest is held back for the next piece."""
        try:
            piece.encode()
        except UnicodeEncodeError:
            return self._joined(piece)
        return self._joined(piece) if self._high or self._bytes.getstate()[0] else piece

    def end(self) -> str:
        """What was never completed, as replacement characters."""
        high, self._high = self._high, ""
        return self._bytes.decode(b"", final=True) + ("\ufffd" if high else "")

    def _joined(self, piece: str) -> str:
        return "".join(map(self._one, piece))

    def _one(self, character: str) -> str:
        if self._high:
            high, self._high = self._high, ""
            if "\udc00" <= character <= "\udfff":
                return (high + character).encode("utf-16", "surrogatepass").decode("utf-16")
            return "\ufffd" + self._one(character)
        if "\ud800" <= character <= "\udbff":
            self._high = character
            return self._bytes.decode(b"", final=True)
        if "\udc80" <= character <= "\udcff":  # a byte that was no UTF-8 by itself
            return self._bytes.decode(character.encode("utf-8", "surrogateescape"))
        return self._bytes.decode(character.encode("utf-8", "replace"))
