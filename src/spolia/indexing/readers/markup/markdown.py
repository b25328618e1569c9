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
from spolia.indexing.readers.markup.line_markup import SourceLine, lines_of, region_of_lines, split_cells
from spolia.indexing.readers.pictures.linked_images import LinkedPictures
from spolia.indexing.readers.reader import Blob, Reading, title_of
from spolia.indexing.readers.source_structure import Structure, read_structured
from spolia.indexing.readers.text import read_source_text
from spolia.types import Heading, Meta, Region, Value

# Bounded, so that a rule at the beginning does not make the whole text front matter.
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
    """Reader of Markdown.

    >>> document = MarkdownReader().read(Blob("a.md", b"# Stones\\n\\nText.\\n\\n## `Old` ones ##\\n")).document
    >>> document.title, [(heading.level, heading.text) for heading in document.headings]
    ('Stones', [(1, 'Stones'), (2, 'Old ones')])
    """

    name = "markdown"
    version = 4
    media_type = "text/markdown"
    suffixes = (".md", ".markdown", ".mdown", ".mkd")

    def read(self, blob: Blob, /) -> Reading:
        return read_structured(read_source_text(blob), self, blob, partial(_structure, blob.uri))


def _structure(uri: str, text: str) -> Structure:
    front = _FRONT_MATTER.match(text)
    start = front.end() if front else 0
    headings = tuple(headings_of(text, start))
    front_matter, warnings = _parse_front_matter(front[0]) if front else ({}, ())
    pictures = LinkedPictures(uri)
    regions, linked_images = pictures.split_linked(add_pictures(text, start, regions_of(text, start)))
    title = " ".join(str(front_matter.get("title") or title_of(headings)).split())
    dropped = {"pictures": pictures.missing_count}
    return Structure(
        title, headings, regions, _meta(front_matter), dropped, pictures.images.values(), linked_images, warnings
    )


