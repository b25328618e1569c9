"""Documents that are in no folder: texts under names of the caller's, and stores for one use."""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict, Unpack

from spolia.core.deprecation import renamed_arguments
from spolia.core.operator import Operator
from spolia.errors import DegradedWarning, DocumentError
from spolia.filters import Field
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sync.files import TEXT, Files, SourceChanges
from spolia.indexing.sync.groups import RequestedGroups, main_definition
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.report import SyncReport
from spolia.indexing.sync.sync import sync, sync_listing
from spolia.indexing.sync.sync_run import SyncOptions
from spolia.models.protocols import Embedder
from spolia.stores.corpus import Corpus, NodeGroup, refuse_no_corpus
from spolia.stores.definition import Transform
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.open_store import forget
from spolia.types import Scalar

MEMORY = Path("/dev/shm")
TIMES, EACH, ROOM = 20, 8 * 2**10, 16 * 2**20
"""Bytes that a store takes at most: for each one of its documents, for each document, and beside. With vectors of 384
numbers, 100 documents of 14 kB took 6, nothing and nothing; 2,000 of 33 bytes 2.5 kB each."""


class IndexingOptions(TypedDict, total=False):
    """Options of `sync` about groups and labels, by the same names."""

    splitter: Transform | None
    embedder: Embedder | None
    analyzer: Analyzer | None
    readers: Readers
    group: str
    groups: Sequence[NodeGroup]
    fields: Sequence[Field] | None
    metadata: Callable[[str], Mapping[str, Scalar | Sequence[Scalar]]] | None
    access: Callable[[str], Iterable[str]] | None
    operators: Sequence[Operator[Any, Any] | type]
    timeout_s: float | None


@renamed_arguments(known="operators")
def add_texts(corpus: Corpus, texts: Mapping[str, str], **options: Unpack[IndexingOptions]) -> SyncReport:
    """Put texts into a store, each in the place of what had its name; the store's other documents stay.

    A text is a document like any other, whose uri is `text:NAME`. It stays when a folder is indexed into the same
    store, also with `rebuild=True`. One that is the same as before is not cut again. To take some away:
    `with corpus.writer() as writer: writer.remove("text:NAME")`.

    Args:
        corpus: the store; made if it is not there.
        texts: by name. The end of a name says the format, as `.md` or `.html`; else it is plain text.
        options: arguments of `sync` for groups and documents: the same as the store was
            built with.

    A group of the store that cannot be made now, since its function is unknown here or its model is away, waits
    (`report.behind`), and you get a `DegradedWarning`.

    Raises:
        DocumentError: a text without a name, or that is not a text.
        ManifestMismatch, GroupError, StoreError: as for `sync`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     corpus = Corpus(f"{folder}/notes.spolia")
    ...     report = add_texts(corpus, {"faq/tides.md": "# Tides\\n\\nThe moon causes them."})
    ...     [document.uri for document in corpus.snapshot().documents()]
    ['text:faq/tides.md']
    """
    if unknown := sorted(set(options) - set(IndexingOptions.__annotations__)):
        raise TypeError(
            f"add_texts() has no argument {', '.join(unknown)}. "
            f"It has: {', '.join(sorted(IndexingOptions.__annotations__))}."
        )
    refuse_no_corpus(corpus, "add_texts(corpus, {NAME: TEXT})")
    if not isinstance(texts, Mapping):
        raise DocumentError(f"{texts!r:.60} ({type(texts).__name__}) are not texts by name. Write {{'a.md': TEXT}}.")
    readers = options.get("readers", READERS)
    by_name, now = by_suffix(readers), time.time_ns()

    files = Files(by_name)
    for name, text in texts.items():
        if not isinstance(name, str) or not name.strip() or "\0" in name or not isinstance(text, str):
            raise DocumentError(
                f"The document {name!r} is {type(text).__name__}. Write a name, without NUL characters, and a text: "
                "add_texts(corpus, {name: text})."
            )
        # A lone surrogate, which UTF-8 lacks, becomes `?`.
        files.add_bytes(TEXT + name, text.encode("utf-8", "replace"), now)

    main = main_definition(options.get("splitter"), options.get("embedder"), options.get("analyzer"))
    main_group, groups, known_operators = (
        options.get("group", "chunk"),
        options.get("groups", ()),
        options.get("operators", ()),
    )
    requested_groups = RequestedGroups(main_group, main, groups, known_operators, corpus_definitions=corpus.definitions)

    labels = DocumentLabels(options.get("metadata"), options.get("access"))
    sync_options = SyncOptions(requested_groups, fields=options.get("fields"), timeout_s=options.get("timeout_s"))
    report = sync_listing(corpus, SourceChanges(files), labels, sync_options)
    for group, reason in report.behind:
        warnings.warn(f"Group {group!r} lacks texts that were added: {reason}", DegradedWarning, stacklevel=2)
    return report


@renamed_arguments(within="parent_folder")
@contextmanager
def temporary(
    documents: Sequence[str | Path] | Mapping[str, str] | str | Path,
    *,
    parent_folder: str | Path | None = None,
    **options: Unpack[IndexingOptions],
) -> Iterator[Corpus]:
    """Make a store for one use: of a folder, a list of files, or texts by name. At the end nothing is left of it.

    It is in memory where the machine has a folder there (`/dev/shm`) with room for it: 16 MB, and for each document
    8 kB and 20 times its size; else where temporary files are. A process that is killed leaves its folder `spolia-…`.

    Args:
        documents: as for `sync`, or for `add_texts`.
        parent_folder: the folder to make it in, whatever room there is.
        options: arguments of `sync` for groups and documents.

    Raises:
        FolderError, DocumentError, GroupError, StoreError: as for `sync` and `add_texts`.

    >>> from spolia import BM25, Query
    >>> with temporary({"a": "The moon causes the tides.", "b": "Salt is dug in mines."}) as corpus:
    ...     [node.text for node in BM25(corpus.group("sentence"))(Query("Who digs salt?")).nodes]
    ['Salt is dug in mines.']
    """
    place = parent_folder if parent_folder is not None else _find_memory_folder(documents)
    with TemporaryDirectory(prefix="spolia-", dir=place, ignore_cleanup_errors=True) as folder:
        corpus = Corpus(f"{folder}/temporary.spolia")
        if isinstance(documents, Mapping):
            add_texts(corpus, documents, **options)
        else:
            sync(documents, corpus, **options)
        try:
            yield corpus
        finally:
            forget(corpus.backend)  # open files would keep the room of the deleted folder


def _find_memory_folder(documents: Sequence[str | Path] | Mapping[str, str] | str | Path) -> Path | None:
    if not os.access(MEMORY, os.W_OK):
        return None
    sizes = map(len, documents.values()) if isinstance(documents, Mapping) else _sizes(documents)
    needed_bytes = sum(TIMES * size + EACH for size in sizes) + ROOM
    return MEMORY if shutil.disk_usage(MEMORY).free >= needed_bytes else None


def _sizes(paths: Sequence[str | Path] | str | Path) -> Iterator[int]:
    for path in (paths,) if isinstance(paths, (str, Path)) else paths:
        files = Path(path).rglob("*") if Path(path).is_dir() else (Path(path),)
        yield from (file.stat().st_size for file in files if file.is_file())
