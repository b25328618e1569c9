"""Fetching what an address names that is not trusted: public addresses only, redirects looked at, sizes bounded."""

import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit, urlunsplit

from spolia.egress.exchange import RequestLimits, exchanged, pieces
from spolia.egress.retry import asked_s
from spolia.errors import EgressFailed, EgressRefused
from spolia.types import Value

REDIRECTS = 5
LARGEST_BYTES = 100 * 2**20
_MOVED = frozenset([301, 302, 303, 307, 308])
_REFUSING = frozenset([401, 403, 404])  # statuses by which servers answer who lacks a key


@dataclass(frozen=True)
class Fetched(Value):
    """What a server gave at an address, after redirects, with names of headers in lower case."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    data: bytes = field(repr=False)

    def header(self, name: str) -> str:
        """The value of a header; empty where it is not there."""
        return next((value for key, value in self.headers if key == name.lower()), "")


def fetch(
    url: str,
    *,
    allow: Collection[str] = (),
    headers: Mapping[str, str] | None = None,
    bound: Mapping[str, str] | None = None,
    origins: Collection[str] = (),
    largest_bytes: int = LARGEST_BYTES,
    timeout_s: float = 30.0,
    deadline_s: float = 120.0,
) -> Fetched:
    """Get what is at an address; EgressRefused if asking again makes no sense, EgressFailed if it may help.

    Args:
        allow: hosts whose addresses need not be public, as `wiki.internal` or `localhost:8000`.
        headers: what goes with every request, also to servers that a redirect leads to: nothing secret.
        bound: headers that go only to `origins`, whatever their names: keys, cookies, tokens. They replace those of
            `headers` that have the same name.
        origins: addresses whose servers (scheme, host and port) get `bound`; by default that of `url`.
        largest_bytes: of the content, also after decompression.
        deadline_s: for all of it, with redirects.
    """
    limits = RequestLimits(min(timeout_s, 10.0), timeout_s, time.monotonic() + deadline_s)
    trusted = {origin(one) for one in origins or (url,)}
    at = url
    for _ in range(REDIRECTS + 1):
        keyed = origin(at) in trusted
        try:
            sent = _merged(headers, bound) if keyed else dict(headers or {})
            found = _one(at, _permitted(at, allow), sent, largest_bytes, limits)
        except (EgressRefused, EgressFailed) as error:
            lacking = bool(bound) and not keyed and error.status in _REFUSING
            to = " and ".join(sorted(trusted))
            why = (
                f" It was asked without the headers {', '.join(bound or ())}, which go to {to} only." if lacking else ""
            )
            raise type(error)(f"{_named(at, url)}: {error}{why}", error.status, error.after_s) from error
        if found.status not in _MOVED:
            return found
        before, at = at, urljoin(at, found.header("location"))
        if before.startswith("https:") and not at.startswith("https:"):
            raise EgressRefused(f"{_named(at, url)}: it leads from an encrypted address to one that is not.")
    raise EgressRefused(f"{_shown(url)}: it is a chain of more than {REDIRECTS} redirects.")


def post(
    url: str,
    body: bytes,
    *,
    allow: Collection[str] = (),
    headers: Mapping[str, str] | None = None,
    largest_bytes: int = 65_536,
    deadline_s: float = 15.0,
) -> Fetched:
    """Send a body to an address once, without following redirects; EgressRefused if sending it again makes no sense,
    EgressFailed if it may help.

    Args:
        allow: hosts whose addresses need not be public, and that need no https.
        largest_bytes: of the reply.
    """
    public = _permitted(url, allow)
    if public and not url.startswith("https:"):
        raise EgressRefused(f"{_shown(url)}: it is not encrypted. Write https://.")
    limits = RequestLimits(min(deadline_s, 10.0), deadline_s, time.monotonic() + deadline_s)
    try:
        found = _one(url, public, headers or {}, largest_bytes, limits, body)
    except (EgressRefused, EgressFailed) as error:
        raise type(error)(f"{_shown(url)}: {error}", error.status, error.after_s) from error
    if found.status in _MOVED:
        raise EgressRefused(f"{_shown(url)}: it leads elsewhere. Write the address that it leads to.", found.status)
    return found


def _one(
    url: str, public: bool, headers: Mapping[str, str], largest: int, limits: RequestLimits, body: bytes | None = None
) -> Fetched:
    """One request, a POST if it has a body; a redirect is given as it is."""
    with exchanged(
        "GET" if body is None else "POST", url, limits, body=body, headers=headers, public=public
    ) as response:
        status = response.status
        said = tuple((name.lower(), value) for name, value in response.headers.items())
        if status == 304 or (status in _MOVED and response.headers.get("location")):
            return Fetched(url, status, said, b"")
        if status >= 400 or status in _MOVED or status < 200:
            raise _failed(status, dict(said))
        stated = response.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > largest:
            raise EgressRefused(f"it has {stated} bytes; at most {largest} are taken. Allow more: largest_bytes.")
        kind = response.headers.get("content-encoding", "identity").lower()
        data = b"".join(_decoded(pieces(response, largest), kind, largest))
    if stated.isdecimal() and kind == "identity" and len(data) < int(stated):
        raise EgressFailed(f"the connection broke after {len(data)} of {stated} bytes.")
    return Fetched(url, status, said, data)


def _failed(status: int, headers: Mapping[str, str]) -> EgressRefused | EgressFailed:
    said, after_s = f"the server answers with status {status}.", asked_s(headers)
    if status in (408, 425, 429) or status >= 500:
        return EgressFailed(f"{said} Try again later.", status, after_s)
    return EgressRefused(said, status, after_s)


def _permitted(url: str, allow: Collection[str]) -> bool:
    """Whether only public addresses are allowed for a URL; EgressRefused if it is not one that is fetched."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EgressRefused(f"it is not an address: {error}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EgressRefused("it is not a web address. Write https://HOST/PATH.")
    if parts.username or parts.password:
        raise EgressRefused("it has a user or a password in it. Write them as a header.")
    return parts.hostname not in allow and f"{parts.hostname}:{port}" not in allow


def _decoded(content: Iterable[bytes], kind: str, largest: int) -> Iterator[bytes]:
    """Content as it is without its compression, which was not asked for and is sent by some all the same."""
    if kind == "identity":
        yield from content
        return
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise EgressRefused(f"it is compressed as {kind!r}, which is not read.")
    unpacked, size = zlib.decompressobj(47 if "gzip" in kind else 15), 0
    try:
        for piece in content:
            found = unpacked.decompress(piece, largest - size + 1)
            size += len(found)
            if size > largest:
                raise EgressRefused(f"it unpacks to more than {largest} bytes.")
            yield found
    except zlib.error as error:
        raise EgressFailed(f"its compression is damaged ({error}).") from error
    if not unpacked.eof:
        raise EgressFailed("the connection broke before the reply was complete.")


def origin(url: str) -> str:
    """Scheme, host and port of an address in one form; of what is no address, the address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None and port != usual else "")


def _merged(headers: Mapping[str, str] | None, bound: Mapping[str, str] | None) -> dict[str, str]:
    """Both, without those of the first that the second replaces, in whatever case they are written."""
    replaced = {name.lower() for name in bound or {}}
    kept = {name: value for name, value in (headers or {}).items() if name.lower() not in replaced}
    return {**kept, **(bound or {})}


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))
    except ValueError:
        return repr(url[:100])


def _named(at: str, url: str) -> str:
    return _shown(url) if at == url else f"{_shown(url)}, which leads to {_shown(at)}"
