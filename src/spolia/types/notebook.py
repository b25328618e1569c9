"""Values as people see them: texts that are safe to print, and the HTML fragments that a notebook shows."""

import re
from collections.abc import Iterable, Sequence

LONGEST = 300
"""Characters of a passage that are shown."""
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with control, bidi and other invisible characters written out; line ends and tabs stay.

    >>> print(visible("a\\x1b[31mb\\u202ec\\r\\nd"))
    a\\x1b[31mb\\u202ec
    d
    """
    return UNSAFE.sub(_written, text.replace("\r\n", "\n"))


def _written(found: re.Match[str]) -> str:
    return found[0].encode("ascii", "backslashreplace").decode() if ord(found[0]) > 0x7F else f"\\x{ord(found[0]):02x}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; every cell is escaped, and long texts are cut.

    >>> table(("rank", "score"), [(1, 0.5)])
    '<table><thead><tr><th>rank</th><th>score</th></tr></thead><tbody><tr><td>1</td><td>0.5</td></tr></tbody></table>'
    """
    rows = [*rows]
    shown = "".join(f"<tr>{''.join(_cell(one) for one in row)}</tr>" for row in rows)
    first = rows[0] if rows else head
    titles = "".join(f"<th{_style(one)}>{_escaped(name)}</th>" for name, one in zip(head, first, strict=True))
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{shown}</tbody></table>"


def paragraph(text: str) -> str:
    """A text with its line breaks."""
    return f'<p style="white-space: pre-wrap">{_escaped(text)}</p>'


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"<td{_style(value)}>{_escaped(text if len(text) <= LONGEST else text[: LONGEST - 1] + '…')}</td>"


def _style(value: object) -> str:
    """Texts begin at the left, numbers end at the right, as notebooks have it."""
    return ' style="text-align: left; white-space: pre-wrap"' if isinstance(value, str) else ""


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
