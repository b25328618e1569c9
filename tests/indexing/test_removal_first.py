"""What readers lose and what is gone waits for nothing: not for a model, an embedder, or a group that is refused."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import ManifestMismatch, ModelUnavailable
from spolia.indexing.splitters.text_units import Paragraphs
from spolia.indexing.sync.report import SyncReport
from spolia.indexing.sync.sync import sync
from spolia.models.protocols import Kind
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.stores.vectors.dense import Vectors
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Query

pytestmark = pytest.mark.slow

BOTH, ANN = ["ann", "bob"], ["ann"]
LOOKS: list[Callable[[], None]] = []


class Away(HashingEmbedder):
    """Does what is to be done as soon as it is asked for vectors, and cannot be reached then."""

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        for look in LOOKS:
            look()
        raise ModelUnavailable("nobody answers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    (new_folder / "krill.txt").write_text("Krill is eaten by whales.")
    (new_folder / "seals.txt").write_text("Seals bark at whales.")
    LOOKS.clear()
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


def uris_readable_by(corpus: Corpus, *principals: str) -> set[str]:
    with Run(principal=principals[0] if principals else ""):
        return {node.uri for node in BM25(corpus.group(), 10)(Query("whales")).nodes}


def access_lists(krill: Sequence[str], seals: Sequence[str] = ()) -> Callable[[str], Sequence[str]]:
    return lambda uri: krill if "krill" in uri else seals


def sync_refused(folder: Path, corpus: Corpus, **options: Any) -> None:
    """A run that ends by an embedder that is away, at the first text that it is asked for."""
    with pytest.raises(ModelUnavailable, match="nobody answers"):
        sync(folder, corpus, embedder=Away(), **options)


def zip_files(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def test_whoever_was_struck_off_reads_no_more_though_the_embedder_is_away(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=HashingEmbedder(), access=access_lists(BOTH))
    (folder / "new.txt").write_text("New whales.")
    sync_refused(folder, corpus, access=access_lists(ANN))
    assert uris_readable_by(corpus, "bob") == {"seals.txt"}
    assert uris_readable_by(corpus, "ann") == {"krill.txt", "seals.txt"}
    assert corpus.latest().check() == []


def test_it_holds_before_anything_is_embedded(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=HashingEmbedder(), access=access_lists(BOTH))
    (folder / "new.txt").write_text("New whales.")
    (folder / "seals.txt").unlink()
    readable: list[set[str]] = []
    LOOKS.append(lambda: readable.append(uris_readable_by(corpus, "bob")))
    sync_refused(folder, corpus, access=access_lists(ANN))
    assert readable == [set()]


def test_a_changed_file_is_closed_as_it_was(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=HashingEmbedder(), access=access_lists(BOTH))
    (folder / "krill.txt").write_text("Krill is eaten by whales, and by seals.")
    sync_refused(folder, corpus, access=access_lists(ANN))
    assert (uris_readable_by(corpus, "bob"), uris_readable_by(corpus, "ann")) == (
        {"seals.txt"},
        {"krill.txt", "seals.txt"},
    )
    report = sync(folder, corpus, embedder=HashingEmbedder(), access=access_lists(ANN))
    assert (report.changed, report.unchanged, uris_readable_by(corpus, "bob")) == (1, 1, {"seals.txt"})


def test_what_is_gone_is_gone_though_the_embedder_is_away(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=HashingEmbedder())
    (folder / "krill.txt").unlink()
    (folder / "new.txt").write_text("New whales.")
    sync_refused(folder, corpus)
    assert uris_readable_by(corpus) == {"seals.txt"}
    report = sync(folder, corpus, embedder=HashingEmbedder())
    assert (report.added, report.removed, uris_readable_by(corpus)) == (1, 0, {"seals.txt", "new.txt"})


def test_other_parts_are_refused_after_what_readers_lose(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, access=access_lists(BOTH))
    with pytest.raises(ManifestMismatch):
        sync(folder, corpus, splitter=Paragraphs(), access=access_lists(ANN))
    assert uris_readable_by(corpus, "bob") == {"seals.txt"}


def test_a_rebuild_closes_first_and_keeps_the_rest_until_all_is_made(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, access=access_lists(BOTH))
    (folder / "seals.txt").unlink()
    (folder / "new.txt").write_text("New whales.")
    sync_refused(folder, corpus, access=access_lists(ANN), splitter=Paragraphs(), rebuild=True)
    assert (uris_readable_by(corpus, "bob"), uris_readable_by(corpus, "ann")) == (set(), {"krill.txt"})
    assert corpus.latest().manifests["chunk"].transform.startswith("SlidingWindow")


def test_another_folder_takes_the_place_of_one_when_all_of_it_is_there(
    folder: Path, corpus: Corpus, tmp_path: Path
) -> None:
    sync(folder, corpus, embedder=HashingEmbedder())
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "letter.txt").write_text("Something about whales, and longer than that.")
    sync_refused(other_folder, corpus, rebuild=True, splitter=Paragraphs())
    assert uris_readable_by(corpus) == {"krill.txt", "seals.txt"}


@pytest.mark.parametrize("others", [ANN, BOTH])
def test_of_two_files_with_one_text_it_is_read_by_whoever_may_read_one_of_them(
    folder: Path, corpus: Corpus, others: Sequence[str]
) -> None:
    (folder / "copy.txt").write_text((folder / "krill.txt").read_text())
    sync(folder, corpus, embedder=HashingEmbedder(), access=lambda uri: BOTH)
    (folder / "new.txt").write_text("New whales.")
    lists_now: Any = {"access": lambda uri: others if uri == "copy.txt" else ANN}
    sync_refused(folder, corpus, **lists_now)
    assert (len(uris_readable_by(corpus, "bob")), len(uris_readable_by(corpus, "ann"))) == (len(others) - 1, 2)
    sync(folder, corpus, embedder=HashingEmbedder(), **lists_now)
    assert uris_readable_by(corpus, "bob") == ({"copy.txt"} if others == BOTH else set())


def test_what_stands_in_an_archive_is_closed_too(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(
        zip_files({"krill.txt": "Whales and krill.", "plankton.txt": "Whales and plankton."})
    )
    sync(folder, corpus, embedder=HashingEmbedder(), access=access_lists(BOTH, BOTH))
    (folder / "new.txt").write_text("New whales.")
    sync_refused(folder, corpus, access=access_lists(ANN, BOTH))
    assert uris_readable_by(corpus, "bob") == {"seals.txt", "a.zip/plankton.txt"}
    sync_refused(folder, corpus, access=lambda uri: [] if uri.startswith("a.zip/") else ANN)
    assert uris_readable_by(corpus, "bob") == set()
    report = sync(folder, corpus, embedder=HashingEmbedder(), access=lambda uri: ["eve"])
    assert (report.added, report.changed, report.unchanged) == (1, 5, 0)  # the archive and its parts too


# Moved files.


def move_down(folder: Path, name: str) -> None:
    (folder / "sub").mkdir()
    (folder / name).rename(folder / "sub" / name)


def test_a_moved_file_is_found_while_others_fail_and_by_its_new_readers(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=HashingEmbedder(), access=lambda uri: BOTH)
    move_down(folder, "krill.txt")
    moved_to = access_lists(ANN, BOTH)
    (folder / "new.txt").write_text("New whales.")
    sync_refused(folder, corpus, access=moved_to)
    assert (len(uris_readable_by(corpus, "ann")), uris_readable_by(corpus, "bob")) == (2, {"seals.txt"})
    report = sync(folder, corpus, embedder=HashingEmbedder(), access=moved_to)
    assert (report.moved, report.added, report.removed, report.embedded) == (1, 1, 0, 1)
    assert uris_readable_by(corpus, "ann") == {"sub/krill.txt", "seals.txt", "new.txt"}


def test_another_file_of_the_same_size_keeps_nothing(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=HashingEmbedder())
    (folder / "other.txt").write_text((folder / "krill.txt").read_text().swapcase())
    (folder / "krill.txt").unlink()
    sync_refused(folder, corpus)
    assert uris_readable_by(corpus) == {"seals.txt"}


def test_a_moved_archive_keeps_what_is_in_it_for_its_new_readers(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(
        zip_files({"krill.txt": "Whales and krill.", "plankton.txt": "Whales and plankton."})
    )
    sync(folder, corpus, embedder=HashingEmbedder(), access=lambda uri: BOTH)
    move_down(folder, "a.zip")
    (folder / "new.txt").write_text("New whales.")
    sync_refused(folder, corpus, access=lambda uri: ANN if uri.startswith("sub/") else BOTH)
    assert (uris_readable_by(corpus, "bob"), len(uris_readable_by(corpus, "ann"))) == ({"krill.txt", "seals.txt"}, 4)
    report = sync(folder, corpus, embedder=HashingEmbedder(), access=lambda uri: BOTH)
    assert (report.moved, report.removed, report.embedded) == (3, 0, 1)


def test_what_was_unpacked_is_kept(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(zip_files({"plankton.txt": "Whales and plankton."}))
    sync(folder, corpus, embedder=HashingEmbedder())
    (folder / "a.zip").unlink()
    (folder / "plankton.txt").write_text("Whales and plankton.")
    report = sync(folder, corpus, embedder=HashingEmbedder())
    assert (report.moved, report.removed, report.embedded) == (1, 1, 0)


# Publications.


def count_generations(folder: Path, corpus: Corpus, **options: Any) -> tuple[int, SyncReport]:
    previous_generation = corpus.latest().generation
    report = sync(folder, corpus, **options)
    return corpus.latest().generation - previous_generation, report


def test_one_publication_where_there_is_nothing_else_to_do(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, access=access_lists(BOTH))
    count, report = count_generations(folder, corpus, access=access_lists(ANN))
    assert (count, report.changed, report.unchanged) == (1, 1, 1)
    (folder / "krill.txt").unlink()
    count, report = count_generations(folder, corpus, access=access_lists(ANN))
    assert (count, report.removed, report.unchanged) == (1, 1, 1)
    (folder / "new.txt").write_text("New whales.")
    count, report = count_generations(folder, corpus, access=access_lists(ANN))
    assert (count, report.added) == (1, 1)
    assert count_generations(folder, corpus, access=access_lists(ANN))[0] == 0


def test_two_where_there_is_something_to_read(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    (folder / "krill.txt").unlink()
    (folder / "new.txt").write_text("New whales.")
    count, report = count_generations(folder, corpus)
    assert (count, report.added, report.removed) == (2, 1, 1)


def test_every_change_is_told_once(folder: Path, corpus: Corpus) -> None:
    (folder / "a.zip").write_bytes(zip_files({"krill.txt": "Whales and krill."}))
    sync(folder, corpus, access=access_lists(BOTH))
    (folder / "seals.txt").unlink()
    (folder / "new.txt").write_text("New whales.")
    changes: list[tuple[str, str]] = []
    sync(folder, corpus, access=access_lists(ANN), progress=lambda now: changes.append((now.change, now.uri)))
    assert sorted(change for change in changes if change[0]) == [
        ("added", "new.txt"),
        ("changed", "a.zip/krill.txt"),
        ("changed", "krill.txt"),
        ("removed", "seals.txt"),
    ]
