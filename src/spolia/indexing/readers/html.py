"""HTML: the main content as text, in the order of the page, with its headings."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Any

from spolia.indexing.readers.decoding import decoded
from spolia.indexing.readers.elements import AROUND, AROUND_ROLES, HEADINGS, LINES, NEVER, PARAGRAPHS
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.nesting import DEEPEST, depth_of, flat
from spolia.indexing.readers.reading import Blob, Reading
from spolia.types import Value

_CHARSET = re.compile(rb"<meta[^<>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_MAIN_SHARE = 0.1


@dataclass(frozen=True)
class HtmlReader(Value):
    """Reads HTML: `main` or the only `article` if the page has one, else the body without what stands around it.

    >>> page = b"<title>T</title><nav>Menu</nav><h1>Stones &amp; sand</h1><p>A<b>b</b>c.<script>x()</script>"
    >>> document = HtmlReader().read(Blob("a.html", page)).document
    >>> document.title, document.text
    ('T', 'Stones & sand\\n\\nAbc.')
    """

    name = "html"
    version = 1
    media_type = "text/html"
    suffixes = (".html", ".htm", ".xhtml")

    def read(self, blob: Blob, /) -> Reading:
        from selectolax.lexbor import LexborHTMLParser

        characters = decoded(blob.data, blob.uri, _declared(blob.data))
        html, warnings = characters.text, characters.warnings
        if (depth := depth_of(html)) > DEEPEST:
            html = flat(html)
            warnings += (f"Its elements are nested {depth} deep; it was read without its structure.",)
        tree = LexborHTMLParser(html)
        layout = _content(tree)
        title = _title(tree) or next((heading.text for heading in layout.headings if heading.level == 1), "")
        document = blob.document(self, layout.text(), title=title, headings=tuple(layout.headings))
        return Reading(document, characters.encoding, warnings=warnings)


def words_of(html: str) -> str:
    """The text of a piece of a page, whatever it is cut from.

    >>> words_of("</b> and sand</p><ul><li>One<script>x()</script>")
    'and sand\\n\\n- One'
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(flat(html) if depth_of(html) > DEEPEST else html)
    return _walked(tree.body or tree.root, NEVER).text()


def _declared(data: bytes) -> str:
    """The encoding that the page says it has; empty if it does not, or not one that is known."""
    found = _CHARSET.search(data, 0, 4096)
    try:
        return codecs.lookup(found[1].decode()).name if found else ""
    except LookupError:
        return ""


def _title(tree: Any) -> str:
    found = tree.css_first("title")
    return " ".join(found.text().split()) if found is not None else ""


def _content(tree: Any) -> Layout:
    body = tree.body or tree.root
    whole = _walked(body, NEVER | AROUND)
    mains = tree.css("main") or tree.css('[role="main"]') or tree.css("article")
    if len(mains) == 1:
        main = _walked(mains[0], NEVER | {"nav"})
        if len(main) > len(whole) * _MAIN_SHARE:
            return main
    return whole if len(whole) else _walked(body, NEVER)


def _walked(root: Any, skipped: frozenset[str] | set[str]) -> Layout:
    """The text below an element; without recursion, since pages nest as deep as they like."""
    layout = Layout()
    todo: list[Any] = [root] if root is not None else []
    first = True
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            _leave(layout, node)
            continue
        if not first and (following := node.next) is not None:
            todo.append(following)
        tag = node.tag
        if tag == "-text":
            layout.write(node.text_content or "")
        elif first or not (tag in skipped or tag[0] in "-!" or _is_hidden(node, skipped)):
            _enter(layout, tag)
            todo.append(tag)
            if (child := node.child) is not None:
                todo.append(child)
        first = False
    return layout


def _is_hidden(node: Any, skipped: frozenset[str] | set[str]) -> bool:
    said = node.attributes
    if not said:
        return False
    style = (said.get("style") or "").replace(" ", "").lower()
    around = "aside" in skipped and said.get("role") in AROUND_ROLES
    return around or "hidden" in said or "display:none" in style or "visibility:hidden" in style


def _enter(layout: Layout, tag: str) -> None:
    if tag in PARAGRAPHS:
        layout.gap(BLANK_LINE)
    elif tag in LINES:
        layout.gap(LINE)
    if tag in HEADINGS:
        layout.open_heading()
    elif tag == "li":
        layout.write("- ", exactly=True)
    elif tag == "tr":
        layout.beside = False
    elif tag in ("td", "th"):
        layout.cell()
    elif tag == "pre":
        layout.exact += 1


def _leave(layout: Layout, tag: str) -> None:
    if tag in HEADINGS:
        layout.close_heading(HEADINGS[tag])
    elif tag == "pre":
        layout.exact -= 1
    elif tag in ("td", "th"):
        layout.beside = True
    if tag in PARAGRAPHS:
        layout.gap(BLANK_LINE)
    elif tag in LINES:
        layout.gap(LINE)
