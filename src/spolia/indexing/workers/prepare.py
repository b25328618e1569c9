"""Work of an executor: reading and splitting a source, and embedding texts, without a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from spolia.indexing.readers.reader import Blob, Container, FileReader, Reading
from spolia.stores.definition import DOCUMENT, Splitter
from spolia.stores.groups.nodes import Availability, CutPieces, GroupBuild, split_document

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder
    from spolia.types.arrays import Vectors


@dataclass(frozen=True)
class SplitPlan:
    """Plan of how a run reads and splits sources: plain data that can be sent to another process.

    Args:
        groups: that only splitters make, of the document or of each other, each after its parents.
    """

    groups: tuple[GroupBuild, ...] = ()

    @classmethod
    def from_builds(cls, builds: Iterable[GroupBuild]) -> SplitPlan:
        """Plan the groups whose pieces follow from the text alone. The others ask models, or read the caller's data."""
        chosen: dict[str, GroupBuild] = {}
        for build in builds:
            transform, parents = build.transform, {build.parent, build.ref} - {"", DOCUMENT}
            if build.group == DOCUMENT or not isinstance(transform, Splitter) or not parents <= chosen.keys():
                continue
            asks_model = transform.calls() or any(hasattr(resource, "embed") for resource in transform.resources)
            # One that reads more than the text depends on labels, which workers do not get.
            if not asks_model and type(transform).reads is Splitter.reads:
                chosen[build.group] = replace(build, embedders=(), availability=Availability())
        return cls(tuple(chosen.values()))


EMPTY_PLAN = SplitPlan()


@dataclass(frozen=True)
class Prepared:
    """Source after reading and splitting.

    Args:
        reading: the document, and what its reader noticed.
        pieces: of which its nodes are made, by group and part. Missing ones are made when it is stored.
        has_parts: whether it contains something that `Executor.parts` would give; None where nobody has looked.
    """

    reading: Reading
    pieces: CutPieces = field(default_factory=dict[str, "Sequence[tuple[()]]"])
    has_parts: bool | None = None


def prepare(reader: FileReader, blob: Blob, plan: SplitPlan = EMPTY_PLAN) -> Prepared:
    """Read a source and split it: the same result in every process, from the arguments alone.

    >>> from spolia.indexing.readers.text import TextReader
    >>> from spolia.indexing.splitters.text_units import Sentences
    >>> plan = SplitPlan.from_builds([GroupBuild("sentence", Sentences())])
    >>> found = prepare(TextReader(), Blob("a.txt", b"Spolia are stones. Builders take them."), plan)
    >>> [piece.text for piece in found.pieces["sentence"][0]]
    ['Spolia are stones.', 'Builders take them.']
    """
    reading = reader.read(blob)
    return Prepared(reading, split_document(reading.document, plan.groups) if plan.groups else {})


@runtime_checkable
class Executor(Protocol):
    """Runner of the work of `sync` that needs no store: in processes of this machine, or on other machines.

    What it is given can be pickled, and each call stands alone. Calls come from several threads.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from spolia import Corpus, sync
    >>> class Elsewhere(InProcess):
    ...     count = 2
    ...     def prepare(self, reader, blob, plan):
    ...         print(f"send {blob.uri}, and call prepare there")
    ...         return prepare(reader, blob, plan)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "stones.txt").write_text("Spolia are stones.")
    ...     sync(folder, Corpus(f"{folder}/notes.spolia"), workers=Elsewhere()).added
    send stones.txt, and call prepare there
    1

    Attributes:
        count: how many calls are made at the same time; 0 to do all in the process of the sync.
        takes_all: False to get only what `WorkerProcesses` would get; optional.
    """

    count: int

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan) -> Prepared:
        """Call `prepare` somewhere else.

        Raises:
            DocumentError, MissingExtra: the reader refuses the source, or died on it.
            WorkersFailed: it cannot be read anywhere.
        """
        ...

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        """Yield the members of a container, one after the other, as `container.parts(blob)` gives them."""
        ...

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        """Call `embedder.embed(texts, kind="passage")` somewhere else; it charges the caller's run."""
        ...

    def end(self) -> None:
        """End what is under way: nobody waits for it any more."""
        ...


class InProcess:
    """Executor that does all in the process of the sync."""

    count = 0

    def prepare(self, reader: FileReader, blob: Blob, plan: SplitPlan) -> Prepared:
        return prepare(reader, blob, plan)

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        yield from container.parts(blob)

    def embed(self, embedder: Embedder, texts: Sequence[str]) -> Vectors:
        return embedder.embed(texts, kind="passage")

    def end(self) -> None:
        """Do nothing: nothing is under way."""
