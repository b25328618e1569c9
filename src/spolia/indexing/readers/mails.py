"""Mails, boxes of mails, and Outlook's MSG: an OLE compound file of MAPI properties ([MS-OXMSG])."""

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from email.utils import getaddresses, parsedate_to_datetime
from io import BytesIO
from mimetypes import guess_extension
from typing import Any

from spolia.errors import DocumentError, EncryptedDocument, installed
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.html import content_of
from spolia.indexing.readers.layout import Layout
from spolia.indexing.readers.office.package import told_as_damage
from spolia.indexing.readers.office.rtf import rtf_text
from spolia.indexing.readers.pictures.linked_images import Linked
from spolia.indexing.readers.reader import Blob, Reading, signature_of
from spolia.indexing.readers.text import Decoded, decoded, encoding_called
from spolia.types import Meta, Value

_REFUSED = re.compile("[\x00-\x1f\x7f/\\\\\ud800-\udfff]+")
_LONGEST = 200


class Names:
    """Gives each attachment of a mail a name of its own.

    >>> names = Names()
    >>> names.of("../a.pdf", ""), names.of(".._a.pdf", ""), names.of("", "text/plain"), names.of(" ", "message/rfc822")
    ('.._a.pdf', '.._a-2.pdf', 'attachment-3.txt', 'attachment-4.eml')
    """

    def __init__(self) -> None:
        self._count = 0
        self._taken: set[str] = set()

    def of(self, said: str, media_type: str) -> str:
        """What a sender says, without what leads elsewhere; where that is nothing, a number and a suffix."""
        self._count += 1
        name = _REFUSED.sub("_", said).strip()[-_LONGEST:]
        if not name.strip("._ "):
            suffix = ".eml" if media_type.startswith("message/") else guess_extension(media_type) or ""
            name = f"attachment-{self._count}{suffix}"
        if name in self._taken:
            stem, dot, suffix = name.rpartition(".")
            name = f"{stem or name}-{self._count}{dot}{suffix}" if dot else f"{name}-{self._count}"
        self._taken.add(name)
        return name


_LOCKED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")
_MOST_PARTS = 1000
_LONGEST_HEADER = 20_000
_LONG_HEADER = re.compile(
    rb"^(content-(?:type|disposition)):(?:[^\r\n]|\r?\n[ \t]){%d}" % _LONGEST_HEADER, re.IGNORECASE | re.MULTILINE
)
"""The time that the standard library takes for the parameters of these grows with the square of their number."""


