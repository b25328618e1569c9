"""Building a lexical index as a frozen folder, from hard links to the segments of the last one, which tantivy never
changes. A folder is complete once it has its name.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tantivy

from spolia.private_files import file_mode, make_folder, touch, write_text
from spolia.stores.backends.rows import in_batches
from spolia.stores.backends.sqlite.connection import translate_sqlite_error
from spolia.stores.files import (
    CHECKSUMS,
    MERGED,
    TermColumn,
    checksum,
    checksum_of_file,
    column_of,
    columns_in,
    fail_point,
    fsync,
    read_checksums,
    small_segments,
    tantivy_errors,
)
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.lexical.field_terms import BODY, KEY, LENGTH, terms_of
from spolia.stores.lexical.index import COPIED

_HEAP_BYTES, _FEW_BYTES = 50_000_000, 15_000_000
"""Of memory for an index from nothing, and for one that goes on, which is the least: taking it costs milliseconds."""
_DELETED_AT_ONCE = 1_000
_ADDED_AT_ONCE = 1_000_000
"""Characters that are analysed before tantivy's thread gets them, which otherwise sleeps and wakes for each node."""

IndexedNode = tuple[int, str, *tuple[str, ...]]
"""Key and indexed text of a node, and packed metadata: of its document, and its own."""


def freeze(
    target: Path,
    base: Path | None,
    dead: Iterable[int],
    added: Iterable[IndexedNode],
    analyzer: Analyzer,
    doing: str = "indexed",
    moved_nodes: Iterable[IndexedNode] = (),
    fields: Iterable[str] = (),
) -> None:
    """Make the durable index `target` from `base` or from nothing; to move nodes makes tantivy merge segments.

    From nothing it gets a column for these metadata fields, which it keeps.
    """
    folder = target.with_name(f"{target.name}.tmp")
    _remove(folder)
    make_folder(folder.parent)
    try:
        with tantivy_errors(lambda error: translate_sqlite_error(target.parents[2], doing, error)):
            shared = _clone(base, folder)
            if base is None:
                tantivy.Index(_schema(fields), str(folder))
            _write(folder, base is not None, dead, added, analyzer, moved_nodes)
            _seal(folder, shared, base)
            fail_point("lexical.rename")
            # A folder gets its name last: what a killed writer leaves is no index.
            os.rename(folder, target)
            fail_point("lexical.fsync_folder")
            fsync(target.parent)
    except BaseException:
        _remove(folder)
        raise


def _clone(base: Path | None, folder: Path) -> frozenset[str]:
    """Link the segment files of `base` and copy the rest; names of what is shared and needs no writing."""
    make_folder(folder)
    if base is None:
        return frozenset()
    shared = set()
    for name in sorted(os.listdir(base)):
        if name.endswith(".lock") or name == CHECKSUMS:  # `_seal` writes both again
            continue
        fail_point("lexical.clone")
        source, target = f"{base}/{name}", f"{folder}/{name}"
        if name in COPIED or not _link(source, target):
            shutil.copyfile(source, target)
        else:
            shared.add(name)
    return frozenset(shared)


def _link(source: str, target: str) -> bool:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links: a copy does the same for more
        return False
    return True


def _write(
    folder: Path,
    exists: bool,
    dead: Iterable[int],
    added: Iterable[IndexedNode],
    analyzer: Analyzer,
    moved_nodes: Iterable[IndexedNode],
) -> None:
    index, columns = tantivy.Index.open(str(folder)), columns_in(folder)
    # One thread: the processor is shared, and one segment for each publication is cheaper to search.
    writer = index.writer(heap_size=_FEW_BYTES if exists else _HEAP_BYTES, num_threads=1)
    for keys in in_batches(dead, _DELETED_AT_ONCE):
        # By query: a term of an unsigned field given to delete_documents_by_term deletes nothing in tantivy-py 0.27.
        writer.delete_documents_by_query(tantivy.Query.term_set_query(index.schema, KEY, keys))
    for burst in _in_bursts(added, analyzer, columns):
        for document in burst:
            writer.add_document(document)
    fail_point("lexical.write")
    writer.commit()
    if moved_nodes:
        documents = ((node[0], _document(node, analyzer, columns)) for node in moved_nodes)
        _merge(writer, index.schema, folder, documents)
    fail_point("lexical.commit")
    writer.wait_merging_threads()
    fail_point("lexical.merge")


def _merge(writer: Any, schema: Any, folder: Path, small_nodes: Iterable[tuple[int, Any]]) -> None:
    """Have tantivy merge small segments: it does so at the commit after which there are `MERGED` of them, and no call
    does. So nodes move, each into a segment of its own, until there are as many."""
    count = len(small_segments(folder))
    for key, document in small_nodes:
        writer.delete_documents_by_query(tantivy.Query.term_query(schema, KEY, key, "basic"))
        writer.add_document(document)
        writer.commit()
        previous_count, count = count, len(small_segments(folder))
        if count >= MERGED or count < previous_count:
            break


def _in_bursts(
    added: Iterable[IndexedNode], analyzer: Analyzer, columns: Mapping[str, TermColumn]
) -> Iterator[list[Any]]:
    burst, characters = list[Any](), 0
    for node in added:
        burst.append(_document(node, analyzer, columns))
        characters += 1 + len(node[1])
        if characters >= _ADDED_AT_ONCE:
            yield burst
            burst, characters = [], 0
    yield burst


def _document(node: IndexedNode, analyzer: Analyzer, columns: Mapping[str, TermColumn]) -> Any:
    key, text, *metadata = node
    document, terms = tantivy.Document(), analyzer.term_text(text)
    document.add_unsigned(KEY, key)
    document.add_text(BODY, terms)
    document.add_unsigned(LENGTH, terms.count(" ") + bool(terms))
    if columns:
        for column, term in terms_of(metadata, columns):
            document.add_text(column, term)
    return document


def _schema(fields: Iterable[str]) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(KEY, indexed=True, fast=True)
    # Texts come as terms joined by blanks. BM25 needs counts and no positions.
    builder.add_text_field(BODY, tokenizer_name="whitespace", index_option="freq")
    builder.add_unsigned_field(LENGTH, fast=True)
    if names := list(fields):
        # One column for all: each more costs a publication half a CPU-ms.
        builder.add_text_field(column_of(names), tokenizer_name="raw", index_option="basic")
    return builder.build()


READING_LOCK = ".tantivy-meta.lock"
"""What tantivy makes when an index is opened, with permissions of its own, if it is not there."""


def _seal(folder: Path, shared: frozenset[str], base: Path | None) -> None:
    """Write the checksums, and make everything durable with the store's permissions."""
    base_sums = read_checksums(base) if base is not None else {}
    sums: dict[str, list[Any]] = {}
    mode = file_mode(folder)
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if name.endswith(".lock"):
            os.unlink(path)
        elif name in shared:
            sums[name] = base_sums[name] if name in base_sums else checksum(path)
        else:
            sums[name] = _finish(path, mode)
    touch(folder / READING_LOCK)
    fail_point("lexical.checksums")
    write_text(folder / CHECKSUMS, json.dumps(sums))
    _finish(f"{folder}/{CHECKSUMS}", mode)
    fsync(folder)


def _finish(path: str, mode: int) -> list[Any]:
    """Make a file durable with its permissions, and return its checksum."""
    with open(path, "rb", buffering=0) as file:
        os.fchmod(file.fileno(), mode)
        checksum = checksum_of_file(file)
        fail_point("lexical.fsync")
        os.fsync(file.fileno())
    return checksum


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
