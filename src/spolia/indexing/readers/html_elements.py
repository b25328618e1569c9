"""What the elements of HTML mean for the text of a page."""

from __future__ import annotations

import re


def _tags(names: str) -> frozenset[str]:
    return frozenset(names.split())


NEVER = _tags(
    "script style noscript template head title svg canvas iframe object audio video select datalist textarea button "
    "dialog map"
)
"""Their text is not read."""
AROUND = _tags("nav aside footer header")
"""They stand around the main content."""
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
