"""Hidden content of OpenDocument: texts hidden by their styles or by a condition, sections, sheets, slides, rows
(ISO/IEC 26300)."""

import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element

_SPACE = "{{urn:oasis:names:tc:opendocument:xmlns:{}:1.0}}"
_TEXT, _TABLE, _DRAW = map(_SPACE.format, ("text", "table", "drawing"))
_STYLE, _PRESENTATION = map(_SPACE.format, ("style", "presentation"))
_PARAGRAPHS, _INLINE = (f"{_TEXT}p", f"{_TEXT}h"), (f"{_TEXT}span", f"{_TEXT}a")
_STYLES = (f"{_STYLE}style", f"{_STYLE}default-style")
_FAMILIES = {
    f"{_TEXT}p": ("paragraph", f"{_TEXT}style-name"),
    f"{_TEXT}h": ("paragraph", f"{_TEXT}style-name"),
    f"{_TEXT}span": ("text", f"{_TEXT}style-name"),
    f"{_TEXT}a": ("text", f"{_TEXT}style-name"),
    f"{_TABLE}table": ("table", f"{_TABLE}style-name"),
    f"{_DRAW}page": ("drawing-page", f"{_DRAW}style-name"),
}
"""By element the family of its style, and the attribute that names it."""
_PROPERTIES = (
    (f"{_STYLE}text-properties", f"{_TEXT}display", "none"),
    (f"{_STYLE}table-properties", f"{_TABLE}display", "false"),
    (f"{_STYLE}drawing-page-properties", f"{_PRESENTATION}visibility", "hidden"),
)
_TRUE = re.compile(r'(?:[\w-]+:)?"?(?:true|1)"?', re.IGNORECASE)


class HiddenElements:
    """Test of whether an element is hidden, `HiddenElements(roots of content.xml and styles.xml)(element)`.

    True and False if the element says so, by a condition, or by its style or one that this is based on; else None: what
    is around it counts.
    """

    def __init__(self, roots: Iterable[Element]) -> None:
        self._hidden_styles: dict[
            tuple[str, str], bool
        ] = {}  # by the family and the name of a style; "" is the default
        self._parents: dict[tuple[str, str], str] = {}
        for root in roots:
            for style in root.iter():
                if style.tag not in _STYLES:
                    continue
                key = style.get(f"{_STYLE}family") or "", style.get(f"{_STYLE}name") or ""
                if (is_hidden := _hides(style)) is not None:
                    self._hidden_styles[key] = is_hidden
                if parent := style.get(f"{_STYLE}parent-style-name"):
                    self._parents[key] = parent

    def __call__(self, element: Element) -> bool | None:
        tag = element.tag
        if tag == f"{_TEXT}section":
            display = element.get(f"{_TEXT}display")
            return display == "none" or (display == "condition" and _is_hidden(element)) or None
        if tag == f"{_TEXT}hidden-text":
            return _is_hidden(element)
        if tag == f"{_TABLE}table-row":
            return element.get(f"{_TABLE}visibility") == "collapse" or None
        if tag not in _FAMILIES:
            return None
        if tag in _PARAGRAPHS and len(element) and _hides_paragraph(element):
            return True
        return self._is_hidden_by_style(*_FAMILIES[tag], element) if self._hidden_styles else None

    def _is_hidden_by_style(self, family: str, attribute: str, element: Element) -> bool | None:
        name, visited = element.get(attribute) or "", set[str]()
        # Styles of a damaged file may be based on each other in a circle.
        while (family, name) not in self._hidden_styles and name not in visited:
            visited.add(name)
            name = self._parents.get((family, name), "")
        return self._hidden_styles.get((family, name))


def _hides_paragraph(element: Element) -> bool:
    return any(
        (child.tag == f"{_TEXT}hidden-paragraph" and _is_hidden(child))
        or (child.tag in _INLINE and _hides_paragraph(child))
        for child in element
    )


def _hides(style: Element) -> bool | None:
    for tag, attribute, hidden_value in _PROPERTIES:
        if (properties := style.find(tag)) is not None and (value := properties.get(attribute)) is not None:
            return value == hidden_value
    return None


def _is_hidden(element: Element) -> bool:
    """Return whether a condition hid it when the file was saved, or always hides it."""
    state = element.get(f"{_TEXT}is-hidden")
    return state == "true" if state else _TRUE.fullmatch((element.get(f"{_TEXT}condition") or "").strip()) is not None
