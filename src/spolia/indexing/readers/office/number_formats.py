"""Numbers and dates as Excel shows them, by the format codes of their cells (ECMA-376-1, 18.8.30 and 18.8.31).

>>> [shown(value, code) for value, code in ((0.075, "0.0%"), (1234.5, '#,##0.00 "CHF"'), (123, "00000"))]
['7.5%', '1,234.50 CHF', '00123']
>>> shown(datetime(2026, 2, 28, 14, 5), "dd.mm.yyyy h:mm AM/PM")
'28.02.2026 2:05 PM'
"""

import re
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

BUILT_IN = {
    1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 12: "# ?/?", 13: "# ??/??",
    15: "d-mmm-yy", 16: "d-mmm", 17: "mmm-yy", 18: "h:mm AM/PM", 19: "h:mm:ss AM/PM", 20: "h:mm", 21: "h:mm:ss",
    37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;(#,##0.00)", 45: "mm:ss",
    46: "[h]:mm:ss", 47: "mm:ss.0", 48: "##0.0E+0",
}  # fmt: skip
"""Codes that a file names by number. Left out are those that depend on the reader's country, 14 and 22: ISO 8601."""

Cell = float | datetime | date | time | timedelta

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[(?P<elapsed>h+|m+|s+)\]|\[(?P<other>[^\]]*)\]'
    r"|(?P<general>general)|(?P<half>am/pm|a/p)|(?P<exponent>e[+-])|(?P<date>y+|m+|d+|h+|s+|b+|e+|g+)"
    r"|(?P<digit>[0#?])|(?P<point>\.)|(?P<comma>,)|(?P<percent>%)|(?P<slash>/)|(?P<text>@)|_(?P<space>.)|\*(?P<fill>.)"
    r"|(?P<literal>.)",
    re.IGNORECASE | re.DOTALL,
)
_CONDITION = re.compile(r"(<=|>=|<>|<|>|=)(-?[\d.]+)")
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December"]  # fmt: skip
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
"""Not those of the locale: the same file has the same text everywhere."""
_EPOCH = datetime(1899, 12, 30)
_DIGITS = ("digit", "point", "comma", "exponent", "slash")


class _Token(NamedTuple):
    kind: str
    text: str


class _Section(NamedTuple):
    tokens: tuple[_Token, ...]
    condition: tuple[str, float] | None

    def has(self, *kinds: str) -> bool:
        return any(token.kind in kinds for token in self.tokens)


def is_plain(code: str) -> bool:
    """Whether a code shows values as they are."""
    return code.strip().lower() in ("", "general", "@")


def shown(value: Cell, code: str) -> str:
    """A value as its cell shows it; empty if the format hides it."""
    sections = _sections(code)
    number = _serial(value)
    section, is_absolute = _chosen(sections, number)
    if section.has("date", "elapsed", "half"):
        return _date(section, value).strip()
    if section.has("general"):
        return "".join(
            plain(number) if kind == "general" else _word(kind, text) for kind, text in section.tokens
        ).strip()
    if not section.has("digit"):
        return "".join(plain(number) if kind == "text" else _word(kind, text) for kind, text in section.tokens).strip()
    text = _number(section, abs(number))
    return f"-{text}" if number < 0 and not is_absolute and any(one in "123456789" for one in text) else text


