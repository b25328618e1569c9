"""Pages that are nested so deep that a parser would not come back: noticed before it begins."""

from __future__ import annotations

import re

from spolia.indexing.readers.elements import SINGLE

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
