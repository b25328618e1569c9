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


def latex(formula: Any, is_left_out: Callable[[Any], bool] = lambda _: False) -> str:
    """The LaTeX of an `m:oMath`, without dollars; `is_left_out` says which elements are hidden or deleted."""
    return _Latex(is_left_out).inside(formula, 0).strip()


class _Latex:
    def __init__(self, is_left_out: Callable[[Any], bool]) -> None:
        self.is_left_out = is_left_out

    def inside(self, element: Any, depth: int) -> str:
        """All parts of an element, one after the other."""
        if element is None:
            return ""
        if depth > _DEEPEST:
            return _escaped("".join(one.text or "" for one in element.iter() if _name(one) == "t"))
        return "".join(
            self._one(child, depth + 1)
            for child in element
            if isinstance(child.tag, str) and not _name(child).endswith("Pr") and not self.is_left_out(child)
        )

    def _one(self, at: Any, depth: int) -> str:
        done: dict[str, str] = {}  # each part once, or nested ones would take twice as long for each level

        def part(name: str) -> str:
            if name not in done:
                done[name] = self.inside(at.find(f"{_M}{name}"), depth).strip()
            return done[name]

        def parts(name: str) -> list[str]:
            return [self.inside(one, depth).strip() for one in at.findall(f"{_M}{name}")]

        match _name(at) if at.tag.startswith(_M) or _name(at) == "t" else "":
            case "t":
                return _escaped(at.text or "")
            case "f" if _said(at, "type") == "lin":
                return f"{part('num')}/{part('den')}"
            case "f" if _said(at, "type") == "noBar":
                return rf"\binom{{{part('num')}}}{{{part('den')}}}"
            case "f":
                return rf"\frac{{{part('num')}}}{{{part('den')}}}"
            case "rad":
                return rf"\sqrt[{part('deg')}]{{{part('e')}}}" if part("deg") else rf"\sqrt{{{part('e')}}}"
            case "sSup":
                return f"{_base(part('e'))}^{{{part('sup')}}}"
            case "sSub":
                return f"{_base(part('e'))}_{{{part('sub')}}}"
            case "sSubSup":
                return f"{_base(part('e'))}_{{{part('sub')}}}^{{{part('sup')}}}"
            case "sPre":
                return f"{{}}_{{{part('sub')}}}^{{{part('sup')}}}{_base(part('e'))}"
            case "nary":
                sign = _said(at, "chr", "∫")
                bounds = "".join(f"{mark}{{{part(name)}}}" for mark, name in (("_", "sub"), ("^", "sup")) if part(name))
                return f"{_SIGNS.get(sign, sign)}{bounds} {part('e')}"
            case "d":
                opening, closing = _said(at, "begChr", "("), _said(at, "endChr", ")")
                between = f" {_said(at, 'sepChr', '|')} ".join(parts("e"))
                return rf"\left{_FENCES.get(opening, opening)} {between} \right{_FENCES.get(closing, closing)}"
            case "func":
                sign = "\\" if part("fName") in _FUNCTIONS else ""
                return f"{sign}{part('fName')} {part('e')}"
            case "acc":
                return rf"\{_ACCENTS.get(_said(at, 'chr', chr(0x302)), 'hat')}{{{part('e')}}}"
            case "bar":
                return rf"\{'overline' if _said(at, 'pos') == 'top' else 'underline'}{{{part('e')}}}"
            case "m":
                lines = [row.findall(f"{_M}e") for row in at.findall(f"{_M}mr")]
                rows = [" & ".join(self.inside(cell, depth) for cell in line) for line in lines]
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
                sign = _said(at, "chr", "⏟")
                where = "overset" if _said(at, "pos", "bot") == "top" else "underset"
                brace = _BRACES.get(sign)
                return rf"\{brace}{{{part('e')}}}" if brace else rf"\{where}{{{sign}}}{{{part('e')}}}"
        return self.inside(at, depth)


def _name(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _said(element: Any, name: str, otherwise: str = "") -> str:
    """A property of an element, as `m:chr` in `m:naryPr`."""
    found = element.find(f"{element.tag}Pr/{_M}{name}")
    return otherwise if found is None else found.get(f"{_M}val") or ""


def _base(text: str) -> str:
    return text if len(text) == 1 else f"{{{text}}}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(sign, sign) for sign in text)
