"""Bringing a store in step with a folder, as `spolia index` and `spolia ask QUESTION DIR` do it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from spolia.cli.reader_lists import access_of
from spolia.cli.screen import Screen
from spolia.errors import ManifestMismatch, MissingExtra, WeightsError
from spolia.flows.default import covers
from spolia.indexing.intake import Unreadable, intake
from spolia.indexing.readers.choosing import READERS, by_suffix
from spolia.indexing.report import Progress, SyncReport
from spolia.indexing.sources.source import Source
from spolia.indexing.sync import sync
from spolia.indexing.walking import walk
from spolia.models.minilm import MiniLM
from spolia.models.weights import find
from spolia.stores.corpus import Corpus

GROUP = "chunk"
SAMPLED_FILES, SAMPLED_BYTES, SAMPLED_CHARACTERS = 20, 1_000_000, 5_000


def index_folder(
    screen: Screen,
    sources: Path | Sequence[Path | Source],
    store: str,
    *,
    readers: Path | None = None,
    vectors: bool | None = None,
    weights: str = "",
    threads: int = 1,
    rebuild: bool = False,
    follow_links: bool = False,
    retry: bool = True,
    workers: int | None = None,
    wait_s: float | None = None,
    tell: Callable[[Progress], None] = lambda now: None,
) -> tuple[SyncReport, str]:
    """Index what has changed in folders and sources; returns the report, and in one line why there are vectors or none.

    Args:
        readers: a file that says who may read what; None where nothing is said of that.
        vectors: whether to embed; None where it helps: with weights, over a language that the embedder knows.
        weights: folder with the embedder's weights.
        threads: for the embedder.
        rebuild: forget what was built with other parts.
        follow_links: go where links lead out of the folder too.
        retry: try files again that could not be read and have not changed.
        workers: processes that read files; None for one for each processor, four at most.
        wait_s: how long to wait for another writer, seconds.
        tell: is told of every file.
    """
    corpus, embedder, access = Corpus(str(store)), MiniLM(weights, threads), access_of(readers)
    if not isinstance(sources, Path) and len(sources) == 1 and isinstance(sources[0], Path):
        sources = sources[0]
    paths = sources if isinstance(sources, Path) else [one for one in sources if isinstance(one, Path)]
    why = "" if vectors else why_none(corpus, paths, embedder, vectors, weights, rebuild)
    with screen.progress("reading") as told:

        def progress(now: Progress) -> None:
            tell(now)
            embedding = not why and now.done >= now.total
            told(now.done, now.total, f"embedding, {now.embedded} done" if embedding else "reading")

        try:
            report = sync(
                sources,
                corpus,
                embedder=None if why else embedder,
                group=GROUP,
                access=access,
                progress=progress,
                retry=retry,
                workers=workers,
                timeout_s=wait_s,
                rebuild=rebuild,
                follow_links=follow_links,
            )
        except ManifestMismatch as error:
            raise ManifestMismatch(
                f"{error} On the command line: `spolia plan` with the same arguments shows what it would take; "
                "to do it, write the same command with --rebuild."
            ) from error
    return report, f"without vectors: {why}" if why else f"with vectors of {embedder.name}"


def why_none(
    corpus: Corpus,
    paths: Path | Sequence[Path],
    embedder: MiniLM,
    vectors: bool | None,
    weights: str,
    rebuild: bool,
) -> str:
    """Why nothing is to be embedded; nothing when it is. Of sources that are no folders nothing is known before."""
    if vectors is False:
        return "as asked for"
    if not rebuild and (built := _built_with(corpus)) is not None:
        return "" if built == embedder.name else f"the store was built {f'with {built}' if built else 'without'}"
    try:
        find(weights)
        return covers(samples, embedder) if (samples := list(_samples(paths))) else ""
    except MissingExtra as error:
        return str(error)
    except WeightsError as error:
        if weights or os.environ.get("SPOLIA_WEIGHTS"):  # named by the user, so not to be passed over
            raise
        return str(error)


def _built_with(corpus: Corpus) -> str | None:
    """Name of the embedder that a store was built with, empty for none; None where nothing was built yet."""
    if not corpus.exists():
        return None
    snapshot = corpus.snapshot()
    return snapshot.manifest(GROUP).embedder if GROUP in snapshot.groups() else None


def _samples(paths: Path | Sequence[Path]) -> Iterator[str]:
    """The beginnings of some documents from all over some folders."""
    if not paths:
        return
    files = [file for file in walk(paths, by_suffix(READERS)).files.values() if file.size <= SAMPLED_BYTES]
    with TemporaryDirectory(prefix="spolia-") as spool, intake(Path(spool), 1) as taking:
        for file in islice(files, 0, None, max(1, len(files) // SAMPLED_FILES)):
            try:
                yield taking.sample(file).document.text[:SAMPLED_CHARACTERS]
            except Unreadable:
                continue  # indexing records it, with the reason
