"""Mails, boxes of mails, and Outlook's MSG: an OLE compound file of MAPI properties ([MS-OXMSG])."""

import codecs
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import EmailMessage, Message
from email.utils import format_datetime, getaddresses, parsedate_to_datetime
from functools import partial
from io import BytesIO
from mimetypes import guess_extension
from typing import Any

from spolia.deferred import olefile
from spolia.errors import DocumentError, EncryptedDocument, require
from spolia.indexing.readers.calendars import write_events
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.html import read_html
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.package import report_damage
from spolia.indexing.readers.office.rtf import rtf_text
from spolia.indexing.readers.pictures.linked_images import LinkedPictures
from spolia.indexing.readers.reader import Blob, Reading, signature_of
from spolia.indexing.readers.text import decode, python_encoding
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Meta, Value

_UNSAFE_IN_NAMES = re.compile("[\x00-\x1f\x7f/\\\\\ud800-\udfff]+")
_LONGEST_NAME = 200


class AttachmentNames:
    """Names of the attachments of a mail, each different.

    >>> names = AttachmentNames()
    >>> names.assign("../a.pdf", ""), names.assign(".._a.pdf", "")
    ('.._a.pdf', '.._a-2.pdf')
    >>> names.assign("", "text/plain"), names.assign(" ", "message/rfc822")
    ('attachment-3.txt', 'attachment-4.eml')
    """

    def __init__(self) -> None:
        self._count = 0
        self._used: set[str] = set()

    def assign(self, stated_name: str, media_type: str) -> str:
        """Return a sender's name for an attachment, without path parts; if it gives none, a number and a suffix."""
        self._count += 1
        # Cut at the front: the suffix chooses the reader.
        name = _UNSAFE_IN_NAMES.sub("_", stated_name).strip()[-_LONGEST_NAME:]
        if not name.strip("._ "):
            suffix = ".eml" if media_type.startswith("message/") else guess_extension(media_type) or ""
            name = f"attachment-{self._count}{suffix}"
        if name in self._used:
            stem, dot, suffix = name.rpartition(".")
            name = f"{stem or name}-{self._count}{dot}{suffix}" if dot else f"{name}-{self._count}"
        self._used.add(name)
        return name


_ENCRYPTED_TYPES = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")
_BOMS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MOST_PARTS = 1000
_LONGEST_HEADER = 20_000
_LONG_HEADER = re.compile(
    rb"^(content-(?:type|disposition)):(?:[^\r\n]|\r?\n[ \t]){%d}" % _LONGEST_HEADER, re.IGNORECASE | re.MULTILINE
)
"""The time that the standard library takes for the parameters of these grows with the square of their number."""


