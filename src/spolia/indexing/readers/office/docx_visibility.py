"""Which runs of a DOCX are hidden: by themselves, or by the styles of their characters and of their paragraph."""

from typing import Any

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_RUNS = frozenset([f"{_W}r", f"{_M}r"])
_VANISH, _ALWAYS = f"{_W}vanish", f"{_W}specVanish"
_OFF = frozenset(["0", "false", "off"])


class Hiding:
    """Says which runs are hidden, `Hiding(the element of the styles)(run)`.

    What a run itself says counts. Otherwise the document's defaults hide it, or just one of its two styles: applied
    twice, `vanish` shows the text again (toggle properties, ECMA-376-1, 17.7.3). The properties of a paragraph's mark
    hide the mark and not the text.
    """

    def __init__(self, styles: Any) -> None:
        self._hidden: dict[str, bool] = {}  # by the id of the style
        self._default: dict[str, str] = {}  # the style that holds where none is named, by its kind
        based: dict[str, str] = {}
        for style in styles.findall(f"{_W}style"):
            id, kind = style.get(f"{_W}styleId") or "", style.get(f"{_W}type") or ""
            says = _says(style.find(f"{_W}rPr"))
            if says is not None:
                self._hidden[id] = says
            if (parent := style.find(f"{_W}basedOn")) is not None:
                based[id] = parent.get(f"{_W}val") or ""
            if (style.get(f"{_W}default") or "0") not in _OFF:
                self._default[kind] = id
        own = dict(self._hidden)
        for id in based:
            seen, at = {id}, id
            while at not in own and (above := based.get(at)) is not None and above not in seen:
                seen.add(above)
                at = above
            if at in own:
                self._hidden[id] = own[at]
        self._always = bool(_says(styles.find(f"{_W}docDefaults/{_W}rPrDefault/{_W}rPr")))

    def __call__(self, run: Any) -> bool:
        if run.tag not in _RUNS:
            return False
        properties = run.find(f"{_W}rPr")
        says = _says(properties)
        if says is not None:
            return says
        if not self._hidden or self._always:
            return self._always
        paragraph = next(run.iterancestors(f"{_W}p"), None)
        by_paragraph = self._by_style(
            paragraph.find(f"{_W}pPr") if paragraph is not None else None, "paragraph", "pStyle"
        )
        return by_paragraph != self._by_style(properties, "character", "rStyle")

    def _by_style(self, properties: Any, kind: str, tag: str) -> bool:
        named = properties.find(f"{_W}{tag}") if properties is not None else None
        id = (named.get(f"{_W}val") or "") if named is not None else self._default.get(kind, "")
        return self._hidden.get(id, False)


def _says(properties: Any) -> bool | None:
    """Whether these properties hide text; None if they do not say."""
    if properties is None:
        return None
    found = [one.get(f"{_W}val") or "1" for tag in (_VANISH, _ALWAYS) if (one := properties.find(tag)) is not None]
    return any(value not in _OFF for value in found) if found else None
