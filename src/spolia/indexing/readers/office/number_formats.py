"""Numbers and dates as Excel shows them, by the format codes of their cells (ECMA-376-1, 18.8.30 and 18.8.31).

>>> [format_value(value, code) for value, code in ((0.075, "0.0%"), (1234.5, '#,##0.00 "CHF"'), (123, "00000"))]
['7.5%', '1,234.50 CHF', '00123']
>>> format_value(datetime(2026, 2, 28, 14, 5), "dd.mm.yyyy h:mm AM/PM")
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
# Not 1899-12-31: Excel counts a 29 February 1900, which did not exist.
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
    """Return whether a code shows values as they are."""
    return code.strip().lower() in ("", "general", "@")


def format_value(value: Cell, code: str) -> str:
    """Format a value as its cell shows it; empty if the format hides it."""
    sections = _parse_sections(code)
    number = _serial(value)
    section, is_absolute = _choose_section(sections, number)
    if section.has("date", "elapsed", "half"):
        return _format_date(section, value).strip()
    if section.has("general"):
        return "".join(
            plain_number(number) if kind == "general" else _literal_text(kind, text) for kind, text in section.tokens
        ).strip()
    if not section.has("digit"):
        return "".join(
            plain_number(number) if kind == "text" else _literal_text(kind, text) for kind, text in section.tokens
        ).strip()
    text = _format_number(section, abs(number))
    return f"-{text}" if number < 0 and not is_absolute and any(digit in "123456789" for digit in text) else text


def plain_number(number: float) -> str:
    """Format a number without a format code, with up to 15 digits."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else f"{number:.15G}"


@lru_cache(maxsize=500)
def _parse_sections(code: str) -> tuple[_Section, ...]:
    # Cached: few codes format all cells of a workbook.
    parts: list[list[_Token]] = [[]]
    conditions: list[tuple[str, float] | None] = [None]
    for token in _TOKEN.finditer(code):
        kind, text = token.lastgroup or "literal", token[token.lastgroup or 0] or ""
        if kind == "literal" and text == ";":
            parts.append([])
            conditions.append(None)
        elif kind == "other":
            if condition := _CONDITION.fullmatch(text):
                conditions[-1] = condition[1], float(condition[2])
        else:
            parts[-1].append(_Token(kind, text if kind in ("quoted", "escaped", "currency") else text.lower()))
    return tuple(_Section(tuple(tokens), condition) for tokens, condition in zip(parts, conditions, strict=True))


def _choose_section(sections: tuple[_Section, ...], number: float) -> tuple[_Section, bool]:
    """Return the section for a number, and whether it shows the number without its sign."""
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


def _literal_text(kind: str, text: str) -> str:
    """Return the text of a token that stands for no digit."""
    return "" if kind in ("space", "fill", "comma", "point", "exponent") else text


