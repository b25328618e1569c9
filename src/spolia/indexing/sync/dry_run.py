"""Dry run of `sync`: it writes nothing and asks no model."""

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
from spolia.core.deprecation import renamed_arguments
from spolia.core.operator import Operator
from spolia.filters import Field, notes_on
from spolia.indexing.readers.reader import versioned_name
from spolia.indexing.readers.registry import READERS, Readers, by_suffix
from spolia.indexing.sources.source import Source
from spolia.indexing.sync.cost_estimate import DryRun, ModelUse, asks_models, make_dry_build
from spolia.indexing.sync.files import FileListing, Files, SourceChanges, refuse_other_folder
from spolia.indexing.sync.groups import RequestedGroups, find_groups_behind, is_embedded_first, main_definition
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.prefetch import open_prefetch
from spolia.indexing.sync.report import Progress, SyncReport, TotalProgress, merge_reports
from spolia.indexing.sync.sync import listings, refuse_swapped, split_sources
from spolia.indexing.sync.sync_run import SyncOptions, run_round
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
from spolia.types.value import check_names

Change = Literal["kept", "new", "rebuilt", "embedded"]


@dataclass(frozen=True)
class GroupPlan(Value):
    """Planned change of a node group.

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
    """Plan of a sync run.

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


@renamed_arguments(known="operators")
@check_names
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
    operators: Sequence[Operator[Any, Any] | type] = (),
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
    requested_groups = _CountedGroups(group, main_definition(splitter, embedder, analyzer), groups, operators)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="spolia-")))
        prefetch = stack.enter_context(open_prefetch(folder, workers, limits))
        # A plan compares with a store; the caller's is not made for that.
        existing = corpus if corpus.exists() else Corpus(folder / "empty.spolia").create()
        writer = stack.enter_context(closing(DryRun(existing.backend)))
        if fields is not None:
            writer.declare(fields)

        old_manifests, changes = dict(writer.manifests), _Changes(progress)
        no_changes = SourceChanges(Files(by_suffix(readers)))
        renews = group in old_manifests and requested_groups.define(writer, no_changes, prefetch, rebuild=True)
        renews = renews and not is_embedded_first(old_manifests[group], writer.manifests[group])
        reread = rebuild or renews or bool(writer.redefined)
        options = SyncOptions(requested_groups, progress=changes.note, rebuild=True, reread=reread)

        labels, failed = partial(DocumentLabels, metadata, access), list[tuple[str, str]]()
        reports: list[SyncReport] = []
        for listing in listings(sources, corpus, labels, readers, failed, follow_links, reread, asks_sources=not fast):
            # The options below say `rebuild`, so that changed groups are planned: the round itself refuses nothing.
            if not rebuild:
                refuse_other_folder(listing, writer.stamps(listing.uris), writer)
            if fast:
                requested_groups.define(writer, listing, prefetch, rebuild=True)
                reports.append(changes.guess(writer.sources(), listing))
            else:
                run = run_round(writer, listing, labels(), prefetch, options)
                reports.append(run.tally.report(writer.generation, listing, 0.0))
                changes.total.begin_next()

        if group not in writer.manifests:  # no listing has defined it: sources were not asked, or failed
            requested_groups.define(writer, no_changes, prefetch, rebuild=True)

        report = merge_reports(reports, failed)
        builds = requested_groups.real_builds(writer.manifests)
        return SyncPlan(
            renews,
            **{name: tuple(uris) for name, uris in changes.by_kind.items()},
            failed=report.failed,
            unasked=tuple(source.id for source in split_sources(sources)[1]) if fast else (),
            again=report.unchanged if renews else 0,
            unchanged=0 if renews else report.unchanged,
            groups=tuple(_plan_groups(writer, old_manifests, builds, None if fast else requested_groups.model_uses)),
            fields=notes_on(writer.declared, writer.metadata()) if writer.declared != writer.schema else (),
            seconds=time.perf_counter() - began + _estimate_embedding_s(writer, builds) if timed and not fast else None,
        )


