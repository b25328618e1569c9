"""Downloads from untrusted addresses: public addresses only, redirects checked, sizes bounded."""

import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit, urlunsplit

from spolia.egress.exchange import RequestLimits, read_pieces, send_request
from spolia.egress.retry import retry_after_s
from spolia.errors import EgressFailed, EgressRefused
from spolia.types import Value

REDIRECTS = 5
LARGEST_BYTES = 100 * 2**20
_REDIRECT_STATUSES = frozenset([301, 302, 303, 307, 308])
_DENIED_STATUSES = frozenset([401, 403, 404])  # statuses by which servers answer who lacks a key


@dataclass(frozen=True)
class Fetched(Value):
    """Response of a server, after redirects, with names of headers in lower case."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    data: bytes = field(repr=False)

    def header(self, name: str) -> str:
        """Return the value of a header; empty if it is missing."""
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
    """Fetch an address; EgressRefused if asking again makes no sense, EgressFailed if it may help.

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
    trusted = {origin(address) for address in origins or (url,)}
    location = url
    for _ in range(REDIRECTS + 1):
        # Each redirect is judged by itself: headers with keys never follow one to another server.
        is_trusted = origin(location) in trusted
        try:
            request_headers = _merge_headers(headers, bound) if is_trusted else dict(headers or {})
            response = _send_once(location, _requires_public(location, allow), request_headers, largest_bytes, limits)
        except (EgressRefused, EgressFailed) as error:
            lacks_key = bool(bound) and not is_trusted and error.status in _DENIED_STATUSES
            servers = " and ".join(sorted(trusted))
            hint = (
                f" It was asked without the headers {', '.join(bound or ())}, which go to {servers} only."
                if lacks_key
                else ""
            )
            raise type(error)(f"{_describe_hop(location, url)}: {error}{hint}", error.status, error.after_s) from error
        if response.status not in _REDIRECT_STATUSES:
            return response
        previous, location = location, urljoin(location, response.header("location"))
        if previous.startswith("https:") and not location.startswith("https:"):
            raise EgressRefused(
                f"{_describe_hop(location, url)}: it leads from an encrypted address to one that is not."
            )
    raise EgressRefused(f"{_redact_url(url)}: it is a chain of more than {REDIRECTS} redirects.")


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
    public = _requires_public(url, allow)
    if public and not url.startswith("https:"):
        raise EgressRefused(f"{_redact_url(url)}: it is not encrypted. Write https://.")
    limits = RequestLimits(min(deadline_s, 10.0), deadline_s, time.monotonic() + deadline_s)
    try:
        response = _send_once(url, public, headers or {}, largest_bytes, limits, body)
    except (EgressRefused, EgressFailed) as error:
        raise type(error)(f"{_redact_url(url)}: {error}", error.status, error.after_s) from error
    if response.status in _REDIRECT_STATUSES:
        raise EgressRefused(
            f"{_redact_url(url)}: it leads elsewhere. Write the address that it leads to.", response.status
        )
    return response


def _send_once(
    url: str, public: bool, headers: Mapping[str, str], largest: int, limits: RequestLimits, body: bytes | None = None
) -> Fetched:
    """Send one request, a POST if it has a body; a redirect is returned, not followed."""
    with send_request(
        "GET" if body is None else "POST", url, limits, body=body, headers=headers, public=public
    ) as response:
        status = response.status
        reply_headers = tuple((name.lower(), value) for name, value in response.headers.items())
        if status == 304 or (status in _REDIRECT_STATUSES and response.headers.get("location")):
            return Fetched(url, status, reply_headers, b"")
        if status >= 400 or status in _REDIRECT_STATUSES or status < 200:
            raise _status_error(status, dict(reply_headers))
        stated = response.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > largest:
            raise EgressRefused(f"it has {stated} bytes; at most {largest} are taken. Allow more: largest_bytes.")
        kind = response.headers.get("content-encoding", "identity").lower()
        data = b"".join(_decompress(read_pieces(response, largest), kind, largest))
    if stated.isdecimal() and kind == "identity" and len(data) < int(stated):
        raise EgressFailed(f"the connection broke after {len(data)} of {stated} bytes.")
    return Fetched(url, status, reply_headers, data)


def _status_error(status: int, headers: Mapping[str, str]) -> EgressRefused | EgressFailed:
    message, after_s = f"the server answers with status {status}.", retry_after_s(headers)
    if status in (408, 425, 429) or status >= 500:
        return EgressFailed(f"{message} Try again later.", status, after_s)
    return EgressRefused(message, status, after_s)


def _requires_public(url: str, allow: Collection[str]) -> bool:
    """Return whether a URL may only lead to public addresses; EgressRefused if it cannot be fetched."""
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


def _decompress(content: Iterable[bytes], kind: str, largest: int) -> Iterator[bytes]:
    """Decompress the content, since some servers compress it unasked."""
    if kind == "identity":
        yield from content
        return
    if kind not in ("gzip", "x-gzip", "deflate"):
        raise EgressRefused(f"it is compressed as {kind!r}, which is not read.")
    # 47: gzip or zlib, as the header says; 15: zlib
    decompressor, size = zlib.decompressobj(47 if "gzip" in kind else 15), 0
    try:
        for piece in content:
            # One byte over the bound is enough to refuse: a small reply may unpack to gigabytes.
            data = decompressor.decompress(piece, largest - size + 1)
            size += len(data)
            if size > largest:
                raise EgressRefused(f"it unpacks to more than {largest} bytes.")
            yield data
    except zlib.error as error:
        raise EgressFailed(f"its compression is damaged ({error}).") from error
    if not decompressor.eof:
        raise EgressFailed("the connection broke before the reply was complete.")


def origin(url: str) -> str:
    """Return scheme, host and port of an address in one form; what is no address is returned as it is."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None and port != usual else "")


def _merge_headers(headers: Mapping[str, str] | None, bound: Mapping[str, str] | None) -> dict[str, str]:
    """Merge both; those of `bound` replace headers of the same name, in whatever case."""
    replaced = {name.lower() for name in bound or {}}
    unbound = {name: value for name, value in (headers or {}).items() if name.lower() not in replaced}
    return {**unbound, **(bound or {})}


def _redact_url(url: str) -> str:
    """Return an address without user, password, query and fragment, which may be secret."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "…" if parts.query else "", ""))
    except ValueError:
        return repr(url[:100])


def _describe_hop(location: str, url: str) -> str:
    return _redact_url(url) if location == url else f"{_redact_url(url)}, which leads to {_redact_url(location)}"
