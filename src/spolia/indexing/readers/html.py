"""HTML: the text of a page, by what its elements mean."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

from spolia.deferred import lexbor, trafilatura
from spolia.indexing.readers.file_metadata import fields, split
from spolia.indexing.readers.layout import BLANK_LINE, LINE, SPACE, Layout, LayoutTable, Mark, span
from spolia.indexing.readers.pictures.linked_images import Linked
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import decoded, encoding_called
from spolia.types import Meta, Value


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


NEVER = _tags(
    "script style noscript template head title svg canvas iframe object audio video select datalist textarea button "
    "dialog map"
)
"""Their text is not read."""
AROUND = _tags("nav aside footer header")
"""They stand around the main content."""
_OF_ARTICLES = _tags("aside footer header")
AROUND_ROLES = _tags("navigation banner contentinfo complementary search")
LINES = _tags("br div li tr dt dd option figcaption caption address summary")
"""They begin and end a line."""
PARAGRAPHS = _tags(
    "p h1 h2 h3 h4 h5 h6 ul ol dl table pre blockquote section article hr header footer main aside nav figure form "
    "fieldset details"
)
"""They have a blank line before and after them."""
HEADINGS = {f"h{level}": level for level in range(1, 7)}
SINGLE = _tags(
    "area base br col embed hr img input link meta source track wbr p li dt dd tr td th thead tbody tfoot option html "
    "body head"
)
"""They are void, or end by themselves, so that many of them are not many levels."""


DEEPEST = 2_000
"""Elements within elements. The parser's time grows with the square of the depth; browsers stop at 512."""
_TAG = re.compile(r"<(/?)([a-zA-Z][\w:-]{0,40})[^<>]*>")
_KEPT = frozenset(["script", "style", "head", "title", "noscript", "template", "nav", "p", "br"])


def depth_of(html: str) -> int:
    """How deep elements are nested at most, estimated from above.

    >>> depth_of("<div><p>One<p>Two<br></div><div></div>")
    1
    """
    depth = deepest = 0
    for tag in _TAG.finditer(html):
        if tag[2].lower() in SINGLE or tag[0].endswith("/>"):
            continue
        if tag[1]:
            depth = max(0, depth - 1)
        else:
            depth += 1
            deepest = max(deepest, depth)
    return deepest


def flat(html: str) -> str:
    """The page without all tags but those that keep text out or begin a paragraph.

    >>> flat("<div><b>Text</b><script>x</script></div>").split()
    ['Text', '<script>x</script>']
    """
    return _TAG.sub(lambda tag: tag[0] if tag[2].lower() in _KEPT else "\n", html)


