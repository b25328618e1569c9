"""Reports of indexing: on each document, stored with its source, and on a whole run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any, Literal, TypeAlias

from spolia.errors import StoreCorrupt, strip_name
from spolia.indexing.sync.files import FileListing, Skipped
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.backends.rows import SourceRow, Unmade
from spolia.stores.corpus import Corpus
from spolia.types import Document, Node, Value, notebook


@dataclass(frozen=True)
class DocumentReport(Value):
    """Report on an indexed document; page numbers start at 1.

    Args:
        dropped: what was seen and not read, and how many.
        parts: of a container, the files in it that a reader knows, with those within them.
        within: the container that it was read out of, by its uri.
        tokens: of all nodes with their context, as the embedder counts them; None where nobody counted.
        beyond_window: nodes whose end the embedder does not read, because they are longer than its window.
        encoding: of its characters, where that had to be found out.
        lacks: what was missing to read all of it; it is read again when that is there.
        beside: the pictures beside it that it names, by their uris, with their versions; empty for
            pictures that it does not show.
        labels: identifies the metadata that the caller gave for the file; empty for none.
        attempts: how often reading it failed since it last changed; the last time at `tried_ns`.
        passes: whether what was in the way may pass by itself.
    """

    reader: str
    characters: int
    pages: int = 0
    empty_pages: tuple[int, ...] = ()
    ocr_pages: tuple[int, ...] = ()
    tables: int = 0
    images: int = 0
    dropped: tuple[tuple[str, int], ...] = ()
    parts: int = 0
    within: str = ""
    chunks: int = 0
    tokens: int | None = None
    beyond_window: int = 0
    encoding: str = ""
    warnings: tuple[str, ...] = ()
    lacks: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    labels: str = ""
    attempts: int = 0
    tried_ns: int = 0
    passes: bool = False

    @property
    def json(self) -> str:
        """Return the report as text for the store; fields with their default are left out."""
        pairs = zip(vars(self).items(), _DEFAULTS, strict=False)  # a digest that is kept comes after the fields
        return _encode({name: value for (name, value), default in pairs if value != default})

    @classmethod
    def from_json(cls, text: str) -> DocumentReport:
        """Read a report from its text in the store."""
        try:
            plain: dict[str, Any] = json.loads(text)
            for name, value in plain.items():
                if isinstance(value, list):
                    # JSON has only lists.
                    plain[name] = tuple(tuple(entry) if isinstance(entry, list) else entry for entry in value)
            return cls(**plain)
        except (ValueError, TypeError, AttributeError) as error:
            raise StoreCorrupt(
                f"A document's report in the store cannot be understood: {text!r} ({error}). Index the folder again "
                "with rebuild=True."
            ) from error


_DEFAULTS = tuple(f.default for f in fields(DocumentReport))
"""In the order of the fields, as every report holds them."""
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def container_of(row: SourceRow) -> str:
    """Return the container that a source was read out of, by its uri; empty for none."""
    return DocumentReport.from_json(row.report).within if row.report else ""


@dataclass(frozen=True)
class Progress(Value):
    """Progress of a run of `sync`.

    Args:
        done: files that have been dealt with.
        total: files that are new or may have changed.
        uri: the last of them.
        change: what became of it: `added`, `changed`, `moved`, `removed` or `failed`; empty where nothing did.
        chunks: nodes that were made.
        embedded: texts that were embedded.
    """

    done: int
    total: int
    uri: str = ""
    failed: int = 0
    chunks: int = 0
    embedded: int = 0
    change: str = ""


@dataclass(frozen=True)
class SyncReport(Value):
    """Result of a run of `sync`.

    Args:
        generation: the published generation.
        failed: files that could not be read, and why.
        stale: those of them whose last good version is still found, since the new one cannot be.
        skipped: what was left out, and why.
        unread: number of files that no reader knows, by suffix.
        warned: number of files that were read with a warning.
        chunks: nodes that were made; a text that is in several files counts once.
        embedded: texts that were embedded.
        unmade: groups that could not be made of documents, and why; these are found in their other groups. Also the
            pictures that an embedder could not read in this run, whose nodes are found by their words only.
        behind: groups that were not kept in step, since they cannot be made here, their model is away, or its replies
            could not be read in this run, and why. What they have of documents that are as they were is still found.
        fields: notes on fields that this run has declared again: values that do not fit and are
            skipped, and fields without a value in any document; sentences.
        damaged: rows that are not as they were written, in words: a share of all is looked at, another one each time.
    """

    generation: int
    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    failed: tuple[tuple[str, str], ...] = ()
    stale: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    unread: tuple[tuple[str, int], ...] = ()
    warned: int = 0
    chunks: int = 0
    embedded: int = 0
    unmade: tuple[Unmade, ...] = ()
    behind: tuple[tuple[str, str], ...] = ()
    fields: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_in_step(self) -> bool:
        """Return whether the store is in step in all its groups: nothing failed, was not made, fell behind, or was
        found damaged.

        What the command line gives exit code 5 for where it is not. Files that no reader knows (`unread`) or that were
        left out (`skipped`) do not count.
        """
        return not (self.failed or self.unmade or self.behind or self.damaged)

    def __str__(self) -> str:
        """Return what was done, in a line.

        >>> print(SyncReport(1, added=3, chunks=51, embedded=51, seconds=9.6))
        3 added; 51 passages made, 51 embedded; 9.6 s
        """
        names = ("added", "changed", "moved", "removed", "unchanged")
        counts = [f"{getattr(self, name)} {name}" for name in names if getattr(self, name)]
        # No file has changed, but nodes were made again.
        if self.chunks and counts == [f"{self.unchanged} unchanged"]:
            counts.append("cut again")
        passages = f"{self.chunks} passages made, {self.embedded} embedded"
        return f"{', '.join(counts) or 'nothing to do'}; {passages}; {self.seconds:.1f} s"

    def _repr_html_(self) -> str:
        """Return what was done and what failed, for a notebook to show."""
        rows = [(uri, strip_name(uri, reason)) for uri, reason in self.failed]
        failed = notebook.render_table(("failed", "reason"), rows) if rows else ""
        return notebook.render_paragraph(str(self)) + failed


_COUNTS = ("added", "changed", "moved", "removed", "unchanged", "warned", "chunks", "embedded")
SyncOutcome: TypeAlias = Literal["added", "changed", "moved", "removed", "unchanged", "failed"]


def reports(corpus: Corpus) -> Mapping[str, DocumentReport]:
    """Return the reports of all indexed sources of a store, by uri."""
    return {
        uri: DocumentReport.from_json(source.report)
        for uri, source in corpus.snapshot().sources().items()
        if source.status == "indexed" and source.report
    }


def merge_reports(reports: Sequence[SyncReport], failed: Sequence[tuple[str, str]] = ()) -> SyncReport:
    """Merge the reports of several runs, one after the other; `failed` are sources that could not be read."""
    last = reports[-1] if reports else SyncReport(0)
    unread = sum((Counter(dict(report.unread)) for report in reports), Counter[str]())
    return last.but(  # what is not merged, as `unmade`, the last one says of the whole store
        **{name: sum(getattr(report, name) for report in reports) for name in (*_COUNTS, "seconds")},
        stale=tuple(chain.from_iterable(report.stale for report in reports)),
        failed=(*chain.from_iterable(report.failed for report in reports), *failed),
        skipped=tuple(chain.from_iterable(report.skipped for report in reports)),
        unread=tuple(unread.most_common()),
    )


@dataclass
class SyncCounts:
    """Counts that grow while files are processed; see `SyncReport` and `Progress`."""

    total: int = 0
    done: int = 0
    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0
    unchanged: int = 0
    warned: int = 0
    chunks: int = 0
    embedded: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)

    def count(self, uri: str, outcome: SyncOutcome) -> None:
        if outcome != "failed":
            setattr(self, outcome, getattr(self, outcome) + 1)
            self.outcomes[uri] = outcome

    def fail(self, row: SourceRow) -> None:
        self.failed.append((row.uri, row.error))
        if row.is_stale:
            self.stale.append(row.uri)

    def publish(self, conflicts: set[str]) -> None:
        """Settle the counts; those of sources that another writer changed first are taken back and counted again."""
        for uri in self.outcomes.keys() & conflicts:
            setattr(self, self.outcomes[uri], getattr(self, self.outcomes[uri]) - 1)
        self.failed = [entry for entry in self.failed if entry[0] not in conflicts]
        self.stale = [entry for entry in self.stale if entry not in conflicts]
        self.outcomes.clear()

    def report(self, generation: int, listing: FileListing, seconds: float) -> SyncReport:
        return SyncReport(
            generation,
            **{name: getattr(self, name) for name in _COUNTS},
            failed=tuple(self.failed),
            stale=tuple(self.stale),
            skipped=tuple(listing.skipped),
            unread=tuple(listing.unread.most_common()),
            seconds=seconds,
        )


_SAMPLE = 2_000
_KNOWN_SHARE = 0.95
# By these words a warning about nodes is known, and replaced, when the nodes are counted again.
_EMPTY = "It has no text."
_LONG = "chunks are longer than the embedder's window."
_STRANGE = "The embedder knows"


class NodeCount:
    """Counter of a document's nodes and, if they have an embedder, of their tokens as it counts them."""

    def __init__(self, embedder: Embedder | SparseEmbedder | None) -> None:
        self.embedder = embedder
        self.nodes = self.tokens = self.beyond_window = 0

    def count_through(self, nodes: Iterable[Node]) -> Iterator[Node]:
        for node in nodes:
            self.count([node])
            yield node

    def count(self, nodes: Sequence[Node]) -> None:
        self.nodes += len(nodes)
        if self.embedder is not None:
            lengths = self.embedder.tokens([node.indexed_text for node in nodes])
            self.tokens += sum(lengths)
            self.beyond_window += sum(tokens > self.embedder.window for tokens in lengths)

    def update_report(self, report: DocumentReport, document: Document) -> DocumentReport:
        """Return a document's report with these numbers in place of its own."""
        return report.but(**self.report_fields(document, report.parts, report.warnings))

    def report_fields(self, document: Document, parts: int, warnings: Iterable[str]) -> dict[str, Any]:
        """Return the fields of a document's report that concern nodes, with its other `warnings`."""
        other_warnings = (warning for warning in warnings if not _is_of_nodes(warning))
        return {
            "chunks": self.nodes,
            "tokens": self.tokens if self.embedder else None,
            "beyond_window": self.beyond_window,
            "warnings": (*other_warnings, *self._warnings(document, parts)),
        }

    def _warnings(self, document: Document, parts: int) -> Iterator[str]:
        if not self.nodes and not parts:
            yield _EMPTY
        if self.embedder is None:
            return
        if self.beyond_window:
            yield f"{self.beyond_window} of {self.nodes} {_LONG}"
        if (known_share := self.embedder.covers(document.text[:_SAMPLE])) < _KNOWN_SHARE:
            yield f"{_STRANGE} {known_share:.0%} of its characters; search it by words (BM25)."


def _is_of_nodes(warning: str) -> bool:
    return warning == _EMPTY or warning.endswith(_LONG) or warning.startswith(_STRANGE)


class TotalProgress:
    """Progress of several listings as one run: it adds the counts of earlier ones."""

    def __init__(self, progress: Callable[[Progress], None]) -> None:
        self.progress = progress
        self.earlier = self.last = Progress(0, 0)

    def __call__(self, now: Progress) -> None:
        if self.earlier.total:
            numbers = ("done", "total", "failed", "chunks", "embedded")
            now = now.but(**{name: getattr(self.earlier, name) + getattr(now, name) for name in numbers})
        self.last = now
        self.progress(now)

    def begin_next(self) -> None:
        self.earlier = self.last
