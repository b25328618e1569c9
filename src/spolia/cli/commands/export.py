"""`spolia export` and `spolia import`: a store as one file, and back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.destinations import describe_destination
from spolia.cli.exit_codes import Exit
from spolia.cli.options import AsJson
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen
from spolia.core.plurals import several
from spolia.models.http.remote import Remote
from spolia.services.documents import export_originals, import_originals
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import models_of
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
    with screen.progress("writing") as on_progress:
        contents = export_store(Corpus(store), file, lambda member, rows: on_progress(rows, None, member))
    original_counts = {}
    if originals is not None:
        original_counts = {"originals": export_originals(Corpus(store), originals)}
        screen.show(f"{originals}: {several(original_counts['originals'], 'original')}")
    size = file.stat().st_size
    screen.give(store=store, file=str(file), bytes=size, **contents_data(contents), **original_counts)
    screen.show(f"{file}: {_format_contents(contents)}; {size / 1e6:.1f} MB")
    return Exit.DONE


def import_(file: OldFile, store: To, originals: Originals = None, json: AsJson = False) -> Exit:
    """Make a store from an exported file. Compares every checksum first, then publishes everything in one step."""
    screen = Screen(json=json)
    with screen.progress("checking") as on_progress:
        contents = import_store(file, Corpus(store), lambda member, rows: on_progress(rows, None, member))
    original_counts = {}
    if originals is not None:
        original_counts = {"originals": import_originals(Corpus(store), originals)}
        screen.show(f"{originals}: {several(original_counts['originals'], 'original')}")
    for message in list_servers(contents):
        screen.say(message, "yellow")
    screen.give(store=store, file=str(file), **contents_data(contents), **original_counts)
    screen.show(f"{store}: {_format_contents(contents)}")
    return Exit.DONE


def contents_data(contents: "Contents") -> dict[str, Any]:
    return {
        "documents": contents.documents,
        "sources": contents.sources,
        "groups": contents.nodes,
        "vectors": contents.vectors,
    }


def list_servers(contents: "Contents") -> "Iterator[str]":
    """Yield the servers that groups of an imported store send texts to when documents are added; the file's author
    chose them."""
    for manifest in contents.manifests:
        for model in models_of(manifest):
            if isinstance(model, Remote):
                yield f"Group {manifest.group!r}, when documents are added: {describe_destination(model)}"


def _format_contents(contents: "Contents") -> str:
    nodes = ", ".join(f"{several(count, 'node')} of {group!r}" for group, count in contents.nodes.items()) or "no group"
    texts = several(contents.documents, "text")
    return f"{several(contents.sources, 'document')} with {texts}, {nodes}, {several(contents.vectors, 'vector')}"
