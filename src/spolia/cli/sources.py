"""Sources as the command line names them."""

from collections.abc import Sequence
from pathlib import Path

from spolia.errors import SourceError
from spolia.flow_files.files import decoded
from spolia.indexing.sources.api import APIItems
from spolia.indexing.sources.remote_files import RemoteFiles
from spolia.indexing.sources.source import Source
from spolia.indexing.sources.sql import SQLRows
from spolia.indexing.sources.web import WebPages

SOURCES = (WebPages, RemoteFiles, SQLRows, APIItems)


def named_sources(given: Sequence[str], file: Path | None) -> list[Path | Source]:
    """Folders and sources.

    >>> [type(one).__name__ for one in named_sources(["https://example.org/docs/", "s3://archive/docs"], None)]
    ['WebPages', 'RemoteFiles']
    """
    found: list[Path | Source] = [_source(one) for one in given]
    if file is not None:
        found += decoded(file, tuple[Source, ...], None, SOURCES, "a list of sources: - WebPages: {start: [URL]}")
    if not found:
        raise SourceError("Nothing is named. Write a folder, an address, or --sources FILE.")
    return found


def _source(one: str) -> Path | Source:
    if "://" not in one:
        return Path(one)
    return WebPages((one,)) if one.lower().startswith(("http://", "https://")) else RemoteFiles(one)