@dataclass(frozen=True)
class EmlReader(Value):
    """Reads a mail. Its plain text is read, or its HTML where it has no other; attachments are its parts.

    Fields: `sender`, `to`, `cc`, `date`, `message_id`, `in_reply_to`; the subject is the title.

    >>> mail = b"From: Ann <ann@a.org>\\nSubject: Stones\\nDate: Mon, 5 Oct 2026 10:00:00 +0200\\n\\nThey are here.\\n"
    >>> document = EmlReader().read(Blob("a.eml", mail)).document
    >>> document.title, document.text, document.meta[0]
    ('Stones', 'They are here.', ('sender', 'Ann <ann@a.org>'))
    """

    name = "mail"
    version = 2
    media_type = "message/rfc822"
    suffixes = (".eml", ".mht", ".mhtml")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        message = _parsed(blob)
        body, others = _sorted(message)
        layout, found = _text(body, blob) if body is not None else (Layout(), Decoded(""))
        layout.show(Linked(blob.uri))
        return layout.reading(
            self,
            blob,
            title=_header(message, "Subject"),
            meta=_meta(message),
            encoding=found.encoding,
            dropped={"attachments": max(0, len(others) - _MOST_PARTS)},
            warnings=found.warnings,
        )

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The attachments, and mails within the mail."""
        message = _parsed(blob)
        names = Names()
        for part in _sorted(message)[1][:_MOST_PARTS]:
            name = names.of(_filename(part), part.get_content_type())
            yield Blob(f"{blob.uri}/{name}", _bytes(part))


def _parsed(blob: Blob) -> Message:
    if (other := signature_of(blob.data[:64])) is not None:
        raise DocumentError(f"{blob.uri} is {other.what}, not a mail, although its name says so. Rename it.")
    if found := _LONG_HEADER.search(blob.data):
        raise DocumentError(
            f"{blob.uri} has a header {found[1].decode()} of more than {_LONGEST_HEADER} bytes: it may be made to "
            "keep its reader busy. Save it again as the server has it."
        )
    try:
        message = message_from_bytes(blob.data, policy=policy.compat32)
    except (RecursionError, ValueError, LookupError, AttributeError, MessageError) as error:
        raise DocumentError(f"{blob.uri} is not a readable mail: {type(error).__name__}: {error}") from error
    if not message.keys():
        raise DocumentError(
            f"{blob.uri} is not a readable mail: it has no header, and begins with {blob.data[:20]!r}. "
            "Save it again as the server has it."
        )
    is_signed = message.get_param("smime-type") in ("signed-data", "certs-only")
    if message.get_content_type() in _LOCKED and not is_signed:
        raise EncryptedDocument(f"{blob.uri} is encrypted (S/MIME or PGP). Save a copy that is not.")
    return message


def _sorted(message: Message) -> tuple[Message | None, list[Message]]:
    """The body and the attachments of a mail; alternative versions of the body are neither."""
    plain: Message | None = None
    html: Message | None = None
    others: list[Message] = []
    todo = [message]
    while todo:
        part = todo.pop()
        kind, inner = part.get_content_type(), _inner(part)
        if inner is not None and part.get_content_maintype() == "multipart":
            todo += reversed(inner)
        elif part.get_content_disposition() == "attachment" or _filename(part) or part.get_content_maintype() != "text":
            others.append(part)
        elif kind == "text/html":
            others += [part] if html is not None and plain is not None else []
            html = html or part
        elif plain is None:
            plain = part
        elif kind == "text/plain" and _has_words(part):
            others.append(part)
    if plain is not None and not _has_words(plain):
        plain = None
    return plain or html, others


def _has_words(part: Message) -> bool:
    return bool(_bytes(part).strip())


def _text(body: Message, blob: Blob) -> tuple[Layout, Decoded]:
    found = decoded(_bytes(body), blob.uri, encoding_called(str(body.get_content_charset() or "")))
    if body.get_content_type() == "text/html":
        return content_of(found.text)[0], found
    layout = Layout()
    layout.write(found.text.strip().replace("\r\n", "\n"), exactly=True)
    return layout, found


def _bytes(part: Message) -> bytes:
    """The content, decoded; of a mail within a mail, its source. Nothing where it is too broken to be written again."""
    found: object = b""
    with suppress(ValueError, LookupError, AssertionError, MessageError):
        if (inner := _inner(part)) is not None:
            found = b"\n\n".join(one.as_bytes() for one in inner)
        else:
            found = part.get_payload(decode=True)
    return found if isinstance(found, bytes) else b""


def _inner(part: Message) -> list[Message] | None:
    """The parts of a part; None where it has none, not even empty ones."""
    return [one for one in part.get_payload() if isinstance(one, Message)] if part.is_multipart() else None


def _filename(part: Message) -> str:
    with suppress(ValueError, LookupError, TypeError, MessageError):
        return part.get_filename() or ""
    return ""


def _header(message: Message, name: str) -> str:
    return _plain(message.get(name, ""))


def _plain(said: Any) -> str:
    text = str(said)
    if "=?" in text and len(text) <= _LONGEST_HEADER:
        with suppress(ValueError, LookupError, TypeError, MessageError):
            text = str(make_header(decode_header(text)))
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _meta(message: Message) -> Meta:
    return fields(
        sender=_header(message, "From"),
        to=_addresses(message, "To"),
        cc=_addresses(message, "Cc"),
        date=_date(message),
        message_id=_header(message, "Message-ID"),
        in_reply_to=_header(message, "In-Reply-To"),
    )


def _addresses(message: Message, name: str) -> list[str]:
    said = [_plain(one) for one in message.get_all(name, [])]
    try:
        pairs = getaddresses(said)
    except (ValueError, IndexError, MessageError):
        return said
    return [f"{who} <{where}>" if who and where else who or where for who, where in pairs[:1000]]


def _date(message: Message) -> datetime | str:
    said = _header(message, "Date")
    try:
        return parsedate_to_datetime(said)
    except (ValueError, TypeError, IndexError, OverflowError):
        return said


_BEGIN = b"From "
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_LINE = 1 << 20
LARGEST_MAIL = 200_000_000
"""Bytes of a mail at most."""


@dataclass(frozen=True)
class MboxReader(Value):
    """Reads boxes of mails; what is to be read is in their parts, `box.mbox/1.eml` and so on."""

    name = "mbox"
    version = 1
    media_type = "application/mbox"
    suffixes = (".mbox", ".mbx")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with blob.open() as file:
            begin = file.read(len(_BEGIN))
        if begin != _BEGIN:
            raise DocumentError(f"{blob.uri} is not a mailbox: it begins with {begin!r}, not with 'From '. Rename it.")
        return Reading(blob.document(self, ""))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The mails, one after the other; the box is never in memory."""
        self.read(blob)
        lines, size, number = list[bytes](), 0, 0
        after_blank = True
        with blob.open() as file:
            while line := file.readline(_LONGEST_LINE):
                if after_blank and line.startswith(_BEGIN):
                    if number:
                        yield _mail(blob, number, lines)
                    lines, size, number = [], 0, number + 1
                else:
                    lines.append(line)
                    size += len(line)
                    if size > LARGEST_MAIL:
                        raise DocumentError(
                            f"{blob.uri}: mail {number} has more than {LARGEST_MAIL} bytes. Take it out."
                        )
                after_blank = not line.strip()
        yield _mail(blob, number, lines)


