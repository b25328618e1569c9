"""Results of an HTTP API: pages, cursors, and answers that are none."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from spolia.egress import retry
from spolia.errors import SourceError
from spolia.indexing.sources.api import APIItems
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from tests.indexing.sources.site import Site, serve_site


class API:
    """Items, as many on a page as it likes."""

    def __init__(self, site: Site, *, at_once: int = 2, how: str = "link") -> None:
        self.site, self.at_once, self.how = site, at_once, how
        self.items: list[dict[str, Any]] = []
        self.asked: list[str] = []
        site.pages = self  # type: ignore[assignment]

    def get(self, path: str) -> Any:
        def answer(request: BaseHTTPRequestHandler) -> None:
            self.asked.append(path)
            body, headers = self.page({name: values[0] for name, values in parse_qs(urlsplit(path).query).items()})
            data = json.dumps(body).encode()
            request.send_response(200)
            for name, value in headers.items():
                request.send_header(name, value)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)

        return answer if path.startswith("/items") else None

    def page(self, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
        since = query.get("since", "")
        items = sorted((item for item in self.items if item["changed"] >= since), key=lambda one: one["id"])
        page_index = int(query.get("page") or 1) - 1
        page_items, more = (
            items[page_index * self.at_once :][: self.at_once],
            len(items) > (page_index + 1) * self.at_once,
        )
        following = f"/items?since={since}&page={page_index + 2}"
        if self.how == "number":
            return page_items, {}
        if self.how == "header":
            return page_items, {"Link": f'<{following}>; rel="next", <x>; rel="last"'} if more else {}
        body = {
            "data": {"items": page_items},
            "next": (following if self.how == "link" else str(page_index + 2)) if more else None,
        }
        return body, {}

    def put(self, id: int, text: str, changed: str = "2024-01-01", **more: Any) -> None:
        self.items = [item for item in self.items if item["id"] != id]
        self.items.append({"id": id, "body": {"text": text}, "changed": changed, **more})

    def source(self, **how: Any) -> APIItems:
        url = {"number": "?since={cursor}&page={page}", "token": "?since={cursor}&page={page}"}.get(self.how)
        settings = {
            "key": "id",
            "text": "body.text",
            "updated": "changed",
            "allow": (self.site.host,),
            "retries": 1,
            **how,
        }
        if self.how in ("link", "token"):
            settings = {"items": "data.items", "next": "next", **settings}
        return APIItems("notes", **{"url": self.site.url(f"/items{url or '?since={cursor}'}"), **settings})


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.uri.removeprefix("api://notes/"): document.text for document in corpus.latest().documents()}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it would have been waited."""
    seconds: list[float] = []
    monkeypatch.setattr(retry, "pause", seconds.append)
    return seconds


@pytest.mark.slow
@pytest.mark.parametrize("how", ["link", "token", "number", "header"])
def test_all_pages_are_read_and_then_only_what_has_changed(site: Site, corpus: Corpus, how: str) -> None:
    api = API(site, how=how)
    for id in range(5):
        api.put(id, f"Item {id}.", f"2024-01-0{id + 1}")
    assert sync(api.source(), corpus).added == 5
    assert texts(corpus) == {str(id): f"Item {id}." for id in range(5)}
    api.asked.clear()
    api.put(1, "Item 1, changed.", "2024-02-01T10:00:00Z")
    report = sync(api.source(), corpus)
    assert (report.changed, report.removed, report.failed) == (1, 0, ())
    assert "since=2024-01-05" in api.asked[0]
    assert texts(corpus)["1"] == "Item 1, changed."
    sync(api.source(), corpus)
    assert "since=2024-02-01T10%3A00%3A00Z" in api.asked[-1]


