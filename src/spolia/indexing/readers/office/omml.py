"""Formulas of Office (OMML, ECMA-376-1, 22.1) as LaTeX; what is not known keeps its text."""

from collections.abc import Callable
from typing import Any

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_ROW = r" \\ "
_DEEPEST = 60
"""Nested formulas beyond this give their text only."""
_SIGNS = {
    "∑": r"\sum", "∏": r"\prod", "∐": r"\coprod", "∫": r"\int", "∬": r"\iint", "∭": r"\iiint", "∮": r"\oint",
    "⋃": r"\bigcup", "⋂": r"\bigcap", "⋁": r"\bigvee", "⋀": r"\bigwedge",
}  # fmt: skip
_ACCENTS = {
    "\u0302": "hat", "\u0303": "tilde", "\u0304": "bar", "\u0305": "bar", "\u0307": "dot", "\u0308": "ddot",
    "\u20d7": "vec", "\u030c": "check", "\u0306": "breve", "\u0301": "acute", "\u0300": "grave",
}  # fmt: skip
_BRACES = {"⏞": "overbrace", "⏟": "underbrace", "⎴": "overbracket", "⎵": "underbracket"}
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "sinh",
        "cosh",
        "tanh",
        "arcsin",
        "arccos",
        "arctan",
        "log",
        "ln",
        "exp",
        "lim",
        "max",
        "min",
        "sup",
        "inf",
        "det",
        "gcd",
        "dim",
        "ker",
        "deg",
        "arg",
        "Pr",
    ]
)
_ESCAPES = {"\\": r"\backslash ", "^": r"\hat{}", "~": r"\sim "} | {sign: f"\\{sign}" for sign in "{}$%&#_"}
_FENCES = {"{": r"\{", "}": r"\}", "": ".", "⟨": r"\langle", "⟩": r"\rangle", "‖": r"\|", "⌊": r"\lfloor",
           "⌋": r"\rfloor", "⌈": r"\lceil", "⌉": r"\rceil"}  # fmt: skip


def to_latex(formula: Any, is_left_out: Callable[[Any], bool] = lambda _: False) -> str:
    """Convert an `m:oMath` to LaTeX, without dollars. `is_left_out` tests whether an element is hidden or deleted."""
    return _LatexConverter(is_left_out).convert_children(formula, 0).strip()


class _LatexConverter:
    def __init__(self, is_left_out: Callable[[Any], bool]) -> None:
        self.is_left_out = is_left_out

    def convert_children(self, element: Any, depth: int) -> str:
        """Convert the parts of an element, one after the other."""
        if element is None:
            return ""
        if depth > _DEEPEST:
            return _escape("".join(descendant.text or "" for descendant in element.iter() if _name(descendant) == "t"))
        return "".join(
            self._convert(child, depth + 1)
            for child in element
            if isinstance(child.tag, str) and not _name(child).endswith("Pr") and not self.is_left_out(child)
        )

    def _convert(self, element: Any, depth: int) -> str:
        converted: dict[str, str] = {}  # each part once, or nested ones would take twice as long for each level

        def part(name: str) -> str:
            if name not in converted:
                converted[name] = self.convert_children(element.find(f"{_M}{name}"), depth).strip()
            return converted[name]

        def parts(name: str) -> list[str]:
            return [self.convert_children(child, depth).strip() for child in element.findall(f"{_M}{name}")]

        match _name(element) if element.tag.startswith(_M) or _name(element) == "t" else "":
            case "t":
                return _escape(element.text or "")
            case "f" if _property(element, "type") == "lin":
                return f"{part('num')}/{part('den')}"
            case "f" if _property(element, "type") == "noBar":
                return rf"\binom{{{part('num')}}}{{{part('den')}}}"
            case "f":
                return rf"\frac{{{part('num')}}}{{{part('den')}}}"
            case "rad":
                return rf"\sqrt[{part('deg')}]{{{part('e')}}}" if part("deg") else rf"\sqrt{{{part('e')}}}"
            case "sSup":
                return f"{_group_base(part('e'))}^{{{part('sup')}}}"
            case "sSub":
                return f"{_group_base(part('e'))}_{{{part('sub')}}}"
            case "sSubSup":
                return f"{_group_base(part('e'))}_{{{part('sub')}}}^{{{part('sup')}}}"
            case "sPre":
                return f"{{}}_{{{part('sub')}}}^{{{part('sup')}}}{_group_base(part('e'))}"
            case "nary":
                sign = _property(element, "chr", "∫")
                bounds = "".join(f"{mark}{{{part(name)}}}" for mark, name in (("_", "sub"), ("^", "sup")) if part(name))
                return f"{_SIGNS.get(sign, sign)}{bounds} {part('e')}"
            case "d":
                opening, closing = _property(element, "begChr", "("), _property(element, "endChr", ")")
                between = f" {_property(element, 'sepChr', '|')} ".join(parts("e"))
                return rf"\left{_FENCES.get(opening, opening)} {between} \right{_FENCES.get(closing, closing)}"
            case "func":
                sign = "\\" if part("fName") in _FUNCTIONS else ""
                return f"{sign}{part('fName')} {part('e')}"
            case "acc":
                return rf"\{_ACCENTS.get(_property(element, 'chr', chr(0x302)), 'hat')}{{{part('e')}}}"
            case "bar":
                return rf"\{'overline' if _property(element, 'pos') == 'top' else 'underline'}{{{part('e')}}}"
            case "m":
                lines = [row.findall(f"{_M}e") for row in element.findall(f"{_M}mr")]
                rows = [" & ".join(self.convert_children(cell, depth) for cell in line) for line in lines]
                return rf"\begin{{matrix}}{_ROW.join(rows)}\end{{matrix}}"
            case "eqArr":
                return rf"\begin{{aligned}}{_ROW.join(parts('e'))}\end{{aligned}}"
            case "limLow" if part("e") in _FUNCTIONS:
                return rf"\{part('e')}_{{{part('lim')}}}"
            case "limLow":
                return rf"\underset{{{part('lim')}}}{{{part('e')}}}"
            case "limUpp":
                return rf"\overset{{{part('lim')}}}{{{part('e')}}}"
            case "groupChr":
                sign = _property(element, "chr", "⏟")
                command = "overset" if _property(element, "pos", "bot") == "top" else "underset"
                brace = _BRACES.get(sign)
                return rf"\{brace}{{{part('e')}}}" if brace else rf"\{command}{{{sign}}}{{{part('e')}}}"
        return self.convert_children(element, depth)


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _property(element: Any, name: str, default: str = "") -> str:
    """Return a property of an element, as `m:chr` in `m:naryPr`."""
    child = element.find(f"{element.tag}Pr/{_M}{name}")
    return default if child is None else child.get(f"{_M}val") or ""


def _group_base(text: str) -> str:
    return text if len(text) == 1 else f"{{{text}}}"


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(sign, sign) for sign in text)