@dataclass(frozen=True)
class _CountedGroups(RequestedGroups):
    """Requested groups that are built without asking a model; `model_uses` counts by group what would be asked."""

    model_uses: dict[str, ModelUse] = field(default_factory=dict)

    def builds(self, manifests: dict[str, Manifest]) -> list[GroupBuild]:
        return [make_dry_build(build, self.model_uses) for build in self.real_builds(manifests)]

    def real_builds(self, manifests: dict[str, Manifest]) -> list[GroupBuild]:
        """Return the builds with their real transforms."""
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

    def guess(self, stored_rows: Mapping[str, SourceRow], listing: FileListing) -> SyncReport:
        unchanged = 0
        self.by_kind["gone"] += [uri for uri in stored_rows if listing.misses(uri)]
        for uri, file in listing.files.items():
            if (row := stored_rows.get(uri)) is None:
                self.by_kind["new"].append(uri)
            elif (row.size, row.mtime_ns, row.reader) == (file.size, file.mtime_ns, versioned_name(file.reader)):
                unchanged += 1
            else:
                self.by_kind["changed"].append(uri)
        return SyncReport(0, unchanged=unchanged)


def _plan_groups(
    writer: DryRun,
    old_manifests: Mapping[str, Manifest],
    builds: Sequence[GroupBuild],
    model_uses: dict[str, ModelUse] | None,
) -> Iterator[GroupPlan]:
    by_name = {build.group: build for build in builds}
    uncountable: set[str] = set()
    for manifest in sort_groups(writer.manifests):
        name = manifest.group
        build, group_count, plan = (
            by_name[name],
            writer.count_of(name),
            GroupPlan(name, "kept" if name in old_manifests else "new"),
        )
        if name in old_manifests and name in writer.redefined | writer.embedded:
            reasons = old_manifests[name].differences(manifest) or ("everything is indexed again",)
            plan = plan.but(change="rebuilt" if name in writer.redefined else "embedded", why=reasons)

        # What is made from a group that cannot be counted cannot be counted either.
        is_countable = model_uses is not None and {build.parent, build.ref}.isdisjoint(uncountable)

        unknown = {"nodes": None, "texts": 0, "pictures": None if manifest.by_picture else 0}
        if groups_behind := find_groups_behind([build]):
            uncountable.add(name)
            yield plan.but(**unknown | {"why": (groups_behind[0][1],), "texts": None})
        elif asks_models(build.transform) or not is_countable:
            uncountable.add(name)
            texts = None if manifest.embeddings else 0
            model_fields = _model_use_fields(build, (model_uses or {}).get(name, ModelUse()) if is_countable else None)
            yield plan.but(**unknown | {"texts": texts, "text_tokens": texts}, **model_fields)
        else:
            yield plan.but(
                nodes=writer.node_counts[name],
                texts=group_count.texts,
                pictures=group_count.pictures,
                known=group_count.already_embedded,
                text_tokens=group_count.tokens,
                **_model_use_fields(build, (model_uses or {}).get(name, ModelUse())),
            )


def _model_use_fields(build: GroupBuild, model_use: ModelUse | None) -> dict[str, Any]:
    if (calls_per_part := build.transform.calls()) == 0:
        return {}
    if model_use is None:
        return dict.fromkeys(("calls", "prompts", "input_tokens", "output_tokens"))
    return {
        "calls": times(calls_per_part, model_use.parts),
        "prompts": model_use.usage.calls,
        "input_tokens": model_use.usage.input_tokens,
        "output_tokens": model_use.usage.output_tokens,
        "cost_usd": model_use.usage.cost_usd if model_use.has_price else None,
    }


def _estimate_embedding_s(writer: DryRun, builds: Sequence[GroupBuild]) -> float:
    """Estimate the seconds that embedding takes, from a sample of the texts."""
    total = 0.0
    for build in builds:
        group_count = writer.count_of(build.group)
        for embedder in build.embedders:
            sample = group_count.sample.get(embedder.name, ())
            if sample and isinstance(embedder, Embedder):
                began = time.perf_counter()
                embedder.embed(sample, kind="passage")
                took = time.perf_counter() - began
                # `characters` counts a text once for each embedder.
                total += took * group_count.characters / sum(map(len, sample)) / len(build.embedders)
    return total
