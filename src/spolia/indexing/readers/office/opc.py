"""Relationships and content types of Office Open XML: parts that are missing, and lists that are made again.

Source: ECMA-376-2 (Open Packaging Conventions).
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from html import unescape
from itertools import chain, count
from mimetypes import guess_type
from typing import NamedTuple
from urllib.parse import unquote
from xml.sax.saxutils import quoteattr
from zipfile import ZipFile

TYPES, PACKAGE_RELATIONS = "[Content_Types].xml", "_rels/.rels"
_LANGUAGES = {
    "word/document.xml": "wordprocessingml",
    "ppt/presentation.xml": "presentationml",
    "xl/workbook.xml": "spreadsheetml",
}
"""Main parts by the names that Office gives them, and the language of their content types."""
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_CONTENT = "application/vnd.openxmlformats-officedocument"
_SLIDE = re.compile(r"ppt/slides/[^/]+\.xml")
# By pattern: a damaged list cannot be parsed as XML, but its elements can be found.
_ELEMENT = re.compile(rb"<(?:\w+:)?(Relationship|Default|Override)\s([^<>]*)>")
_ATTRIBUTE = re.compile(r"(?<!\S)(\w+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_LISTED = re.compile(rb"<(?:\w+:)?(sldId|sheet)\s[^<>]*?\s\w+:id=[\"']([^\"']+)[\"']")
_KINDS = {b"sldId": "slide", b"sheet": "sheet"}
"""Elements of a main part that refer to others by an id, and the names of those parts without their number."""


class Relationship(NamedTuple):
    """Relationship of a part. `target` is the name of another part, or an address if it leads outside."""

    id: str
    type: str
    target: str
    is_external: bool = False


def _main_part(names: Iterable[str]) -> str | None:
    """Return the main part of a package, if it has the name that Office gives it."""
    return next((name for name in _LANGUAGES if name in names), None)


def relations_name(part: str) -> str:
    """Return the name of the list of a part's relationships.

    >>> relations_name("ppt/slides/slide1.xml")
    'ppt/slides/_rels/slide1.xml.rels'
    """
    folder, _, name = part.rpartition("/")
    return posixpath.join(folder, "_rels", f"{name}.rels")


def is_list(name: str) -> bool:
    """Tell whether a part is a list of relationships, or of content types."""
    return name == TYPES or name.endswith(".rels")


def needed_parts(names: Iterable[str], lists: Mapping[str, bytes]) -> set[str]:
    """Return the names of parts that have to be there: what relationships lead to, and the lists themselves.

    A slide has a layout, so it has relationships; a main part has some if there are parts beside it.

    Args:
        lists: the lists of relationships, by name.
    """
    names = set(names)
    needed = {
        relation.target
        for name, data in lists.items()
        for relation in _parse_relations(name, data)
        if not relation.is_external
    }
    if (main := _main_part(names)) is not None:
        needed |= {TYPES, PACKAGE_RELATIONS, *(relations_name(name) for name in names if _SLIDE.fullmatch(name))}
        if any(name.startswith(f"{main.partition('/')[0]}/") and name.endswith(".xml") for name in names - {main}):
            needed.add(relations_name(main))
    return {name for name in needed if posixpath.basename(name) != "NULL"}  # how Office voids a relationship


def relations_of(archive: ZipFile, part: str) -> list[Relationship]:
    """Return the relationships of a part."""
    name = relations_name(part)
    return _parse_relations(name, archive.read(name)) if name in archive.namelist() else []


def chart_data(archive: ZipFile) -> set[str]:
    """Return the names of the workbooks that charts keep their values in."""
    lists = [name for name in archive.namelist() if "/charts/_rels/" in name]
    return {relation.target for name in lists for relation in _parse_relations(name, archive.read(name))}


def restore_lists(parts: dict[str, bytes], damaged: set[str]) -> None:
    """Drop relationships to parts that are missing; make damaged and missing lists again from what is left of them, and
    from the names that Office gives to parts.

    Args:
        parts: by name; what can be saved of the damaged ones.
        damaged: names of parts that are damaged or missing.
    """
    main = _main_part(parts)
    for name in {name for name in (*parts, *damaged) if name.endswith(".rels")}:
        relations = [
            relation
            for relation in _parse_relations(name, parts.get(name, b""))
            if relation.is_external
            or relation.target in parts
            or name.startswith("xl/")  # a workbook may name lost sheets
        ]
        if main is not None and name in damaged and name == PACKAGE_RELATIONS:
            relations += (
                []
                if any(relation.target == main for relation in relations)
                else [Relationship("main", f"{_OFFICE}/officeDocument", main)]
            )
        elif main is not None and name in damaged and name == relations_name(main):
            relations += _guess_relations(main, parts, relations)
        parts[name] = _format_relations(relations)
    if TYPES in parts or TYPES in damaged:
        parts[TYPES] = _format_types(parts, _LANGUAGES[main] if main is not None and TYPES in damaged else "")


def _list_elements(data: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the attributes of each element of a list."""
    for element in _ELEMENT.finditer(data):
        pairs = _ATTRIBUTE.findall(element[2].decode("utf-8", "replace"))
        yield element[1].decode(), {name: unescape(double or single) for name, double, single in pairs}


