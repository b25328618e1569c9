"""What the elements of HTML mean for the text of a page."""

from __future__ import annotations


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
