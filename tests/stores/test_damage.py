"""Damage is found, said, and mended where something is derived."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from spolia.errors import StoreCorrupt, StoreError
from spolia.stores.corpus import Corpus
from spolia.stores.vectors import segments
from tests.stores.scenario import EMBEDDER, FIRST, SECOND, add_missing_vectors, embed, put, sync

NOBODY: frozenset[str] = frozenset()
Damage = Callable[[Path], object]


def index_of(corpus: Corpus) -> Path:
    return max((Path(corpus.path) / "lexical" / "chunk").iterdir())


def segment_of(corpus: Corpus) -> Path:
    return max((Path(corpus.path) / "vectors").glob("*/*.seg"))


def flipped(path: Path) -> None:
    """One bit is another."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def emptied(folder: Path) -> None:
    for path in folder.glob("*.idx"):
        path.write_bytes(b"")


def garbled(folder: Path) -> None:
    (folder / "meta.json").write_text("{")


def nested(folder: Path) -> None:
    for name in ("meta.json", "checksums.json"):
        (folder / name).write_text("[" * 100_000)


def forgotten(folder: Path) -> None:
    path = folder / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "segments": []}))


def odd(folder: Path) -> None:
    (folder / "meta.json").write_text('{"segments": [{"max_doc": [], "deletes": 3}, 7], "schema": {"name": null}}')
    (folder / "checksums.json").write_text("[1, 2]")


def copy_store(corpus: Corpus) -> Corpus:
    """The same store in a place where this process has nothing open."""
    return Corpus(str(shutil.copytree(corpus.path, corpus.path + ".copy")))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [shutil.rmtree, emptied, garbled, nested, odd, forgotten])
def test_a_damaged_lexical_index_is_refused_and_built_again_by_the_next_writer(corpus: Corpus, damage: Damage) -> None:
    copy = copy_store(corpus)
    damage(index_of(copy))
    assert any("lexical index" in problem for problem in copy.snapshot().check())
    with pytest.raises(StoreCorrupt, match=r"lexical index .* It is derived: write spolia repair"):
        copy.snapshot().search("chunk", "temples", 1, NOBODY)
    with copy.writer() as writer:
        (message,) = writer.mended
    assert "lexical index" in message
    assert copy.snapshot().check() == []
    assert copy.snapshot().search("chunk", "temples", 9, NOBODY) == corpus.snapshot().search(
        "chunk", "temples", 9, NOBODY
    )


def test_a_changed_bit_in_an_index_is_found_by_checking_and_mended_by_repairing(corpus: Corpus) -> None:
    flipped(next(index_of(corpus).glob("*.idx")))
    (problem,) = corpus.snapshot().check()
    assert ".idx changed since it was written" in problem
    with corpus.writer() as writer:
        assert len(writer.repair()) == 1
    assert corpus.snapshot().check() == []


def test_an_index_that_lacks_a_node_or_has_one_too_many_is_found(corpus: Corpus) -> None:
    with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
        connection.execute("UPDATE nodes SET key = 77 WHERE key = 2")
        connection.commit()
    problems = corpus.snapshot().check()
    assert "group 'chunk': 1 nodes are live and not in the lexical index: 77" in problems
    assert "group 'chunk': 1 nodes are in the lexical index and not live: 2" in problems


@pytest.mark.parametrize("damage", [cut, Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_cut_segment_is_refused_and_its_texts_are_embedded_again(corpus: Corpus, damage: Damage) -> None:
    copy = copy_store(corpus)
    damage(segment_of(copy))
    assert any("vector segment" in problem for problem in copy.snapshot().check())
    with pytest.raises(StoreCorrupt, match=r"vector segment .* Write spolia repair"):
        copy.snapshot().nearest("chunk", EMBEDDER, embed(["x"])[0], 1, NOBODY)
    assert sync(copy, FIRST) == 6
    assert copy.snapshot().check() == []


def test_a_changed_bit_in_a_segment_is_found_by_checking_and_mended_by_repairing(corpus: Corpus) -> None:
    flipped(segment_of(corpus))
    (problem,) = corpus.snapshot().check()
    assert "its checksum differs" in problem
    with corpus.writer() as writer:
        (message,) = writer.repair()
        assert "6 vectors were dropped" in message
        assert add_missing_vectors(writer) == 6
    assert corpus.snapshot().check() == []


def test_repairing_a_whole_store_changes_nothing(corpus: Corpus) -> None:
    with corpus.writer() as writer:
        assert writer.repair() == []
        put(writer, "c.txt", "A zeppelin.")
        with pytest.raises(StoreError, match="after other changes"):
            writer.repair()
        add_missing_vectors(writer)
    assert corpus.snapshot().generation == 2


def test_a_damaged_database_is_found(corpus: Corpus) -> None:
    copy = copy_store(corpus)
    path = Path(copy.path) / "corpus.db"
    content = bytearray(path.read_bytes())
    for page in range(5, len(content) // 4096):
        content[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"spolia repair .* from a backup"):
        copy.snapshot().check()


DAMAGED_ROWS = {
    "nodes": (
        "meta = '[['",
        "seconds = '[1'",
        "audience = 77",
        "text = x'00'",
        "parent = x'00'",
        "id = CAST(id AS BLOB)",
    ),
    "documents": ("meta = '[['", "pages = '[['", "headings = '[[1]]'", "title = x'00'"),
}


@pytest.mark.parametrize(("table", "change"), [(table, one) for table, all in DAMAGED_ROWS.items() for one in all])
def test_a_row_that_does_not_hold_what_it_should_says_that_the_store_is_damaged(
    corpus: Corpus, table: str, change: str
) -> None:
    copy = copy_store(corpus)
    with closing(sqlite3.connect(Path(copy.path) / "corpus.db")) as connection, connection:
        connection.execute("PRAGMA foreign_keys = off")
        connection.execute(f"UPDATE {table} SET {change}")
    snapshot = copy.snapshot()
    keys = snapshot.open.records("chunk").keys.tolist()
    with pytest.raises(StoreCorrupt, match=r"row of the store is damaged .*spolia doctor --deep"):
        list(snapshot.documents()) if table == "documents" else (snapshot.ids(keys), snapshot.nodes(keys))


@pytest.mark.slow
def test_many_small_segments_become_one(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SMALL_SEGMENTS", 4)
    pinned = corpus.snapshot()
    near = pinned.nearest("chunk", EMBEDDER, embed(["stones"])[0], 9, NOBODY)
    for number in range(6):
        with corpus.writer() as writer:
            put(writer, f"{number}.txt", f"stones {number}")
            add_missing_vectors(writer)
        assert len(list(segment_of(corpus).parent.iterdir())) <= 4
    snapshot = corpus.snapshot()
    assert snapshot.check() == []
    assert len(snapshot.nearest("chunk", EMBEDDER, embed(["stones"])[0], 99, NOBODY)) == 11
    assert pinned.nearest("chunk", EMBEDDER, embed(["stones"])[0], 9, NOBODY) == near
    assert sync(corpus, SECOND) == 2


def test_vectors_survive_on_the_disk_as_they_were(corpus: Corpus) -> None:
    snapshot = corpus.snapshot()
    text = FIRST["a.txt"].splitlines()[1]
    (key, score) = snapshot.nearest("chunk", EMBEDDER, embed([f"Carsten \n{text}"])[0], 1, NOBODY)[0]
    assert snapshot.nodes([key], NOBODY)[0].text == text
    assert score == pytest.approx(1.0, abs=1e-7)
    assert np.isfinite(score)
