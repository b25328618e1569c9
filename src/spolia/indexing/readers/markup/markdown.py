"""Markdown: the document is the source itself, so that a quotation can be found in the file.

Headings, tables, code, formulas and pictures are noted. What the front matter says is metadata: author, date, language
and keywords by the names that they have in every format (`authors`, `lang` and `tags` are written too), all else by its
own name. What is no value, nor a list of values, is left out with a warning.

Headings follow CommonMark 0.31 (ATX and setext), except that a setext heading is one line.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spolia.deferred import yaml
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.markup.line_markup import SourceLine, cells, lines_of, region
from spolia.indexing.readers.pictures.linked_images import Linked
from spolia.indexing.readers.reader import Blob, Reading, title_of
from spolia.indexing.readers.source_structure import Structure, structured
from spolia.indexing.readers.text import source_text
from spolia.types import Heading, Meta, Region, Value

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(?:(?!---|\.\.\.).*\n){0,200}?(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)")
_NAMES = {"authors": "author", "lang": "language", "tags": "keywords"}
_LONGEST_NAME, _LONGEST_REASON = 100, 300
_VALUES = "a field is a text as name, and a value or a list of values, no map and no list of lists"
_MARK = re.compile(
    r"^ {0,3}(?:(?P<hashes>#{1,6})(?P<text>[ \t].*)?$"
    r"|(?P<fence>`{3,}|~{3,})(?P<info>.*)$"
    r"|(?P<underline>=+|-+)[ \t\r]*$)",
    re.MULTILINE,
)
_PARAGRAPH = re.compile(r" {0,3}(?![\s>|#<]|[-*+][ \t]|\d{1,9}[.)][ \t]|`{3}|~{3})\S")
_MOST_VALUES = 1000
_CLOSING = re.compile(r"(?:^|[ \t])#+$")
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")


@dataclass(frozen=True)
class MarkdownReader(Value):
    """Reads Markdown.

    >>> document = MarkdownReader().read(Blob("a.md", b"# Stones\\n\\nText.\\n\\n## `Old` ones ##\\n")).document
    >>> document.title, [(heading.level, heading.text) for heading in document.headings]
    ('Stones', [(1, 'Stones'), (2, 'Old ones')])
    """

    name = "markdown"
    version = 4
    media_type = "text/markdown"
    suffixes = (".md", ".markdown", ".mdown", ".mkd")

    def read(self, blob: Blob, /) -> Reading:
        return structured(source_text(blob), self, blob, partial(_noted, blob.uri))


def _noted(uri: str, text: str) -> Structure:
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    headings = tuple(headings_of(text, start))
    said, warnings = _front(front[0]) if front else ({}, ())
    pictures = Linked(uri)
    regions, beside = pictures.told(with_pictures(text, start, regions_of(text, start)))
    title = " ".join(str(said.get("title") or title_of(headings)).split())
    dropped = {"pictures": pictures.elsewhere}
    return Structure(title, headings, regions, _meta(said), dropped, pictures.images.values(), beside, warnings)


def _front(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the front matter says, and what it says in a way that no field can hold."""
    try:
        found = yaml.safe_load(text.strip().strip("-."))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        return {}, (f"The front matter is not YAML, so that it gives no fields: {reason}.",)
    if not isinstance(found, dict):  # a text between two lines
        return {}, ()
    short = ((name, said) for name, said in found.items() if isinstance(name, str) and len(name) <= _LONGEST_NAME)
    named = {name: said for name, said in short if _is_plain(said)}
    others = [f"{name}"[:_LONGEST_NAME] for name in found if name not in named]
    return named, (f"Left out of the front matter: {', '.join(others[:10])}; {_VALUES}.",) if others else ()


def _meta(said: dict[str, Any]) -> Meta:
    """The fields; those of every file are not for a document to say."""
    found: dict[str, list[Any]] = {}
    for name, value in said.items():
        if name != "title" and not name.startswith("file_"):
            found.setdefault(_NAMES.get(name, name), []).extend(value if isinstance(value, list) else [value])
    return fields(**found)


def _is_plain(said: Any) -> bool:
    """Whether it is a value or a list of such: lists within lists could repeat each other without end."""
    inner = said if isinstance(said, list) else [said]
    return len(inner) <= _MOST_VALUES and not any(isinstance(one, (list, dict)) for one in inner)


def headings_of(text: str, start: int = 0) -> Iterator[Heading]:
    """The headings of a text from `start` on, in order."""
    fence = ""
    for mark in _MARK.finditer(text, start):
        if opened := mark["fence"]:
            if not fence and ("`" not in mark["info"] or opened[0] == "~"):
                fence = opened
            elif fence and opened.startswith(fence) and not mark["info"].strip():
                fence = ""
        elif not fence and mark["hashes"]:
            if words := _plain(mark["text"] or ""):
                yield Heading(mark.start(), len(mark["hashes"]), words)
        elif not fence and (above := _line_above(text, mark.start(), start)):
            yield Heading(above[0], 1 if mark["underline"][0] == "=" else 2, _plain(above[1]))


