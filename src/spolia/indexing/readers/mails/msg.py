"""Outlook's MSG: an OLE compound file of MAPI properties ([MS-OXMSG])."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from io import BytesIO
from typing import Any

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra, SpoliaError
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.html import content_of
from spolia.indexing.readers.layout import Layout
from spolia.indexing.readers.mails.mime import Names
from spolia.indexing.readers.office.package import damaged
from spolia.indexing.readers.office.rtf import rtf_text
from spolia.indexing.readers.pictures.linked_images import Linked
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import decoded
from spolia.types import Value

_SUBJECT, _BODY, _HTML, _RTF, _CLASS, _MESSAGE_ID = "0037", "1000", "1013", "1009", "001A", "1035"
_SENDER, _SENDER_MAIL, _SENDER_SMTP, _TO, _CC = "0C1A", "0C1F", "5D01", "0E04", "0E03"
_NAME, _SHORT_NAME, _DATA, _TYPE = "3707", "3704", "3701", "370E"
_TIMES = (0x0039, 0x0E06)  # when it was sent, when it came
_FILETIME = 0x0040
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_MOST_PARTS = 1000


@dataclass(frozen=True)
class MsgReader(Value):
    """Reads a mail of Outlook, with the same fields as other mails; attachments and mails in it are its parts."""

    name = "msg"
    version = 2
    media_type = "application/vnd.ms-outlook"
    suffixes = (".msg",)
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with _opened(blob) as message:
            if message.text(_CLASS).lower().startswith("ipm.note.smime") and not message.text(_BODY):
                raise EncryptedDocument(f"{blob.uri} is encrypted (S/MIME). Save a copy that is not.")
            layout = message.layout()
            layout.show(Linked(blob.uri))
            meta = fields(
                sender=message.sender(),
                to=_names(message.text(_TO)),
                cc=_names(message.text(_CC)),
                date=message.date(),
                message_id=message.text(_MESSAGE_ID),
            )
            return layout.reading(self, blob, title=" ".join(message.text(_SUBJECT).split()), meta=meta)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The attachments; a mail within the mail as one that any reader of mails can read."""
        names = Names()
        with _opened(blob) as message:
            for inner in message.attachments():
                if inner.is_mail:
                    mail = inner.within(f"__substg1.0_{_DATA}000D").eml()
                    yield Blob(f"{blob.uri}/{names.of('', 'message/rfc822')}", mail)
                else:
                    name = names.of(inner.text(_NAME) or inner.text(_SHORT_NAME), inner.text(_TYPE))
                    yield Blob(f"{blob.uri}/{name}", inner.stream(f"{_DATA}0102"))


@contextmanager
def _opened(blob: Blob) -> Iterator["_Storage"]:
    """The file while it is open; whatever goes wrong meanwhile is told as damage."""
    try:
        import olefile
    except ImportError as error:
        raise MissingExtra("mail", "olefile", f"Reading {blob.uri}") from error
    try:
        with olefile.OleFileIO(BytesIO(blob.data)) as file:
            if not file.exists("__properties_version1.0"):
                raise DocumentError(
                    f"{blob.uri} is an old Office file, not a mail, although its name says so. Rename it."
                )
            yield _Storage(blob, file, [])
    except SpoliaError:
        raise
    except Exception as error:  # olefile raises whatever the damage leads to
        raise damaged(blob, "MSG", error) from error


