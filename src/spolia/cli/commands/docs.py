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
from spolia.indexing.quality import measure_quality
from spolia.stores.corpus import Corpus

Name = Annotated[str, argument("URI", "Path of the file in its folder, or id of the document.")]


def list_(
    store: StorePath,
    conditions: Where = None,
    access: SeenBy = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """List all documents of a store, regardless of access: characters, passages, state, readers, time of the file."""
    screen, snapshot = Screen(json=json), documents.open_latest(store)
    stored_sources, condition = (
        list(documents.list_sources(snapshot, access)),
        condition_of(conditions or (), snapshot.schema),
    )
    if condition is not None:
        stored_sources = [
            stored_source
            for stored_source in stored_sources
            if condition.accepts(snapshot.schema.record(documents.metadata_of(stored_source)))
        ]
    screen.give(documents=[documents.document_data(stored_source) for stored_source in stored_sources])
    if not stored_sources:
        audience = f" that {', '.join(access)} may read" if access else ""
        screen.say(f"No document{audience} is like this." if conditions else f"The store holds no document{audience}.")
        return Exit.NOTHING
    screen.show(documents.list_table(stored_sources, screen.width))
    return Exit.DONE


def show(
    name: Name, store: StorePath, access: SeenBy = None, profile_file: ProfileFile = None, json: AsJson = False
) -> Exit:
    """Show a document's title, metadata, readers, report, and nodes by group."""
    screen, snapshot = Screen(json=json), documents.open_latest(store)
    stored_source = documents.find_source(snapshot, name, access)
    counts = {group: len(documents.nodes_of(snapshot, stored_source, group, access)) for group in snapshot.groups()}
    screen.give(**documents.document_data(stored_source), nodes=counts)
    screen.show(documents.describe_source(stored_source, counts))
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
    screen, snapshot = Screen(json=json), documents.open_latest(store)
    refuse_unbuilt(snapshot, group)
    nodes = documents.nodes_of(snapshot, documents.find_source(snapshot, name, access), group, access)
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
    screen, snapshot = Screen(json=json), documents.open_latest(store)
    stored_sources = list(documents.list_sources(snapshot))
    sources_with_remarks = [stored_source for stored_source in stored_sources if stored_source.remarks]
    totals = measure_quality(snapshot, documents.list_principals(snapshot))
    screen.give(
        documents=len(stored_sources),
        quality={**asdict(totals), "ocr_share": totals.ocr_share},
        noticed=[
            {
                "uri": stored_source.source.uri,
                "status": stored_source.source.status,
                "said": list(stored_source.remarks),
            }
            for stored_source in sources_with_remarks
        ],
        files={
            stored_source.source.uri: asdict(stored_source.report) if stored_source.report else None
            for stored_source in stored_sources
        },
    )
    if stored_sources:
        screen.show(
            documents.report_table(
                [
                    (stored_source.source.uri, stored_source.source.status, stored_source.report)
                    for stored_source in stored_sources
                ],
                screen.width,
            ),
            "",
        )
    screen.show(
        f"{len(stored_sources)} documents, {len(sources_with_remarks)} with something to say of them",
        documents.quality_table(totals),
    )
    screen.show(*map(documents.format_remarks, sources_with_remarks))
    if html is not None:
        documents.write_page(html, snapshot, store)
        screen.say(f"written: {html}")
    return Exit.PARTLY if any(stored_source.is_incomplete for stored_source in stored_sources) else Exit.DONE


def remove(
    name: Name, store: StorePath, wait: Wait = WAIT_S, profile_file: ProfileFile = None, json: AsJson = False
) -> Exit:
    """Remove a document and its nodes from a store. A file that is still in the folder comes back."""
    screen, corpus = Screen(json=json), Corpus(str(store), wait)
    with corpus.writer() as writer:
        stored_source = documents.find_source(corpus.latest(), name)
        parts = documents.list_parts(stored_source.source.uri, writer.sources())
        # The parts of a container are sources of their own, and would stay without it.
        for uri in (stored_source.source.uri, *parts):
            writer.remove(uri)
    shared = stored_source.source.document in {row.document for row in corpus.latest().sources().values()} - {""}
    screen.give(removed=stored_source.source.uri, parts=parts, document=stored_source.source.document, shared=shared)
    note = " Its text stays, since another file has the same." if shared else ""
    with_parts = f" with {len(parts)} in it" if parts else ""
    screen.show(f"removed {one_line(stored_source.source.uri)}{with_parts}.{note}")
    screen.say(documents.explain_return(stored_source))
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