@dataclass(frozen=True)
class EmlReader(Value):
    """Reader of mails: the headers, then all texts. A text in several forms is read from the plain one, or the HTML
    if that has no words; invitations have the fields of their events. Attachments are its parts.

    Fields: `sender`, `to`, `cc`, `date`, `message_id`, `in_reply_to`; the subject is the title.

    >>> mail = b"From: Ann <ann@a.org>\\nSubject: Stones\\nDate: Mon, 5 Oct 2026 10:00:00 +0200\\n\\nThey are here.\\n"
    >>> document = EmlReader().read(Blob("a.eml", mail)).document
    >>> document.title, document.meta[0]
    ('Stones', ('sender', 'Ann <ann@a.org>'))
    >>> document.text
    'From: Ann <ann@a.org>\\nSubject: Stones\\nDate: Mon, 5 Oct 2026 10:00:00 +0200\\n\\nThey are here.'
    """

    name = "mail"
    version = 3
    media_type = "message/rfc822"
    suffixes = (".eml", ".mht", ".mhtml")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        message = _parse_mail(blob)
        bodies, attachments = _split_bodies(message)
        layout, encodings, warnings = Layout(), dict[str, None](), dict[str, None]()

        def write(body: Message) -> None:
            source = decode(_decode_content(body), blob.uri, python_encoding(str(body.get_content_charset() or "")))
            encodings[source.encoding] = None
            warnings.update(dict.fromkeys(source.warnings))
            _write_body(layout, body, source.text)

        _write_headers(layout, {name: _header(message, name) for name in _SHOWN_HEADERS})
        for body in bodies:
            layout.attempt("text", partial(write, body))
        layout.resolve_pictures(LinkedPictures(blob.uri))
        return layout.build_reading(
            self,
            blob,
            title=_header(message, "Subject"),
            meta=layout.failures.attempt("metadata part", lambda: _read_meta(message), ()),
            encoding=", ".join(encodings),
            dropped={"attachments": max(0, len(attachments) - _MOST_PARTS)},
            warnings=tuple(warnings),
        )

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the attachments, and mails within the mail."""
        message = _parse_mail(blob)
        names, failures = AttachmentNames(), UnitFailures()
        for part in _split_bodies(message)[1][:_MOST_PARTS]:
            name = names.assign(_filename(part), part.get_content_type())
            if (data := failures.attempt("attachment", partial(_decode_content, part), None)) is not None:
                yield Blob(f"{blob.uri}/{name}", data)
        failures.raise_any(blob.uri)


_SHOWN_HEADERS = ("From", "To", "Cc", "Subject", "Date")


def _write_headers(layout: Layout, headers: Mapping[str, str]) -> None:
    """Write who wrote to whom of what and when, so that it is searched."""
    for name, value in headers.items():
        if value:
            layout.gap(LINE)
            layout.write(f"{name}: {value}")
    layout.gap(BLANK_LINE)


def _parse_mail(blob: Blob) -> Message:
    data = blob.data.lstrip(b" \t\r\n")
    if data.startswith(_BOMS):
        data = decode(data, blob.uri).text.encode()
    if (signature := signature_of(blob.data[:64])) is not None:
        raise DocumentError(f"{blob.uri} is {signature.description}, not a mail, although its name says so. Rename it.")
    if long_header := _LONG_HEADER.search(data):
        raise DocumentError(
            f"{blob.uri} has a header {long_header[1].decode()} of more than {_LONGEST_HEADER} bytes: it may be made "
            "to keep its reader busy. Save it again as the server has it."
        )
    try:
        # The newer policy parses each header when it is asked for, and raises on many that are damaged.
        message = message_from_bytes(data, policy=policy.compat32)
    except (RecursionError, ValueError, LookupError, AttributeError, MessageError) as error:
        raise DocumentError(f"{blob.uri} is not a readable mail: {type(error).__name__}: {error}") from error
    if not message.keys():
        raise DocumentError(
            f"{blob.uri} is not a readable mail: it has no header, and begins with {blob.data[:20]!r}. "
            "Save it again as the server has it."
        )
    is_signed = message.get_param("smime-type") in ("signed-data", "certs-only")
    if message.get_content_type() in _ENCRYPTED_TYPES and not is_signed:
        raise EncryptedDocument(f"{blob.uri} is encrypted (S/MIME or PGP). Save a copy that is not.")
    return message


_TEXTS = ("text/plain", "text/html", "text/calendar")
_DEEPEST = 50


def _split_bodies(message: Message) -> tuple[list[Message], list[Message]]:
    """Return the texts and the attachments of a mail, both in its order."""
    attachments: list[Message] = []
    bodies = _collect_bodies(message, attachments, 0)
    if not any(map(_has_words, bodies)):  # it has only a text of a kind that is no body elsewhere
        only_text = next(
            (part for part in attachments if part.get_content_maintype() == "text" and _is_inline(part)), None
        )
        if only_text is not None:
            attachments.remove(only_text)
            bodies = [only_text]
    return bodies, attachments


def _collect_bodies(part: Message, attachments: list[Message], depth: int) -> list[Message]:
    """Return the texts in a part of a mail; add attachments to `attachments`."""
    children = _children(part)
    # Each level is a level of Python's stack.
    if children is not None and part.get_content_maintype() == "multipart" and depth < _DEEPEST:
        child_bodies = [_collect_bodies(child, attachments, depth + 1) for child in children]
        if part.get_content_type() == "multipart/alternative":
            return _choose_bodies(child_bodies)
        return [body for bodies in child_bodies for body in bodies]
    if part.get_content_type() in _TEXTS and _is_inline(part):
        return [part] if _has_words(part) else []
    if part.get_content_type() != "text/x-amp-html":
        attachments.append(part)
    return []


def _choose_bodies(alternatives: Sequence[list[Message]]) -> list[Message]:
    """Choose among texts with the same content: plain ones, else the first. Invitations are added: they say more."""
    bodies = [[part for part in texts if part.get_content_type() != "text/calendar"] for texts in alternatives]
    plain = (texts for texts in bodies if any(part.get_content_type() == "text/plain" for part in texts))
    preferred = next(plain, next((texts for texts in bodies if texts), []))
    events = [part for texts in alternatives for part in texts if part.get_content_type() == "text/calendar"]
    return [*preferred, *events]


def _is_inline(part: Message) -> bool:
    is_named = _filename(part) and part.get_content_type() != "text/calendar"
    return part.get_content_disposition() != "attachment" and not is_named


def _has_words(part: Message) -> bool:
    return bool(_decode_content(part).strip())


def _write_body(layout: Layout, body: Message, text: str) -> None:
    layout.gap(BLANK_LINE)
    kind = body.get_content_type()
    if kind == "text/html":
        layout.append(read_html(text))
    elif kind == "text/calendar":
        write_events(layout, text)
    else:
        text = text.replace("\r\n", "\n")
        if str(body.get_param("format") or "").lower() == "flowed":
            text = _join_flowed(text, delete_space=str(body.get_param("delsp") or "").lower() == "yes")
        layout.write(text.strip(), is_exact=True)
    layout.gap(BLANK_LINE)


def _join_flowed(text: str, *, delete_space: bool) -> str:
    """Join the lines that a program broke: those that end with a blank (RFC 3676)."""
    lines: list[str] = []
    quotes, is_open = 0, False
    for line in text.split("\n"):
        words = line.lstrip(">")
        depth = len(line) - len(words)
        words = words.removeprefix(" ")
        if is_open and depth == quotes:
            needs_blank = lines[-1][-1:].isascii() and lines[-1][-1:].isalnum() and words[:1].isalnum()
            lines[-1] += f" {words}" if needs_blank else words  # the sender forgot the blank between two words
        else:
            lines.append(f"{'>' * depth} {words}" if depth else words)
        is_open = words.endswith(" ") and words != "-- "
        lines[-1] = lines[-1][:-1] if is_open and delete_space else lines[-1]
        quotes = depth
    return "\n".join(lines)


def _decode_content(part: Message) -> bytes:
    """Decode the content of a part; of a mail within a mail, return the source. It is empty if it is too damaged to be
    written again."""
    content: object = b""
    with suppress(ValueError, LookupError, AssertionError, MessageError):
        if (children := _children(part)) is not None:
            content = b"\n\n".join(child.as_bytes() for child in children)
        else:
            content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _children(part: Message) -> list[Message] | None:
    """Return the parts of a part; None if it has none, not even empty ones."""
    return [child for child in part.get_payload() if isinstance(child, Message)] if part.is_multipart() else None


def _filename(part: Message) -> str:
    with suppress(ValueError, LookupError, TypeError, MessageError):
        return part.get_filename() or ""
    return ""


def _header(message: Message, name: str) -> str:
    return _decode_header(message.get(name, ""))


def _decode_header(value: Any) -> str:
    text = str(value)
    # Decoding a longer header keeps the library busy.
    if "=?" in text and len(text) <= _LONGEST_HEADER:
        with suppress(ValueError, LookupError, TypeError, MessageError):
            text = str(make_header(decode_header(text)))
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _read_meta(message: Message) -> Meta:
    return fields(
        sender=_header(message, "From"),
        to=_addresses(message, "To"),
        cc=_addresses(message, "Cc"),
        date=_date(message),
        message_id=_header(message, "Message-ID"),
        in_reply_to=_header(message, "In-Reply-To"),
    )


def _addresses(message: Message, name: str) -> list[str]:
    headers = [_decode_header(header) for header in message.get_all(name, [])]
    try:
        pairs = getaddresses(headers)
    except (ValueError, IndexError, MessageError):
        return headers
    # Mails to long lists would make metadata larger than their text.
    return [f"{person} <{address}>" if person and address else person or address for person, address in pairs[:1000]]


def _date(message: Message) -> datetime | str:
    text = _header(message, "Date")
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return text


_BEGIN = b"From "
_QUOTED_BEGIN = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_LINE = 1 << 20
LARGEST_MAIL = 200_000_000
"""Bytes of a mail at most."""


@dataclass(frozen=True)
class MboxReader(Value):
    """Reader of mailboxes. Their mails are parts, `box.mbox/1.eml` and so on."""

    name = "mbox"
    version = 1
    media_type = "application/mbox"
    suffixes = (".mbox", ".mbx")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        with blob.open() as file:
            begin = file.read(len(_BEGIN))
        if begin != _BEGIN:
            raise DocumentError(f"{blob.uri} is not a mailbox: it begins with {begin!r}, not with 'From '. Rename it.")
        return Reading(blob.document(self, ""))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the mails one by one, so that the box is never in memory."""
        self.read(blob)
        lines, size, number = list[bytes](), 0, 0
        is_after_blank = True
        with blob.open() as file:
            # A file without line breaks would fill the memory.
            while line := file.readline(_LONGEST_LINE):
                # Without an empty line above, `From ` is text of the mail.
                if is_after_blank and line.startswith(_BEGIN):
                    if number:
                        yield _make_part(blob, number, lines)
                    lines, size, number = [], 0, number + 1
                else:
                    lines.append(line)
                    size += len(line)
                    if size > LARGEST_MAIL:
                        raise DocumentError(
                            f"{blob.uri}: mail {number} has more than {LARGEST_MAIL} bytes. Take it out."
                        )
                is_after_blank = not line.strip()
        yield _make_part(blob, number, lines)


