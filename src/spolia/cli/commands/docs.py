"""`spolia docs`: the documents of a store, one by one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from spolia.cli import documents
from spolia.cli.exit_codes import Exit
from spolia.cli.node_groups import refuse_unbuilt
from spolia.cli.options import WAIT_S, AsJson, ProfileFile, SeenBy, StorePath, Wait, Where
from spolia.cli.parameters import argument, option, subcommands
from spolia.cli.screen import Screen, one_line
from spolia.filters.text import condition_of
from spolia.indexing.quality import quality
from spolia.stores.corpus import Corpus

Name = Annotated[str, argument("URI", "Path of the file in its folder, or id of the document.")]


def list_(
    store: StorePath,
    where: Where = None,
    access: SeenBy = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """List all documents of a store, regardless of access: characters, passages, state, readers, time of the file."""
    screen, snapshot = Screen(json=json), documents.latest(store)
    found, condition = list(documents.held(snapshot, access)), condition_of(where or (), snapshot.schema)
    if condition is not None:
        found = [one for one in found if condition.accepts(snapshot.schema.record(documents.metadata_of(one)))]
    screen.give(documents=[documents.document_data(one) for one in found])
    if not found:
        seen = f" that {', '.join(access)} may read" if access else ""
        screen.say(f"No document{seen} is like this." if where else f"The store holds no document{seen}.")
        return Exit.NOTHING
    screen.show(documents.listed(found, screen.width))
    return Exit.DONE


def show(
    name: Name, store: StorePath, access: SeenBy = None, profile_file: ProfileFile = None, json: AsJson = False
) -> Exit:
    """Show a document's title, metadata, readers, report, and nodes by group."""
    screen, snapshot = Screen(json=json), documents.latest(store)
    found = documents.one_held(snapshot, name, access)
    counts = {group: len(documents.nodes_of(snapshot, found, group, access)) for group in snapshot.groups()}
    screen.give(**documents.document_data(found), nodes=counts)
    screen.show(documents.description(found, counts))
    return Exit.DONE


def chunks(
    name: Name,
    store: StorePath,
    group: Annotated[str, option("--group NAME", "The node group.")] = "chunk",
    access: SeenBy = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Show the nodes that a document was cut into: number, place, what is put before them when indexed, text."""
    screen, snapshot = Screen(json=json), documents.latest(store)
    refuse_unbuilt(snapshot, group)
    nodes = documents.nodes_of(snapshot, documents.one_held(snapshot, name, access), group, access)
    screen.give(group=group, nodes=[documents.node_data(node) for node in nodes])
    if not nodes:
        screen.say(f"It has no node in group {group!r}.")
        return Exit.NOTHING
    for node in nodes:
        screen.show(*documents.node_lines(node))
    return Exit.DONE


def report(
    store: StorePath,
    html: Annotated[
        Path | None, option("--html FILE", "Write a page that shows each page's text beside its passages.")
    ] = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Report how much of each document was read, with failures and warnings. The exit code is 5 if any failed."""
    screen, snapshot = Screen(json=json), documents.latest(store)
    found = list(documents.held(snapshot))
    noticed = [one for one in found if one.noticed]
    numbers = quality(snapshot, documents.keeper(snapshot))
    screen.give(
        documents=len(found),
        quality={**asdict(numbers), "ocr_share": numbers.ocr_share},
        noticed=[{"uri": one.source.uri, "status": one.source.status, "said": list(one.noticed)} for one in noticed],
        files={one.source.uri: asdict(one.report) if one.report else None for one in found},
    )
    if found:
        screen.show(
            documents.reported([(one.source.uri, one.source.status, one.report) for one in found], screen.width), ""
        )
    screen.show(
        f"{len(found)} documents, {len(noticed)} with something to say of them", documents.quality_table(numbers)
    )
    screen.show(*map(documents.noticed_line, noticed))
    if html is not None:
        documents.write_page(html, snapshot, store)
        screen.say(f"written: {html}")
    return Exit.PARTLY if any(one.is_lacking for one in found) else Exit.DONE


def remove(
    name: Name, store: StorePath, wait: Wait = WAIT_S, profile_file: ProfileFile = None, json: AsJson = False
) -> Exit:
    """Remove a document and its nodes from a store. A file that is still in the folder comes back."""
    screen, corpus = Screen(json=json), Corpus(str(store), wait)
    with corpus.writer() as writer:
        found = documents.one_held(corpus.latest(), name)
        parts = documents.parts_of(found.source.uri, writer.sources())
        for uri in (found.source.uri, *parts):
            writer.remove(uri)
    shared = found.source.document in {row.document for row in corpus.latest().sources().values()} - {""}
    screen.give(removed=found.source.uri, parts=parts, document=found.source.document, shared=shared)
    kept = " Its text stays, since another file has the same." if shared else ""
    with_parts = f" with {len(parts)} in it" if parts else ""
    screen.show(f"removed {one_line(found.source.uri)}{with_parts}.{kept}")
    screen.say(documents.comes_back(found))
    return Exit.DONE


docs = subcommands(
    "docs",
    "The documents of a store: list, show, chunks, report, remove.",
    list=list_,
    show=show,
    chunks=chunks,
    report=report,
    remove=remove,
)
