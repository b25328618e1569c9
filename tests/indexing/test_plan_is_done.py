"""What a plan advises can be done, and leaves nothing to do; and what the store then says of its groups is true."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import GroupError, ManifestMismatch
from spolia.filters import Field
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.dry_run import SyncPlan, planned
from spolia.indexing.sync.sync import sync
from spolia.indexing.transforms.function import transform
from spolia.indexing.transforms.text_enrichment import Summary
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Embedding
from spolia.stores.manifest import signature, sort_groups, transform_of
from spolia.testing.hash_embedder import HashingEmbedder

pytestmark = pytest.mark.slow

EMBEDDER = HashingEmbedder(16)
WORDS = (
    "Stone {0} is granite, and has lain on the beach for a long time. It weighs {0} kilos.\n\nThe second part of {0}."
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    for number in range(4):
        (new_folder / f"{number}.txt").write_text(WORDS.format(number))
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


CHANGES: dict[str, dict[str, Any]] = {
    "splitter": {"splitter": SlidingWindow(size=10, overlap=2)},
    "group": {"small": Sentences(size=8)},
    "parent": {"parent": "part"},
    "new parent": {"parent": "fine"},
    "embedder": {"embeddings": (Embedding(EMBEDDER),)},
    "main embedder": {"embedder": EMBEDDER},
    "dropped": {"leaves": False},
    "fields": {"fields": (Field("year", "int"),)},
}
"""What a person may change of what is said below."""


def sync_arguments(corpus: Corpus, **changes: Any) -> dict[str, Any]:
    """Arguments of `sync`: a main group, `part` beside it, `small` below one of them, `leaf` below that."""
    settings = {
        "splitter": SlidingWindow(size=60),
        "small": Sentences(),
        "parent": "chunk",
        "embeddings": (),
        **changes,
    }
    small = Definition(settings.pop("small"), parent=settings.pop("parent"), embeddings=settings.pop("embeddings"))
    groups = [corpus.group("part", Definition(Paragraphs())), corpus.group("small", small)]
    if settings.pop("leaves", True):
        groups.append(corpus.group("leaf", Definition(SlidingWindow(size=5, overlap=0), parent="small")))
    return {**settings, "groups": groups}


def needs_rebuild(plan: SyncPlan) -> bool:
    """As the command line finds what it advises."""
    return plan.rebuild or any(group.change == "rebuilt" for group in plan.groups)


def refuse_untrue(corpus: Corpus) -> None:
    """What the manifests say is what the nodes are made by, and each group is whole."""
    snapshot = corpus.latest()
    assert snapshot.unmade() == ()
    for manifest in sort_groups(snapshot.manifests):
        definition = Definition(transform_of(manifest), manifest.parent, manifest.ref)
        assert manifest.transform == definition.transform.short
        assert manifest.signature == signature(definition, snapshot.manifests)


@pytest.mark.parametrize(
    "names",
    [pair for count in (1, 2) for pair in combinations(CHANGES, count) if pair != ("parent", "new parent")],
    ids="+".join,
)
def test_what_a_plan_advises_is_done_and_then_nothing_is_left(
    folder: Path, corpus: Corpus, names: tuple[str, ...]
) -> None:
    sync(folder, corpus, **sync_arguments(corpus))
    arguments = sync_arguments(corpus, **{key: value for name in names for key, value in CHANGES[name].items()})
    plan = planned(folder, corpus, **arguments)
    previous_manifests = dict(corpus.latest().manifests)
    sync(folder, corpus, rebuild=needs_rebuild(plan), **arguments)
    refuse_untrue(corpus)
    manifests = corpus.latest().manifests
    assert {name for name in manifests if manifests[name] != previous_manifests.get(name)} == {
        group_plan.group for group_plan in plan.groups if group_plan.change != "kept"
    }
    nodes = dict(corpus.latest().stats().nodes)
    assert {
        group_plan.group: nodes[group_plan.group]
        for group_plan in plan.groups
        if group_plan.change in ("rebuilt", "new")
    } == {group_plan.group: group_plan.nodes for group_plan in plan.groups if group_plan.change in ("rebuilt", "new")}
    second_plan = planned(folder, corpus, **arguments)
    assert {group_plan.change for group_plan in second_plan.groups} == {"kept"}
    assert not any((second_plan.rebuild, second_plan.new, second_plan.changed, second_plan.gone, second_plan.again))
    (folder / "new.txt").write_text(WORDS.format("new"))
    assert sync(folder, corpus, **arguments).added == 1
    fresh = Corpus(f"{corpus.path}-fresh")
    sync(
        folder,
        fresh,
        **{
            **arguments,
            "groups": [fresh.group(group_plan.name, group_plan.definition) for group_plan in arguments["groups"]],
        },
    )
    texts_by_group = {
        group: [node.text for node in corpus.latest().all_nodes(group)] for group in fresh.latest().groups()
    }
    assert texts_by_group == {
        group: [node.text for node in fresh.latest().all_nodes(group)] for group in texts_by_group
    }


def test_without_a_rebuild_a_changed_group_is_refused_and_nothing_is_changed(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, **sync_arguments(corpus))
    generation = corpus.latest().generation
    with pytest.raises(ManifestMismatch, match=r"'small'.* is made in another way"):
        sync(folder, corpus, **sync_arguments(corpus, small=Sentences(size=8)))
    assert corpus.latest().generation == generation


def test_a_changed_group_and_a_named_one_far_below_it_are_both_right(folder: Path, corpus: Corpus) -> None:
    def groups(size: int, leaf: int) -> list[Any]:
        return [
            corpus.group("small", Definition(Sentences(size=size), parent="chunk")),
            corpus.group("leaf", Definition(SlidingWindow(size=leaf, overlap=0), parent="middle")),
        ]

    middle = corpus.group("middle", Definition(Sentences(), parent="small"))
    sync(folder, corpus, groups=[*groups(100, 5), middle])
    sync(folder, corpus, groups=groups(8, 4), rebuild=True)
    refuse_untrue(corpus)
    assert sync(folder, corpus, groups=groups(8, 4)).unchanged == 4


def test_what_was_there_is_found_until_a_further_group_is_made_anew(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, **sync_arguments(corpus))
    whole = dict(corpus.latest().stats().nodes)
    (folder / "new.txt").write_text(WORDS.format("new"))
    counts: list[dict[str, int]] = []
    sync(
        folder,
        corpus,
        **sync_arguments(corpus, small=Sentences(size=8)),
        rebuild=True,
        batch=1,
        progress=lambda now: counts.append(dict(corpus.latest().stats().nodes)),
    )
    assert counts
    assert all(nodes == whole for nodes in counts)


@transform
def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_group_that_cannot_be_made_here_is_not_lost_by_a_rebuild_above_it(folder: Path, corpus: Corpus) -> None:
    small = corpus.group("small", Definition(Sentences(), parent="chunk"))
    sync(folder, corpus, groups=[small, corpus.group("line", Definition(lines, parent="small"))])
    previous_snapshot = corpus.latest()
    other_group = corpus.group("small", Definition(Sentences(size=8), parent="chunk"))
    with pytest.raises(GroupError, match=r"'line' is made from 'small'.*Nothing was changed.*groups drop line"):
        sync(folder, corpus, groups=[other_group], rebuild=True)
    assert (corpus.latest().generation, corpus.latest().manifests) == (
        previous_snapshot.generation,
        previous_snapshot.manifests,
    )


def test_a_moved_file_with_other_readers_asks_no_model_and_embeds_nothing(folder: Path, corpus: Corpus) -> None:
    model = ScriptedModel(("A summary.",) * 4)
    group = corpus.group("short", Definition(Summary(model), parent="chunk", embeddings=(Embedding(EMBEDDER),)))

    def run() -> Any:
        access = lambda uri: (uri.partition("/")[0],) if "/" in uri else ()  # noqa: E731
        return sync(folder, corpus, embedder=EMBEDDER, access=access, groups=[group])

    run()
    (folder / "ann").mkdir()
    (folder / "2.txt").rename(folder / "ann" / "2.txt")
    report = run()
    assert (report.added, report.removed, report.moved, report.embedded) == (0, 0, 1, 0)
    assert not report.unmade
    snapshot = corpus.latest()
    assert {node.uri for node in snapshot.all_nodes("short", frozenset({"ann"}))} == {
        "0.txt",
        "1.txt",
        "3.txt",
        "ann/2.txt",
    }
    assert {node.uri for node in snapshot.all_nodes("short", frozenset())} == {"0.txt", "1.txt", "3.txt"}


def test_an_embedder_is_added_where_the_one_that_is_there_is_not_known_here(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, **sync_arguments(corpus, embeddings=(Embedding(EMBEDDER),)))
    arguments = sync_arguments(corpus, embeddings=(Embedding(HashingEmbedder(32)),))
    assert {group_plan.group: group_plan.change for group_plan in planned(folder, corpus, **arguments).groups}[
        "small"
    ] == "embedded"
    report = sync(folder, corpus, rebuild=True, **arguments)
    assert [group for group, _ in report.behind] == ["small"]
    embeddings = corpus.latest().manifests["small"].embeddings
    assert [embedding.embedder for embedding in embeddings] == ["hashing-16", "hashing-32"]
