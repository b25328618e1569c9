"""Pages of the web: what is asked, what is not, and what is gone."""

from __future__ import annotations

import gzip
import socket
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from spolia.cli.documents import list_sources
from spolia.errors import SourceError
from spolia.indexing.readers.registry import READERS
from spolia.indexing.sources.web import WebPages
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.report import Progress
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.records import file_meta
from tests.indexing.sources.program_reader import PROGRAM, LetteredReader
from tests.indexing.sources.site import Site, serve_site

pytestmark = pytest.mark.slow


def pages(site: Site, *paths: str, **options: object) -> WebPages:
    start = tuple(site.url(path) for path in paths)
    return WebPages(start, **{"allow": (site.host,), "delay_s": 0.0, **options})  # type: ignore[arg-type]


def texts(corpus: Corpus, site: Site) -> dict[str, str]:
    return {document.uri.removeprefix(site.url("")): document.text for document in corpus.latest().documents()}


def test_pages_are_read_by_what_the_server_says_that_they_are(site: Site, corpus: Corpus) -> None:
    site.set_answer("/a", "<title>T</title><h1>Stones</h1><p>Old.")
    site.set_answer("/b?x=1", "# Roads\n\nLong.", "text/markdown; charset=utf-8")
    site.set_answer("/c.md", "# Salt\n\nWhite.", "text/plain")
    site.set_answer("/d", "Müll".encode("latin-1"), "text/plain; charset=latin-1")
    site.set_answer("/e", b"\x00\x01", "application/x-unheard-of")
    report = sync(pages(site, "/a", "/b?x=1", "/c.md", "/d", "/e"), corpus, workers=0)
    assert texts(corpus, site) == {
        "/a": "Stones\n\nOld.", "/b?x=1": "# Roads\n\nLong.", "/c.md": "# Salt\n\nWhite.", "/d": "Müll",
    }  # fmt: skip
    assert (report.added, report.failed, report.unread) == (4, (), (("application/x-unheard-of", 1),))