@pytest.mark.slow
def test_items_have_titles_metadata_and_may_be_deleted(site: Site, corpus: Corpus) -> None:
    api = API(site)
    api.put(1, "One.", name="First", tags=["a", "b"], gone=False)
    api.put(2, "Two.", name="Second", tags=[], gone=False)
    source = api.source(title="{name}!", metadata=(("tag", "tags"), ("number", "id")), deleted="gone")
    sync(source, corpus)
    item_document = {document.uri: document for document in corpus.latest().documents()}["api://notes/1"]
    assert (item_document.title, item_document.meta) == ("First!", (("tag", "a"), ("tag", "b"), ("number", 1)))
    api.put(1, "", "2024-03-01", gone=True)
    api.items.insert(0, {"id": 1, "body": {"text": "Late."}, "changed": "2024-02-01", "gone": False})  # before its end
    assert sync(source, corpus).removed == 1
    assert texts(corpus) == {"2": "Two."}


@pytest.mark.slow
def test_without_a_cursor_what_is_not_there_is_gone(site: Site, corpus: Corpus) -> None:
    api = API(site)
    for id in range(3):
        api.put(id, f"Item {id}.")
    source = api.source(url=site.url("/items"), updated="")
    sync(source, corpus)
    del api.items[0]
    report = sync(source, corpus)
    assert (report.unchanged, report.removed) == (2, 1)


def test_the_first_run_begins_where_it_is_told(site: Site, corpus: Corpus) -> None:
    api = API(site)
    api.put(1, "Old.", "2020-01-01")
    api.put(2, "New.", "2024-01-01")
    sync(api.source(since="2023-01-01"), corpus)
    assert texts(corpus) == {"2": "New."}


