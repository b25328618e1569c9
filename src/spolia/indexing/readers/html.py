"""HTML: the text of a page, by what its elements mean."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

from spolia.deferred import lexbor, trafilatura
from spolia.indexing.readers.file_metadata import fields, split_keywords
from spolia.indexing.readers.layout import BLANK_LINE, LINE, SPACE, Layout, LayoutTable, Mark, span
from spolia.indexing.readers.pictures.linked_images import LinkedPictures
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import decode, python_encoding
from spolia.types import Meta, Value


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


UNREAD_TAGS = _tags(
    "script style noscript template head title svg canvas iframe object audio video select datalist textarea button "
    "dialog map"
)
"""Their text is not read."""
BOILERPLATE_TAGS = _tags("nav aside footer header")
"""They stand around the main content."""
_ARTICLE_PARTS = _tags("aside footer header")
BOILERPLATE_ROLES = _tags("navigation banner contentinfo complementary search")
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
_TAGS_IN_FLAT_TEXT = frozenset(["script", "style", "head", "title", "noscript", "template", "nav", "p", "br"])


def depth_of(html: str) -> int:
    """Estimate how deep elements are nested; never too low.

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


def flatten(html: str) -> str:
    """Remove all tags except those that hide text or begin a paragraph.

    >>> flatten("<div><b>Text</b><script>x</script></div>").split()
    ['Text', '<script>x</script>']
    """
    return _TAG.sub(lambda tag: tag[0] if tag[2].lower() in _TAGS_IN_FLAT_TEXT else "\n", html)


