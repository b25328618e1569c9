"""A plan says what `sync` then does, number by number: it is the same run, of which nothing is kept."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spolia.errors import FolderError
from spolia.filters import Field
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.dry_run import SyncPlan, planned
from spolia.indexing.sync.report import Progress, SyncReport
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Embedding
from spolia.testing.hash_embedder import HashingEmbedder

EMBEDDER = HashingEmbedder(16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


def plan_counts(plan: SyncPlan) -> dict[str, Any]:
    uris = (plan.new, plan.changed, plan.moved, plan.gone)
    (main,) = (group for group in plan.groups if group.group == "chunk")
    embedded = sum((group.texts or 0) + (group.pictures or 0) for group in plan.groups)
    return _counts(*map(sorted, uris), sorted(plan.failed), plan.unchanged + plan.again, main.nodes or 0, embedded)


def report_counts(report: SyncReport, progresses: list[Progress]) -> dict[str, Any]:
    """A file that another one has taken its text from is taken twice, and told twice."""
    uris = {change: sorted({now.uri for now in progresses if now.change == change}) for change in CHANGES}
    assert {change: getattr(report, change) for change in CHANGES} == {change: len(uris[change]) for change in CHANGES}
    return _counts(*uris.values(), sorted(report.failed), report.unchanged, report.chunks, report.embedded)


CHANGES = ("added", "changed", "moved", "removed")


def _counts(*values: Any) -> dict[str, Any]:
    return dict(zip((*CHANGES, "failed", "unchanged", "chunks", "embedded"), values, strict=True))


def plan_and_sync(folder: Path, corpus: Corpus, **options: Any) -> dict[str, Any]:
    """What is planned and then done, which is the same."""
    plan, progresses = plan_counts(planned(folder, corpus, **options)), list[Progress]()
    assert plan == report_counts(sync(folder, corpus, progress=progresses.append, **options), progresses)
    return plan


def access_of(ann: str = "") -> Any:
    return lambda uri: ["ann"] if uri == ann else ["bob"]


def test_what_has_failed_too_often_to_be_tried_again_is_still_told(folder: Path, corpus: Corpus) -> None:
    (folder / "good.txt").write_text("Salt is dug in mines.")
    (folder / "bad.json").write_bytes(bytes(range(128, 168)))
    failed = [plan_and_sync(folder, corpus)["failed"] for _ in range(5)]
    assert [[uri for uri, _ in failures] for failures in failed] == [["bad.json"]] * 5


def test_copies_are_cut_once_and_counted_once(folder: Path, corpus: Corpus) -> None:
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("Salt is dug in mines.")
    done_counts = plan_and_sync(folder, corpus, embedder=EMBEDDER)
    assert (done_counts["chunks"], done_counts["embedded"], done_counts["added"]) == (1, 1, ["a.txt", "b.txt"])


@pytest.mark.slow
def test_copies_of_which_one_gets_another_reader_list(folder: Path, corpus: Corpus) -> None:
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("Salt is dug in mines.")
    plan_and_sync(folder, corpus, access=access_of())
    assert plan_and_sync(folder, corpus, access=access_of("a.txt"))["changed"] == ["a.txt", "b.txt"]
    shutil.copy(folder / "a.txt", folder / "c.txt")
    plan_and_sync(folder, corpus, access=access_of("c.txt"))
    plan_and_sync(folder, corpus, access=access_of("b.txt"), rebuild=True, splitter=Sentences())


@pytest.mark.slow
def test_a_text_that_was_removed_first_is_cut_again_where_another_file_gets_it(folder: Path, corpus: Corpus) -> None:
    (folder / "a.txt").write_text("Salt is dug in mines.")
    (folder / "b.txt").write_text("The moon causes the tides, it is said.")
    plan_and_sync(folder, corpus, embedder=EMBEDDER)
    (folder / "a.txt").replace(folder / "b.txt")
    assert plan_and_sync(folder, corpus, embedder=EMBEDDER)["chunks"] == 1


@pytest.mark.slow
def test_a_text_that_went_with_its_file_is_cut_again_where_an_archive_has_it(folder: Path, corpus: Corpus) -> None:
    (folder / "a.txt").write_text("Salt is dug in mines.")
    plan_and_sync(folder, corpus, embedder=EMBEDDER)
    (folder / "a.txt").write_text("The moon causes the tides, it is said.")
    with zipfile.ZipFile(folder / "z.zip", "w") as file:
        file.writestr("b.txt", "Salt is dug in mines.")
        file.writestr("c.txt", "Whelks live under the pier.")
    done_counts = plan_and_sync(folder, corpus, embedder=EMBEDDER)
    assert (done_counts["added"], done_counts["chunks"]) == (["z.zip", "z.zip/b.txt", "z.zip/c.txt"], 3)
    assert {"z.zip/b.txt", "z.zip/c.txt"} <= {document.uri for document in corpus.latest().documents()}


@pytest.mark.slow
def test_an_embedder_is_added_while_documents_change(folder: Path, corpus: Corpus) -> None:
    for number in range(4):
        (folder / f"{number}.txt").write_text(f"Stone {number} is granite.")
    options: dict[str, Any] = {"splitter": SlidingWindow(size=200)}
    plan_and_sync(folder, corpus, **options)
    (folder / "0.txt").write_text("Whelks.")
    (folder / "1.txt").unlink()
    done_counts = plan_and_sync(folder, corpus, embedder=EMBEDDER, **options)
    assert (done_counts["changed"], done_counts["removed"]) == (["0.txt"], ["1.txt"])


@pytest.mark.slow
def test_an_open_store_stays_open_once_what_was_closed_in_it_has_gone(folder: Path, corpus: Corpus) -> None:
    (folder / "a.txt").write_text("Salt is dug in mines.")
    (folder / "b.txt").write_text("The moon causes the tides.")
    plan_and_sync(folder, corpus, access=lambda uri: ["ann"] if uri == "a.txt" else [])
    (folder / "a.txt").unlink()
    (folder / "c.txt").write_text("Whelks live under the pier.")
    assert plan_and_sync(folder, corpus)["added"] == ["c.txt"]


@pytest.mark.slow
def test_another_folder_is_refused_as_sync_refuses_it(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    (folder / "a.txt").write_text("Salt is dug in mines.")
    sync(folder, corpus)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "z.txt").write_text("The moon causes the tides.")
    with pytest.raises(FolderError, match=r"A store has one folder"):
        planned(other_folder, corpus)
    done_counts = plan_and_sync(other_folder, corpus, rebuild=True)
    assert (done_counts["added"], done_counts["removed"]) == (["z.txt"], ["a.txt"])


TEXTS = ("Salt {} is dug.", "a,b\n1,{}\n", "<p>salt {}</p>", '{"a": {}}', "long {} one. " * 60)


def edit(random: Random, folder: Path) -> None:
    """One thing that people do to a folder."""
    paths = sorted(folder.iterdir())
    path = folder / f"{random.randint(0, 20)}.{random.choice(['txt', 'md', 'csv', 'html', 'json'])}"
    match random.randint(0, 7):
        case 0 | 1 | 2:
            path.write_text(random.choice(TEXTS).replace("{}", str(random.randint(0, 5))))
        case 3 if paths:
            random.choice(paths).unlink()
        case 4 if paths:
            renamed = random.choice(paths)
            renamed.rename(folder / f"moved{random.randint(0, 99)}{renamed.suffix}")
        case 5 if paths:
            copied = random.choice(paths)
            shutil.copy(copied, folder / f"copy{random.randint(0, 99)}{copied.suffix}")
        case 6:
            path.write_bytes(bytes(random.randrange(128, 256) for _ in range(40)))
        case _:
            with zipfile.ZipFile(folder / f"z{random.randint(0, 3)}.zip", "w") as file:
                for number in range(random.randint(1, 3)):
                    file.writestr(f"{number}.txt", f"zipped {random.randint(0, 5)}")


def draw_arguments(random: Random, corpus: Corpus) -> dict[str, Any]:
    """Arguments of a run: mostly those of before, sometimes others."""
    few, fields = random.randint(1, 6), random.randint(0, 1)
    arguments: dict[str, Any] = {
        "embedder": EMBEDDER,
        "splitter": SlidingWindow(size=200),
        "groups": [corpus.group("small", Definition(Sentences(), "chunk", embeddings=(Embedding(EMBEDDER),)))],
        "metadata": lambda uri: {"n": len(uri) % (fields + 1)},
    }
    if random.random() < 0.7:
        arguments["access"] = lambda uri: ["ann"] if sum(uri.encode()) % few else []
    if random.random() < 0.3:
        arguments["splitter"], arguments["rebuild"] = SlidingWindow(size=random.choice((50, 100))), True
        arguments["embedder"] = HashingEmbedder(16, salt=str(random.randint(0, 1)))
    elif random.random() < 0.2:
        arguments["fields"] = (Field("n", "int"),)
    return arguments


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_of_any_edits_reader_lists_copies_and_rebuilds(folder: Path, corpus: Corpus, seed: int) -> None:
    random, previous_arguments = Random(seed), dict[str, Any]()
    add_texts(corpus, {"memo": "Whelks live under the pier."}, access=lambda uri: [])
    for _ in range(6):
        for _ in range(random.randint(1, 9)):
            edit(random, folder)
        (folder / "always.txt").write_text("It is always there.")
        arguments = draw_arguments(random, corpus)
        if not arguments.get("rebuild"):
            arguments |= {
                name: previous_arguments[name] for name in ("splitter", "embedder") if name in previous_arguments
            }
        if "access" not in arguments:
            arguments["access"] = previous_arguments.get("access", lambda uri: [])
        plan_and_sync(folder, corpus, **arguments)
        previous_arguments = arguments