def answer_busy(status: int, times: int, **headers: str) -> Any:
    left = [times]

    def wrap_answer(answer: Any) -> Any:
        def instead(request: BaseHTTPRequestHandler) -> None:
            left[0] -= 1
            if left[0] < 0:
                answer(request)
                return
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name.replace("_", "-"), value)
            request.send_header("Content-Length", "0")
            request.end_headers()

        return instead

    return wrap_answer


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_server_is_asked_again_as_late_as_it_says(
    site: Site, corpus: Corpus, pauses: list[float], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    api = API(site)
    api.put(1, "One.")
    wrap, get = answer_busy(status, 1, Retry_After="7"), api.get
    monkeypatch.setattr(api, "get", lambda path: wrap(get(path)))
    assert sync(api.source(), corpus).added == 1
    assert pauses == [7.0]


def test_a_server_that_asks_to_wait_too_long_or_fails_on_is_left(
    site: Site, corpus: Corpus, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = API(site)
    api.put(1, "One.")
    sync(api.source(), corpus)
    get = api.get
    for wrap, message in (
        (answer_busy(429, 9, Retry_After="86400"), "86400 s"),
        (answer_busy(500, 9), "Tried 2 times"),
    ):
        monkeypatch.setattr(api, "get", lambda path, around=wrap: around(get(path)))
        ((name, reason),) = sync(api.source(), corpus).failed
        assert name == "api://notes/"
        assert message in reason
        assert texts(corpus) == {"1": "One."}
    assert len(pauses) == 1


@pytest.mark.slow
def test_a_run_that_breaks_off_begins_again_where_the_last_whole_one_ended(
    site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = API(site, at_once=1000)
    for id in range(2500):
        api.put(id, f"Item {id}.", f"2024-01-01T00:{id // 60:02}:{id % 60:02}")
    get = api.get
    monkeypatch.setattr(api, "get", lambda path: None if "page=3" in path else get(path))
    report = sync(api.source(), corpus)
    assert (report.added, len(report.failed)) == (2000, 1)
    monkeypatch.setattr(api, "get", get)
    api.asked.clear()
    report = sync(api.source(), corpus)
    assert (report.added, report.unchanged, report.failed) == (500, 2000, ())
    assert api.asked[0] == "/items?since="


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>Log in", "is not JSON"), (b'{"data": {"items": [', "is not JSON"), (b'{"data": 3}', "no list"),
        (b"[" * 100_000, "is not JSON"), (b"", "is not JSON"), (b'{"data": {"items": [{"name": 1}]}}', ""),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_loses_nothing(site: Site, corpus: Corpus, body: bytes, said: str) -> None:
    api = API(site)
    api.put(1, "One.")
    sync(api.source(), corpus)
    site.pages = {}
    site.set_answer("/items?since=2024-01-01", body, "application/json")
    report = sync(api.source(), corpus)
    if said:
        assert said in report.failed[0][1]
    else:
        assert "not a key" in report.skipped[0].reason
    assert texts(corpus) == {"1": "One."}


@pytest.mark.slow
def test_pages_without_end_are_left_at_their_bound(site: Site, corpus: Corpus) -> None:
    class Endless(API):
        def page(self, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
            number = int(query.get("page") or 1)
            item = {"id": number, "body": {"text": f"Item {number}."}, "changed": "2024"}
            return {"data": {"items": [item]}, "next": f"/items?page={number + 1}"}, {}

    api = Endless(site)
    report = sync(api.source(most_pages=20), corpus)
    assert "more than 20 pages" in report.failed[0][1]
    assert len(api.asked) == 20


def test_pages_that_lead_in_a_circle_are_left(site: Site, corpus: Corpus) -> None:
    class Circle(API):
        def page(self, query: dict[str, str]) -> tuple[Any, dict[str, str]]:
            return {"data": {"items": []}, "next": "/items?page=2"}, {}

    assert "in a circle" in sync(Circle(site).source(), corpus).failed[0][1]


def test_a_reply_without_end_is_cut(site: Site, corpus: Corpus) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b"[" * 10_000)

    site.pages["/items"] = drip
    source = APIItems("notes", site.url("/items"), "id", "text", allow=(site.host,), largest_bytes=100_000)
    assert "longer than 100000 bytes" in sync(source, corpus).failed[0][1]


def test_keys_are_sent_to_no_other_host(site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "open-sesame")
    with serve_site() as other_site:
        other_site.set_answer("/items", "[]", "application/json")
        site.set_answer("/items", json.dumps({"list": [], "next": other_site.url("/items")}), "application/json")
        source = APIItems(
            "notes", site.url("/items"), "id", "text", items="list", next="next", allow=(site.host, other_site.host),
            headers=(("Authorization", "Bearer ${API_TOKEN}"),),
        )  # fmt: skip
        ((_, reason),) = sync(source, corpus).failed
        assert "on another host" in reason
        assert "open-sesame" not in reason
        assert other_site.asked == []
    assert site.headers[-1]["Authorization"] == "Bearer open-sesame"


def test_headers_do_not_follow_the_next_page_of_a_server_that_a_redirect_led_to(
    site: Site, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "open-sesame")
    with serve_site() as other_site:
        site.set_answer("/items", "", status=302, Location=other_site.url("/items"))
        other_site.set_answer("/items", json.dumps({"list": [], "next": "/items?page=2"}), "application/json")
        other_site.set_answer("/items?page=2", json.dumps({"list": []}), "application/json")
        source = APIItems(
            "notes", site.url("/items"), "id", "text", items="list", next="next", allow=(site.host, other_site.host),
            headers=(("X-Internal-Token", "${API_TOKEN}"),),
        )  # fmt: skip
        assert sync(source, corpus).failed == ()
        assert other_site.asked == ["/items", "/items?page=2"]
        assert not any("open-sesame" in str(header) for header in other_site.headers)
    assert site.headers[-1]["X-Internal-Token"] == "open-sesame"


def test_an_api_on_this_machine_is_not_asked(site: Site, corpus: Corpus) -> None:
    site.set_answer("/items", "[]", "application/json")
    ((_, reason),) = sync(APIItems("notes", site.url("/items"), "id", "text"), corpus).failed
    assert "loopback" in reason
    assert site.asked == []


@pytest.mark.parametrize(
    "how", [{"url": "nonsense"}, {"name": "a/b"}, {"url": "https://example.org/?since={cursor}"}]
)  # fmt: skip
def test_a_wrong_description_is_refused(how: dict[str, str]) -> None:
    settings = {"name": "notes", "url": "https://example.org/", "key": "id", "text": "text", **how}
    with pytest.raises(SourceError):
        APIItems(**settings)  # type: ignore[arg-type]
