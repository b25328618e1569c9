"""What OpenDocument hides: texts by their styles or by a condition, sections, sheets, slides, rows (ISO/IEC 26300)."""

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


class OdfHiding:
    """Says what is hidden, `OdfHiding(roots of content.xml and styles.xml)(element)`.

    True and False if the element says so, by a condition, or by its style or one that this is based on; else None: what
    is around it counts.
    """

    def __init__(self, roots: Iterable[Element]) -> None:
        self._says: dict[tuple[str, str], bool] = {}  # by the family and the name of a style; "" is the default
        self._parents: dict[tuple[str, str], str] = {}
        for root in roots:
            for style in root.iter():
                if style.tag not in _STYLES:
                    continue
                key = style.get(f"{_STYLE}family") or "", style.get(f"{_STYLE}name") or ""
                if (says := _says(style)) is not None:
                    self._says[key] = says
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
        return self._by_style(*_FAMILIES[tag], element) if self._says else None

    def _by_style(self, family: str, attribute: str, element: Element) -> bool | None:
        name, seen = element.get(attribute) or "", set[str]()
        while (family, name) not in self._says and name not in seen:
            seen.add(name)
            name = self._parents.get((family, name), "")
        return self._says.get((family, name))


def _hides_paragraph(element: Element) -> bool:
    return any(
        (child.tag == f"{_TEXT}hidden-paragraph" and _is_hidden(child))
        or (child.tag in _INLINE and _hides_paragraph(child))
        for child in element
    )


def _says(style: Element) -> bool | None:
    for tag, attribute, hides in _PROPERTIES:
        if (found := style.find(tag)) is not None and (value := found.get(attribute)) is not None:
            return value == hides
    return None


def _is_hidden(element: Element) -> bool:
    """Whether a condition hid it when the file was saved, or always does."""
    said = element.get(f"{_TEXT}is-hidden")
    return said == "true" if said else _TRUE.fullmatch((element.get(f"{_TEXT}condition") or "").strip()) is not None