def _parse_relations(name: str, data: bytes) -> list[Relationship]:
    base = posixpath.dirname(posixpath.dirname(name))
    relations = list[Relationship]()
    for _, attributes in _list_elements(data):
        if attributes.keys() >= {"Id", "Type", "Target"}:
            is_external = attributes.get("TargetMode") == "External"
            target = attributes["Target"]
            if not is_external:
                path = unquote(target.partition("#")[0].replace("\\", "/"))
                target = posixpath.normpath(posixpath.join("/", base, path)).lstrip("/")
            relations.append(Relationship(attributes["Id"], attributes["Type"], target, is_external))
    return relations


def _kind(name: str) -> str:
    """Return the name of a part without folder, number and suffix, which is what its types are called by."""
    return posixpath.basename(name).partition(".")[0].rstrip("0123456789")


def _guess_relations(main: str, parts: Mapping[str, bytes], relations: list[Relationship]) -> Iterator[Relationship]:
    """Yield relationships of a main part to the parts beside it; parts with an id in its list are in order."""
    ids = defaultdict[str, list[str]](list)
    for element, id in _LISTED.findall(parts[main]):
        ids[_KINDS[element]].append(id.decode("utf-8", "replace"))
    known_ids, targets = {relation.id for relation in relations}, {relation.target for relation in relations}
    candidates = [name for name in parts if name.startswith(main[: main.index("/") + 1]) and name.endswith(".xml")]
    free_ids = (f"restored{number}" for number in count())
    unused_ids = {
        kind: chain((id for id in kind_ids if id not in known_ids), free_ids) for kind, kind_ids in ids.items()
    }
    for name in sorted(candidates, key=lambda name: (len(name), name)):  # slide10 after slide9
        if name != main and name not in targets:
            kind = _kind(name)
            yield Relationship(
                next(unused_ids.get(kind, free_ids)), f"{_OFFICE}/{'worksheet' if kind == 'sheet' else kind}", name
            )


def _format_relations(relations: Iterable[Relationship]) -> bytes:
    elements = "".join(
        f"<Relationship Id={quoteattr(relation.id)} Type={quoteattr(relation.type)} "
        + (f'Target={quoteattr(relation.target)} TargetMode="External"/>' if relation.is_external
           else f"Target={quoteattr(f'/{relation.target}')}/>")
        for relation in relations
    )  # fmt: skip
    return _encode_xml(f'<Relationships xmlns="{_PACKAGE}/relationships">{elements}</Relationships>')


def _format_types(parts: Mapping[str, bytes], language: str) -> bytes:
    """Write content types. `language`: that of the main part if its types are lost; else parts keep those they have."""
    suffixes = {
        suffix: guess_type(f"a.{suffix}")[0] or "application/octet-stream"
        for name in parts
        if "." in posixpath.basename(name) and (suffix := name.rpartition(".")[2].lower())
    } | {"rels": "application/vnd.openxmlformats-package.relationships+xml", "xml": "application/xml"}
    types = dict[str, str]()
    for name in (name for name in parts if language and name.endswith(".xml")):
        end = ".main" if name in _LANGUAGES else ""
        types[f"/{name}"] = f"{_CONTENT}.{'drawingml' if '/charts/' in name else language}.{_kind(name)}{end}+xml"
    for element, attributes in _list_elements(parts.get(TYPES, b"")):
        if element == "Default" and attributes.keys() >= {"Extension", "ContentType"}:
            suffixes[attributes["Extension"].lower()] = attributes["ContentType"]
        elif element == "Override" and attributes.keys() >= {"PartName", "ContentType"}:
            types[attributes["PartName"]] = attributes["ContentType"]
    defaults = "".join(
        f"<Default Extension={quoteattr(suffix)} ContentType={quoteattr(type)}/>" for suffix, type in suffixes.items()
    )
    overrides = "".join(
        f"<Override PartName={quoteattr(name)} ContentType={quoteattr(type)}/>" for name, type in types.items()
    )
    return _encode_xml(f'<Types xmlns="{_PACKAGE}/content-types">{defaults}{overrides}</Types>')


def _encode_xml(xml: str) -> bytes:
    """Encode XML without the characters that it may not have."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\ufffd]", "", xml).encode()
