"""Lists of texts."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.errors import WiringError
from spolia.models.parsers.json_object import loose
from spolia.models.parsers.parser import LONGEST, Parser, refuses, spoken
from spolia.models.parsers.tags import bare, plain_name

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
    """One text a line, without bullets, numbers, empty lines and repetitions; or the texts of a JSON list.

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
        said = _FENCE.sub("", spoken(reply)[:LONGEST]).strip("\n")
        items = [_bare(item) for item in listed(said) or _tagged(said) or _items(said)]
        found = tuple(dict.fromkeys(item for item in items if item and item.casefold() != "n/a" and not refuses(item)))
        if not found and any(map(refuses, items)):
            raise ValueError("it must be the texts that were asked for, one a line, and it is a refusal")
        if not found:
            raise ValueError("it must not be empty")
        return found[: self.at_most]


def single(said: str) -> str:
    """A text without fences, a line that only announces it, and the mark or label of an item before it.

    >>> single("Sure:\\n```\\n**Question 2:** Where is it?\\n```"), single("It rose in 1998. Then it fell.")
    ('Where is it?', 'It rose in 1998. Then it fell.')
    """
    if len(items := listed(said)) == 1:
        return _bare(items[0])
    lines = [line for line in _TAG.sub("", _FENCE.sub("", said)).splitlines() if line.strip()]
    if len(lines) > 1 and (_announces(*lines[:2]) or _introduces(*lines[:2])):
        lines = lines[1:]
    text = _bare("\n".join(lines))
    return text if _INITIALS.match(text) else _bare(_item_text(text) or text)


def listed(said: str) -> list[str]:
    """The texts of a list in JSON, or of an object that holds them, without numbers before them; none where it is none.

    >>> listed('{"steps": ["1. Who is he?", "2. Where is #1?"]}'), listed("Who is he?")
    (['Who is he?', 'Where is #1?'], [])
    """
    said = _TAG.sub("", _FENCE.sub("", said)).strip().strip("`")
    begins = re.search(r"(?:^|[\n=][^\S\n]*+)(\[(?!\d+\]|[ x]\]|\w+ \d+\]|\w[^,\n]{0,500}\]\s*\w)|\{)", said)
    if begins is None or said[-1:] not in ("]", "}"):
        quoted = said[:1] == said[-1:] == '"' and '", "' in said[2:-2] and "\n" not in said
        return [found.strip('"') for found in said.split('", "')] if quoted else []
    try:
        found = loose(said, begins.start(1))
    except ValueError:
        return []
    return [_item_text(text) or text for text in _texts(found, 0)]


def _texts(found: Any, depth: int) -> Iterator[str]:
    if isinstance(found, str):
        yield found
    elif isinstance(found, (list, dict)) and depth < 5:
        for inner in found.values() if isinstance(found, dict) else found:
            yield from _texts(inner, depth + 1)


def _tagged(said: str) -> list[str]:
    """The texts in tags, where there are tags around each."""
    found = _TAGGED.findall(said)
    within = [text.strip() for _, text in found]
    return within if len({tag for tag, _ in found}) == 1 and not any("\n" in text for text in within) else []


def _items(said: str) -> list[str]:
    lines = _TAG.sub("", re.sub(r"<br ?/?>", "\n", said)).split("\n")
    if len([line for line in lines if line.strip()]) == 1:
        parts = [part.strip(" ,;") for part in _INLINE.split(lines[0].strip())]
        if len(parts) > 2 and not parts[0]:
            return parts[1:]
    rows = [row[1].strip() for line in lines if (row := _ROW.match(line.strip()))]
    return rows or _marked(lines) or _unmarked(lines)


def _marked(lines: list[str]) -> list[str]:
    """Texts of the lines that are marked as items, with the lines that go on with them."""
    items: list[str] = []
    empty = False
    for line in lines:
        text = _item_text(line)
        if text is not None:
            items.append(text)
            empty = not text
        elif items and line.strip() and (empty or _goes_on(items[-1], line)):
            items[-1] = f"{items[-1]} {line.strip()}".strip()
            empty = False
    return items


def _goes_on(item: str, line: str) -> bool:
    """Whether a line without a mark belongs to the item above it."""
    return item.endswith(",") or (line[0].isspace() and line.strip()[0].islower())


def _item_text(line: str) -> str | None:
    """The text after the mark of an item; None without a mark."""
    mark = _MARK.match(line)
    text = line[mark.end() :] if mark else line
    label = _LABEL.match(text) or _ORDINAL.match(text)
    if label:
        text = text[label.end() :]
    return text if mark or label else None


