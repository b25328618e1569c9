"""`spolia docs`: the documents of a store, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spolia.cli.commands.index import without_name
from spolia.cli.exit_codes import Exit, subcommands
from spolia.cli.options import WAIT_S, AsJson, SeenBy, StorePath, Wait, Where, argument
from spolia.cli.screen import Screen, indented, one_line, table, text
from spolia.errors import QueryError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from spolia.cli.documents import StoredSource
    from spolia.indexing.quality import Quality
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types import Node

Name = Annotated[str, argument("URI", "Path of the file in its folder, or id of the document.")]
SHOWN = ("uri", "id", "title", "media_type", "characters", "bytes", "changed", "status")
TEXT_SHOWN, SAME_SHOWN = 300, 5


def list_(store: StorePath, where: Where = None, access: SeenBy = None, json: AsJson = False) -> Exit:
    """List the documents of a store, whoever may read them: characters, passages, state, readers, time of the file."""
    from spolia.cli.documents import held, listed
    from spolia.cli.metadata import condition_of

    screen, snapshot = Screen(json=json), _snapshot(store)
    schema = snapshot.schema
    condition = condition_of(where or (), schema)
    found = [one for one in held(snapshot, access) if condition is None or condition.accepts(schema.record(_meta(one)))]
    screen.give(documents=[document_data(one) for one in found])
    if not found:
        screen.say("No document is like this." if where else "The store holds no document.")
        return Exit.NOTHING
    screen.show(listed(found, screen.width))
    return Exit.DONE


def show(name: Name, store: StorePath, access: SeenBy = None, json: AsJson = False) -> Exit:
    """Show what is known of a document: title, metadata, readers, report, nodes by group."""
    from spolia.cli.documents import one_held

    screen, snapshot = Screen(json=json), _snapshot(store)
    found = one_held(snapshot, name, access)
    counts = {group: len(_nodes(snapshot, found, group, access)) for group in snapshot.groups()}
    screen.give(**document_data(found), nodes=counts)
    screen.show(_description(found, counts))
    return Exit.DONE


def chunks(
    name: Name,
    store: StorePath,
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="The node group.")] = "chunk",
    access: SeenBy = None,
    json: AsJson = False,
) -> Exit:
    """Show the nodes that a document was cut into: number, place, what is put before them when indexed, text."""
    from spolia.cli.documents import one_held
    from spolia.cli.group_names import refuse_unbuilt

    screen, snapshot = Screen(json=json), _snapshot(store)
    refuse_unbuilt(snapshot, group)
    nodes = _nodes(snapshot, one_held(snapshot, name, access), group, access)
    screen.give(group=group, nodes=[node_data(node) for node in nodes])
    if not nodes:
        screen.say(f"It has no node in group {group!r}.")
        return Exit.NOTHING
    for node in nodes:
        screen.show(*_node(node))
    return Exit.DONE


def report(
    store: StorePath,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page that shows each page's text beside its passages."),
    ] = None,
    json: AsJson = False,
) -> Exit:
    """Say what was read of each document and of all, and what was noticed: failures, warnings. Failures: code 5."""
    from spolia.cli.documents import held, keeper, reported
    from spolia.indexing.quality import quality

    screen, snapshot = Screen(json=json), _snapshot(store)
    found = list(held(snapshot))
    noticed = [one for one in found if one.noticed]
    numbers = quality(snapshot, keeper(snapshot))
    screen.give(
        documents=len(found),
        quality={**asdict(numbers), "ocr_share": numbers.ocr_share},
        noticed=[{"uri": one.source.uri, "status": one.source.status, "said": list(one.noticed)} for one in noticed],
        files={one.source.uri: asdict(one.report) if one.report else None for one in found},
    )
    if found:
        screen.show(reported([(one.source.uri, one.source.status, one.report) for one in found], screen.width), "")
    screen.show(f"{len(found)} documents, {len(noticed)} with something to say of them", _quality(numbers))
    screen.show(*map(_noticed, noticed))
    if html is not None:
        _write_page(html, snapshot, store)
        screen.say(f"written: {html}")
    return Exit.PARTLY if any(one.is_lacking for one in found) else Exit.DONE


def _write_page(path: Path, snapshot: Snapshot, store: str) -> None:
    from spolia.cli.documents import keeper
    from spolia.indexing.quality import page

    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(page(snapshot, keeper(snapshot), title=str(store)))
    except OSError as error:
        raise QueryError(
            f"{path} cannot be written: {error.strerror}. Write --html with the name of a file."
        ) from error


def remove(name: Name, store: StorePath, wait: Wait = WAIT_S, json: AsJson = False) -> Exit:
    """Remove a document from a store, and what was read out of it. What is still in the folder comes back."""
    from spolia.cli.documents import one_held, parts_of
    from spolia.stores.corpus import Corpus

    screen, corpus = Screen(json=json), Corpus(str(store), wait)
    with corpus.writer() as writer:
        found = one_held(corpus.latest(), name)
        parts = parts_of(found.source.uri, writer.sources())
        for uri in (found.source.uri, *parts):
            writer.remove(uri)
    shared = found.source.document in {row.document for row in corpus.latest().sources().values()} - {""}
    screen.give(removed=found.source.uri, parts=parts, document=found.source.document, shared=shared)
    kept = " Its text stays, since another file has the same." if shared else ""
    with_parts = f" with {len(parts)} in it" if parts else ""
    screen.show(f"removed {one_line(found.source.uri)}{with_parts}.{kept}")
    screen.say(_comes_back(found))
    return Exit.DONE


def _comes_back(removed: StoredSource) -> str:
    from spolia.indexing.sync.files import TEXT, is_elsewhere

    if removed.source.uri.startswith(TEXT):
        return "It was added as a text, so that nothing brings it back."
    if removed.report and removed.report.within:
        return f"It was read out of {one_line(removed.report.within)}: it comes back when that is read again."
    if is_elsewhere(removed.source.uri):
        return "Its source brings it back once it has changed there, or with --rebuild."
    return "If the file is still in the folder, the next `spolia index` adds it again: move the file away too."


WHAT = "The documents of a store: list, show, chunks, report, remove."
docs = subcommands(WHAT, list=list_, show=show, chunks=chunks, report=report, remove=remove)


def document_data(one: StoredSource) -> dict[str, Any]:
    source, document = one.source, one.document
    of_text = {name: getattr(document, name, "") for name in ("title", "media_type")}
    return {
        "uri": source.uri,
        "id": source.document,
        **of_text,
        "characters": one.characters,
        "chunks": one.report.chunks if one.report and source.status == "indexed" else None,
        "status": source.status,
        "error": source.error,
        "bytes": source.size,
        "changed": one.changed,
        "readers": list(document.readers) if document else [],
        "meta": [list(pair) for pair in document.meta] if document else [],
        "report": asdict(one.report) if one.report else None,
    }


def node_data(node: Node) -> dict[str, Any]:
    from spolia.core.codec import encode

    return {"number": node.number, "id": node.id, "text": node.text, "context": node.context, "span": encode(node.span)}


def _snapshot(store: str) -> Snapshot:
    from spolia.stores.corpus import Corpus

    return Corpus(str(store)).latest()


def _meta(one: StoredSource) -> tuple[tuple[str, Any], ...]:
    from spolia.stores.snapshot.records import file_meta, with_file_fields

    row = one.source
    files = file_meta(row.uri, row.size, row.created_ns, row.mtime_ns, row.accessed_ns)
    return with_file_fields(one.document.meta if one.document else (), files)


def _nodes(snapshot: Snapshot, one: StoredSource, group: str, access: Sequence[str] | None) -> list[Node]:
    from spolia.cli.documents import LAST, seen_by

    return snapshot.numbered(one.source.document, group, 0, LAST, seen_by(snapshot, access)) if one.document else []


def _description(one: StoredSource, counts: dict[str, int]) -> RenderableType:
    from spolia.cli.documents import readers_told
    from spolia.indexing.quality import facts

    data = document_data(one)
    rows = [(name, data[name]) for name in SHOWN]
    rows += [("read", facts(one.source, one.report))] if one.report else []
    rows += [("readers", readers_told(data["readers"]))] + [(f"meta {name}", value) for name, value in data["meta"]]
    rows += [(f"nodes of {group}", count) for group, count in counts.items()]
    rows += [("noticed", said) for said in one.noticed]
    return table((text(one_line(name), "bold"), one_line(str(value), 1_000)) for name, value in rows)


def _node(node: Node) -> list[RenderableType]:
    place = ""
    if node.span:
        kind, at = ("page", node.span.pages) if node.span.pages else ("line", node.span.lines)
        place = "" if at is None else f"{kind} {at[0]}" if at[0] == at[1] else f"{kind}s {at[0]}-{at[1]}"
    head: list[RenderableType] = [text().append(f"{node.number:>3}  ", "bold cyan").append(place, "bold")]
    if node.context:
        head.append(indented(one_line(node.context, 150), 5, "dim"))
    return [*head, indented(one_line(node.text, TEXT_SHOWN), 5)]


def _quality(found: Quality) -> Table:
    given_up = f", {found.given_up} of them not tried again until they change" if found.given_up else ""
    rows = {
        "pages": f"{found.pages}, {found.empty_pages} of them empty, {found.ocr_share:.0%} by OCR"
        if found.pages
        else "",
        "text": f"{found.characters} characters, {found.chunks} passages",
        "beside it": f"{found.tables} tables, {found.images} pictures",
        "failed": f"{found.failed}{given_up}" if found.failed else "",
        "not read": ", ".join(f"{count} {name}" for name, count in found.dropped),
        "encodings found out": ", ".join(f"{name} {count}" for name, count in found.encodings),
        "same bytes": "; ".join(", ".join(uris) for uris in found.copies[:SAME_SHOWN]),
        "same words": "; ".join(", ".join(uris) for uris in found.same_text[:SAME_SHOWN]),
    }
    return table((text(name, "dim"), one_line(said, 300)) for name, said in rows.items() if said)


def _noticed(one: StoredSource) -> RenderableType:
    from spolia.indexing.quality import attempts_told

    style = "bold red" if one.source.status == "failed" else "yellow"
    tried = (f"({attempts_told(one.report)})",) if one.source.status == "failed" and one.report else ()
    said = [without_name(one.source.uri, said) for said in one.noticed]
    return text().append(f"{one_line(one.source.uri)}  ", style).append(one_line(" ".join((*said, *tried)), 400))
