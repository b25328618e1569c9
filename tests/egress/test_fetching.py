"""What is fetched, and above all what is not."""

from __future__ import annotations

import gzip
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from spolia.egress.addresses import nonpublic_kind, open_socket
from spolia.egress.download import Fetched, fetch
from spolia.errors import EgressFailed, EgressRefused
from tests.cases import check_each

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """A server on this machine; its host and port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with suppress(ConnectionError):
                answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as new_server:
        new_server.daemon_threads = True
        thread = threading.Thread(target=new_server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{new_server.server_address[1]}"
        finally:
            new_server.shutdown()
            thread.join()


def says(
    body: bytes = b"Stones.", status: int = 200, stated: int | None = None, **headers: str
) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(body) if stated is None else stated))
        request.send_header("Connection", "close")  # else a client may use it again that moment
        request.end_headers()
        request.wfile.write(body)

    return answer


def got(answer: Answer, **options: object) -> Fetched:
    with server(answer) as host:
        return fetch(f"http://{host}/a?b=secret", allow=(host,), **options)  # type: ignore[arg-type]


def test_what_is_there_is_fetched() -> None:
    fetched = got(says(ETag='"1"'))
    assert (fetched.status, fetched.data, fetched.header("ETag")) == (200, b"Stones.", '"1"')
    assert got(says(b"", 304)).status == 304


@pytest.mark.parametrize("later_s", [0.0, 0.01])
def test_a_reply_that_nobody_asked_for_is_never_that_to_the_next_request(later_s: float) -> None:
    """If it comes before the next request: HTTP/1.1 says of no reply what it answers."""
    reply, ports = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n%b", list[int]()

    def answer(request: BaseHTTPRequestHandler) -> None:
        ports.append(request.client_address[1])
        for content in (b"asked.", b"stale."):
            request.wfile.write(reply % content)
            time.sleep(later_s)

    with server(answer) as host:
        for _ in range(3):
            assert fetch(f"http://{host}/", allow=(host,)).data == b"asked."
            time.sleep(0.1)
    assert len(set(ports)) == 3 or not later_s


@check_each(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"), ("127.8.9.10", "loopback"), ("::1", "loopback"), ("10.1.2.3", "private"),
        ("172.16.0.1", "private"), ("192.168.1.1", "private"), ("169.254.169.254", "link-local"),
        ("fe80::1%eth0", "link-local"), ("fd00::1", "private"), ("0.0.0.0", "unspecified"), ("::", "unspecified"),
        ("100.64.0.1", "reserved"), ("224.0.0.1", "multicast"), ("255.255.255.255", "private"),
        ("::ffff:127.0.0.1", "loopback"), ("::ffff:169.254.169.254", "link-local"), ("64:ff9b::a00:1", "private"),
        ("2002:7f00:1::", "loopback"), ("::10.0.0.1", "private"), ("192.0.2.1", "private"),
        ("93.184.215.14", ""), ("2606:4700::1111", ""), ("64:ff9b::5db8:d70e", ""),
    ],
)  # fmt: skip
def test_kinds_of_addresses(address: str, kind: str) -> None:
    assert nonpublic_kind(address) == kind


@check_each(
    "url",
    [
        "http://127.0.0.1:{port}/", "http://localhost:{port}/", "http://[::1]:{port}/", "http://0.0.0.0:{port}/",
        "http://2130706433:{port}/", "http://0x7f.1:{port}/", "http://127.1:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
    ],
)  # fmt: skip
def test_no_address_of_this_machine_is_asked_however_it_is_written(url: str) -> None:
    paths = []
    with (
        server(lambda request: paths.append(request.path)) as host,
        pytest.raises((EgressRefused, EgressFailed)) as error,
    ):
        fetch(url.format(port=host.partition(":")[2]))
    assert paths == []
    if "localhost" in url or "/127" in url:
        assert "loopback" in str(error.value)
        assert "allow=" in str(error.value)


@check_each(
    "url",
    ["file:///etc/passwd", "ftp://example.org/", "http://", "no address", "http://a:b@example.org/", "http://[::1/"],
)
def test_what_is_no_address_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(EgressRefused):
        fetch(url)


def test_a_redirect_to_an_address_that_is_not_allowed_is_not_followed() -> None:
    paths = []
    with server(lambda request: paths.append(request.path)) as inside:
        with pytest.raises(EgressRefused, match=r"leads to.*loopback"):
            got(says(b"", 302, Location=f"http://{inside}/admin"))
        assert paths == []


def test_redirects_are_followed_within_bounds() -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        reply = says() if request.path == "/b" else says(b"", 302, Location="/b")
        reply(request)

    assert got(answer).url.endswith("/b")
    with pytest.raises(EgressRefused, match="more than 5 redirects"):
        got(says(b"", 302, Location="/again"))


def test_bound_headers_go_to_their_server_alone_whatever_they_are_called() -> None:
    received: list[tuple[str, str | None, str | None]] = []

    def second(request: BaseHTTPRequestHandler) -> None:
        received.append(("second", request.headers["X-Internal-Token"], request.headers["X-Kind"]))
        says(b"", 307, Location=f"http://{first}/end")(request)

    def begin(request: BaseHTTPRequestHandler) -> None:
        received.append(("first", request.headers["X-Internal-Token"], request.headers["X-Kind"]))
        (says() if request.path == "/end" else says(b"", 307, Location=f"http://{second_host}/"))(request)

    with server(second) as second_host, server(begin) as first:
        fetch(f"http://{first}/", allow=(first, second_host), headers={"X-Kind": "a"}, bound={"X-Internal-Token": "k"})
    assert received == [("first", "k", "a"), ("second", None, "a"), ("first", "k", "a")]


def test_a_bound_header_replaces_one_of_the_same_name_only_where_it_goes() -> None:
    agents: list[str | None] = []

    def end(request: BaseHTTPRequestHandler) -> None:
        agents.append(request.headers["User-Agent"])
        says()(request)

    with server(end) as host:
        options: dict[str, object] = {"headers": {"User-Agent": "spolia"}, "bound": {"user-agent": "mine"}}
        fetch(f"http://{host}/", allow=(host,), **options)  # type: ignore[arg-type]
        fetch(f"http://{host}/", allow=(host,), origins=("https://example.org",), **options)  # type: ignore[arg-type]
    assert agents == ["mine", "spolia"]


def test_a_refusal_says_which_headers_were_kept_back() -> None:
    with (
        server(says(b"", 401)) as second,
        server(says(b"", 307, Location=f"http://{second}/")) as first,
        pytest.raises(EgressRefused, match=r"401.*without the headers X-Token, which go to http://\S+ only"),
    ):
        fetch(f"http://{first}/", allow=(first, second), bound={"X-Token": "k"})


def test_the_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that first gives a public address and then another one has no second time."""
    hosts: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *rest: object, **options: object) -> object:
        hosts.append(host)
        address = "93.184.215.14" if len(hosts) > 1 else "127.0.0.1"
        return real(address if host == "rebinding.example" else host, port, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(EgressRefused, match="loopback"):
        fetch("http://rebinding.example/")
    assert hosts == ["rebinding.example"]


def test_of_several_addresses_those_that_are_not_public_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **options: object) -> object:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ("10.0.0.1", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(EgressRefused, match=r"10.0.0.1 \(private\), 127.0.0.1 \(loopback\)"):
        open_socket("both.example", 80, 1.0, public=True)


def test_what_is_too_large_is_not_taken() -> None:
    with pytest.raises(EgressRefused, match="has 2000000000 bytes; at most 1000"):
        got(says(b"short", stated=2_000_000_000), largest_bytes=1000)
    with pytest.raises(EgressRefused, match="longer than 1000 bytes"):
        got(endless, largest_bytes=1000)
    bomb = gzip.compress(bytes(10_000_000))
    with pytest.raises(EgressRefused, match="unpacks to more than 1000000 bytes"):
        got(says(bomb, Content_Encoding="gzip"), largest_bytes=1_000_000)


def endless(request: BaseHTTPRequestHandler) -> None:
    """Without a length, and without an end."""
    request.send_response(200)
    request.end_headers()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        request.wfile.write(b"stones " * 100)
    request.close_connection = True


def slowly(request: BaseHTTPRequestHandler) -> None:
    """A byte now and then, so that no read waits long."""
    request.send_response(200)
    request.end_headers()
    for _ in range(200):
        request.wfile.write(b".")
        time.sleep(0.05)
    request.close_connection = True


def silently(request: BaseHTTPRequestHandler) -> None:
    time.sleep(3)
    request.close_connection = True


@pytest.mark.slow
def test_a_server_that_never_ends_is_left() -> None:
    with pytest.raises(EgressFailed, match="deadline"):
        got(slowly, deadline_s=0.5)
    with pytest.raises(EgressFailed, match=r"sent nothing for 0\.3 s"):
        got(silently, timeout_s=0.3)


def test_a_reply_that_breaks_off_is_none() -> None:
    with pytest.raises(EgressFailed, match="broke"):
        got(says(b"half", stated=100))
    with pytest.raises(EgressFailed, match=r"broke|damaged"):
        got(says(gzip.compress(b"stones" * 100)[:-20], Content_Encoding="gzip"))


def test_compression_that_nobody_asked_for() -> None:
    assert got(says(gzip.compress(b"Stones."), Content_Encoding="gzip")).data == b"Stones."
    assert got(says(zlib.compress(b"Stones."), Content_Encoding="deflate")).data == b"Stones."
    with pytest.raises(EgressRefused, match="'br'"):
        got(says(b"x", Content_Encoding="br"))


@pytest.mark.parametrize(
    ("status", "error"), [(404, EgressRefused), (403, EgressRefused), (503, EgressFailed), (429, EgressFailed)]
)
def test_what_the_server_says_no_to(status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"status {status}") as caught:
        got(says(status=status))
    assert "secret" not in str(caught.value)


def test_an_encrypted_address_does_not_lead_to_an_open_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = Fetched("https://a.example/", 302, (("location", "http://a.example/"),), b"")
    monkeypatch.setattr("spolia.egress.download._send_once", lambda *given: fetched)
    with pytest.raises(EgressRefused, match="encrypted"):
        fetch("https://a.example/")


def test_a_closed_port_is_a_failure() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{bound.getsockname()[1]}"
    with pytest.raises(EgressFailed, match="no connection"):
        fetch(f"http://{host}/", allow=(host,))
