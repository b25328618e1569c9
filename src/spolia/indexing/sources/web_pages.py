"""Pages of the web: what robots.txt allows (RFC 9309), addresses, readers, links, sitemaps."""

import codecs
import mimetypes
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import parsedate_to_datetime
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit, urlunsplit

from spolia.deferred import lexbor
from spolia.egress.download import Fetched
from spolia.egress.retry import pause
from spolia.errors import SourceError
from spolia.indexing.readers.html import DEEPEST, depth_of, flatten
from spolia.indexing.readers.reader import FileReader, for_web, reader_of
from spolia.indexing.readers.safe_xml import decode_xml, report_events
from spolia.indexing.sources.source import LONGEST_URI
from spolia.types import Value, lazy_property

LARGEST_ROBOTS_BYTES = 512_000  # RFC 9309 asks for 500 KiB at least
LONGEST_DELAY_S = 30.0


@dataclass(frozen=True)
class Robots(Value):
    """The rules of a site for one program; `text` is its file, and without one everything is allowed.

    The longest rule that fits a path counts, and of two that are equally long the one that allows; `*` stands for
    anything, `$` for the end.
    """

    text: str = ""
    agent: str = "spolia"

    def allows(self, url: str) -> bool:
        parts = urlsplit(url)
        path = _normalize_path(parts.path or "/") + (f"?{_normalize_path(parts.query)}" if parts.query else "")
        fitting = [(len(rule), allows) for rule, allows in self._rules if _matches(rule, path)]
        return max(fitting, default=(0, True))[1]

    @lazy_property
    def delay_s(self) -> float:
        """Return the seconds between two requests, where the site says so; not more than 30."""
        for name, value in self._lines:
            if name == "crawl-delay":
                try:
                    return min(max(float(value), 0.0), LONGEST_DELAY_S)
                except ValueError:
                    continue
        return 0.0

    @lazy_property
    def _rules(self) -> list[tuple[str, bool]]:
        rule_lines = (line for line in self._lines if line[0] in ("allow", "disallow") and line[1])
        return [(_normalize_path(path), name == "allow") for name, path in rule_lines]

    @lazy_property
    def _lines(self) -> list[tuple[str, str]]:
        """Return the lines for this program: those under its name, else those for all."""
        by_agent: dict[str, list[tuple[str, str]]] = {"*": []}
        agents, in_head = set[str](), False
        for name, value in _split_lines(self.text):
            if name == "user-agent":
                agents = agents if in_head else set()
                agents.add(agent := value.lower().split("/")[0].strip())
                by_agent.setdefault(agent, [])
            else:
                for agent in agents:
                    by_agent[agent].append((name, value))
            in_head = name == "user-agent"
        return by_agent.get(self.agent, by_agent["*"])


def _split_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.lstrip("\ufeff").splitlines():
        name, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield name.strip().lower(), value.strip()


def _normalize_path(path: str) -> str:
    """Return a path in one spelling of the many that it may have."""
    return quote(unquote(path), safe="/*$?=&%:@!,;~'()+")


def _matches(rule: str, path: str) -> bool:
    first, *pieces = rule.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    position = len(first)
    for piece in pieces[:-1] if rule.endswith("$") else pieces:
        if (start := path.find(piece, position)) < 0:
            return False
        position = start + len(piece)
    if not rule.endswith("$"):
        return True
    return path.endswith(pieces[-1]) and len(path) - len(pieces[-1]) >= position if pieces else len(path) == position


class Turns:
    """Turns of threads that ask several hosts."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    def wait(self, host: str, delay_s: float) -> None:
        """Wait for a turn; the next one comes `delay_s` seconds later."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next.get(host, now))
            self._next[host] = start + delay_s
        if start > now:
            pause(start - now)  # outside the lock: other hosts need not wait


MOST_LINKS = 5_000
_VAGUE = frozenset(["", "text/plain", "application/octet-stream", "binary/octet-stream", "application/x-download"])
"""What servers say of files that they do not know."""
_ALIASES = {"application/xhtml+xml": "text/html", "text/xml": "application/xml", "text/x-markdown": "text/markdown"}
_ODD = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]|[^\x00-\x7f]")


def normalize_url(url: str, base: str = "") -> str:
    """Return an address in one form: complete, without a fragment, host in lower case, without its default port.

    Empty for an invalid web address, or one that is too long.
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
    address = urlunsplit((parts.scheme, host, _quote_odd(parts.path) or "/", _quote_odd(parts.query), ""))
    return address if len(address) <= LONGEST_URI else ""


def _quote_odd(text: str) -> str:
    return _ODD.sub(lambda match: quote(match[0], errors="replace"), text)


def host_of(url: str) -> str:
    """Return scheme, host and port of an address."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def media_type(page: Fetched) -> tuple[str, str]:
    """Return the kind of content and its encoding, as the server states them."""
    message = Message()
    message["content-type"] = page.header("content-type") or "application/octet-stream"
    return _ALIASES.get(message.get_content_type(), message.get_content_type()), (
        message.get_content_charset() or ""
    ).lower()