def _serial(value: Cell) -> float:
    """Convert a value to Excel's count: in days since 1899-12-30."""
    if isinstance(value, timedelta):
        return value / timedelta(days=1)
    if isinstance(value, time):
        value = datetime.combine(_EPOCH, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    return (value - _EPOCH) / timedelta(days=1) if isinstance(value, datetime) else float(value)


def _format_number(section: _Section, number: float) -> str:
    if section.has("exponent"):
        return _format_scientific(section, number)
    if section.has("slash"):
        return _format_fraction(section, number)
    tokens = section.tokens
    digits = [index for index, token in enumerate(tokens) if token.kind == "digit"]
    point = next((index for index, token in enumerate(tokens) if token.kind == "point"), len(tokens))
    integer_places, decimal_places = (
        [index for index in digits if index < point],
        [index for index in digits if index > point],
    )
    commas = [index for index, token in enumerate(tokens) if token.kind == "comma"]
    is_grouped = any(integer_places and integer_places[0] < index < integer_places[-1] for index in commas)
    thousands = sum(
        index > digits[-1] or (bool(integer_places) and integer_places[-1] < index < point) for index in commas
    )
    percents = sum(token.kind == "percent" for token in tokens)
    # By its shortest digits: the float itself would round 1.005 down, where Excel rounds up.
    exact = Decimal(repr(number)) * 100**percents / 1000**thousands
    text = f"{exact.quantize(Decimal(1).scaleb(-len(decimal_places)), ROUND_HALF_UP):f}"
    integers, _, decimals = text.partition(".")
    integers = integers.lstrip("0").rjust(sum(tokens[index].text == "0" for index in integer_places), "0")
    fraction = list(decimals)
    for index in reversed(decimal_places):
        if tokens[index].text == "0" or (fraction and fraction[-1] != "0"):
            break
        fraction.pop()
    return _fill_places(section, integer_places, decimal_places, integers, "".join(fraction), is_grouped=is_grouped)


def _fill_places(
    section: _Section,
    integer_places: list[int],
    decimal_places: list[int],
    integers: str,
    decimals: str,
    *,
    is_grouped: bool,
) -> str:
    """Put digits into their places; the first place takes all digits that have none of their own."""
    places: dict[int, str] = {}
    if is_grouped:
        groups = [integers[max(0, end - 3) : end] for end in range(len(integers), 0, -3)]
        places = dict.fromkeys(integer_places, "") | (
            {integer_places[0]: ",".join(reversed(groups))} if integer_places else {}
        )
    else:
        rest = integers
        for index in reversed(integer_places):
            places[index], rest = rest[-1:], rest[:-1]
        if integer_places:
            places[integer_places[0]] = rest + places[integer_places[0]]
    places |= {index: decimals[number : number + 1] for number, index in enumerate(decimal_places)}
    words = []
    for index, (kind, text) in enumerate(section.tokens):
        if kind == "digit":
            words.append(places[index])
        elif kind == "point":
            words.append("." if decimals or not decimal_places else "")
        else:
            words.append("%" if kind == "percent" else _literal_text(kind, text))
    return "".join(words).strip()


def _format_scientific(section: _Section, number: float) -> str:
    kinds = [token.kind for token in section.tokens]
    exponent_index = kinds.index("exponent")
    point = kinds.index("point") if "point" in kinds[:exponent_index] else exponent_index
    decimals = kinds[point:exponent_index].count("digit")
    mantissa, _, exponent = f"{number:.{decimals}E}".partition("E")
    sign = "-" if exponent.startswith("-") else "+" if section.tokens[exponent_index].text.endswith("+") else ""
    digits = exponent.lstrip("+-0").rjust(kinds[exponent_index:].count("digit"), "0")
    literals = [_literal_text(kind, text) if kind not in _DIGITS else "\0" for kind, text in section.tokens]
    prefix = "".join(literals).partition("\0")[0]
    return f"{prefix}{mantissa}E{sign}{digits}{''.join(literals).rpartition(chr(0))[2]}".strip()


def _format_fraction(section: _Section, number: float) -> str:
    kinds = [token.kind for token in section.tokens]
    slash_index = kinds.index("slash")
    denominator_text = "".join(
        token.text for token in section.tokens[slash_index + 1 :] if token.kind in ("digit", "literal")
    ).strip()
    integer = int(number) if kinds[:slash_index].count("digit") > len([*_numerator_tokens(section, slash_index)]) else 0
    if denominator_text.isdecimal() and int(denominator_text):
        fraction = Fraction(round((number - integer) * int(denominator_text)), int(denominator_text))
        numerator, denominator = round((number - integer) * int(denominator_text)), int(denominator_text)
    else:
        fraction = Fraction(number - integer).limit_denominator(10 ** max(1, len(denominator_text)) - 1)
        numerator, denominator = fraction.numerator, fraction.denominator
    if fraction == 1 and integer:
        integer, numerator = integer + 1, 0
    part = f"{numerator}/{denominator}" if numerator else ""
    return " ".join(filter(None, (str(integer) if integer or not part else "", part))).strip()


def _numerator_tokens(section: _Section, slash_index: int) -> list[_Token]:
    """Return the digits right before a slash: those of the numerator."""
    tokens: list[_Token] = []
    for token in reversed(section.tokens[:slash_index]):
        if token.kind != "digit":
            break
        tokens.append(token)
    return tokens


def _format_date(section: _Section, value: Cell) -> str:
    moment, days = _to_moment(value)
    has_half, words = section.has("half"), list[str]()
    tokens = section.tokens
    previous_part = ""  # the letter of the date part before this one: an `m` after hours or before seconds is minutes
    fraction_at = -1
    for index, (kind, text) in enumerate(tokens):
        if kind == "elapsed":
            words.append(_format_elapsed(text, days))
            previous_part = text[0]
        elif kind == "half":
            half = "AM" if moment.hour < 12 else "PM"
            words.append(half if text == "am/pm" else half[0])
        elif kind == "date":
            following = next(
                (next_token.text[0] for next_token in tokens[index + 1 :] if next_token.kind in ("date", "elapsed")), ""
            )
            is_minute = text[0] == "m" and len(text) < 3 and (previous_part == "h" or following == "s")
            words.append(
                f"{moment.minute:0{len(text)}}" if is_minute else _format_date_part(text, moment, has_half=has_half)
            )
            previous_part = "" if is_minute else text[0]
        elif kind == "point" and previous_part == "s" and index + 1 < len(tokens) and tokens[index + 1].kind == "digit":
            fraction_at = index
            count = sum(token.kind == "digit" for token in tokens[index:])
            words.append(f".{moment.microsecond:06}"[: count + 1])
        elif kind != "digit" or fraction_at < 0:
            words.append(text if kind in ("comma", "point", "slash") else _literal_text(kind, text))
    return "".join(words)


def _to_moment(value: Cell) -> tuple[datetime, float]:
    """Convert a value to a moment, rounded as Excel does, and to days."""
    serial = _serial(value)
    moment = value if isinstance(value, datetime) else _EPOCH + timedelta(days=serial)
    return moment + timedelta(microseconds=-moment.microsecond % 1000 if moment.microsecond % 1000 > 500 else 0), serial


def _format_elapsed(text: str, days: float) -> str:
    seconds = round(days * 86_400)
    unit = {"h": 3600, "m": 60, "s": 1}[text[0]]
    return f"{seconds // unit:0{len(text)}}"


def _format_date_part(text: str, moment: datetime, *, has_half: bool) -> str:
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
