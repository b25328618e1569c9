"""Repair of packages for the libraries: translates strict Office Open XML, mends damaged parts or leaves them out."""

import io
import re
import zipfile
from collections.abc import Mapping
from copy import copy
from functools import partial
from importlib.util import find_spec
from typing import Any

from spolia.deferred import etree
from spolia.indexing.readers.archives import MEMBER_ERRORS
from spolia.indexing.readers.office.opc import PACKAGE_RELATIONS, is_list, needed_parts, restore_lists
from spolia.indexing.readers.unit_failures import UnitFailures

_XML = (".xml", ".rels", ".opf", ".ncx", ".vml")
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)")
_TRANSITIONAL = {b"extendedProperties": b"extended-properties", b"customProperties": b"custom-properties"}
_PIECE = 1 << 16


def translate_strict(file: io.BytesIO) -> io.BytesIO:
    """Translate strict Office Open XML: its namespaces and relationships get the names that the libraries know.

    Source: ECMA-376-4, annex A.
    """
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if PACKAGE_RELATIONS not in names or not _STRICT.search(archive.read(PACKAGE_RELATIONS)):
            return file
        parts = {name: archive.read(name) for name in names}
    return _pack(
        {name: _STRICT.sub(_transitional_name, data) if name.endswith(_XML) else data for name, data in parts.items()}
    )


def _transitional_name(strict: re.Match[bytes]) -> bytes:
    last = _TRANSITIONAL.get(strict[2], strict[2])
    return b"http://schemas.openxmlformats.org/%b/2006/%b" % (strict[1], last)


def lacks_parts(archive: zipfile.ZipFile) -> bool:
    """Tell whether Office Open XML lacks a part that it refers to or needs. All its members can be unpacked."""
    names = archive.namelist()
    lists = {name: archive.read(name) for name in names if name.endswith(".rels")}
    return not needed_parts(names, lists) <= set(names)


def mend_package(archive: zipfile.ZipFile, failures: UnitFailures, *, does_salvage: bool = True) -> io.BytesIO:
    """Copy a package; a part that is damaged has what can be saved of it, and none refers to a part that is missing.

    `does_salvage`: else parts that are damaged are left out.
    """
    parts: dict[str, bytes] = {}
    for member in archive.infolist():
        if not member.is_dir():
            salvage = partial(_salvage, archive, member) if does_salvage else None
            data = failures.attempt("part", partial(_unpack, archive, member), b"", salvage, place=member.filename)
            if data or member.filename not in failures.places("part"):
                parts[member.filename] = data
    names = archive.namelist()
    missing = needed_parts(names, {name: data for name, data in parts.items() if name.endswith(".rels")}) - {*names}
    for name in sorted(missing):
        failures.report("part", "it is missing", name)
    restore_lists(parts, failures.places("part"))
    return _pack(parts)


def _pack(parts: Mapping[str, bytes]) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    data = archive.read(member)
    if member.filename.endswith(_XML) and find_spec("lxml"):
        xml_root(data)
    return data


def _salvage(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return what comes out of a member before its damage, all of it if only its checksum is wrong; XML is closed."""
    data = bytearray()
    unchecked = copy(member)
    del unchecked.CRC  # else the last piece, which may be all, is refused
    try:
        with archive.open(unchecked) as file:
            while piece := file.read(_PIECE):
                data += piece
    except MEMBER_ERRORS:
        pass  # the damage that `mended` has reported for this member
    is_tree = member.filename.endswith(_XML) and not is_list(member.filename)  # a list is read element by element
    return _recover_xml(bytes(data)) if is_tree and find_spec("lxml") else bytes(data)


def _recover_xml(data: bytes) -> bytes:
    """Return XML that its parser could mend; nothing where it could not."""
    try:
        xml_root(data)
    except etree.XMLSyntaxError:
        root = xml_root(data, recover=True)
        data = etree.tostring(root) if root is not None else b""
        xml_root(data)  # lxml may save names that it does not read
    return data


def xml_root(data: bytes, *, recover: bool = False) -> Any:
    """Parse an XML part with lxml, which the readers of Office documents use, and return its root element."""
    # Documents are not trusted: no entity is expanded, nothing is fetched.
    return etree.fromstring(data, etree.XMLParser(recover=recover, resolve_entities=False, no_network=True))
