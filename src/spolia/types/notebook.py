"""HTML fragments of values, which a notebook shows in place of their `repr`."""

from collections.abc import Iterable, Sequence

from spolia.deferred import html

LONGEST = 300
"""Characters of a passage that are shown."""


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
    return html.escape(text)
