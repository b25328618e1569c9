"""Cells that stay as they are when a spreadsheet opens and saves a table."""

import re

_CHANGES = re.compile(
    r"\s*[=@＝＠\t\r]|\s*[+＋－]|\s*-(?!(?:0|[1-9]\d{0,14})\Z)|"  # read as a formula
    r"(?!(?:0|[1-9]\d{0,14})\Z)[\d\s.,:/%€$£¥-]*\d[\d\s.,:/%€$£¥-]*\Z|[\d.,]+e[+-]?\d+\Z|"  # as a number or date
    r"(?=.*\d)(?:\d{1,4}[\s.,/-]*)?(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]*\.?"
    r"(?:[\s.,/-]*\d{1,4}){0,2}\Z|\d{1,4}\s?[年년](?:\s?\d{1,2}\s?[月월](?:\s?\d{1,2}\s?[日일])?)?\Z|"
    r"\d{1,2}(?::\d\d){0,2}\s*[ap]\.?m\.?\Z|(?:true|false|wahr|falsch|vrai|faux)\Z",
    re.IGNORECASE,
)


def guarded(cell: str) -> str:
    """A cell with a mark before it where a spreadsheet would read a formula, a date or another number in it.

    >>> guarded("=1+1"), guarded("1/2"), guarded("1871"), guarded("007"), guarded("in 1871")
    ("'=1+1", "'1/2", '1871', "'007", 'in 1871')
    """
    return f"'{cell}" if _CHANGES.match(cell.lstrip("'")) else cell


def unguarded(cell: str) -> str:
    """The cell without the mark, and with plain ends of lines.

    >>> unguarded("'=1+1"), unguarded("'tis so")
    ('=1+1', "'tis so")
    """
    said = cell.replace("\r\n", "\n").replace("\r", "\n")
    return said[1:] if said[:1] == "'" and _CHANGES.match(said.lstrip("'")) else said