@dataclass(frozen=True)
class _Storage:
    """A message or an attachment: where its properties are in the file."""

    blob: Blob
    file: Any
    path: list[str]

    def within(self, name: str) -> "_Storage":
        return _Storage(self.blob, self.file, [*self.path, name])

    def stream(self, property: str) -> bytes:
        """The bytes of a property; none where it has none."""
        name = [*self.path, f"__substg1.0_{property}"]
        if not self.file.exists(name) or self.file.get_type(name) != 2:
            return b""
        return bytes(self.file.openstream(name).read())

    def text(self, property: str) -> str:
        if wide := self.stream(f"{property}001F"):
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        narrow = self.stream(f"{property}001E").rstrip(b"\0")
        return decoded(narrow, self.blob.uri).text if narrow else ""

    def layout(self) -> Layout:
        """The body: as plain text, else as HTML, else as RTF."""
        layout = Layout()
        plain = self.text(_BODY).strip()
        html = self.stream(f"{_HTML}0102") or self.text(_HTML).encode()
        if not plain and html.strip():
            return content_of(decoded(html.rstrip(b"\0"), self.blob.uri).text)[0]
        if not plain and (packed := self.stream(f"{_RTF}0102")):
            plain = rtf_text(unpacked_rtf(packed))
        layout.write(plain.replace("\r\n", "\n").replace("\r", "\n"), exactly=True)
        return layout

    def sender(self) -> str:
        name, mail = self.text(_SENDER).strip(), (self.text(_SENDER_SMTP) or self.text(_SENDER_MAIL)).strip()
        return f"{name} <{mail}>" if name and "@" in mail and name != mail else name or mail

    def date(self) -> datetime | None:
        """From the properties of fixed length: 16 bytes each, after a header."""
        name = [*self.path, "__properties_version1.0"]
        data = bytes(self.file.openstream(name).read()) if self.file.exists(name) else b""
        times: dict[int, int] = {}
        for start in range(24 if self.path else 32, len(data) - 15, 16):
            kind, number, _, value = struct.unpack_from("<HHIQ", data, start)
            if kind == _FILETIME:
                times[number] = value
        found = next((times[number] for number in _TIMES if times.get(number)), 0)
        try:
            return _EPOCH + timedelta(microseconds=found // 10) if found else None
        except OverflowError:
            return None

    def attachments(self) -> "Iterator[_Storage]":
        names = {
            entry[len(self.path)]
            for entry in self.file.listdir(streams=True, storages=True)
            if entry[: len(self.path)] == self.path and len(entry) > len(self.path)
        }
        for name in sorted(name for name in names if name.startswith("__attach_version1.0_"))[:_MOST_PARTS]:
            yield self.within(name)

    @property
    def is_mail(self) -> bool:
        return bool(self.file.exists([*self.path, f"__substg1.0_{_DATA}000D"]))

    def eml(self) -> bytes:
        """The message, without its attachments, as a mail of the internet."""
        mail = EmailMessage()
        for name, said in (("From", self.sender()), ("To", self.text(_TO))):
            mail[name] = " ".join(said.encode("ascii", "ignore").decode().split())
        mail["Subject"] = " ".join(self.text(_SUBJECT).split())
        if (sent := self.date()) is not None:
            mail["Date"] = sent
        mail.set_content(self.layout().text())
        return mail.as_bytes()


def _names(said: str) -> list[str]:
    return [name.strip() for name in said.split(";")]


_PREFIX = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript "
    b"\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n"
    b"\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
_WINDOW = 4096
_LARGEST_RTF = 100_000_000


def unpacked_rtf(data: bytes) -> bytes:
    """RTF out of the LZ77 compression that Outlook packs it with ([MS-OXRTFCP])."""
    if data[8:12] == b"MELA":
        return data[16:]
    window = bytearray(_PREFIX.ljust(_WINDOW, b" "))
    out, at, write = bytearray(), 16, len(_PREFIX)
    while at < len(data) and len(out) < _LARGEST_RTF:
        control, at = data[at], at + 1
        for bit in range(8):
            if at >= len(data):
                break
            if not control >> bit & 1:
                found = data[at : at + 1]
                at += 1
            else:
                pair, at = int.from_bytes(data[at : at + 2], "big"), at + 2
                start, length = pair >> 4, (pair & 15) + 2
                if start == write % _WINDOW:
                    return bytes(out)
                found = b""
                for step in range(length):
                    byte = window[(start + step) % _WINDOW]
                    window[(write + step) % _WINDOW] = byte
                    found += bytes((byte,))
            for byte in found:
                window[write % _WINDOW] = byte
                write += 1
            out += found
    return bytes(out)
