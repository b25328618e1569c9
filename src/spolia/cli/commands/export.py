"""`spolia export` and `spolia import`: a store as one file, and back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.destinations import destination
from spolia.cli.exit_codes import Exit
from spolia.cli.options import AsJson
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen
from spolia.core.plurals import several
from spolia.models.http.remote import Remote
from spolia.services.documents import export_originals, import_originals
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import asked_by
from spolia.stores.portable import Contents, export_store, import_store

if TYPE_CHECKING:
    from collections.abc import Iterator

From = Annotated[str, argument("STORE", "The store to export.")]
To = Annotated[str, argument("STORE", "Where to make the store: a new path, or an empty store.")]
NewFile = Annotated[Path, argument("FILE", "The file to write; it must not exist.")]
OldFile = Annotated[Path, argument("FILE", "A file that `spolia export` has written.")]


Originals = Annotated[
    Path | None,
    option("--originals FILE", "Also the bytes of documents that users have sent, in a ZIP file of their own."),
]


def export(store: From, file: NewFile, originals: Originals = None, json: AsJson = False) -> Exit:
    """Write a store into one portable file: documents, nodes of all groups, vectors, reader lists, with checksums.

    The file holds all texts, also those that only some may read: keep it as you keep the store.
    """
    screen = Screen(json=json)
    with screen.progress("writing") as told:
        found = export_store(Corpus(store), file, lambda member, rows: told(rows, None, member))
    kept = {}
    if originals is not None:
        kept = {"originals": export_originals(Corpus(store), originals)}
        screen.show(f"{originals}: {several(kept['originals'], 'original')}")
    size = file.stat().st_size
    screen.give(store=store, file=str(file), bytes=size, **contents_data(found), **kept)
    screen.show(f"{file}: {_said(found)}; {size / 1e6:.1f} MB")
    return Exit.DONE


def import_(file: OldFile, store: To, originals: Originals = None, json: AsJson = False) -> Exit:
    """Make a store from an exported file. Compares every checksum first, then publishes everything in one step."""
    screen = Screen(json=json)
    with screen.progress("checking") as told:
        found = import_store(file, Corpus(store), lambda member, rows: told(rows, None, member))
    kept = {}
    if originals is not None:
        kept = {"originals": import_originals(Corpus(store), originals)}
        screen.show(f"{originals}: {several(kept['originals'], 'original')}")
    for said in servers_of(found):
        screen.say(said, "yellow")
    screen.give(store=store, file=str(file), **contents_data(found), **kept)
    screen.show(f"{store}: {_said(found)}")
    return Exit.DONE


def contents_data(found: "Contents") -> dict[str, Any]:
    return {"documents": found.documents, "sources": found.sources, "groups": found.nodes, "vectors": found.vectors}


def servers_of(found: "Contents") -> "Iterator[str]":
    """Which servers the groups of a store send texts to when documents are added; who made the file chose them."""
    for manifest in found.manifests:
        for model in asked_by(manifest):
            if isinstance(model, Remote):
                yield f"Group {manifest.group!r}, when documents are added: {destination(model)}"


def _said(found: "Contents") -> str:
    nodes = ", ".join(f"{several(count, 'node')} of {group!r}" for group, count in found.nodes.items()) or "no group"
    texts = several(found.documents, "text")
    return f"{several(found.sources, 'document')} with {texts}, {nodes}, {several(found.vectors, 'vector')}"
