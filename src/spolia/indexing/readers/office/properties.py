"""What a document of Office says of itself: the core properties of its package (ISO/IEC 29500-2)."""

from __future__ import annotations

import zipfile

from spolia.indexing.readers.fields import fields, split
from spolia.indexing.readers.xml_parsing import tree
from spolia.types import Meta

_PART = "docProps/core.xml"
_NAMES = {"creator": "author", "created": "date", "modified": "modified", "subject": "subject", "language": "language"}


def properties(archive: zipfile.ZipFile) -> tuple[str, Meta]:
    """Title and metadata; the libraries would make some up where there are none."""
    if _PART not in archive.namelist():
        return "", ()
    said = {child.tag.rpartition("}")[2]: child.text or "" for child in tree(archive.read(_PART), _PART)}
    meta = {name: said[key] for key, name in _NAMES.items() if key in said}
    return " ".join(said.get("title", "").split()), fields(**meta, keywords=split(said.get("keywords")))
