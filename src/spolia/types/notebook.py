"""HTML fragments of values, which a notebook shows in place of their `repr`."""

from collections.abc import Iterable, Sequence

LONGEST = 300
"""Characters of a passage that are shown."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """An HTML table; every cell is escaped, and long texts are cut.

    >>> table(("rank", "score"), [(1, 0.5)])
    '<table><thead><tr><th>rank</th><th>score</th></tr></thead><tbody><tr><td>1</td><td>0.5</td></tr></tbody></table>'
    """
    shown = "".join(f"<tr>{''.join(_cell(one) for one in row)}</tr>" for row in rows)
    titles = "".join(f"<th>{_escaped(name)}</th>" for name in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{shown}</tbody></table>"


def paragraph(text: str) -> str:
    """A text with its line breaks."""
    return f'<p style="white-space: pre-wrap">{_escaped(text)}</p>'


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    style = ' style="text-align: left; white-space: pre-wrap"' if isinstance(value, str) else ""
    return f"<td{style}>{_escaped(text if len(text) <= LONGEST else text[: LONGEST - 1] + '…')}</td>"


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
