"""No image, script or element of a document is live in an answer; links to the web, code and offsets stay."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.markdown import MarkdownStream, disarm
from tests.cases import check_each

LIVE = [
    "![x](https://evil.example/?q=1)", "![x][ref]", "![ref]", "[![x](https://e/a.png)](https://e)",
    "[x](javascript:alert(1))", "[x]( JaVaScRiPt:alert(1))", "[x](<javascript:alert(1)>)", "[x](java&#115;cript:a)",
    "[x](\njavascript:a)", "[x](&#106;avascript:a)", "[x](java\\script:a)", "[x](data:text/html;base64,AA)",
    "[x](vbscript:a)", "[x](<java\tscript:a>)", "[x]( \t \t" + " " * 80 + "javascript:a)", "[x](file:///etc/passwd)",
    "[r]: javascript:alert(1)", "[r]:\n  data:text/html,a", "<javascript:alert(1)>", "<data:text/html,a>",
    "<img src=x>", "<IMG\nSRC=x>", "<img/src=x>", "<script>a</script>", "<svg>", "<a href=x>", "<x-y style='a'>",
    "<!-- x -->", "<?php x ?>", "<![CDATA[x]]>", "<" + "a" * 80 + " onclick=x>", "</script x>",
    "- ```\n![x](https://e)", "a\n```\n![x](https://e)", "```\na\n   ```\n![x](https://e)",
    "```\na\n```\n\n![x](https://e)", "a\n```\n\n```\n![x](https://e)", " ~~~\n\n~~~\n![x](https://e)",
    "```\r\na\r\n```\r\n![x](https://e)", "<div>\r\n```\r\n\r\n![x](https://e)", "[x](\u00a0javascript:a)",
    "```|a|\n|-|-|\n\n![x](https://e)",
    "<pre>\n\n```\n<img src=x>",
]  # fmt: skip
PLAIN = [
    "[docs](https://example.org/a?b=c)", "[mail](mailto:a@b.c)", "[here](#top)", "[file](a/b.md)", "<https://a.b>",
    "List<String> a < b; x = a[i](b); d[k]: int = 3", "<b>bold</b> and <br>", "see [1] and [2]: both", "!important",
    "```html\n<img src=x>\n```\n", "~~~\n![x](y)\n~~~\n", "a\n```\nb\n```\n\n```html\n<img src=x>\n```\n",
    "```html\r\n<img src=x>\r\n```\r\n", "| a | b |\n|---|---|\n", "x <y", "1 <2 & 3> 2",
]  # fmt: skip


@check_each("text", LIVE)
def test_what_loads_or_runs_is_inert_and_as_long_as_before(text: str) -> None:
    disarmed = disarm(text)
    assert disarmed != text
    assert len(disarmed) == len(text)
    assert disarm(disarmed) == disarmed


@check_each("text", PLAIN)
def test_links_to_the_web_code_and_tables_stay(text: str) -> None:
    assert disarm(text) == text


PIECES = st.lists(
    st.sampled_from(
        [*"![](<>:/`~\n ab&", "](", "javascript:", "https://", "https:/", "\r", "<img ", "```", "\n\n", "data:", "<!"]
    ),
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(PIECES)
def test_a_stream_gives_what_the_whole_text_gives(pieces: list[str]) -> None:
    stream = MarkdownStream()
    text = "".join(map(stream.feed, pieces)) + stream.end()
    assert text == disarm("".join(pieces))


def test_what_is_taken_back_is_counted_as_far_as_it_was_sent() -> None:
    stream = MarkdownStream()
    text = stream.feed("abc") + stream.feed("d!")
    assert (text, stream.retract(2)) == ("abcd", 1)
    assert stream.feed("x") + stream.end() == "x"