def page_reader(page: Fetched, readers: Mapping[str, FileReader]) -> FileReader | None:
    """Return the reader of a page: by the media type that the server names, else by the page's name. Of HTML, which is
    mostly menus and banners on the web, it reads the main content."""
    reader = _find_reader(page, readers)
    return for_web(reader) if reader is not None else None


def _find_reader(page: Fetched, readers: Mapping[str, FileReader]) -> FileReader | None:
    kind, _ = media_type(page)
    name = urlsplit(page.url).path.rpartition("/")[2] or "index"
    by_name = reader_of(name, readers)
    if kind in _VAGUE:
        return by_name or (readers.get(".txt") if kind == "text/plain" else None)
    if by_name is not None and by_name.media_type == kind:
        return by_name
    by_kind = next((reader for reader in readers.values() if reader.media_type == kind), None)
    if by_kind is not None:
        return by_kind
    endings = mimetypes.guess_all_extensions(kind, strict=False)
    by_ending = next((readers[ending] for ending in endings if ending in readers), None)
    return by_ending or (by_name if kind.startswith("application/") else None)


def page_bytes(page: Fetched) -> bytes:
    """Return the content; text in an encoding that the server states becomes UTF-8 with its mark."""
    kind, charset = media_type(page)
    if not charset or not (kind.startswith("text/") or kind.endswith("xml")):
        return page.data
    try:
        codec = codecs.lookup(charset)
        # "base64" and "zip" are codecs of Python's, too.
        if codec.name in ("utf-8", "ascii") or not getattr(codec, "_is_text_encoding", True):
            return page.data
        # The mark tells the reader that a `charset` in the text itself is outdated.
        return codecs.BOM_UTF8 + codec.decode(page.data, "replace")[0].encode("utf-8", "replace")
    except (LookupError, ValueError):
        return page.data


def last_modified_s(page: Fetched) -> float | None:
    """Return when it was changed last, in seconds since 1970; None where the server does not say."""
    try:
        return parsedate_to_datetime(page.header("last-modified")).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def find_links(page: Fetched) -> tuple[str, ...]:
    """Return where a page of HTML leads to, in order and each once; links that ask not to be followed are left out."""
    if media_type(page)[0] != "text/html":
        return ()

    html = page.data.decode("utf-8", "replace")
    tree = lexbor.LexborHTMLParser(flatten(html) if depth_of(html) > DEEPEST else html)
    bases = tree.css("base[href]")
    base = urljoin(page.url, bases[0].attributes.get("href") or "") if bases else page.url
    leads: dict[str, None] = {}
    for node in tree.css("a[href], area[href]"):
        if "nofollow" not in (node.attributes.get("rel") or "").lower():
            if url := normalize_url(node.attributes.get("href") or "", base):
                leads[url] = None
            if len(leads) >= MOST_LINKS:
                break
    return tuple(leads)


# sitemaps.org allows 50,000 addresses and 50 MB.
MOST_SITEMAPS, MOST_LOCATIONS, LARGEST_SITEMAP = 100, 50_000, 60_000_000


def list_sitemap(url: str, fetch: Callable[[str], Fetched]) -> Iterator[str]:
    """Yield addresses of pages in a sitemap and in the sitemaps that it names on its host; `fetch` asks for them."""
    todo, seen_urls = deque([url]), set[str]()
    while todo:
        if (sitemap := todo.popleft()) in seen_urls:
            continue
        seen_urls.add(sitemap)
        for is_sitemap, location in parse_sitemap(_unpack(fetch(sitemap), sitemap), sitemap):
            if host_of(location) != host_of(url):
                continue
            if not is_sitemap:
                yield location
            elif len(seen_urls) + len(todo) < MOST_SITEMAPS:
                todo.append(location)


def parse_sitemap(data: bytes, url: str) -> Iterator[tuple[bool, str]]:
    """Yield what a sitemap lists (sitemaps.org): whether it is another sitemap, and its address."""
    entries: list[tuple[bool, str]] = []
    text: list[str] | None = None
    element = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal text, element
        plain = name.rpartition("}")[2]
        if plain in ("url", "sitemap"):
            element = plain
        text = [] if plain == "loc" else text

    def end(name: str) -> None:
        nonlocal text
        if name.rpartition("}")[2] == "loc" and text is not None:
            if (location := normalize_url("".join(text), url)) and len(entries) < MOST_LOCATIONS:
                entries.append((element == "sitemap", location))
            text = None

    report_events(
        decode_xml(data, url).text, url, start, end, lambda words: text.append(words) if text is not None else None
    )
    if not entries and b"<" not in data[:1000]:
        raise SourceError(f"{url} is not a sitemap.")
    yield from entries


def _unpack(page: Fetched, url: str) -> bytes:
    """Decompress a sitemap; many are compressed."""
    if not page.data.startswith(b"\x1f\x8b"):
        return page.data
    unpacking = zlib.decompressobj(31)  # 31: with the head of gzip
    try:
        data = unpacking.decompress(page.data, LARGEST_SITEMAP)  # a small file may unpack to any size
    except zlib.error as error:
        raise SourceError(f"{url} is damaged: {error}.") from error
    if unpacking.unconsumed_tail:
        raise SourceError(f"{url} unpacks to more than {LARGEST_SITEMAP} bytes, more than a sitemap may have.")
    return data
