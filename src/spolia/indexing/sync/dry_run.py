"""What a run of `sync` would do, rehearsed: nothing is written, no model is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from spolia.core.call_bounds import times
from spolia.core.operator import Operator
from spolia.filters import Field, notes_on
from spolia.indexing.readers.reader import versioned_name
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sources.source import Source
from spolia.indexing.sync.cost_estimate import DryRun, ModelUse, asks, without_models
from spolia.indexing.sync.files import FileListing, Files, SourceChanges, refuse_other
from spolia.indexing.sync.groups import RequestedGroups, behind, is_embedded_first, main_definition
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.prefetch import open_prefetch
from spolia.indexing.sync.report import Progress, SyncReport, TotalProgress, together
from spolia.indexing.sync.sync import lots, refuse_swapped, told_apart
from spolia.indexing.sync.sync_run import SyncOptions, staged
from spolia.indexing.workers.prepare import Executor
from spolia.indexing.workers.protocol import WorkerLimits
from spolia.models.protocols import Embedder
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Transform
from spolia.stores.groups.nodes import GroupBuild
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import Manifest, sort_groups
from spolia.types import Scalar, Value
from spolia.types.value import names_checked

Change = Literal["kept", "new", "rebuilt", "embedded"]


@dataclass(frozen=True)
class GroupPlan(Value):
    """What would become of a node group.

    Args:
        change: `kept` in step, `new`, `rebuilt` as a whole, or `embedded`: its nodes stay, and are embedded or searched
            otherwise.
        why: the part that differs; or why nothing can be made.
        nodes: that would be cut; None where only a model can tell, or nothing was cut.
        texts: that would be embedded; None in the same cases.
        pictures: that would be embedded; None in the same cases.
        known: texts and pictures that were embedded before, so that they are not again.
        calls: to language models at most, when none is answered from a cache; None where no bound is known.
        prompts: that would be sent to them, each once; None where only a model can tell, or nothing was cut. A reply
            that cannot be read is sent back, which makes more calls.
        input_tokens: of the prompts, estimated: one for three bytes, and 8 for each message.
        output_tokens: of the replies, at most.
        text_tokens: of the texts to embed, estimated: one for three bytes.
        cost_usd: of prompts and replies, at most, by the prices of the models; None where none states a price.
    """

    group: str
    change: Change
    why: tuple[str, ...] = ()
    nodes: int | None = 0
    texts: int | None = 0
    pictures: int | None = 0
    known: int = 0
    calls: int | None = 0
    prompts: int | None = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    text_tokens: int | None = 0
    cost_usd: float | None = None


@dataclass(frozen=True)
class SyncPlan(Value):
    """What a run would do.

    Args:
        rebuild: the main group is built again, for which `sync` needs `rebuild=True`.
        moved: files that are elsewhere now, by their new names.
        failed: files that cannot be read, and sources that could not be asked, each with the reason.
        unasked: sources beside folders that were not asked (`fast`), by their names.
        again: number of files that are as they were, and are cut or embedded again because of a rebuild.
        groups: each after its parents.
        fields: notes on fields that would be declared again, as `SyncReport.fields`; taken from the documents
            read, so with `fast` they leave out new files.
        seconds: estimated, by a sample of the texts; None where nothing was measured (`timed`).
    """

    rebuild: bool = False
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    unasked: tuple[str, ...] = ()
    again: int = 0
    unchanged: int = 0
    groups: tuple[GroupPlan, ...] = ()
    fields: tuple[str, ...] = ()
    seconds: float | None = None


@names_checked
def planned(
    sources: str | Path | Source | Sequence[str | Path | Source],
    corpus: Corpus,
    *,
    splitter: Transform | None = None,
    embedder: Embedder | None = None,
    analyzer: Analyzer | None = None,
    readers: Readers = READERS,
    group: str = "chunk",
    groups: Sequence[NodeGroup] = (),
    fields: Sequence[Field] | None = None,
    metadata: Callable[[str], Mapping[str, Scalar | Sequence[Scalar]]] | None = None,
    access: Callable[[str], Iterable[str]] | None = None,
    known: Sequence[Operator[Any, Any] | type] = (),
    progress: Callable[[Progress], None] = lambda now: None,
    follow_links: bool = False,
    rebuild: bool = False,
    fast: bool = False,
    timed: bool = False,
    workers: int | Executor | None = None,
    limits: WorkerLimits | None = None,
) -> SyncPlan:
    """Plan what `sync` with these arguments would do. Groups whose definition or code has changed are rebuilt.

    What seems new or changed is read, and cut in memory, as `sync` does it: the numbers are exact, but for groups that
    a model makes, and those below them. Nothing is written, and no model is asked: the prompts of the groups that ask
    one are made and measured (`spolia.indexing.sync.cost_estimate`).

    Args:
        sources: and what follows: see `sync`.
        fast: read nothing: files are compared by size and time, sources are not asked, nodes and texts not counted.
        timed: embed a few of the texts, to estimate how long a run takes: for embedders in this process.

    Raises:
        FolderError: as `sync` does.
        GroupError: a group of the store is made by an operator that is unknown here.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = Path(place, "stones.txt").write_text("Spolia are stones that builders take from older buildings.")
    ...     plan = planned(place, Corpus(f"{place}/notes.spolia"))
    >>> plan.new, [(one.group, one.change, one.nodes) for one in plan.groups]
    (('stones.txt',), [('chunk', 'new', 1)])
    """
    began = time.perf_counter()
    refuse_swapped(sources, corpus)
    wanted = _Wanted(group, main_definition(splitter, embedder, analyzer), groups, known)
    with ExitStack() as open:
        place = Path(open.enter_context(TemporaryDirectory(prefix="spolia-")))
        prefetch = open.enter_context(open_prefetch(place, workers, limits))
        there = corpus if corpus.exists() else Corpus(place / "empty.spolia").create()
        writer = open.enter_context(closing(DryRun(there.backend)))
        if fields is not None:
            writer.declare(fields)
        before, changes = dict(writer.manifests), _Changes(progress)
        nothing = SourceChanges(Files(by_suffix(readers)))
        renews = group in before and wanted.define(writer, nothing, prefetch, rebuild=True)
        renews = renews and not is_embedded_first(before[group], writer.manifests[group])
        reread = rebuild or renews or bool(writer.redefined)
        how = SyncOptions(wanted, progress=changes.note, rebuild=True, reread=reread)
        labels, failed = partial(DocumentLabels, metadata, access), list[tuple[str, str]]()
        reports: list[SyncReport] = []
        for found in lots(sources, corpus, labels, readers, failed, follow_links, reread, asks=not fast):
            if not rebuild:
                refuse_other(found, writer.stamps(found.uris), writer)
            if fast:
                wanted.define(writer, found, prefetch, rebuild=True)
                reports.append(changes.guess(writer.sources(), found))
            else:
                run = staged(writer, found, labels(), prefetch, how)
                reports.append(run.tally.report(writer.generation, found, 0.0))
                changes.total.next()
        if group not in writer.manifests:
            wanted.define(writer, nothing, prefetch, rebuild=True)
        report = together(reports, failed)
        builds = wanted.exact(writer.manifests)
        return SyncPlan(
            renews,
            **{name: tuple(uris) for name, uris in changes.by_kind.items()},
            failed=report.failed,
            unasked=tuple(one.id for one in told_apart(sources)[1]) if fast else (),
            again=report.unchanged if renews else 0,
            unchanged=0 if renews else report.unchanged,
            groups=tuple(_plans(writer, before, builds, None if fast else wanted.asked)),
            fields=notes_on(writer.declared, writer.metadata()) if writer.declared != writer.schema else (),
            seconds=time.perf_counter() - began + _embedding_s(writer, builds) if timed and not fast else None,
        )


@dataclass(frozen=True)
class _Wanted(RequestedGroups):
    """Groups that grow without asking a model; `asked` counts by group what models would have been asked for."""

    asked: dict[str, ModelUse] = field(default_factory=dict)

    def builds(self, manifests: dict[str, Manifest]) -> list[GroupBuild]:
        return [without_models(build, self.asked) for build in self.exact(manifests)]

    def exact(self, manifests: dict[str, Manifest]) -> list[GroupBuild]:
        """How the groups grow really."""
        return RequestedGroups.builds(self, manifests)


class _Changes:
    def __init__(self, progress: Callable[[Progress], None]) -> None:
        self.total = TotalProgress(progress)
        self.by_kind: dict[str, list[str]] = {name: [] for name in ("new", "changed", "moved", "gone")}

    def note(self, now: Progress) -> None:
        self.total(now)
        names = {"added": "new", "removed": "gone"}
        if (kind := names.get(now.change, now.change)) in self.by_kind:
            self.by_kind[kind].append(now.uri)

    def guess(self, before: Mapping[str, SourceRow], found: FileListing) -> SyncReport:
        unchanged = 0
        self.by_kind["gone"] += [uri for uri in before if found.misses(uri)]
        for uri, file in found.files.items():
            if (row := before.get(uri)) is None:
                self.by_kind["new"].append(uri)
            elif (row.size, row.mtime_ns, row.reader) == (file.size, file.mtime_ns, versioned_name(file.reader)):
                unchanged += 1
            else:
                self.by_kind["changed"].append(uri)
        return SyncReport(0, unchanged=unchanged)


def _plans(
    writer: DryRun, before: Mapping[str, Manifest], builds: Sequence[GroupBuild], asked: dict[str, ModelUse] | None
) -> Iterator[GroupPlan]:
    by_name = {build.group: build for build in builds}
    untold: set[str] = set()
    for manifest in sort_groups(writer.manifests):
        name = manifest.group
        build, counted, plan = by_name[name], writer.of(name), GroupPlan(name, "kept" if name in before else "new")
        if name in before and name in writer.redefined | writer.embedded:
            why = before[name].differences(manifest) or ("everything is indexed again",)
            plan = plan.but(change="rebuilt" if name in writer.redefined else "embedded", why=why)
        is_told = asked is not None and {build.parent, build.ref}.isdisjoint(untold)
        unknown = {"nodes": None, "texts": 0, "pictures": None if manifest.by_picture else 0}
        if left := behind([build]):
            untold.add(name)
            yield plan.but(**unknown | {"why": (left[0][1],), "texts": None})
        elif asks(build.transform) or not is_told:
            untold.add(name)
            texts = None if manifest.embeddings else 0
            of_models = _of_models(build, (asked or {}).get(name, ModelUse()) if is_told else None)
            yield plan.but(**unknown | {"texts": texts, "text_tokens": texts}, **of_models)
        else:
            yield plan.but(
                nodes=writer.node_counts[name],
                texts=counted.texts,
                pictures=counted.pictures,
                known=counted.known,
                text_tokens=counted.tokens,
                **_of_models(build, (asked or {}).get(name, ModelUse())),
            )


def _of_models(build: GroupBuild, asked: ModelUse | None) -> dict[str, Any]:
    if (each := build.transform.calls()) == 0:
        return {}
    if asked is None:
        return dict.fromkeys(("calls", "prompts", "input_tokens", "output_tokens"))
    return {
        "calls": times(each, asked.parts),
        "prompts": asked.usage.calls,
        "input_tokens": asked.usage.input_tokens,
        "output_tokens": asked.usage.output_tokens,
        "cost_usd": asked.usage.cost_usd if asked.has_price else None,
    }


def _embedding_s(writer: DryRun, builds: Sequence[GroupBuild]) -> float:
    """Seconds to embed, as long as a sample took for its characters."""
    total = 0.0
    for build in builds:
        counted = writer.of(build.group)
        for embedder in build.embedders:
            sample = counted.sample.get(embedder.name, ())
            if sample and isinstance(embedder, Embedder):
                began = time.perf_counter()
                embedder.embed(sample, kind="passage")
                took = time.perf_counter() - began
                total += took * counted.characters / sum(map(len, sample)) / len(build.embedders)
    return total
