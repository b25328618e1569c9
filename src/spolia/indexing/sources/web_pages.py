"""What is made of a page of the web: its address in one form, its reader, its links."""

from __future__ import annotations

import codecs
import mimetypes
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urldefrag, urljoin, urlsplit, urlunsplit

from spolia.egress.download import Fetched
from spolia.errors import SourceError
from spolia.indexing.readers.html_elements import DEEPEST, depth_of, flat
from spolia.indexing.readers.reader import FileReader
from spolia.indexing.readers.registry import reader_of
from spolia.indexing.readers.safe_xml import characters, events
from spolia.indexing.sources.source import LONGEST_URI

MOST_LINKS = 5_000
_VAGUE = frozenset(["", "text/plain", "application/octet-stream", "binary/octet-stream", "application/x-download"])
"""What servers say of files that they do not know."""
_ALIASES = {"application/xhtml+xml": "text/html", "text/xml": "application/xml", "text/x-markdown": "text/markdown"}
_ODD = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]|[^\x00-\x7f]")


def normal(url: str, base: str = "") -> str:
    """An address in one form: complete, without a fragment, host in lower case, no port that goes without saying.

    Empty for what is no address of the web, or too long.

    >>> normal("HTTPS://Example.org:443?a=1#b"), normal("../c d", "https://example.org/a/b"), normal("mailto:ann@b.org")
    ('https://example.org/?a=1', 'https://example.org/c%20d', '')
    """
    try:
        parts = urlsplit(urldefrag(urljoin(base, url.strip()))[0])
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    host += f":{port}" if port and port != {"http": 80, "https": 443}[parts.scheme] else ""
    found = urlunsplit((parts.scheme, host, _ascii(parts.path) or "/", _ascii(parts.query), ""))
    return found if len(found) <= LONGEST_URI else ""


def _ascii(text: str) -> str:
    return _ODD.sub(lambda found: quote(found[0], errors="replace"), text)


def host_of(url: str) -> str:
    """Scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def media_type(found: Fetched) -> tuple[str, str]:
    """The kind of content and its encoding, as the server states them.

    >>> media_type(Fetched("http://a/", 200, (("content-type", "Text/HTML; Charset=Latin-1"),), b""))
    ('text/html', 'latin-1')
    """
    said = Message()
    said["content-type"] = found.header("content-type") or "application/octet-stream"
    return _ALIASES.get(said.get_content_type(), said.get_content_type()), (said.get_content_charset() or "").lower()


def page_reader(found: Fetched, readers: Mapping[str, FileReader]) -> FileReader | None:
    """Who reads a page: whoever reads what the server says that it is, else its name tells."""
    kind, _ = media_type(found)
    name = urlsplit(found.url).path.rpartition("/")[2] or "index"
    by_name = reader_of(name, readers)
    if kind in _VAGUE:
        return by_name or (readers.get(".txt") if kind == "text/plain" else None)
    if by_name is not None and by_name.media_type == kind:
        return by_name
    by_kind = next((reader for reader in readers.values() if reader.media_type == kind), None)
    if by_kind is not None:
        return by_kind
    endings = mimetypes.guess_all_extensions(kind, strict=False)
    known = next((readers[ending] for ending in endings if ending in readers), None)
    return known or (by_name if kind.startswith("application/") else None)


def page_bytes(found: Fetched) -> bytes:
    """The content; text whose encoding the server states, which the text need not know, is UTF-8 with its mark.

    >>> page = Fetched("http://a/", 200, (("content-type", "text/plain; charset=latin-1"),), b"M\\xfcll")
    >>> page_bytes(page).decode("utf-8-sig")
    'Müll'
    """
    kind, charset = media_type(found)
    if not charset or not (kind.startswith("text/") or kind.endswith("xml")):
        return found.data
    try:
        codec = codecs.lookup(charset)
        if codec.name in ("utf-8", "ascii") or not getattr(codec, "_is_text_encoding", True):
            return found.data
        return codecs.BOM_UTF8 + codec.decode(found.data, "replace")[0].encode("utf-8", "replace")
    except (LookupError, ValueError):
        return found.data


def changed_s(found: Fetched) -> float | None:
    """When it was changed last, in seconds since 1970; None where the server does not say."""
    try:
        return parsedate_to_datetime(found.header("last-modified")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def links(found: Fetched) -> tuple[str, ...]:
    """Where a page of HTML leads to, in order and each once; links that ask not to be followed are left out."""
    if media_type(found)[0] != "text/html":
        return ()
    from selectolax.lexbor import LexborHTMLParser

    html = found.data.decode("utf-8", "replace")
    tree = LexborHTMLParser(flat(html) if depth_of(html) > DEEPEST else html)
    bases = tree.css("base[href]")
    base = urljoin(found.url, bases[0].attributes.get("href") or "") if bases else found.url
    leads: dict[str, None] = {}
    for node in tree.css("a[href], area[href]"):
        if "nofollow" not in (node.attributes.get("rel") or "").lower():
            if url := normal(node.attributes.get("href") or "", base):
                leads[url] = None
            if len(leads) >= MOST_LINKS:
                break
    return tuple(leads)


MOST_SITEMAPS, MOST_LOCATIONS, LARGEST_SITEMAP = 100, 50_000, 60_000_000


def listed(url: str, fetched: Callable[[str], Fetched]) -> Iterator[str]:
    """Addresses of pages that a sitemap lists, and those that it names, on its own host.

    Args:
        fetched: what is at an address.
    """
    todo, seen = deque([url]), set[str]()
    while todo:
        if (at := todo.popleft()) in seen:
            continue
        seen.add(at)
        for is_sitemap, location in locations(_unpacked(fetched(at), at), at):
            if host_of(location) != host_of(url):
                continue
            if not is_sitemap:
                yield location
            elif len(seen) + len(todo) < MOST_SITEMAPS:
                todo.append(location)


def locations(data: bytes, url: str) -> Iterator[tuple[bool, str]]:
    """What a sitemap lists (sitemaps.org): whether it is another sitemap, and its address.

    Raises:
        SourceError: it is no XML that can be read.
    """
    found: list[tuple[bool, str]] = []
    text: list[str] | None = None
    within = ""

    def start(name: str, said: dict[str, str]) -> None:
        nonlocal text, within
        plain = name.rpartition("}")[2]
        if plain in ("url", "sitemap"):
            within = plain
        text = [] if plain == "loc" else text

    def end(name: str) -> None:
        nonlocal text
        if name.rpartition("}")[2] == "loc" and text is not None:
            if (location := normal("".join(text), url)) and len(found) < MOST_LOCATIONS:
                found.append((within == "sitemap", location))
            text = None

    events(characters(data, url).text, url, start, end, lambda words: text.append(words) if text is not None else None)
    if not found and b"<" not in data[:1000]:
        raise SourceError(f"{url} is no sitemap.")
    yield from found


def _unpacked(found: Fetched, url: str) -> bytes:
    """A sitemap as it is before it was packed, which many are."""
    if not found.data.startswith(b"\x1f\x8b"):
        return found.data
    unpacking = zlib.decompressobj(31)
    try:
        data = unpacking.decompress(found.data, LARGEST_SITEMAP)
    except zlib.error as error:
        raise SourceError(f"{url} is damaged: {error}.") from error
    if unpacking.unconsumed_tail:
        raise SourceError(f"{url} unpacks to more than {LARGEST_SITEMAP} bytes, more than a sitemap may have.")
    return data
