"""Parsers of lists of texts."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.errors import WiringError
from spolia.models.parsers.json_object import parse_loose
from spolia.models.parsers.parser import LONGEST, Parser, refuses, strip_thoughts
from spolia.models.parsers.tags import normalize_name, strip_marks

_MARK = re.compile(
    r"^\s*(?P<bold>\*\*|__|\*)?(?:"
    r"[-–—+*•◦▪‣·・●○■★→✅🔍>|]\s+(?:\[[ x]\]\s+)?"
    r"|[•◦▪・①-⑳]\s*|-(?=[^\W\d])|(?:\d️?⃣)\s*"
    r"|(?:#|No\.\s?)?[(（\[]?[0-9０-９]{1,3}\s?(?:\\?[.:)）\]、．/>]|\.\))+(?!\d)\s*|[(（\[]?[0-9]{1,3}\s-\s"
    r"|#\d{1,3}\s+|[0-9]{1,2}(?:단계|번)\s*[:：.)]\s*"
    r"|[(（]?(?:[a-hA-H]|[ivxIVX]{1,4})[.)）](?:\s+|$)|[一二三四五六七八九十]{1,2}、|[가나다라마바사]\.\s+)"
    r"(?P=bold)?(?(bold)|)\s*"
)
_LABEL = re.compile(
    r"^[\s*_#\[]*(?:(?:sub[- ]?)?(?:questions?|quer(?:y|ies))|claim|fact|statement|step|item|search|variation|version|"
    r"no\.|[QFSC]|子?问题|步骤|步驟|질문|質問|frage|第|하위 질문|ステップ|手順)"
    r"\s*#?(?:[0-9０-９]{1,2}|[A-H](?=[:.])|[一二三]|(?=:[\s*_]*[\w\"'¿]))(?:步|个问题)?"
    r"(?:[\s*_\]]*[:：.\]]+[\s*_]*|\s+-\s+|[\s*_]*$)",
    re.IGNORECASE,
)
_INITIALS = re.compile(r"[A-Z]{1,4}\.\s")
"""A name begins with some: `A. Smith`."""
_ORDINAL = re.compile(r"^(?:first|second|third|fourth|fifth)(?:ly)?:\s+", re.IGNORECASE)
_INLINE = re.compile(r"(?:^|[\s,;])(?:\(\d{1,2}\)|\d{1,2}[.)])\s+(?=[^\W\d])|[•]\s+")
_FENCE = re.compile(r"^[^\S\n]*+(?:```|~~~).*$", re.MULTILINE)
RULE = re.compile(r"[\W_]*$")
_TAGGED = re.compile(r"<(\w++)(?:\s[^<>]*+)?>([^<>]++)</\1>")
_TAG = re.compile(r"</?\w+(?:\s[^<>]*)?>")
_ROW = re.compile(r"^\|\s*+\d{1,3}\s*+\|(.*)\|$")
CLOSING = re.compile(
    r"let me know|i hope|hope this|feel free|希望|以上|that's it|if you (?:need|would|want)", re.IGNORECASE
)
_ANNOUNCES = re.compile(
    r"\W*+(?:(?:sure|certainly|of course|absolutely|great|okay|ok|happy to help)\s*[!,.:—–-]|sure\b.{0,20}\bhere\b|"
    r"(?:here|below|these|the following) (?:are|is)\b|here['’]s\b|let['’]s (?:break|split|decompose|reword)\b|"
    r"i(?:['’]ve| have|['’]ll| will) (?:split|break|broken|reword|rewrit|rephras|decompos|list|generat|creat|prepar)|"
    r"(?:hier sind|voici|aquí (?:están|tienes))\b|"
    r"(?:好的|当然|當然|没问题)\s*[!！,，。]|(?:以下|下面|这些|這些|这里|這裡)(?:是|为|為|就是)|"
    r"(?:네|물론(?:입니다|이죠)?|알겠습니다)\s*[,.!]|(?:다음은|아래는|다음과 같이|여기)|"
    r"(?:はい|もちろん(?:です)?|承知しました)\s*[、。!！]|(?:以下|次)(?:は|に|の通り))",
    re.IGNORECASE,
)
_PAIRS = (
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
    ("「", "」"),
    ("『", "』"),
    ("`", "`"),
    ("**", "**"),
    ("[", "]"),
    ("*", "*"),
)


@dataclass(frozen=True)
class Lines(Parser[tuple[str, ...]]):
    """Parser of one text a line, without bullets, numbers, empty lines and repetitions; or of the texts of a JSON list.

    Apologies, refusals and lines that only announce items (`Here are three`) do not count.

    Where some lines are marked as items (by a bullet, a number, `Question 1:`), text before the first and after the
    last is not an item.

    Args:
        at_most: items; the rest is left out.

    >>> Lines().parse("Sure:\\n1. Who is he?\\n- Where was he?\\n\\n2) Who is he?")
    ('Who is he?', 'Where was he?')
    >>> Lines().parse('["Who is he?", "Where was he?"]')
    ('Who is he?', 'Where was he?')
    """

    at_most: int = 20

    def parse(self, reply: str) -> tuple[str, ...]:
        text = _FENCE.sub("", strip_thoughts(reply)[:LONGEST]).strip("\n")
        items = [_strip_quotes(item) for item in list_texts(text) or _tagged_texts(text) or _items(text)]
        texts = tuple(dict.fromkeys(item for item in items if item and item.casefold() != "n/a" and not refuses(item)))
        if not texts and any(map(refuses, items)):
            raise ValueError("it must be the texts that were asked for, one a line, and it is a refusal")
        if not texts:
            raise ValueError("it must not be empty")
        return texts[: self.at_most]


def unwrap_text(reply: str) -> str:
    """Return a text without fences, a line that only announces it, and the mark or label of an item before it.

    >>> unwrap_text("Sure:\\n```\\n**Question 2:** Where is it?\\n```"), unwrap_text("It rose in 1998. Then it fell.")
    ('Where is it?', 'It rose in 1998. Then it fell.')
    """
    if len(items := list_texts(reply)) == 1:
        return _strip_quotes(items[0])
    lines = [line for line in _TAG.sub("", _FENCE.sub("", reply)).splitlines() if line.strip()]
    if len(lines) > 1 and (_is_announcement(*lines[:2]) or _is_heading(*lines[:2])):
        lines = lines[1:]
    text = _strip_quotes("\n".join(lines))
    return text if _INITIALS.match(text) else _strip_quotes(_item_text(text) or text)


def list_texts(reply: str) -> list[str]:
    """Return the texts of a list in JSON, or of an object that holds them, without numbers before them; none if it is
    no list.

    >>> list_texts('{"steps": ["1. Who is he?", "2. Where is #1?"]}'), list_texts("Who is he?")
    (['Who is he?', 'Where is #1?'], [])
    """
    reply = _TAG.sub("", _FENCE.sub("", reply)).strip().strip("`")
    begins = re.search(r"(?:^|[\n=][^\S\n]*+)(\[(?!\d+\]|[ x]\]|\w+ \d+\]|\w[^,\n]{0,500}\]\s*\w)|\{)", reply)
    if begins is None or reply[-1:] not in ("]", "}"):
        quoted = reply[:1] == reply[-1:] == '"' and '", "' in reply[2:-2] and "\n" not in reply
        return [part.strip('"') for part in reply.split('", "')] if quoted else []
    try:
        value = parse_loose(reply, begins.start(1))
    except ValueError:
        return []
    return [_item_text(text) or text for text in _texts(value, 0)]


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    # Recursion stays bounded, whatever a model writes.
    elif isinstance(value, (list, dict)) and depth < 5:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner, depth + 1)


def _tagged_texts(reply: str) -> list[str]:
    """Return the texts in tags, if there are tags around each."""
    pairs = _TAGGED.findall(reply)
    texts = [text.strip() for _, text in pairs]
    return texts if len({tag for tag, _ in pairs}) == 1 and not any("\n" in text for text in texts) else []


def _items(reply: str) -> list[str]:
    lines = _TAG.sub("", re.sub(r"<br ?/?>", "\n", reply)).split("\n")
    if len([line for line in lines if line.strip()]) == 1:
        parts = [part.strip(" ,;") for part in _INLINE.split(lines[0].strip())]
        if len(parts) > 2 and not parts[0]:
            return parts[1:]
    rows = [row[1].strip() for line in lines if (row := _ROW.match(line.strip()))]
    return rows or _marked_items(lines) or _unmarked_items(lines)


def _marked_items(lines: list[str]) -> list[str]:
    """Return the texts of the lines that are marked as items, with the lines that continue them."""
    items: list[str] = []
    empty = False
    for line in lines:
        text = _item_text(line)
        if text is not None:
            items.append(text)
            empty = not text
        elif items and line.strip() and (empty or _continues_item(items[-1], line)):
            items[-1] = f"{items[-1]} {line.strip()}".strip()
            empty = False
    return items


def _continues_item(item: str, line: str) -> bool:
    """Return whether a line without a mark belongs to the item above it."""
    return item.endswith(",") or (line[0].isspace() and line.strip()[0].islower())


def _item_text(line: str) -> str | None:
    """Return the text after the mark of an item; None without a mark."""
    mark = _MARK.match(line)
    text = line[mark.end() :] if mark else line
    label = _LABEL.match(text) or _ORDINAL.match(text)
    if label:
        text = text[label.end() :]
    return text if mark or label else None


def _unmarked_items(lines: list[str]) -> list[str]:
    """Return all lines but those that introduce others, rule them off or say goodbye."""
    lines = [line.strip() for line in lines if line.strip()]
    split_lines = [line.split(maxsplit=1) for line in lines]
    if len(lines) > 1 and all(len(c) > 1 and c[0] == str(number) for number, c in enumerate(split_lines, 1)):
        return [rest for _, rest in split_lines]
    items = [line for line in lines if not RULE.match(line)]
    if len(items) > 1:
        items = [items[0], *(line for line in items[1:] if not CLOSING.search(line))]
        items = items[_is_announcement(*items[:2]) :]
        next_lines = dict(zip(lines, [*lines[1:], ""], strict=True))
        items = [line for line in items if not _is_heading(line, next_lines[line])]
    return [
        re.sub(r"^[\w -]{1,30}(?:questions?|quer(?:y|ies)):\s+(?=\w)", "", line, flags=re.IGNORECASE) for line in items
    ]


def _is_announcement(line: str, next_line: str = "") -> bool:
    """Return whether the first line speaks of the next: `Here are three`, or a statement before a question."""
    if line.endswith(("?", "？")):
        return False
    return _ANNOUNCES.match(line) is not None or (line.endswith((".", "。")) and next_line.endswith(("?", "？")))


def _is_heading(line: str, next_line: str) -> bool:
    """Return whether a line is a heading or announces others."""
    return (
        line.startswith("#") or line.rstrip("*_ ").endswith((":", "：")) or bool(re.fullmatch(r"[=-]{3,}", next_line))
    )


def _strip_quotes(item: str) -> str:
    """Return a text without the quotes and bold type around it."""
    item = item.strip().rstrip(";").strip()
    item = item[:-2] if item.count("**") == 1 and item.endswith("**") else item
    # Models nest at most a few: bold type around quotes around code.
    for _ in range(3):
        for opening, closing in _PAIRS:
            inner = item[len(opening) : -len(closing)]
            if (
                len(item) > len(opening + closing)
                and item.startswith(opening)
                and item.endswith(closing)
                and (opening not in inner and closing not in inner)
            ):
                item = inner.strip()
    return item


_HEADING_START = (
    r"^[ \t>]*+(?:[-+•*][ \t]++)?(?:\(?\d{1,2}[.)、][ \t]*+)?(?:#{1,6}[ \t]*+)?(?:\d{1,2}[.)、][ \t]*+)?"
    r"[*_\[【「<\"'`]{0,4}[ \t]*+"
)
_MARKS = r"[ \t]*+[*_\]】」>\"'`]{0,4}[ \t]*+"
_HEADING_COLON = rf"{_MARKS}(?:[:：=]|-{{1,2}}>|→|[-–—](?=[ \t]))[ \t]*+(?:(?:\*\*|__|`|\*)(?=\s))?"
_HEADING_END = rf"{_MARKS}[:：]?[ \t]*+[*_]{{0,3}}[ \t]*+$"


@dataclass(frozen=True)
class Headed(Parser[dict[str, str]]):
    """Parser of sections by their headings, the last where one comes several times.

    A section begins at a line that begins with its name, with a colon, an arrow or a dash after it, or with nothing but
    the name; heading marks, numbers, bullets, bold type, brackets and case do not matter. It ends where the next of
    these begins, or with the reply. Text before the first is ignored. Texts are without blanks around them.

    Args:
        names: of the sections, all of which have to be there.
        optional: of sections that may be there.

    >>> Headed(("thought", "answer")).parse("Sure.\\n**Thought:** It was Nokia.\\n### Answer\\nNokia")
    {'thought': 'It was Nokia.', 'answer': 'Nokia'}
    """

    names: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.names or not all(re.search(r"\w", name) for name in (*self.names, *self.optional)):
            raise WiringError(f"Headed has names={self.names!r:.80}. Write names of letters: ('answer',).")

    def parse(self, reply: str) -> dict[str, str]:
        names = (*self.names, *self.optional)
        sections = dict(_sections(strip_thoughts(reply)[:LONGEST], names))
        if missing := [name for name in self.names if name not in sections]:
            example = " ".join(f"{name.capitalize()}: ..." for name in self.names)
            raise ValueError(f"it must have a section {missing[0]}, each on lines of its own, written: {example}")
        return {name: sections[name] for name in names if name in sections}


def _sections(reply: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each section, in order."""
    names_by_plain = {normalize_name(name): name for name in names}
    alternatives = "|".join(
        r"[ _-]?".join(map(re.escape, re.split(r"[\s_-]+", name))) for name in sorted(names, key=len)[::-1]
    )
    heading = re.compile(
        rf"{_HEADING_START}({alternatives})(?:{_HEADING_COLON}|{_HEADING_END})", re.IGNORECASE | re.MULTILINE
    )
    normalized = "".join(  # full-width letters, digits and marks in their usual forms, which are one character too
        unicodedata.normalize("NFKC", letter) if "\uff01" <= letter <= "\uff5e" else letter for letter in reply
    )
    headings = list(heading.finditer(normalized))
    for index, mark in enumerate(headings):
        end = headings[index + 1].start() if index + 1 < len(headings) else len(reply)
        yield names_by_plain[normalize_name(mark[1])], strip_marks(_strip_rule(reply[mark.end() : end]))


def _strip_rule(text: str) -> str:
    """Return a section without a line that parts it from others."""
    return re.sub(r"\A[ \t]*\n?(?:[-=_*]{3,}[ \t]*\n)|\n[ \t]*+(?:[-=_*]{3,}+|```)\s*+\Z", "", text)