def plain(number: float) -> str:
    """A number without a format, with up to 15 digits."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else f"{number:.15G}"


@lru_cache(maxsize=500)
def _sections(code: str) -> tuple[_Section, ...]:
    parts: list[list[_Token]] = [[]]
    conditions: list[tuple[str, float] | None] = [None]
    for found in _TOKEN.finditer(code):
        kind, text = found.lastgroup or "literal", found[found.lastgroup or 0] or ""
        if kind == "literal" and text == ";":
            parts.append([])
            conditions.append(None)
        elif kind == "other":
            if condition := _CONDITION.fullmatch(text):
                conditions[-1] = condition[1], float(condition[2])
        else:
            parts[-1].append(_Token(kind, text if kind in ("quoted", "escaped", "currency") else text.lower()))
    return tuple(_Section(tuple(tokens), condition) for tokens, condition in zip(parts, conditions, strict=True))


def _chosen(sections: tuple[_Section, ...], number: float) -> tuple[_Section, bool]:
    """The section for a number, and whether that shows it without its sign."""
    if any(section.condition for section in sections):
        for section in sections[:3]:
            if section.condition is None or _holds(section.condition, number):
                return section, False
        return sections[-1], False
    if len(sections) > 2 and number == 0:
        return sections[2], False
    return (sections[1], True) if len(sections) > 1 and number < 0 else (sections[0], False)


def _holds(condition: tuple[str, float], number: float) -> bool:
    sign, bound = condition
    smaller, equal = number < bound, number == bound
    return {"<": smaller, "<=": smaller or equal, "=": equal, "<>": not equal, ">": not (smaller or equal),
            ">=": not smaller}[sign]  # fmt: skip


def _word(kind: str, text: str) -> str:
    """What a token that stands for no digit adds."""
    return "" if kind in ("space", "fill", "comma", "point", "exponent") else text


def _serial(value: Cell) -> float:
    """A value as Excel counts: in days since 1899-12-30."""
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    if isinstance(value, time):
        value = datetime.combine(_EPOCH, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return (value - _EPOCH) / timedelta(days=1) if isinstance(value, datetime) else float(value)


def _number(section: _Section, number: float) -> str:
    if section.has("exponent"):
        return _scientific(section, number)
    if section.has("slash"):
        return _fraction(section, number)
    tokens = section.tokens
    digits = [at for at, token in enumerate(tokens) if token.kind == "digit"]
    point = next((at for at, token in enumerate(tokens) if token.kind == "point"), len(tokens))
    whole, after = [at for at in digits if at < point], [at for at in digits if at > point]
    commas = [at for at, token in enumerate(tokens) if token.kind == "comma"]
    is_grouped = any(whole and whole[0] < at < whole[-1] for at in commas)
    thousands = sum(at > digits[-1] or (bool(whole) and whole[-1] < at < point) for at in commas)
    percents = sum(token.kind == "percent" for token in tokens)
    exact = Decimal(repr(number)) * 100**percents / 1000**thousands
    text = f"{exact.quantize(Decimal(1).scaleb(-len(after)), ROUND_HALF_UP):f}"
    front, _, back = text.partition(".")
    front = front.lstrip("0").rjust(sum(tokens[at].text == "0" for at in whole), "0")
    fraction = list(back)
    for at in reversed(after):
        if tokens[at].text == "0" or (fraction and fraction[-1] != "0"):
            break
        fraction.pop()
    return _filled(section, whole, after, front, "".join(fraction), is_grouped=is_grouped)


def _filled(section: _Section, whole: list[int], after: list[int], front: str, back: str, *, is_grouped: bool) -> str:
    """Put digits into their places; the first place takes all digits that have none of their own."""
    places: dict[int, str] = {}
    if is_grouped:
        groups = [front[max(0, end - 3) : end] for end in range(len(front), 0, -3)]
        places = dict.fromkeys(whole, "") | ({whole[0]: ",".join(reversed(groups))} if whole else {})
    else:
        rest = front
        for at in reversed(whole):
            places[at], rest = rest[-1:], rest[:-1]
        if whole:
            places[whole[0]] = rest + places[whole[0]]
    places |= {at: back[number : number + 1] for number, at in enumerate(after)}
    words = []
    for at, (kind, text) in enumerate(section.tokens):
        if kind == "digit":
            words.append(places[at])
        elif kind == "point":
            words.append("." if back or not after else "")
        else:
            words.append("%" if kind == "percent" else _word(kind, text))
    return "".join(words).strip()


def _scientific(section: _Section, number: float) -> str:
    kinds = [token.kind for token in section.tokens]
    at = kinds.index("exponent")
    point = kinds.index("point") if "point" in kinds[:at] else at
    decimals = kinds[point:at].count("digit")
    mantissa, _, exponent = f"{number:.{decimals}E}".partition("E")
    sign = "-" if exponent.startswith("-") else "+" if section.tokens[at].text.endswith("+") else ""
    digits = exponent.lstrip("+-0").rjust(kinds[at:].count("digit"), "0")
    around = [_word(kind, text) if kind not in _DIGITS else "\0" for kind, text in section.tokens]
    before = "".join(around).partition("\0")[0]
    return f"{before}{mantissa}E{sign}{digits}{''.join(around).rpartition(chr(0))[2]}".strip()


def _fraction(section: _Section, number: float) -> str:
    kinds = [token.kind for token in section.tokens]
    at = kinds.index("slash")
    below = "".join(token.text for token in section.tokens[at + 1 :] if token.kind in ("digit", "literal")).strip()
    whole = int(number) if kinds[:at].count("digit") > len([*_run(section, at)]) else 0
    if below.isdecimal() and int(below):
        found = Fraction(round((number - whole) * int(below)), int(below))
        numerator, denominator = round((number - whole) * int(below)), int(below)
    else:
        found = Fraction(number - whole).limit_denominator(10 ** max(1, len(below)) - 1)
        numerator, denominator = found.numerator, found.denominator
    if found == 1 and whole:
        whole, numerator = whole + 1, 0
    part = f"{numerator}/{denominator}" if numerator else ""
    return " ".join(filter(None, (str(whole) if whole or not part else "", part))).strip()


def _run(section: _Section, at: int) -> list[_Token]:
    """The places right before a slash: those of the numerator."""
    found: list[_Token] = []
    for token in reversed(section.tokens[:at]):
        if token.kind != "digit":
            break
        found.append(token)
    return found


def _date(section: _Section, value: Cell) -> str:
    moment, days = _moment(value)
    has_half, words = section.has("half"), list[str]()
    tokens = section.tokens
    before = ""  # the letter of the date part before this one: an `m` after hours or before seconds is minutes
    fraction_at = -1
    for at, (kind, text) in enumerate(tokens):
        if kind == "elapsed":
            words.append(_elapsed(text, days))
            before = text[0]
        elif kind == "half":
            half = "AM" if moment.hour < 12 else "PM"
            words.append(half if text == "am/pm" else half[0])
        elif kind == "date":
            following = next((one.text[0] for one in tokens[at + 1 :] if one.kind in ("date", "elapsed")), "")
            is_minute = text[0] == "m" and len(text) < 3 and (before == "h" or following == "s")
            words.append(f"{moment.minute:0{len(text)}}" if is_minute else _date_part(text, moment, has_half=has_half))
            before = "" if is_minute else text[0]
        elif kind == "point" and before == "s" and at + 1 < len(tokens) and tokens[at + 1].kind == "digit":
            fraction_at = at
            count = sum(token.kind == "digit" for token in tokens[at:])
            words.append(f".{moment.microsecond:06}"[: count + 1])
        elif kind != "digit" or fraction_at < 0:
            words.append(text if kind in ("comma", "point", "slash") else _word(kind, text))
    return "".join(words)


def _moment(value: Cell) -> tuple[datetime, float]:
    """A value as a moment, rounded as Excel does, and in days."""
    serial = _serial(value)
    moment = value if isinstance(value, datetime) else _EPOCH + timedelta(days=serial)
    return moment + timedelta(microseconds=-moment.microsecond % 1000 if moment.microsecond % 1000 > 500 else 0), serial


def _elapsed(text: str, days: float) -> str:
    seconds = round(days * 86_400)
    unit = {"h": 3600, "m": 60, "s": 1}[text[0]]
    return f"{seconds // unit:0{len(text)}}"


def _date_part(text: str, moment: datetime, *, has_half: bool) -> str:
    letter, length = text[0], len(text)
    if letter in "ye":
        return f"{moment.year:04}" if length > 2 or letter == "e" else f"{moment.year % 100:02}"
    if letter == "m":
        name = _MONTHS[moment.month - 1]
        return {1: str(moment.month), 2: f"{moment.month:02}", 3: name[:3], 5: name[0]}.get(length, name)
    if letter == "d":
        name = _DAYS[moment.weekday()]
        return {1: str(moment.day), 2: f"{moment.day:02}", 3: name[:3]}.get(length, name)
    if letter in "hs":
        number = ((moment.hour - 1) % 12 + 1 if has_half else moment.hour) if letter == "h" else moment.second
        return f"{number:0{length}}"
    return ""
