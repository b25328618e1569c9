"""What addresses, keys, templates and values of sources stand for."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from spolia.egress.download import Fetched
from spolia.errors import SourceError
from spolia.indexing.readers.reader import Blob
from spolia.indexing.readers.text import TextReader
from spolia.indexing.sources.records import (
    RecordReader,
    encode_record,
    fill_template,
    names_in,
    scalars,
    seconds_of,
    uri_of,
    value_at,
)
from spolia.indexing.sources.source import changed_at, with_secrets
from spolia.indexing.sources.web_pages import Robots, media_type, normalize_url, page_bytes


def test_a_path_leads_into_json() -> None:
    reply = {"data": {"items": [{"id": 7}]}}
    assert (value_at(reply, "data.items.0.id"), value_at(reply, "data.next"), value_at(reply, "")) == (
        7,
        None,
        reply,
    )


def test_a_record_is_read_as_it_was_written() -> None:
    blob = Blob("sql://notes/1", encode_record("Stones.", "On stones", (("year", 2020),)))
    document = RecordReader(TextReader()).read(blob).document
    assert (document.text, document.title, document.meta) == ("Stones.", "On stones", (("year", 2020),))


def test_a_template_names_values() -> None:
    assert (names_in("{title}: {body}"), names_in("body")) == (("title", "body"), ("body",))
    assert fill_template("{title}: {body}", {"title": "One", "body": None}.get) == "One: "


def test_values_are_metadata_and_times() -> None:
    assert scalars(["a", 2, None]) == ("a", 2)
    assert (scalars(Decimal("1.5")), scalars(date(2020, 1, 2))) == ((1.5,), ("2020-01-02",))
    assert (seconds_of("2001-09-09T01:46:40Z"), seconds_of("last week")) == (1e9, None)
    assert changed_at(1e9, b"a") // 10**9 == 10**9
    assert changed_at(1e9, b"a") != changed_at(1e9, b"b")
    assert changed_at(None, b"a") < 0


def test_a_key_stands_in_a_uri() -> None:
    assert uri_of("sql://notes/", "a 1") == "sql://notes/a 1"
    assert uri_of("sql://notes/", "a\n%") == "sql://notes/a%0A%25"


def test_a_secret_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOLIA_TESTED", "abc")
    assert with_secrets("Bearer ${SPOLIA_TESTED}") == "Bearer abc"
    with pytest.raises(SourceError, match=r"SPOLIA_NOT_SET is not set\. Write: export SPOLIA_NOT_SET=…"):
        with_secrets("${SPOLIA_NOT_SET}")


def test_robots_are_told_what_they_may_read() -> None:
    robots = Robots("User-agent: *\nDisallow: /private\nAllow: /private/open\nCrawl-delay: 2")
    assert not robots.allows("https://example.org/private/a")
    assert robots.allows("https://example.org/private/open/a")
    assert robots.delay_s == 2.0


def test_an_address_has_one_form() -> None:
    assert normalize_url("HTTPS://Example.org:443?a=1#b") == "https://example.org/?a=1"
    assert normalize_url("../c d", "https://example.org/a/b") == "https://example.org/c%20d"
    assert normalize_url("mailto:ann@b.org") == ""


def test_a_page_is_read_in_the_encoding_that_its_server_states() -> None:
    page = Fetched("http://a/", 200, (("content-type", "Text/Plain; Charset=Latin-1"),), b"M\xfcll")
    assert media_type(page) == ("text/plain", "latin-1")
    assert page_bytes(page).decode("utf-8-sig") == "Müll"
