"""What a node group is built with: what the caller says, else what it was built with, else what suits the documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from spolia.indexing.filing import Unreadable, fetched, read
from spolia.indexing.lengths import TokenCounter
from spolia.indexing.readers.choosing import versions
from spolia.indexing.readers.reading import Reader
from spolia.indexing.splitter import SlidingWindow, Splitter
from spolia.indexing.walking import Found
from spolia.models.protocols import Embedder
from spolia.stores.analysis import Analyzer, analyzer_for
from spolia.stores.manifest import Embedded, Manifest
from spolia.stores.writer import Writer

SAMPLED_FILES = 40
_SAMPLED_CHARACTERS = 5_000
_SAMPLED_BYTES = 1_000_000


@dataclass(frozen=True)
class Parts:
    """The parts that documents are indexed with; the manifest names them."""

    group: str
    splitter: Splitter
    embedder: Embedder | None
    manifest: Manifest


def parts_for(
    writer: Writer,
    group: str,
    splitter: Splitter | None,
    embedder: Embedder | None,
    analyzer: Analyzer | None,
    readers: Sequence[Reader],
    found: Found,
) -> Parts:
    """The parts for a group, as `sync` takes them."""
    splitter = splitter or default_splitter(embedder)
    there = writer.manifests.get(group)
    if analyzer is None:
        analyzer = there.analyzer if there is not None else analyzer_for(_samples(found))
    manifest = Manifest(
        group=group,
        transform=splitter.name,
        reader=versions(readers),
        analyzer=analyzer,
        embeddings=(Embedded(embedder.name, embedder.dimension),) if embedder else (),
    )
    return Parts(group, splitter, embedder, manifest)


def default_splitter(embedder: Embedder | None) -> SlidingWindow:
    """Windows of 200 tokens as the embedder counts them; without one, or if it does not show how, of 800 characters.

    >>> default_splitter(None)
    SlidingWindow(size=200, chars_per_token=4, tokenizer=None, covered=0.95, overlap=20)
    """
    counter = getattr(embedder, "tokenizer", None)
    return SlidingWindow(tokenizer=counter if isinstance(counter, TokenCounter) else None)


def _samples(found: Found) -> Iterator[str]:
    """The beginnings of some documents from all over the folder."""
    files = [file for file in found.files.values() if file.size <= _SAMPLED_BYTES]
    step = max(1, len(files) // SAMPLED_FILES)
    for file in islice(files, 0, None, step):
        try:
            yield read(file, fetched(file, None)).document.text[:_SAMPLED_CHARACTERS]
        except Unreadable:
            continue  # it is recorded when its turn comes