_CHARSET = re.compile(rb"<meta[^<>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_MAIN_SHARE = 0.1
_META = {
    "author": "author", "article:author": "author", "date": "date", "dc.date": "date", "article:published_time": "date",
    "description": "description", "keywords": "keywords",
}  # fmt: skip
_TO_THE_END = 1 << 16  # rowspan="0" in HTML: to the end of the table
_ROWS = {"tr": "row", "td": "cell", "th": "cell"}
_NAVIGATION = "navigation menus"


@dataclass(frozen=True)
class HtmlReader(Value):
    """Reader of HTML. It reads all text of a page except the navigation, which counts as dropped.

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
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        characters = decode(blob.data, blob.uri, _declared_encoding(blob.data))
        warnings = characters.warnings
        if (depth := depth_of(characters.text)) > DEEPEST:
            warnings += (f"Its elements are nested {depth} deep; it was read without its structure.",)
        pictures = LinkedPictures(blob.uri)
        page = Page(characters.text, depth)
        layout = self._content(page)
        attempt = layout.failures.attempt
        regions, linked_images = attempt("picture", lambda: pictures.split_linked(layout.sorted_regions()), ((), ()))
        layout.regions, layout.images = list(regions), pictures.images
        return layout.build_reading(
            self,
            blob,
            title=page.title or layout.title,
            meta=attempt("metadata part", lambda: _read_meta(page.tree), ()),
            encoding=characters.encoding,
            dropped={"pictures": pictures.missing_count, _NAVIGATION: page.menus},
            warnings=warnings,
            linked_images=linked_images,
        )

    def _content(self, page: "Page") -> Layout:
        return page.read_content()

    def for_web(self) -> "HtmlReader":
        """Return the reader for web pages, where most of a page is not its content."""
        return WebPageReader()


@dataclass(frozen=True)
class WebPageReader(HtmlReader):
    """Reader of the main content of a web page, without menus, banners and side bars.

    With the extra `web`, trafilatura finds the main content. The whole page is read if less than 5 % of its text is
    left. Without the extra, it is `read_main` or the only `article` if the page has one, else all but its surroundings.
    """

    name = "web-page"
    version = 1
    suffixes: ClassVar[tuple[str, ...]] = ()

    def _content(self, page: "Page") -> Layout:
        layout = page.read_content()
        main = layout.failures.attempt("main part", page.read_main, None)
        if main is None or len(main) < _LEAST_SHARE * len(layout):
            return layout
        main.failures = layout.failures
        return main


_LEAST_SHARE = 0.05


class Page:
    """Parsed page. `menus`: number of navigation parts left out. `depth`: depth of its elements, if known."""

    def __init__(self, html: str, depth: int | None = None) -> None:
        self._html = flatten(html) if (depth_of(html) if depth is None else depth) > DEEPEST else html
        self.tree = lexbor.LexborHTMLParser(self._html)
        self.menus = 0

    @property
    def title(self) -> str:
        element = self.tree.css_first("title")
        return " ".join(element.text().split()) if element is not None else ""

    def read_content(self) -> Layout:
        """Read all text but the navigation; that too if the page has no other text. Image regions carry the sources of
        their pictures."""
        body, layout = self.tree.body or self.tree.root, Layout()
        self.menus = sum(bool(menu.text().strip()) for menu in self.tree.css('nav, [role="navigation"]'))

        def write() -> None:
            written_body = _write_tree(body, UNREAD_TAGS | {"nav"})
            if not len(written_body):
                self.menus, written_body = 0, _write_tree(body, UNREAD_TAGS)
            layout.append(written_body)

        layout.attempt("page", write, lambda: str(body.text(separator="\n")) if body is not None else "")
        return layout

    def read_main(self) -> Layout:
        """Read the main content."""
        if find_spec("trafilatura") and (main_tree := _extract_main(self._html)) is not None:
            return _write_tree(main_tree.body, UNREAD_TAGS)
        body = self.tree.body or self.tree.root
        surroundings = _write_tree(body, UNREAD_TAGS | BOILERPLATE_TAGS)
        mains = self.tree.css("main") or self.tree.css('[role="main"]') or self.tree.css("article")
        if len(mains) == 1:
            main = _write_tree(mains[0], UNREAD_TAGS | {"nav"})
            if len(main) > len(surroundings) * _MAIN_SHARE:
                return main
        return surroundings


def _extract_main(html: str) -> Any:
    """Parse the main content that trafilatura extracts; None if it finds none. Its defaults lose lists on pages that a
    table lays out."""
    main_html = trafilatura.extract(
        html,
        output_format="html",
        include_comments=False,
        include_tables=True,
        include_images=True,
        favor_recall=True,
    )
    return lexbor.LexborHTMLParser(main_html) if main_html else None


def read_html(html: str, depth: int | None = None) -> Layout:
    """Read the text of a page but its navigation. Image regions carry the sources of their pictures."""
    return Page(html, depth).read_content()


def words_of(html: str) -> str:
    """Return the text of a piece of a page, which may be cut anywhere.

    >>> words_of("</b> and sand</p><ul><li>One<script>x()</script>")
    'and sand\\n\\n- One'
    """
    tree = lexbor.LexborHTMLParser(flatten(html) if depth_of(html) > DEEPEST else html)
    return _write_tree(tree.body or tree.root, UNREAD_TAGS).text()


def _declared_encoding(data: bytes) -> str:
    """Return the encoding that a page declares; empty if it declares none that Python knows."""
    charset = _CHARSET.search(data, 0, 4096)
    return python_encoding(charset[1].decode()) if charset else ""


def _read_meta(tree: Any) -> Meta:
    contents: dict[str, str] = {}
    for element in tree.css("meta[name], meta[property]"):
        name = (element.attributes.get("name") or element.attributes.get("property") or "").lower()
        contents.setdefault(_META.get(name, ""), element.attributes.get("content") or "")
    root = tree.css_first("html")
    language = root.attributes.get("lang") if root is not None else ""
    return fields(
        author=contents.get("author"),
        date=contents.get("date"),
        description=contents.get("description"),
        keywords=split_keywords(contents.get("keywords")),
        language=language,
    )


def _write_tree(root: Any, skipped_tags: frozenset[str] | set[str]) -> Layout:
    """Write the text below an element. It is not recursive, since pages may nest deeper than Python's stack."""
    writing = _ElementWriter()
    todo: list[Any] = [root] if root is not None else []
    first = True
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            writing.leave(node)
            continue
        if not first and (following := node.next) is not None:  # not of the root: its neighbours are not below it
            todo.append(following)
        tag = node.tag or "-unknown"
        if tag == "-text":
            writing.layout.write(node.text_content or "")
        elif first or not (_is_skipped(node, tag, skipped_tags) or tag[0] in "-!" or _is_hidden(node, skipped_tags)):
            writing.enter(tag, node)
            # A name on the stack leaves the element after its children.
            todo.append(tag)
            if (child := node.child) is not None:
                todo.append(child)
        first = False
    return writing.layout


def _is_skipped(node: Any, tag: str, skipped_tags: frozenset[str] | set[str]) -> bool:
    """Return whether an element is skipped. The header, footer and asides of an article belong to it."""
    if tag not in skipped_tags:
        return False
    ancestor = node.parent if tag in _ARTICLE_PARTS else None
    while ancestor is not None and ancestor.tag != "article":
        ancestor = ancestor.parent
    return ancestor is None


def _is_hidden(node: Any, skipped_tags: frozenset[str] | set[str]) -> bool:
    attributes = node.attributes
    if not attributes:
        return False
    style = (attributes.get("style") or "").replace(" ", "").lower()
    roles = BOILERPLATE_ROLES if "aside" in skipped_tags else ("navigation",) if "nav" in skipped_tags else ()
    return (
        attributes.get("role") in roles
        or "hidden" in attributes
        or "display:none" in style
        or "visibility:hidden" in style
    )


class _ElementWriter:
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
            layout.write("- ", is_exact=True)
        elif tag == "img":
            self._write_picture(node.attributes)
        elif tag == "pre":
            layout.exact += 1
            self._marks.append(layout.mark())
        elif tag == "caption":
            self._marks.append(layout.mark())
        elif tag == "table":
            for outer_table in self._tables[-1:]:
                outer_table.is_plain = False
            self._tables.append(LayoutTable(layout))
        elif self._tables and tag in _ROWS:
            attributes = node.attributes
            rows = attributes.get("rowspan")
            self._tables[-1].enter(
                _ROWS[tag], _TO_THE_END if rows == "0" else span(rows), span(attributes.get("colspan"))
            )

    def leave(self, tag: str) -> None:
        layout = self.layout
        if tag in HEADINGS:
            layout.close_heading(HEADINGS[tag])
        elif tag == "pre":
            layout.exact -= 1
            layout.add_region("code", self._marks.pop())
        elif tag == "caption":
            mark = self._marks.pop()
            for table in self._tables[-1:]:
                table.caption = layout.text_since(mark)
        elif tag == "table":
            self._tables.pop().close()
        elif self._tables and tag in _ROWS:
            self._tables[-1].leave(_ROWS[tag])
        if tag in PARAGRAPHS:
            layout.gap(BLANK_LINE)
        elif tag in LINES:
            layout.gap(LINE)

    def _write_picture(self, attributes: dict[str, str | None]) -> None:
        """Write an image's alternative text as a region that names its source."""
        alt = " ".join((attributes.get("alt") or "").split())
        self.layout.gap(SPACE)
        mark = self.layout.mark()
        self.layout.write(alt)
        self.layout.gap(SPACE)
        if not self.layout.exact:
            self.layout.add_region("image", mark, image=attributes.get("src") or "", caption=alt)
