"""Which runs of a DOCX are hidden: by themselves, or by the styles of their characters and of their paragraph."""

from typing import Any

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_RUNS = frozenset([f"{_W}r", f"{_M}r"])
_VANISH, _ALWAYS = f"{_W}vanish", f"{_W}specVanish"
_OFF = frozenset(["0", "false", "off"])


class HiddenRuns:
    """Test of whether a run is hidden, `HiddenRuns(the element of the styles)(run)`.

    What a run itself says counts. Otherwise the document's defaults hide it, or just one of its two styles: applied
    twice, `vanish` shows the text again (toggle properties, ECMA-376-1, 17.7.3). The properties of a paragraph's mark
    hide the mark and not the text.
    """

    def __init__(self, styles: Any) -> None:
        self._hidden_styles: dict[str, bool] = {}  # by the id of the style
        self._default_styles: dict[str, str] = {}  # the style that holds where none is named, by its kind
        parents: dict[str, str] = {}
        for style in styles.findall(f"{_W}style"):
            id, kind = style.get(f"{_W}styleId") or "", style.get(f"{_W}type") or ""
            is_hidden = _hides(style.find(f"{_W}rPr"))
            if is_hidden is not None:
                self._hidden_styles[id] = is_hidden
            if (parent := style.find(f"{_W}basedOn")) is not None:
                parents[id] = parent.get(f"{_W}val") or ""
            if (style.get(f"{_W}default") or "0") not in _OFF:
                self._default_styles[kind] = id
        direct = dict(self._hidden_styles)
        for id in parents:
            visited, ancestor = {id}, id
            while (
                ancestor not in direct and (parent_id := parents.get(ancestor)) is not None and parent_id not in visited
            ):
                visited.add(parent_id)
                ancestor = parent_id
            if ancestor in direct:
                self._hidden_styles[id] = direct[ancestor]
        self._hides_all = bool(_hides(styles.find(f"{_W}docDefaults/{_W}rPrDefault/{_W}rPr")))

    def __call__(self, run: Any) -> bool:
        if run.tag not in _RUNS:
            return False
        properties = run.find(f"{_W}rPr")
        is_hidden = _hides(properties)
        if is_hidden is not None:
            return is_hidden
        if not self._hidden_styles or self._hides_all:
            return self._hides_all
        paragraph = next(run.iterancestors(f"{_W}p"), None)
        is_hidden_by_paragraph = self._is_hidden_by_style(
            paragraph.find(f"{_W}pPr") if paragraph is not None else None, "paragraph", "pStyle"
        )
        return is_hidden_by_paragraph != self._is_hidden_by_style(properties, "character", "rStyle")

    def _is_hidden_by_style(self, properties: Any, kind: str, tag: str) -> bool:
        reference = properties.find(f"{_W}{tag}") if properties is not None else None
        id = (reference.get(f"{_W}val") or "") if reference is not None else self._default_styles.get(kind, "")
        return self._hidden_styles.get(id, False)


def _hides(properties: Any) -> bool | None:
    """Return whether these properties hide text; None if they do not state it."""
    if properties is None:
        return None
    values = [child.get(f"{_W}val") or "1" for tag in (_VANISH, _ALWAYS) if (child := properties.find(tag)) is not None]
    return any(value not in _OFF for value in values) if values else None