def _unmarked(lines: list[str]) -> list[str]:
    """All lines but those that introduce others, rule them off or say goodbye."""
    lines = [line.strip() for line in lines if line.strip()]
    counted = [line.split(maxsplit=1) for line in lines]
    if len(lines) > 1 and all(len(c) > 1 and c[0] == str(number) for number, c in enumerate(counted, 1)):
        return [rest for _, rest in counted]
    kept = [line for line in lines if not RULE.match(line)]
    if len(kept) > 1:
        kept = [kept[0], *(line for line in kept[1:] if not CLOSING.search(line))]
        kept = kept[_announces(*kept[:2]) :]
        after = dict(zip(lines, [*lines[1:], ""], strict=True))
        kept = [line for line in kept if not _introduces(line, after[line])]
    return [
        re.sub(r"^[\w -]{1,30}(?:questions?|quer(?:y|ies)):\s+(?=\w)", "", line, flags=re.IGNORECASE) for line in kept
    ]


def _announces(line: str, after: str = "") -> bool:
    """Whether the first line speaks of those after it: `Here are three`, or a statement before a question."""
    if line.endswith(("?", "？")):
        return False
    return _ANNOUNCES.match(line) is not None or (line.endswith((".", "。")) and after.endswith(("?", "？")))


def _introduces(line: str, after: str) -> bool:
    """Whether a line is a heading or announces others."""
    return line.startswith("#") or line.rstrip("*_ ").endswith((":", "：")) or bool(re.fullmatch(r"[=-]{3,}", after))


def _bare(item: str) -> str:
    """A text without the quotes and bold type around it."""
    item = item.strip().rstrip(";").strip()
    item = item[:-2] if item.count("**") == 1 and item.endswith("**") else item
    for _ in range(3):
        for before, after in _PAIRS:
            inner = item[len(before) : -len(after)]
            if (
                len(item) > len(before + after)
                and item.startswith(before)
                and item.endswith(after)
                and (before not in inner and after not in inner)
            ):
                item = inner.strip()
    return item


_BEFORE = (
    r"^[ \t>]*+(?:[-+•*][ \t]++)?(?:\(?\d{1,2}[.)、][ \t]*+)?(?:#{1,6}[ \t]*+)?(?:\d{1,2}[.)、][ \t]*+)?"
    r"[*_\[【「<\"'`]{0,4}[ \t]*+"
)
_MARKS = r"[ \t]*+[*_\]】」>\"'`]{0,4}[ \t]*+"
_AFTER = rf"{_MARKS}(?:[:：=]|-{{1,2}}>|→|[-–—](?=[ \t]))[ \t]*+(?:(?:\*\*|__|`|\*)(?=\s))?"
_ALONE = rf"{_MARKS}[:：]?[ \t]*+[*_]{{0,3}}[ \t]*+$"


@dataclass(frozen=True)
class Headed(Parser[dict[str, str]]):
    """The text of each of some sections, the last where one comes several times.

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
        every = (*self.names, *self.optional)
        found = dict(_sections(spoken(reply)[:LONGEST], every))
        if missing := [name for name in self.names if name not in found]:
            written = " ".join(f"{name.capitalize()}: ..." for name in self.names)
            raise ValueError(f"it must have a section {missing[0]}, each on lines of its own, written: {written}")
        return {name: found[name] for name in every if name in found}


def _sections(said: str, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Name and text of each section, in order."""
    ways = {plain_name(name): name for name in names}
    written = "|".join(
        r"[ _-]?".join(map(re.escape, re.split(r"[\s_-]+", name))) for name in sorted(names, key=len)[::-1]
    )
    heading = re.compile(rf"{_BEFORE}({written})(?:{_AFTER}|{_ALONE})", re.IGNORECASE | re.MULTILINE)
    shown = "".join(  # full-width letters, digits and marks in their usual forms, which are one character too
        unicodedata.normalize("NFKC", letter) if "\uff01" <= letter <= "\uff5e" else letter for letter in said
    )
    headings = list(heading.finditer(shown))
    for at, mark in enumerate(headings):
        end = headings[at + 1].start() if at + 1 < len(headings) else len(said)
        yield ways[plain_name(mark[1])], bare(_without_rule(said[mark.end() : end]))


def _without_rule(text: str) -> str:
    """A section without a line that parts it from others."""
    return re.sub(r"\A[ \t]*\n?(?:[-=_*]{3,}[ \t]*\n)|\n[ \t]*+(?:[-=_*]{3,}+|```)\s*+\Z", "", text)
