"""Sources as the command line names them."""

from collections.abc import Sequence
from pathlib import Path

from spolia.errors import SourceError
from spolia.flow_files.files import decode_file
from spolia.indexing.sources.api import APIItems
from spolia.indexing.sources.remote_files import RemoteFiles
from spolia.indexing.sources.source import Source
from spolia.indexing.sources.sql import SQLRows
from spolia.indexing.sources.web import WebPages

SOURCES = (WebPages, RemoteFiles, SQLRows, APIItems)


def parse_sources(names: Sequence[str], file: Path | None) -> list[Path | Source]:
    """Parse folders and sources.

    >>> [type(one).__name__ for one in parse_sources(["https://example.org/docs/", "s3://archive/docs"], None)]
    ['WebPages', 'RemoteFiles']
    """
    sources: list[Path | Source] = [_parse_source(name) for name in names]
    if file is not None:
        sources += decode_file(file, tuple[Source, ...], None, SOURCES, "a list of sources: - WebPages: {start: [URL]}")
    if not sources:
        raise SourceError("Nothing is named. Write a folder, an address, or --sources FILE.")
    return sources


def _parse_source(name: str) -> Path | Source:
    if "://" not in name:
        return Path(name)
    return WebPages((name,)) if name.lower().startswith(("http://", "https://")) else RemoteFiles(name)
