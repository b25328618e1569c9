"""Search on the web, by engines on this machine that answer as real ones do, and as they should not."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from spolia.core.function import step
from spolia.egress import retry
from spolia.errors import BudgetSpent, QueryError, SourceError, SourceUnavailable, WiringError
from spolia.evaluation.measures.costs import DocumentsShown, RetrievalCalls, UsedCalls
from spolia.evaluation.measures.measure import Case
from spolia.flow_files.files import dump, load
from spolia.journal import Cache, Runs
from spolia.retrieval.multi_source import MultiSource
from spolia.retrieval.web.engines import Brave, SearchAPI, SearXNG
from spolia.retrieval.web.search import SearchEngine, WebResult, WebSearch
from spolia.run import Run
from spolia.types import Answer, Failure, Hit, Item, Node, Query, Ranking, Value
from tests.egress.test_fetching import says, server

MOON = Query("pull of the moon")
PAGES = [
    {"url": "https://a.example/tide", "title": "Tide", "content": "The <b>pull</b> of the moon &amp; sun"},
    {"url": "https://b.example/", "title": "Moon", "content": "Another page."},
]


def answer_with(body: object, paths: list[str] | None = None) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        if paths is not None:
            paths.append(request.path)
        says(json.dumps(body).encode())(request)

    return answer


def search_server(answer: Callable[[BaseHTTPRequestHandler], None], query: Query = MOON, **options: Any) -> Ranking:
    with server(answer) as host:
        return WebSearch(SearXNG(f"http://{host}", allow=(host,), retries=0, **options))(query)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "pause", lambda seconds: None)


def test_pages_are_nodes_in_the_order_of_the_engine() -> None:
    paths: list[str] = []
    ranking = search_server(answer_with({"results": PAGES}, paths), language="en")
    assert [(hit.node.uri, hit.node.context, hit.node.text, hit.score) for hit in ranking.hits] == [
        ("https://a.example/tide", "Tide", "The pull of the moon & sun", 1.0),
        ("https://b.example/", "Moon", "Another page.", 0.5),
    ]
    assert (ranking.source, ranking.query) == ("web", MOON)
    assert parse_qs(urlsplit(paths[0]).query) == {"q": ["pull of the moon"], "format": ["json"], "language": ["en"]}
    assert ranking.nodes[0].id == search_server(answer_with({"results": PAGES[:1]})).nodes[0].id


def test_brave_is_asked_with_its_key_and_for_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str | None]] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        requests.append((request.path, request.headers["X-Subscription-Token"]))
        page = {"url": "https://a.example/", "title": "A", "description": "Quoted."}
        says(json.dumps({"web": {"results": [page]}}).encode())(request)

    with server(answer) as host:
        engine = Brave("TEST_BRAVE_KEY", f"http://{host}", allow=(host,))
        with pytest.raises(SourceError, match="no key in TEST_BRAVE_KEY"):
            WebSearch(engine)(MOON)
        monkeypatch.setenv("TEST_BRAVE_KEY", "k-123")
        assert WebSearch(engine, 50)(Query("moon " * 200)).nodes[0].text == "Quoted."
    ((path, key),) = requests
    assert key == "k-123"
    query = parse_qs(urlsplit(path).query)
    assert query["count"] == ["20"]
    assert query["q"] == [" ".join(["moon"] * 50)]
    assert "k-123" not in repr(engine) + dump(WebSearch(engine))


def test_at_most_as_many_as_are_wanted_and_each_page_once() -> None:
    rows = [{"url": f"https://a.example/{n % 7}", "title": str(n), "content": "x"} for n in range(30)]
    ranking = search_server(answer_with({"results": rows}))
    assert [node.context for node in ranking.nodes] == list("0123456")
    with server(answer_with({"results": rows})) as host:
        assert len(WebSearch(SearXNG(f"http://{host}", allow=(host,)), top_k=3)(MOON)) == 3


@pytest.mark.parametrize(
    "answer",
    [{"results": []}, {}, [], None, "text", {"results": {"url": "x"}}, {"results": [7, None, []]}, {"results": [{}]}],
)
def test_an_answer_of_another_form_finds_nothing(answer: object) -> None:
    assert search_server(answer_with(answer)).hits == ()


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "/relative", "https://", "https://[", "x" * 5000, 7, None,
            "https://a.example/\n", "https://a.example/" + "x" * 3000]
)  # fmt: skip
def test_what_is_no_page_of_the_web_is_left_out(url: object) -> None:
    assert search_server(answer_with({"results": [{"url": url, "title": "t", "content": "c"}]})).hits == ()


BOMBS = {
    "nested": "<b>" * 500_000 + "deep",
    "entities": "&lt;" * 300_000,
    "open tags": "<a " * 400_000,
    "scripts": "<script>" * 200_000,
    "open script": "<script>while(true){}" + "x" * 900_000,
    "long": "x" * 1_500_000,
    "surrogates": "\ud800" * 100_000,
    "controls": "\x00\x1b" * 100_000,
}


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_of_markup_are_bounded(kind: str) -> None:
    ranking = search_server(
        answer_with({"results": [{"url": "https://a.example/", "title": BOMBS[kind], "content": BOMBS[kind]}]})
    )
    (node,) = ranking.nodes
    assert max(len(node.text), len(node.context)) <= 20_000
    assert "<script" not in node.text
    node.text.encode()


@pytest.mark.slow
def test_an_answer_that_is_too_large_is_refused_also_when_it_is_packed() -> None:
    with pytest.raises(SourceError, match="at most 4000000 are taken"):
        search_server(answer_with({"results": [{"content": "x" * 5_000_000}]}))
    with pytest.raises(SourceError, match="unpacks to more than"):
        search_server(says(gzip.compress(b" " * 50_000_000), Content_Encoding="gzip"))


def test_deep_json_is_no_answer() -> None:
    with pytest.raises(SourceError, match="not JSON"):
        search_server(says(b"[" * 1_000_000))
    with pytest.raises(SourceError, match=r"not JSON; it begins with b'<html>"):
        search_server(says(b"<html>Are you a robot?</html>"))


@pytest.mark.parametrize(("status", "kind"), [(500, SourceUnavailable), (429, SourceUnavailable), (403, SourceError)])
def test_an_engine_that_fails_is_an_error_that_says_whether_it_may_pass(status: int, kind: type[SourceError]) -> None:
    with pytest.raises(SourceError, match=f"status {status}") as raised:
        search_server(says(b"no", status))
    assert type(raised.value) is kind


def test_an_engine_that_fails_once_is_asked_again() -> None:
    answers = [says(b"busy", 503), answer_with({"results": PAGES})]

    def answer(request: BaseHTTPRequestHandler) -> None:
        answers.pop(0)(request)

    with server(answer) as host:
        assert len(WebSearch(SearXNG(f"http://{host}", allow=(host,), retries=1))(MOON)) == 2


@pytest.mark.slow
def test_an_engine_that_hangs_is_given_up() -> None:
    def hangs(request: BaseHTTPRequestHandler) -> None:
        time.sleep(1.0)

    with pytest.raises(SourceUnavailable, match=r"sent nothing for 0.2 s"):
        search_server(hangs, timeout_s=0.2)


@pytest.mark.slow
def test_an_engine_that_drips_is_given_up() -> None:
    def drips(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        for _ in range(20):
            request.wfile.write(b" ")
            time.sleep(0.1)

    with pytest.raises(SourceUnavailable, match="deadline"):
        search_server(drips, deadline_s=0.5)


def test_redirects_within_bounds_and_to_public_addresses_only() -> None:
    with server(answer_with({"results": PAGES})) as other_host:
        redirect = says(b"", 302, Location=f"http://{other_host}/search")
        with pytest.raises(SourceError, match="not a public"):
            search_server(redirect)
        with server(redirect) as host:
            assert len(WebSearch(SearXNG(f"http://{host}", allow=(host, other_host)))(MOON)) == 2
    with pytest.raises(SourceError, match="more than 5 redirects"):
        search_server(says(b"", 302, Location="/again"))


def test_an_empty_question_asks_nobody() -> None:
    with pytest.raises(QueryError, match="empty"):
        WebSearch(SearXNG("https://searx.example.org"))(Query(" "))


def test_nothing_of_the_web_is_cached() -> None:
    paths: list[str] = []
    with server(answer_with({"results": PAGES}, paths)) as host, Run(cache=Cache()):
        for _ in range(2):
            assert len(WebSearch(SearXNG(f"http://{host}", allow=(host,)))(MOON)) == 2
    assert len(paths) == 2


@pytest.mark.parametrize(
    "url", ["ftp://a.example", "https://", "a.example", "https://ann:pw@a.example", "https://a/?k=1"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SourceError, match="base_url"):
        SearXNG(url)


def test_numbers_that_are_too_small_are_refused() -> None:
    with pytest.raises(SourceError, match="too small"):
        SearXNG("https://a.example", timeout_s=0)
    with pytest.raises(WiringError, match="top_k counts from 1"):
        WebSearch(SearXNG("https://a.example"), top_k=0)


def test_addresses_are_written_and_read() -> None:
    for engine in (SearXNG("https://a.example", "de"), Brave("KEY", retries=3)):
        assert isinstance(engine, SearchEngine)
        assert isinstance(engine, SearchAPI)
        assert load(dump(WebSearch(engine, 3)), env=("KEY",)) == WebSearch(engine, 3)


# ------------------------------------------------------------------------------------------------ several sources


def source(name: str, *ids: str) -> Any:
    """A retriever that finds these nodes."""

    def finds(query: Query) -> Ranking:
        return Ranking(query, tuple(Hit(Node(id, id), 1.0 - rank / 10) for rank, id in enumerate(ids)), name)

    finds.__name__ = finds.__qualname__ = f"finds_{name}"
    return step(finds)


@dataclass(frozen=True)
class Down(Value):
    """An engine that is not there."""

    error: str = "unavailable"
    name: str = "down"
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> None:
        return None

    def search(self, query: str, count: int) -> tuple[WebResult, ...]:
        raise {"unavailable": SourceUnavailable, "budget": BudgetSpent}[self.error]("It is down.")


def test_the_preferred_source_comes_first_and_others_only_where_it_lacks() -> None:
    local, web = source("local", "a", "b"), source("web", "b", "c")
    with Run() as run, run.lane() as lane:
        found_ranking = MultiSource((local, web))(MOON)
    assert [(hit.node.id, hit.score, hit.parts) for hit in found_ranking.hits] == [
        ("a", 1.0, (("local", 1.0),)),
        ("b", 0.5, (("local", 0.9),)),
    ]
    assert [ranking.source for ranking in lane.retrievals] == ["local"]
    paired_ranking = MultiSource((local, web), enough=3)(MOON)
    assert [(hit.node.id, hit.parts) for hit in paired_ranking.hits] == [
        ("a", (("local", 1.0),)),
        ("b", (("local", 0.9),)),
        ("c", (("web", 0.9),)),
    ]
    assert len(MultiSource((local, web), enough=None, top_k=1)(MOON)) == 1
    assert [hit.score for hit in paired_ranking.hits] == [1.0, 0.5, pytest.approx(1 / 3)]


def test_calls_and_documents_are_counted_by_source() -> None:
    flow = MultiSource((source("local"), source("web", "w1", "w2"), source("wiki", "x")), enough=2)
    with Run() as run, run.lane() as lane:
        ranking = flow(MOON)
    case = Case(Item("q", MOON.text), Answer("so", evidence=ranking.cut(1)), retrievals=tuple(lane.retrievals))
    counts = {
        name: [measure(source=name).cost(case) for measure in (RetrievalCalls, UsedCalls, DocumentsShown)]
        for name in ("local", "web", "wiki")
    }
    assert counts == {"local": [1, 0, 0], "web": [1, 1, 1], "wiki": [0, 0, 0]}


def test_a_source_that_fails_is_passed_over_and_that_is_recorded(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    with Run(journal=runs.journal) as run, run.lane() as lane:
        ranking = MultiSource((WebSearch(Down()), source("local", "a")))(MOON)
    assert [node.id for node in ranking.nodes] == ["a"]
    assert lane.interrupted
    runs.journal.flush()
    notes = [note for span in runs.journal.spans(run.id) for note in span.notes]
    runs.close()
    assert any("skipped: It is down" in note for note in notes)


def test_all_sources_failing_is_an_error_and_so_is_a_spent_budget() -> None:
    with pytest.raises(SourceUnavailable, match="It is down"):
        MultiSource((WebSearch(Down()), WebSearch(Down(name="other"))))(MOON)
    with pytest.raises(BudgetSpent):
        MultiSource((WebSearch(Down("budget")), source("local", "a")))(MOON)
    with pytest.raises(QueryError):
        MultiSource((WebSearch(Down()), source("local", "a")))(Query(""))


def test_sources_that_find_nothing_give_nothing() -> None:
    assert MultiSource((source("local"), source("web")))(MOON).hits == ()
    rows = MultiSource((source("local", "a"),)).batch([MOON, Query("other")])
    assert not any(isinstance(row, Failure) for row in rows)


def test_what_is_no_source_is_refused() -> None:
    @step
    def text(query: Query) -> str:
        return ""

    with pytest.raises(WiringError, match="at least one source"):
        MultiSource(())
    with pytest.raises(WiringError, match="gives no Ranking"):
        MultiSource((text,))  # type: ignore[arg-type]
    with pytest.raises(WiringError, match="enough counts from 1"):
        MultiSource((source("local"),), enough=0)


def test_it_is_written_and_read() -> None:
    op = MultiSource((WebSearch(SearXNG("https://a.example")), WebSearch(Brave())), enough=5, top_k=4)
    assert load(dump(op)) == op
    assert (
        eval(repr(op), {"MultiSource": MultiSource, "WebSearch": WebSearch, "SearXNG": SearXNG, "Brave": Brave}) == op
    )