def _parse_front_matter(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Parse the front matter; also return a warning about what no field can hold."""
    try:
        content = yaml.safe_load(text.strip().strip("-."))  # the safe loader makes no objects of a stranger's file
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:_LONGEST_REASON]
        return {}, (f"The front matter is not YAML, so that it gives no fields: {reason}.",)
    if not isinstance(content, dict):  # a text between two lines
        return {}, ()
    entries = ((name, value) for name, value in content.items() if isinstance(name, str) and len(name) <= _LONGEST_NAME)
    values = {name: value for name, value in entries if _is_plain(value)}
    rejected_names = [f"{name}"[:_LONGEST_NAME] for name in content if name not in values]
    return values, (
        f"Left out of the front matter: {', '.join(rejected_names[:10])}; {_VALUES}.",
    ) if rejected_names else ()


def _meta(front_matter: dict[str, Any]) -> Meta:
    """Build the fields of a document. It cannot set the fields that every file has."""
    entries: dict[str, list[Any]] = {}
    for name, value in front_matter.items():
        if name != "title" and not name.startswith("file_"):
            entries.setdefault(_NAMES.get(name, name), []).extend(value if isinstance(value, list) else [value])
    return fields(**entries)


def _is_plain(value: Any) -> bool:
    """Return whether it is a value or a list of values. Lists within lists could repeat each other without end."""
    values = value if isinstance(value, list) else [value]
    return len(values) <= _MOST_VALUES and not any(isinstance(item, (list, dict)) for item in values)


def headings_of(text: str, start: int = 0) -> Iterator[Heading]:
    """Yield the headings of a text from `start` on, in order."""
    fence = ""
    for mark in _MARK.finditer(text, start):
        if fence_mark := mark["fence"]:
            if not fence and ("`" not in mark["info"] or fence_mark[0] == "~"):
                fence = fence_mark
            elif fence and fence_mark.startswith(fence) and not mark["info"].strip():
                fence = ""
        elif not fence and mark["hashes"]:
            if words := _plain_words(mark["text"] or ""):
                yield Heading(mark.start(), len(mark["hashes"]), words)
        elif not fence and (title_line := _line_above(text, mark.start(), start)):
            yield Heading(title_line[0], 1 if mark["underline"][0] == "=" else 2, _plain_words(title_line[1]))


def _line_above(text: str, position: int, start: int) -> tuple[int, str] | None:
    """Return the line before a position, if it is a paragraph of one line."""
    if position <= start:
        return None
    line_start = text.rfind("\n", start, position - 1) + 1 or start
    line = text[line_start : position - 1]
    previous_line = text[
        max(start, text.rfind("\n", start, max(start, line_start - 1)) + 1) : max(start, line_start - 1)
    ]
    return (line_start, line) if _PARAGRAPH.match(line) and not previous_line.strip() else None


def _plain_words(text: str) -> str:
    """Return the words of a heading without markup."""
    text = _LINK.sub(r"\1", _CLOSING.sub("", text.strip()).strip())
    return " ".join(text.replace("`", "").replace("**", "").replace("__", "").strip("*_").split())


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_PICTURE = re.compile(  # or code within a line, which shows none
    r"(?<!`)(?P<ticks>`{1,9}+)(?!`)(?:(?!(?P=ticks))[^\n]){0,1000}+(?P=ticks)"
    r"|!\[(?P<said>[^\[\]]{0,2000}+)\]\(\s{0,9}+(?:<(?P<wrapped>[^<>\n]++)>|(?P<name>[^\s()<>]++))[^()\n]{0,1000}+\)"
)
_RULE = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?")


def regions_of(text: str, start: int = 0) -> Iterator[Region]:
    """Yield the regions of a text from `start` on, in order.

    >>> text = "| stone | t |\\n|---|---|\\n| basalt | 3 |\\n\\n```python\\nx = 1\\n```\\n"
    >>> [(region.kind, region.rows, region.caption) for region in regions_of(text)]
    [('table', (('stone', 't'), ('basalt', '3')), ''), ('code', (), 'python')]
    """
    lines = [line for line in lines_of(text) if line.start >= start]
    index = 0
    while index < len(lines):
        line = lines[index].text
        if (fence := _FENCE.match(line)) and ("`" not in fence[2] or fence[1][0] == "~"):
            end = _fence_end(lines, index, fence[1])
            yield from region_of_lines(
                "code", lines[index:end], caption=fence[2].strip().partition(" ")[0].strip("{}.")
            )
        elif "|" in line and index + 1 < len(lines) and _is_rule(lines[index + 1].text, len(split_cells(line))):
            end = next((number for number in range(index + 2, len(lines)) if "|" not in lines[number].text), len(lines))
            rows = [split_cells(line), *(split_cells(row.text) for row in lines[index + 2 : end])]
            yield from region_of_lines("table", lines[index:end], rows)
        elif line.lstrip().startswith("$$"):
            end = _formula_end(lines, index)
            yield from region_of_lines("formula", lines[index:end])
        else:
            end = index + 1
        index = end


def add_pictures(text: str, start: int, regions: Iterator[Region]) -> Iterator[Region]:
    """Yield the regions in order, and between them the pictures of the text, by their names and with their
    descriptions.

    >>> text = "`![a](b.png)` ![A wall](img/wall.png 'Old')"
    >>> [(one.image, text[one.start : one.end]) for one in add_pictures(text, 0, iter(()))]
    [('img/wall.png', 'A wall')]
    """
    pictures = _PICTURE.finditer(text, start)
    next_picture = next(pictures, None)
    for block in regions:
        while next_picture is not None and next_picture.start() < block.start:
            yield from _picture_region(next_picture)
            next_picture = next(pictures, None)
        yield block
        while next_picture is not None and next_picture.start() < block.end:
            if block.kind == "table":
                yield from _picture_region(next_picture)
            next_picture = next(pictures, None)
    for picture in filter(None, (next_picture, *pictures)):
        yield from _picture_region(picture)


def _picture_region(match: re.Match[str]) -> Iterator[Region]:
    if match["said"] is not None:
        name, description = match["wrapped"] or match["name"], " ".join(match["said"].split())
        yield Region("image", *match.span("said"), image=name, caption=description)


def _fence_end(lines: Sequence[SourceLine], index: int, fence: str) -> int:
    """Return the number of the line after the one that closes a fence, or after the last line if none does."""
    for number in range(index + 1, len(lines)):
        line = lines[number].text.strip()
        if line.startswith(fence) and not line.strip(fence[0]):
            return number + 1
    return len(lines)


def _is_rule(line: str, columns: int) -> bool:
    return "-" in line and _RULE.fullmatch(line) is not None and len(split_cells(line)) == columns


def _formula_end(lines: Sequence[SourceLine], index: int) -> int:
    if lines[index].text.count("$$") > 1:
        return index + 1
    for number in range(index + 1, len(lines)):
        if "$$" in lines[number].text:
            return number + 1
        if not lines[number].text:  # it was no formula
            break
    return index + 1
