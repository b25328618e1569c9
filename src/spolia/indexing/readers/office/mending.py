"""Packages in the form that the libraries read: strict Office Open XML translated, damaged parts mended or left out."""

import io
import posixpath
import re
import zipfile
from collections.abc import Mapping
from copy import copy
from functools import partial
from importlib.util import find_spec
from typing import Any

from spolia.indexing.readers.archives import MEMBER_ERRORS
from spolia.indexing.readers.unit_failures import UnitFailures

_TYPES = "[Content_Types].xml"
_XML = (".xml", ".rels", ".opf", ".ncx", ".vml")
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)")
_TRANSITIONAL = {b"extendedProperties": b"extended-properties", b"customProperties": b"custom-properties"}
_PIECE = 1 << 16


def transitional(file: io.BytesIO) -> io.BytesIO:
    """Translate strict Office Open XML: its namespaces and relationships get the names that the libraries know.

    Source: ECMA-376-4, annex A.
    """
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        try:
            if "_rels/.rels" not in names or not _STRICT.search(archive.read("_rels/.rels")):
                return file
            parts = {name: archive.read(name) for name in names}
        except MEMBER_ERRORS:  # it is mended first
            return file
    return _packed({name: _STRICT.sub(_name, data) if name.endswith(_XML) else data for name, data in parts.items()})


def _name(strict: re.Match[bytes]) -> bytes:
    last = _TRANSITIONAL.get(strict[2], strict[2])
    return b"http://schemas.openxmlformats.org/%b/2006/%b" % (strict[1], last)


def mended(archive: zipfile.ZipFile, failures: UnitFailures) -> io.BytesIO:
    """Copy a package; a part that is damaged has what can be saved of it, and none refers to a part that is missing."""
    parts: dict[str, bytes] = {}
    for member in archive.infolist():
        if not member.is_dir():
            data = failures.attempt("part", partial(archive.read, member), b"", partial(_begin, archive, member))
            if member.filename.endswith(_XML) and find_spec("lxml"):
                data = failures.attempt("part", partial(_checked, data), b"", partial(_recovered, data))
            if data or not member.file_size:
                parts[member.filename] = data
    for name in [name for name in parts if name.endswith(".rels")]:
        parts[name] = _related(name, parts, failures)
    if _TYPES in parts:
        parts[_TYPES] = _typed(parts)
    return _packed(parts)


def _packed(parts: Mapping[str, bytes]) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out


def _begin(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """What comes out of a member before its damage; all of it, if only its checksum is wrong."""
    found = bytearray()
    unchecked = copy(member)
    del unchecked.CRC  # else the last piece, which may be all, is refused
    try:
        with archive.open(unchecked) as file:
            while piece := file.read(_PIECE):
                found += piece
    except MEMBER_ERRORS:
        pass
    return bytes(found)


def xml_root(data: bytes, *, recover: bool = False) -> Any:
    """The root element of an XML part, for the library lxml, which the readers of Office documents use."""
    from lxml import etree

    return etree.fromstring(data, etree.XMLParser(recover=recover, resolve_entities=False, no_network=True))


def _checked(data: bytes) -> bytes:
    xml_root(data)
    return data


def _recovered(data: bytes) -> bytes:
    from lxml import etree

    root = xml_root(data, recover=True)
    return _checked(etree.tostring(root)) if root is not None else b""  # lxml may save names that it does not read


_RELATIONSHIP = re.compile(rb"<(?:\w+:)?Relationship\b[^>]*?/>")
_TARGET, _OUTSIDE = re.compile(rb"\bTarget=[\"']([^\"']*)"), re.compile(rb"\bTargetMode=[\"']External")


def _related(name: str, parts: Mapping[str, bytes], failures: UnitFailures) -> bytes:
    """Relationships without those to parts that are missing."""
    base = posixpath.dirname(posixpath.dirname(name))

    def exists(relationship: re.Match[bytes]) -> bytes:
        target = _TARGET.search(relationship[0])
        if target is not None and _OUTSIDE.search(relationship[0]):
            return relationship[0]

        def look() -> bytes:
            if target is None:
                raise KeyError("a relationship has no target")
            path = posixpath.normpath(posixpath.join("/", base, target[1].decode("utf-8", "replace"))).lstrip("/")
            if path not in parts:
                raise KeyError(f"it has no part {path}")
            return relationship[0]

        return failures.attempt("part", look, b"")

    return _RELATIONSHIP.sub(exists, parts[name])


def _typed(parts: Mapping[str, bytes]) -> bytes:
    """The content types, with one for each suffix that lacks it."""
    types = parts[_TYPES]
    suffixes = {name.rpartition(".")[2] for name in parts if "." in name.rpartition("/")[2]} - {""}
    missing = (suffix for suffix in sorted(suffixes) if f'Extension="{suffix}"'.encode().lower() not in types.lower())
    added = "".join(f'<Default Extension="{one}" ContentType="application/octet-stream"/>' for one in missing)
    return re.sub(rb"(<(?:\w+:)?Types\b[^>]*>)", lambda start: start[1] + added.encode(), types, count=1)