_CHARSET = re.compile(rb"<meta[^<>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_MAIN_SHARE = 0.1
_META = {
    "author": "author", "article:author": "author", "date": "date", "dc.date": "date", "article:published_time": "date",
    "description": "description", "keywords": "keywords",
}  # fmt: skip
_TO_THE_END = 1 << 16
_ROWS = {"tr": "row", "td": "cell", "th": "cell"}
_NAVIGATION = "navigation menus"


@dataclass(frozen=True)
class HtmlReader(Value):
    """Reads HTML. All text of a page is read but its navigation, which is counted as dropped.

    Tables of two columns or more, preformatted parts and pictures that are embedded in the page or have a description
    are regions; cells that span rows or columns are repeated. Nothing is fetched: pictures that are neither in the page
    nor beside it are counted as dropped.

    >>> page = b"<title>T</title><nav>Menu</nav><h1>Stones &amp; sand</h1><p>A<b>b</b>c.<script>x()</script>"
    >>> document = HtmlReader().read(Blob("a.html", page)).document
    >>> document.title, document.text
    ('T', 'Stones & sand\\n\\nAbc.')
    """

    name = "html"
    version = 4
    media_type = "text/html"
    suffixes: ClassVar[tuple[str, ...]] = (".html", ".htm", ".xhtml")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        characters = decoded(blob.data, blob.uri, _declared(blob.data))
        warnings = characters.warnings
        if (depth := depth_of(characters.text)) > DEEPEST:
            warnings += (f"Its elements are nested {depth} deep; it was read without its structure.",)
        pictures = Linked(blob.uri)
        page = Page(characters.text, depth)
        layout = self._content(page)
        attempt = layout.failures.attempt
        regions, beside = attempt("picture", lambda: pictures.told(layout.in_order()), ((), ()))
        layout.regions, layout.images = list(regions), pictures.images
        return layout.reading(
            self,
            blob,
            title=page.title or layout.title,
            meta=attempt("metadata part", lambda: _meta(page.tree), ()),
            encoding=characters.encoding,
            dropped={"pictures": pictures.elsewhere, _NAVIGATION: page.menus},
            warnings=warnings,
            beside=beside,
        )

    def _content(self, page: "Page") -> Layout:
        return page.content()

    def for_web(self) -> "HtmlReader":
        """The reader for pages that come from the web, where most of a page is not its content."""
        return WebPageReader()


@dataclass(frozen=True)
class WebPageReader(HtmlReader):
    """Reads the main content of a page from the web, without menus, banners and side bars.

    With the extra `web`, trafilatura finds the main content. The whole page is read if less than 5 % of its text is
    left. Without the extra, it is `main` or the only `article` if the page has one, else all but what stands around it.
    """

    name = "web-page"
    version = 1
    suffixes: ClassVar[tuple[str, ...]] = ()

    def _content(self, page: "Page") -> Layout:
        whole = page.content()
        main = whole.failures.attempt("main part", page.main, None)
        if main is None or len(main) < _LEAST_SHARE * len(whole):
            return whole
        main.failures = whole.failures
        return main


_LEAST_SHARE = 0.05


class Page:
    """A parsed page. `menus`: how many parts of it only lead elsewhere and were left out. `depth`: how deep its
    elements are nested, where that is known."""

    def __init__(self, html: str, depth: int | None = None) -> None:
        self._html = flat(html) if (depth_of(html) if depth is None else depth) > DEEPEST else html
        self.tree = lexbor.LexborHTMLParser(self._html)
        self.menus = 0

    @property
    def title(self) -> str:
        named = self.tree.css_first("title")
        return " ".join(named.text().split()) if named is not None else ""

    def content(self) -> Layout:
        """All text but the navigation; that too where there is no other. Pictures have the names that it gives them."""
        body, layout = self.tree.body or self.tree.root, Layout()
        self.menus = sum(bool(menu.text().strip()) for menu in self.tree.css('nav, [role="navigation"]'))

        def write() -> None:
            whole = _walked(body, NEVER | {"nav"})
            if not len(whole):
                self.menus, whole = 0, _walked(body, NEVER)
            layout.append(whole)

        layout.attempt("page", write, lambda: str(body.text(separator="\n")) if body is not None else "")
        return layout

    def main(self) -> Layout:
        """The main content."""
        if find_spec("trafilatura") and (found := _main_content(self._html)) is not None:
            return _walked(found.body, NEVER)
        body = self.tree.body or self.tree.root
        whole = _walked(body, NEVER | AROUND)
        mains = self.tree.css("main") or self.tree.css('[role="main"]') or self.tree.css("article")
        if len(mains) == 1:
            main = _walked(mains[0], NEVER | {"nav"})
            if len(main) > len(whole) * _MAIN_SHARE:
                return main
        return whole


def _main_content(html: str) -> Any:
    """The tree of what trafilatura finds; None where it finds nothing. By default it loses lists on pages that a table
    lays out."""
    found = trafilatura.extract(
        html,
        output_format="html",
        include_comments=False,
        include_tables=True,
        include_images=True,
        favor_recall=True,
    )
    return lexbor.LexborHTMLParser(found) if found else None


def content_of(html: str, depth: int | None = None) -> Layout:
    """The text of a page but its navigation, in which pictures have the names that it gives them."""
    return Page(html, depth).content()


def words_of(html: str) -> str:
    """The text of a piece of a page, whatever it is cut from.

    >>> words_of("</b> and sand</p><ul><li>One<script>x()</script>")
    'and sand\\n\\n- One'
    """
    tree = lexbor.LexborHTMLParser(flat(html) if depth_of(html) > DEEPEST else html)
    return _walked(tree.body or tree.root, NEVER).text()


def _declared(data: bytes) -> str:
    """The encoding that the page says it has; empty if it does not, or not one that is known."""
    found = _CHARSET.search(data, 0, 4096)
    return encoding_called(found[1].decode()) if found else ""


def _meta(tree: Any) -> Meta:
    said: dict[str, str] = {}
    for one in tree.css("meta[name], meta[property]"):
        name = (one.attributes.get("name") or one.attributes.get("property") or "").lower()
        said.setdefault(_META.get(name, ""), one.attributes.get("content") or "")
    root = tree.css_first("html")
    language = root.attributes.get("lang") if root is not None else ""
    return fields(
        author=said.get("author"),
        date=said.get("date"),
        description=said.get("description"),
        keywords=split(said.get("keywords")),
        language=language,
    )


def _walked(root: Any, skipped: frozenset[str] | set[str]) -> Layout:
    """The text below an element; without recursion, since pages nest as deep as they like."""
    writing = _Writing()
    todo: list[Any] = [root] if root is not None else []
    first = True
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            writing.leave(node)
            continue
        if not first and (following := node.next) is not None:
            todo.append(following)
        tag = node.tag or "-unknown"
        if tag == "-text":
            writing.layout.write(node.text_content or "")
        elif first or not (_is_skipped(node, tag, skipped) or tag[0] in "-!" or _is_hidden(node, skipped)):
            writing.enter(tag, node)
            todo.append(tag)
            if (child := node.child) is not None:
                todo.append(child)
        first = False
    return writing.layout


def _is_skipped(node: Any, tag: str, skipped: frozenset[str] | set[str]) -> bool:
    """Whether an element is not read. The header, footer and notes of an article belong to it."""
    if tag not in skipped:
        return False
    above = node.parent if tag in _OF_ARTICLES else None
    while above is not None and above.tag != "article":
        above = above.parent
    return above is None


def _is_hidden(node: Any, skipped: frozenset[str] | set[str]) -> bool:
    said = node.attributes
    if not said:
        return False
    style = (said.get("style") or "").replace(" ", "").lower()
    roles = AROUND_ROLES if "aside" in skipped else ("navigation",) if "nav" in skipped else ()
    return said.get("role") in roles or "hidden" in said or "display:none" in style or "visibility:hidden" in style


class _Writing:
    def __init__(self) -> None:
        self.layout = Layout()
        self._tables: list[LayoutTable] = []
        self._marks: list[Mark] = []  # of preformatted parts and captions, which are open

    def enter(self, tag: str, node: Any) -> None:
        layout = self.layout
        if tag in PARAGRAPHS:
            layout.gap(BLANK_LINE)
        elif tag in LINES:
            layout.gap(LINE)
        if tag in HEADINGS:
            layout.open_heading()
        elif tag == "li":
            layout.write("- ", exactly=True)
        elif tag == "img":
            self._picture(node.attributes)
        elif tag == "pre":
            layout.exact += 1
            self._marks.append(layout.mark())
        elif tag == "caption":
            self._marks.append(layout.mark())
        elif tag == "table":
            for outer in self._tables[-1:]:
                outer.is_plain = False
            self._tables.append(LayoutTable(layout))
        elif self._tables and tag in _ROWS:
            said = node.attributes
            rows = said.get("rowspan")
            self._tables[-1].enter(_ROWS[tag], _TO_THE_END if rows == "0" else span(rows), span(said.get("colspan")))

    def leave(self, tag: str) -> None:
        layout = self.layout
        if tag in HEADINGS:
            layout.close_heading(HEADINGS[tag])
        elif tag == "pre":
            layout.exact -= 1
            layout.region("code", self._marks.pop())
        elif tag == "caption":
            mark = self._marks.pop()
            for table in self._tables[-1:]:
                table.caption = layout.words(mark)
        elif tag == "table":
            self._tables.pop().close()
        elif self._tables and tag in _ROWS:
            self._tables[-1].leave(_ROWS[tag])
        if tag in PARAGRAPHS:
            layout.gap(BLANK_LINE)
        elif tag in LINES:
            layout.gap(LINE)

    def _picture(self, said: dict[str, str | None]) -> None:
        """What a page says of a picture, and what it calls it."""
        alt = " ".join((said.get("alt") or "").split())
        self.layout.gap(SPACE)
        mark = self.layout.mark()
        self.layout.write(alt)
        self.layout.gap(SPACE)
        if not self.layout.exact:
            self.layout.region("image", mark, image=said.get("src") or "", caption=alt)
