"""HTML fragments of values, which a notebook shows in place of their `repr`."""

from collections.abc import Iterable, Sequence

from spolia.deferred import html

LONGEST = 300
"""Characters of a passage that are shown."""


def render_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Render an HTML table; every cell is escaped, and long texts are cut.

    >>> render_table(("rank", "score"), [(1, 0.5)])
    '<table><thead><tr><th>rank</th><th>score</th></tr></thead><tbody><tr><td>1</td><td>0.5</td></tr></tbody></table>'
    """
    rows = [*rows]
    body = "".join(f"<tr>{''.join(_render_cell(cell) for cell in row)}</tr>" for row in rows)
    first = rows[0] if rows else head  # titles align as the cells below them
    titles = "".join(f"<th{_cell_style(cell)}>{_escape(name)}</th>" for name, cell in zip(head, first, strict=True))
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def render_paragraph(text: str) -> str:
    """Render a text with its line breaks."""
    return f'<p style="white-space: pre-wrap">{_escape(text)}</p>'


def _render_cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"<td{_cell_style(value)}>{_escape(text if len(text) <= LONGEST else text[: LONGEST - 1] + '…')}</td>"


def _cell_style(value: object) -> str:
    """Align texts left, and numbers right, as notebooks do."""
    return ' style="text-align: left; white-space: pre-wrap"' if isinstance(value, str) else ""


def _escape(text: str) -> str:
    return html.escape(text)
