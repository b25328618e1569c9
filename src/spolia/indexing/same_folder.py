"""Whether a folder is the one that a store holds: to index another into it would forget everything."""

from __future__ import annotations

from collections.abc import Mapping

from spolia.errors import FolderError
from spolia.indexing.files import Found, is_elsewhere
from spolia.stores.tables.rows import Stamp

FOLDER, ROOT = "folder", "root"
"""Under which a store remembers its folder, as it does how far sources were read."""


def refuse_other(folder: str, found: Found, known: Mapping[str, Stamp], root: str, *, store: str) -> None:
    """Refuse a folder that is not where the store's folder was, nor that folder in another place.

    It is the same in another place if it has at least half of the documents by their names, as a copy has, or all by
    their sizes and times, as folders have that were moved into one another.

    Args:
        folder: as it was named, for the message.
        found: what is in it.
        known: what the store holds.
        root: where its folder was the last time; empty where that is not known.

    Raises:
        FolderError: it is another folder.
    """
    if root and root == found.cursors.get(ROOT):
        return
    held = {uri: (size, mtime_ns) for uri, (size, mtime_ns, *_) in known.items() if is_top(uri, known)}
    if not held or 2 * sum(uri in found.files for uri in held) >= len(held):
        return
    if set(held.values()) <= set(found.files.sizes().values()):
        return
    there = sum(uri in found.files for uri in held)
    where = f"of {root}, and " if root else "and "
    raise FolderError(
        f"{store} holds {len(held)} documents {where}{there or 'none'} of them {'are' if there > 1 else 'is'} in "
        f"{folder}: to index it would forget the others. A store has one folder: name that, or another --store, or "
        "write --rebuild (rebuild=True) to forget what it holds."
    )


def is_top(uri: str, known: Mapping[str, Stamp]) -> bool:
    """Whether a document is a file of a folder: neither of another source nor read out of a container."""
    parts = uri.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return not is_elsewhere(uri) and known.keys().isdisjoint(above)