def _line_above(text: str, at: int, start: int) -> tuple[int, str] | None:
    """The line before `at`, if it is a paragraph of one line."""
    if at <= start:
        return None
    begin = text.rfind("\n", start, at - 1) + 1 or start
    line = text[begin : at - 1]
    before = text[max(start, text.rfind("\n", start, max(start, begin - 1)) + 1) : max(start, begin - 1)]
    return (begin, line) if _PARAGRAPH.match(line) and not before.strip() else None


def _plain(text: str) -> str:
    """The words of a heading without their marks."""
    text = _LINK.sub(r"\1", _CLOSING.sub("", text.strip()).strip())
    return " ".join(text.replace("`", "").replace("**", "").replace("__", "").strip("*_").split())


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_PICTURE = re.compile(  # or code within a line, which shows none
    r"(?<!`)(?P<ticks>`{1,9}+)(?!`)(?:(?!(?P=ticks))[^\n]){0,1000}+(?P=ticks)"
    r"|!\[(?P<said>[^\[\]]{0,2000}+)\]\(\s{0,9}+(?:<(?P<wrapped>[^<>\n]++)>|(?P<name>[^\s()<>]++))[^()\n]{0,1000}+\)"
)
_RULE = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?")


def regions_of(text: str, start: int = 0) -> Iterator[Region]:
    """The regions of a text from `start` on, in order.

    >>> text = "| stone | t |\\n|---|---|\\n| basalt | 3 |\\n\\n```python\\nx = 1\\n```\\n"
    >>> [(region.kind, region.rows, region.caption) for region in regions_of(text)]
    [('table', (('stone', 't'), ('basalt', '3')), ''), ('code', (), 'python')]
    """
    lines = [line for line in lines_of(text) if line.start >= start]
    at = 0
    while at < len(lines):
        line = lines[at].text
        if (fence := _FENCE.match(line)) and ("`" not in fence[2] or fence[1][0] == "~"):
            end = _closing(lines, at, fence[1])
            yield from region("code", lines[at:end], caption=fence[2].strip().partition(" ")[0].strip("{}."))
        elif "|" in line and at + 1 < len(lines) and _is_rule(lines[at + 1].text, len(cells(line))):
            end = next((number for number in range(at + 2, len(lines)) if "|" not in lines[number].text), len(lines))
            rows = [cells(line), *(cells(row.text) for row in lines[at + 2 : end])]
            yield from region("table", lines[at:end], rows)
        elif line.lstrip().startswith("$$"):
            end = _end_of_formula(lines, at)
            yield from region("formula", lines[at:end])
        else:
            end = at + 1
        at = end


def with_pictures(text: str, start: int, regions: Iterator[Region]) -> Iterator[Region]:
    """Regions in order, and between them the pictures that a text shows: by their names, with their descriptions.

    >>> text = "`![a](b.png)` ![A wall](img/wall.png 'Old')"
    >>> [(one.image, text[one.start : one.end]) for one in with_pictures(text, 0, iter(()))]
    [('img/wall.png', 'A wall')]
    """
    pictures = _PICTURE.finditer(text, start)
    waiting = next(pictures, None)
    for other in regions:
        while waiting is not None and waiting.start() < other.start:
            yield from _picture(waiting)
            waiting = next(pictures, None)
        yield other
        while waiting is not None and waiting.start() < other.end:
            if other.kind == "table":
                yield from _picture(waiting)
            waiting = next(pictures, None)
    for found in filter(None, (waiting, *pictures)):
        yield from _picture(found)


def _picture(found: re.Match[str]) -> Iterator[Region]:
    if found["said"] is not None:
        name, said = found["wrapped"] or found["name"], " ".join(found["said"].split())
        yield Region("image", *found.span("said"), image=name, caption=said)


def _closing(lines: Sequence[SourceLine], at: int, fence: str) -> int:
    """One past the line that closes a fence; all lines where none does."""
    for number in range(at + 1, len(lines)):
        line = lines[number].text.strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return number + 1
    return len(lines)


def _is_rule(line: str, columns: int) -> bool:
    return "-" in line and _RULE.fullmatch(line) is not None and len(cells(line)) == columns


def _end_of_formula(lines: Sequence[SourceLine], at: int) -> int:
    if lines[at].text.count("$$") > 1:
        return at + 1
    for number in range(at + 1, len(lines)):
        if "$$" in lines[number].text:
            return number + 1
        if not lines[number].text:  # it was no formula
            break
    return at + 1