def test_a_page_that_lacked_a_program_is_sent_again_when_it_is_there(
    site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.set_answer("/a.rev", "tlasaB", "application/octet-stream")
    site.set_answer("/b", "Two.", "text/plain")
    source, readers = pages(site, "/a.rev", "/b"), [*READERS, LetteredReader()]
    sync(source, corpus, readers=readers)
    assert texts(corpus, site)["/a.rev"] == ""
    monkeypatch.setenv(PROGRAM, "there")
    assert sync(source, corpus, readers=readers).changed == 1
    assert texts(corpus, site) == {"/a.rev": "Basalt", "/b": "Two."}
    assert sync(source, corpus, readers=readers).changed == 0


def test_what_has_not_changed_is_not_sent_again(site: Site, corpus: Corpus) -> None:
    site.set_answer("/a", "One.", "text/plain")
    site.set_answer("/b", "Two.", "text/plain")
    source = pages(site, "/a", "/b")
    sync(source, corpus)
    generation = corpus.latest().generation
    report = sync(source, corpus)
    assert (report.added, report.changed, report.removed, report.failed) == (0, 0, 0, ())
    assert corpus.latest().generation == generation
    site.set_answer("/b", "Two, changed.", "text/plain")
    assert sync(source, corpus).changed == 1
    assert texts(corpus, site) == {"/a": "One.", "/b": "Two, changed."}
    headers = [header for header in site.headers if "If-None-Match" in header]
    assert len(headers) == 4


def test_a_page_that_was_removed_from_the_store_comes_back(site: Site, corpus: Corpus) -> None:
    site.set_answer("/a", "One.", "text/plain")
    sync(pages(site, "/a"), corpus)
    with corpus.writer() as writer:
        writer.remove(site.url("/a"))
    assert sync(pages(site, "/a"), corpus).added == 1


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_is_gone_is_removed(site: Site, corpus: Corpus, status: int) -> None:
    site.set_answer("/a", "One.", "text/plain")
    site.set_answer("/b", "Two.", "text/plain")
    sync(pages(site, "/a", "/b"), corpus)
    site.set_answer("/a", "", status=status)
    report = sync(pages(site, "/a", "/b"), corpus)
    assert (report.removed, report.failed) == (1, ())
    assert texts(corpus, site) == {"/b": "Two."}
    report = sync(pages(site, "/a", "/b"), corpus)
    assert [skipped.uri for skipped in report.skipped] == [site.url("/a")]


def test_a_page_that_fails_stays_and_is_said(site: Site, corpus: Corpus) -> None:
    site.set_answer("/a", "One.", "text/plain")
    site.set_answer("/b", "Two.", "text/plain")
    sync(pages(site, "/a", "/b"), corpus)
    site.set_answer("/a", "", status=503)
    report = sync(pages(site, "/a", "/b"), corpus)
    assert [uri for uri, _ in report.failed] == [site.url("/a")]
    assert "status 503" in report.failed[0][1]
    assert texts(corpus, site) == {"/a": "One.", "/b": "Two."}
    site.set_answer("/a", "One, again.", "text/plain")
    assert sync(pages(site, "/a", "/b"), corpus).failed == ()
    assert texts(corpus, site)["/a"] == "One, again."


def test_links_below_a_place_are_followed_as_deep_as_is_said(site: Site, corpus: Corpus) -> None:
    site.set_answer(
        "/docs/", '<p>Start.<a href="a#part">a</a><a href="/other">o</a><a href="http://127.0.0.1:9/x">x</a>'
    )
    site.set_answer("/docs/a", '<p>First.<a href="./b">b</a> <a rel="nofollow" href="secret">s</a>')
    site.set_answer("/docs/b", '<p>Second.<a href="c">c</a><a href="/docs/">back</a>')
    site.set_answer("/docs/c", "<p>Third.")
    sync(pages(site, "/docs/", depth=2), corpus, workers=0)
    assert sorted(texts(corpus, site)) == ["/docs/", "/docs/a", "/docs/b"]
    site.take_asked_paths()
    report = sync(pages(site, "/docs/", depth=2), corpus, workers=0)  # the links of what has not changed are known
    assert site.take_asked_paths() == ["/docs/", "/docs/a", "/docs/b"]
    assert (report.removed, report.changed) == (0, 0)


def test_a_page_that_nothing_leads_to_any_more_is_removed(site: Site, corpus: Corpus) -> None:
    site.set_answer("/", '<p>Start.<a href="a">a</a><a href="b">b</a>')
    site.set_answer("/a", "<p>A.")
    site.set_answer("/b", "<p>B.")
    sync(pages(site, "/", depth=1), corpus, workers=0)
    site.set_answer("/", '<p>Start.<a href="a">a</a>')
    site.set_answer("/a", "", status=500)
    assert sync(pages(site, "/", depth=1), corpus, workers=0).removed == 0  # what /a leads to is not known
    site.set_answer("/a", "<p>A.")
    assert sync(pages(site, "/", depth=1), corpus, workers=0).removed == 1
    assert sorted(texts(corpus, site)) == ["/", "/a"]


def test_no_more_pages_are_read_than_allowed_and_none_is_taken_for_gone(site: Site, corpus: Corpus) -> None:
    site.set_answer("/", "".join(f'<a href="{number}">{number}</a>' for number in range(20)))
    for number in range(20):
        site.set_answer(f"/{number}", f"<p>Page {number}.")
    sync(pages(site, "/", depth=1), corpus, workers=0)
    assert len(texts(corpus, site)) == 21
    site.take_asked_paths()
    assert sync(pages(site, "/", depth=1, most=5), corpus, workers=0).removed == 0
    assert len(site.take_asked_paths()) == 5


def test_a_sitemap_is_read_with_those_that_it_names(site: Site, corpus: Corpus) -> None:
    space = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
    packed = f"<urlset {space}><url><loc>{site.url('/b')}</loc></url></urlset>".encode()
    site.set_answer("/more.xml.gz", gzip.compress(packed), "application/gzip")
    listed = (
        f"<sitemap><loc>{site.url('/more.xml.gz')}</loc></sitemap><sitemap><loc>{site.url('/s.xml')}</loc></sitemap>"
    )
    site.set_answer("/s.xml", f"<sitemapindex {space}>{listed}</sitemapindex>", "application/xml")
    site.set_answer("/b", "B.", "text/plain")
    source = WebPages(sitemap=site.url("/s.xml"), allow=(site.host,), delay_s=0.0)
    sync(source, corpus)
    assert texts(corpus, site) == {"/b": "B."}
    site.set_answer("/s.xml", "", status=500)
    report = sync(source, corpus)
    assert report.removed == 0
    assert report.failed[0][0] == f"web:{site.url('/s.xml')}"
    assert texts(corpus, site) == {"/b": "B."}


def test_robots_are_respected(site: Site, corpus: Corpus) -> None:
    site.set_answer("/robots.txt", "User-agent: *\nDisallow: /private", "text/plain")
    site.set_answer("/", '<p>Start.<a href="/private/a">p</a><a href="/b">b</a>')
    site.set_answer("/private/a", "Secret.", "text/plain")
    site.set_answer("/b", "Open.", "text/plain")
    report = sync(pages(site, "/", depth=1), corpus, workers=0)
    assert site.take_asked_paths() == ["/", "/b"]
    assert [(skipped.uri, "robots.txt" in skipped.reason) for skipped in report.skipped] == [
        (site.url("/private/a"), True)
    ]


def test_where_robots_cannot_be_read_nothing_is_asked(site: Site, corpus: Corpus) -> None:
    site.set_answer("/robots.txt", "", status=500)
    site.set_answer("/a", "A.", "text/plain")
    report = sync(pages(site, "/a"), corpus)
    assert site.take_asked_paths() == []
    assert "What its site allows is not known" in report.failed[0][1]


def test_a_page_that_leads_to_one_that_is_read_is_not_read_twice(site: Site, corpus: Corpus) -> None:
    site.set_answer("/old", "", status=301, Location="/new")
    site.set_answer("/new", "New.", "text/plain")
    sync(pages(site, "/new", "/old"), corpus)
    assert texts(corpus, site) == {"/new": "New."}


def test_secrets_are_read_from_the_environment_and_not_kept(
    site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.set_answer("/a", "One.", "text/plain")
    source = pages(site, "/a", headers=(("Authorization", "Bearer ${SITE_TOKEN}"),))
    report = sync(source, corpus)
    assert "SITE_TOKEN is not set" in report.failed[0][1]
    monkeypatch.setenv("SITE_TOKEN", "open-sesame")
    sync(source, corpus)
    assert site.headers[-1]["Authorization"] == "Bearer open-sesame"
    assert "open-sesame" not in repr(source)


def test_headers_of_any_name_go_to_the_named_servers_alone(
    site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "open-sesame")
    with serve_site() as other_site:
        for path in ("/page", "/robots.txt", "/sitemap.xml"):
            other_site.set_answer(path, "Elsewhere.", "text/plain")
        listed = "".join(f"<url><loc>{url}</loc></url>" for url in (site.url("/a"), other_site.url("/page")))
        other_site.set_answer("/sitemap.xml", f"<urlset>{listed}</urlset>", "application/xml")
        site.set_answer("/sitemap.xml", "", status=302, Location=other_site.url("/sitemap.xml"))
        site.set_answer("/robots.txt", "", status=302, Location=other_site.url("/robots.txt"))
        site.set_answer("/a", "", status=302, Location=other_site.url("/page"))
        options = {"allow": (site.host, other_site.host), "headers": (("X-Internal-Token", "${SITE_TOKEN}"),)}
        sync(pages(site, "/a", sitemap=site.url("/sitemap.xml"), **options), corpus)
        assert {"/page", "/robots.txt", "/sitemap.xml"} <= set(other_site.asked)
        assert not any("open-sesame" in str(header) for header in other_site.headers)
    assert all(header["X-Internal-Token"] == "open-sesame" for header in site.headers)


# What is not to be asked.


def failure_of(source: WebPages, corpus: Corpus) -> str:
    report = sync(source, corpus)
    assert (report.added, len(report.failed)) == (0, 1)
    return report.failed[0][1]


def test_an_address_of_this_machine_is_not_asked(site: Site, corpus: Corpus) -> None:
    site.set_answer("/a", "Inside.", "text/plain")
    assert "loopback" in failure_of(WebPages((site.url("/a"),), delay_s=0.0), corpus)
    assert site.asked == []


def test_a_redirect_to_this_machine_is_not_followed(site: Site, corpus: Corpus) -> None:
    with serve_site() as inside:
        inside.set_answer("/a", "Inside.", "text/plain")
        site.set_answer("/a", "", status=302, Location=inside.url("/a"))
        assert "loopback" in failure_of(pages(site, "/a"), corpus)
        assert inside.asked == []


def test_a_name_that_leads_to_this_machine_is_not_asked(
    site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.set_answer("/a", "Inside.", "text/plain")
    getaddrinfo = socket.getaddrinfo

    def resolve_name(host: str, *rest: object, **more: object) -> object:
        return getaddrinfo("127.0.0.1" if host == "docs.example" else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_name)
    port = site.host.partition(":")[2]
    assert "loopback" in failure_of(WebPages((f"http://docs.example:{port}/a",), delay_s=0.0), corpus)
    assert site.asked == []


def test_a_server_that_never_ends_is_left(site: Site, corpus: Corpus) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.end_headers()
        while True:
            request.wfile.write(b"more " * 1000)

    site.pages["/a"] = drip
    assert "longer than 100000 bytes" in failure_of(pages(site, "/a", largest_bytes=100_000), corpus)


def test_a_page_that_comes_too_slowly_is_asked_for_once(site: Site, corpus: Corpus) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b".")
            time.sleep(0.05)

    site.pages["/a"] = drip
    assert "Write a larger deadline_s." in failure_of(pages(site, "/a", deadline_s=0.5), corpus)
    assert site.asked.count("/a") == 1


def test_waiting_for_a_server_is_part_of_the_time(site: Site, corpus: Corpus) -> None:
    def slow(request: BaseHTTPRequestHandler) -> None:
        time.sleep(0.3)
        request.send_response(304)
        request.end_headers()

    site.pages["/a"] = slow
    assert sync(pages(site, "/a"), corpus).seconds > 0.3


def test_a_site_without_end_is_read_to_its_bound(site: Site, corpus: Corpus) -> None:
    class Endless(dict):  # type: ignore[type-arg]
        def get(self, path: str, default: object = None) -> object:
            if path == "/robots.txt":
                return default
            site.set_answer(f"{path}", f'<p>Page.<a href="{path}a">next</a>')
            return self[path]

    site.pages = Endless()
    report = sync(pages(site, "/", depth=1_000, most=30), corpus, workers=0)
    assert (report.added, len(site.take_asked_paths())) == (30, 30)


@pytest.mark.parametrize(
    "address",
    ["", "ftp://example.org/", "example.org", "https://ann:pw@example.org/", "file:///etc/passwd", "https://"],
)
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(SourceError):
        WebPages((address,))


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that fail are asked again at once."""
    from spolia.egress import retry

    monkeypatch.setattr(retry, "pause", lambda seconds: None)


def row_of(corpus: Corpus, uri: str) -> tuple[str, int, int, int, int]:
    row = corpus.latest().sources()[uri]
    return row.uri, row.size, row.created_ns, row.mtime_ns, row.accessed_ns


def test_texts_folders_and_pages_live_in_one_store(site: Site, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("In a folder.")
    site.set_answer("/a", "On a site.", "text/plain")
    report = sync([tmp_path / "docs", pages(site, "/a")], corpus)
    assert report.added == 2
    (tmp_path / "docs" / "b.txt").write_text("New in a folder.")
    sync(tmp_path / "docs", corpus)
    assert sorted(item.text for item in corpus.latest().documents()) == [
        "In a folder.",
        "New in a folder.",
        "On a site.",
    ]
    sync(pages(site, "/a"), corpus)
    assert len(list(corpus.latest().documents())) == 3
    plan = planned(tmp_path / "docs", corpus)
    assert (plan.gone, plan.changed, plan.unchanged) == ((), (), 2)
    assert sorted(item.source.uri for item in list_sources(corpus.latest()) if not item.changed) == [site.url("/a")]
    assert "file_modified" not in dict(file_meta(*row_of(corpus, site.url("/a"))))
    assert corpus.latest().check() == []


def test_a_page_below_another_one_is_no_part_of_it(site: Site, corpus: Corpus) -> None:
    site.set_answer("/docs", "Above.", "text/plain")
    site.set_answer("/docs/a", "Below.", "text/plain")
    sync(pages(site, "/docs/a"), corpus)
    sync(pages(site, "/docs"), corpus)
    site.set_answer("/docs", "Above, changed.", "text/plain")
    sync(pages(site, "/docs"), corpus)
    assert texts(corpus, site) == {"/docs": "Above, changed.", "/docs/a": "Below."}
    site.set_answer("/docs", "", status=404)
    sync(pages(site, "/docs"), corpus)
    assert texts(corpus, site) == {"/docs/a": "Below."}


def test_no_more_large_pages_are_in_memory_than_a_lot_holds(
    site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.indexing.sources.source.BYTES_AT_ONCE", 100_000)
    paths = [f"/{number}" for number in range(40)]
    for path in paths:
        site.set_answer(path, f"Stones of {path}. " * 4_000, "text/plain")
    waiting_counts: list[int] = []

    def count(now: Progress) -> None:
        waiting_counts.append(len(site.asked) - len(waiting_counts))

    report = sync(pages(site, *paths, at_once=2), corpus, progress=count)
    assert (report.added, report.failed) == (40, ())
    assert max(waiting_counts) <= 9  # robots.txt, two of a lot, four that are asked for meanwhile, and two that come
    assert site.take_asked_paths() == sorted(paths)