def _make_part(blob: Blob, number: int, lines: list[bytes]) -> Blob:
    return Blob(f"{blob.uri}/{number}.eml", _QUOTED_BEGIN.sub(rb"\1", b"".join(lines)))


_SUBJECT, _BODY, _HTML, _RTF, _CLASS, _MESSAGE_ID = "0037", "1000", "1013", "1009", "001A", "1035"
_SENDER, _SENDER_MAIL, _SENDER_SMTP, _TO, _CC = "0C1A", "0C1F", "5D01", "0E04", "0E03"
_NAME, _SHORT_NAME, _DATA, _TYPE = "3707", "3704", "3701", "370E"
_TIMES = (0x0039, 0x0E06)  # when it was sent, when it came
_FILETIME = 0x0040
_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class MsgReader(Value):
    """Reader of Outlook's mails, with the same fields as other mails. Attachments and mails in it are its parts."""

    name = "msg"
    version = 4
    media_type = "application/vnd.ms-outlook"
    suffixes = (".msg",)
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        with _open_message(blob) as message:
            if message.text(_CLASS).lower().startswith("ipm.note.smime") and not message.text(_BODY):
                raise EncryptedDocument(f"{blob.uri} is encrypted (S/MIME). Save a copy that is not.")
            layout, subject = Layout(), " ".join(message.text(_SUBJECT).split())
            attempt = layout.failures.attempt
            date = attempt("metadata part", message.date, None)
            sent_date = format_datetime(date) if date else ""
            people = {"From": message.sender(), "To": message.text(_TO), "Cc": message.text(_CC)}
            _write_headers(layout, {**people, "Subject": subject, "Date": sent_date})
            layout.attempt("text", lambda: layout.append(message.read_body()))
            layout.resolve_pictures(LinkedPictures(blob.uri))
            meta = fields(
                sender=people["From"],
                to=people["To"].split(";"),
                cc=people["Cc"].split(";"),
                date=date,
                message_id=message.text(_MESSAGE_ID),
            )
            return layout.build_reading(self, blob, title=subject, meta=meta)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the attachments; a mail within the mail in a form that any reader of mails reads."""
        names, failures = AttachmentNames(), UnitFailures()
        with _open_message(blob) as message:
            for attachment in message.attachments():
                part = failures.attempt("attachment", partial(_read_attachment, blob, attachment, names), None)
                if part is not None:
                    yield part
        failures.raise_any(blob.uri)


def _read_attachment(blob: Blob, attachment: "_Storage", names: AttachmentNames) -> Blob:
    if attachment.is_mail:
        mail = attachment.substorage(f"__substg1.0_{_DATA}000D").to_eml()
        return Blob(f"{blob.uri}/{names.assign('', 'message/rfc822')}", mail)
    name = names.assign(attachment.text(_NAME) or attachment.text(_SHORT_NAME), attachment.text(_TYPE))
    return Blob(f"{blob.uri}/{name}", attachment.stream(f"{_DATA}0102"))


@contextmanager
def _open_message(blob: Blob) -> Iterator["_Storage"]:
    """Open the file as a storage of MAPI properties."""
    require(olefile, f"Reading {blob.uri}")
    with report_damage(blob, "MSG"), olefile.OleFileIO(BytesIO(blob.data)) as file:
        if not file.exists("__properties_version1.0"):
            raise DocumentError(f"{blob.uri} is an old Office file, not a mail, although its name says so. Rename it.")
        yield _Storage(blob, file, [])


@dataclass(frozen=True)
class _Storage:
    """Message or attachment: the place of its properties in the file."""

    blob: Blob
    file: Any
    path: list[str]

    def substorage(self, name: str) -> "_Storage":
        return _Storage(self.blob, self.file, [*self.path, name])

    def stream(self, property: str) -> bytes:
        """Return the bytes of a property; none if it is absent."""
        name = [*self.path, f"__substg1.0_{property}"]
        if not self.file.exists(name) or self.file.get_type(name) != 2:
            return b""
        return bytes(self.file.openstream(name).read())

    def text(self, property: str) -> str:
        if wide := self.stream(f"{property}001F"):
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        narrow = self.stream(f"{property}001E").rstrip(b"\0")
        return decode(narrow, self.blob.uri).text if narrow else ""

    def read_body(self) -> Layout:
        """Read the body: as plain text, else as HTML, else as RTF."""
        layout = Layout()
        plain = self.text(_BODY).strip()
        html = self.stream(f"{_HTML}0102") or self.text(_HTML).encode()
        if not plain and html.strip():
            return read_html(decode(html.rstrip(b"\0"), self.blob.uri).text)
        if not plain and (packed := self.stream(f"{_RTF}0102")):
            plain = rtf_text(unpack_rtf(packed))
        layout.write(plain.replace("\r\n", "\n").replace("\r", "\n"), is_exact=True)
        return layout

    def sender(self) -> str:
        name, mail = self.text(_SENDER).strip(), (self.text(_SENDER_SMTP) or self.text(_SENDER_MAIL)).strip()
        return f"{name} <{mail}>" if name and "@" in mail and name != mail else name or mail

    def date(self) -> datetime | None:
        """Return the date among the properties of fixed length: 16 bytes each, after a header."""
        name = [*self.path, "__properties_version1.0"]
        data = bytes(self.file.openstream(name).read()) if self.file.exists(name) else b""
        # The header of the outermost message is 8 bytes longer ([MS-OXMSG], 2.4.1).
        data = data[24 if self.path else 32 :]
        records = struct.iter_unpack("<HHIQ", data[: len(data) // 16 * 16])
        times = {number: value for kind, number, _, value in records if kind == _FILETIME}
        filetime = next((times[number] for number in _TIMES if times.get(number)), 0)
        try:
            return _EPOCH + timedelta(microseconds=filetime // 10) if filetime else None
        except OverflowError:
            return None

    def attachments(self) -> "Iterator[_Storage]":
        names = {
            entry[len(self.path)]
            for entry in self.file.listdir(streams=True, storages=True)
            if entry[: len(self.path)] == self.path and len(entry) > len(self.path)
        }
        for name in sorted(name for name in names if name.startswith("__attach_version1.0_"))[:_MOST_PARTS]:
            yield self.substorage(name)

    @property
    def is_mail(self) -> bool:
        return bool(self.file.exists([*self.path, f"__substg1.0_{_DATA}000D"]))

    def to_eml(self) -> bytes:
        """Convert the message, without its attachments, to an internet mail."""
        mail = EmailMessage()
        for name, value in (("From", self.sender()), ("To", self.text(_TO))):
            # The library refuses addresses with other characters; the text has them in its headers.
            mail[name] = " ".join(value.encode("ascii", "ignore").decode().split())
        mail["Subject"] = " ".join(self.text(_SUBJECT).split())
        if (date := self.date()) is not None:
            mail["Date"] = date
        mail.set_content(self.read_body().text())
        return mail.as_bytes()


_PREFIX = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript "
    b"\\fdecor MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n"
    b"\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx"
)
_WINDOW = 4096
_LARGEST_RTF = 100_000_000


def unpack_rtf(data: bytes) -> bytes:
    """Unpack RTF from the LZ77 compression of Outlook ([MS-OXRTFCP])."""
    if data[8:12] == b"MELA":  # stored as it is, without compression
        return data[16:]
    out, position = bytearray(_PREFIX), 16
    while position < len(data) and len(out) < _LARGEST_RTF:
        control, position = data[position], position + 1
        for bit in range(8):
            if position >= len(data):
                break
            if not control >> bit & 1:
                out.append(data[position])
                position += 1
                continue
            pair, position = int.from_bytes(data[position : position + 2], "big"), position + 2
            distance = (len(out) - (pair >> 4)) % _WINDOW
            if not distance:  # a reference to the place where it stands is the end
                return bytes(out[len(_PREFIX) :])
            first = len(out) - distance
            for place in range(first, first + (pair & 15) + 2):
                out.append(out[place] if place >= 0 else ord(" "))  # the window begins as blanks
    return bytes(out[len(_PREFIX) :])