def _mail(blob: Blob, number: int, lines: list[bytes]) -> Blob:
    return Blob(f"{blob.uri}/{number}.eml", _QUOTED.sub(rb"\1", b"".join(lines)))


_SUBJECT, _BODY, _HTML, _RTF, _CLASS, _MESSAGE_ID = "0037", "1000", "1013", "1009", "001A", "1035"
_SENDER, _SENDER_MAIL, _SENDER_SMTP, _TO, _CC = "0C1A", "0C1F", "5D01", "0E04", "0E03"
_NAME, _SHORT_NAME, _DATA, _TYPE = "3707", "3704", "3701", "370E"
_TIMES = (0x0039, 0x0E06)  # when it was sent, when it came
_FILETIME = 0x0040
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class MsgReader(Value):
    """Reads a mail of Outlook, with the same fields as other mails; attachments and mails in it are its parts."""

    name = "msg"
    version = 3
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
                to=message.text(_TO).split(";"),
                cc=message.text(_CC).split(";"),
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
    """The file while it is open."""
    with installed("mail", "olefile", f"Reading {blob.uri}"):
        import olefile
    with told_as_damage(blob, "MSG"), olefile.OleFileIO(BytesIO(blob.data)) as file:
        if not file.exists("__properties_version1.0"):
            raise DocumentError(f"{blob.uri} is an old Office file, not a mail, although its name says so. Rename it.")
        yield _Storage(blob, file, [])


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
        """The date among the properties of fixed length: 16 bytes each, after a header."""
        name = [*self.path, "__properties_version1.0"]
        data = bytes(self.file.openstream(name).read()) if self.file.exists(name) else b""
        data = data[24 if self.path else 32 :]
        records = struct.iter_unpack("<HHIQ", data[: len(data) // 16 * 16])
        times = {number: value for kind, number, _, value in records if kind == _FILETIME}
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
    out, at = bytearray(_PREFIX), 16
    while at < len(data) and len(out) < _LARGEST_RTF:
        control, at = data[at], at + 1
        for bit in range(8):
            if at >= len(data):
                break
            if not control >> bit & 1:
                out.append(data[at])
                at += 1
                continue
            pair, at = int.from_bytes(data[at : at + 2], "big"), at + 2
            back = (len(out) - (pair >> 4)) % _WINDOW
            if not back:  # a reference to the place where it stands is the end
                return bytes(out[len(_PREFIX) :])
            first = len(out) - back
            for place in range(first, first + (pair & 15) + 2):
                out.append(out[place] if place >= 0 else ord(" "))  # the window begins as blanks
    return bytes(out[len(_PREFIX) :])
