"""Rows that are not as they were written are found, and mended from the store or from its folder."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spolia import Corpus, add_texts, sync
from spolia.errors import NotAStore, StoreCorrupt, StoreTooNew
from spolia.indexing.sync.repair import repair
from spolia.record_files import log_damage
from spolia.stores.backends import sql
from spolia.stores.backends.rows import damaged_rows, row_digest
from spolia.stores.corpus import POSTGRES, NodeGroup
from spolia.stores.definition import Definition, Embedding, Whole
from spolia.stores.portable import export_store
from spolia.testing.hash_embedder import HashingEmbedder

EMBEDDER = HashingEmbedder(8)
ANN = frozenset({"ann"})
DAMAGE = {
    "manifests": "UPDATE manifests SET manifest = replace(manifest, 'chunk', 'chunc') WHERE grp = 'chunk'",
    "generations": "UPDATE generations SET fields = '['",
    "publications": "UPDATE publications SET id = 'another'",
    "documents": "UPDATE documents SET text = replace(text, 'stones', 'scones')",
    "audience": "UPDATE documents SET audience = 0 WHERE audience <> 0",
    "sources": "UPDATE sources SET size = 77, content_hash = 'f00d' WHERE uri = 'stones.txt'",
    "cursors": "UPDATE cursors SET cursor = cursor || 'x'",
    "nodes": "UPDATE nodes SET text = replace(text, 'stones', 'scones')",
    "places": "UPDATE nodes SET start = start + 1 WHERE start IS NOT NULL",
    "audiences": "UPDATE audiences SET readers = '[\"everybody\"]'",
    "store": "UPDATE store SET uuid = 'another'",
}
"""What a bad disk may do to a table."""
MENDED = DAMAGE.keys() - {"audience", "audiences"}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for name, text in {
        "stones.txt": "Spolia are stones that builders take from older buildings.\n\nSalt is dug in mines.",
        "tides.md": "# Tides\n\nThe moon causes the tides.",
        "secret/treasure.txt": "Only ann may read about the treasure.",
    }.items():
        (tmp_path / "notes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notes" / name).write_text(text)
    return tmp_path / "notes"


def readers(uri: str) -> tuple[str, ...]:
    return ("ann",) if uri.startswith("secret/") else ()


@pytest.fixture
def corpus(notes: Path, address: str) -> Corpus:
    new_corpus = Corpus(address)
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    sync(notes, new_corpus, groups=[new_corpus.group("sentence"), new_corpus.group("near", near)], access=readers)
    return new_corpus


def repair_store(corpus: Corpus) -> Any:
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    return repair(corpus, groups=[corpus.group("near", near)])


def execute_unguarded(corpus: Corpus, statement: str) -> None:
    """A statement past all that guards a store."""
    if corpus.path.startswith(POSTGRES):
        from spolia.stores.backends.postgres.session import PostgresSession

        with closing(corpus.backend.begin_writing(1)) as session:
            assert isinstance(session.connection, PostgresSession)
            session.connection.ask(statement.replace("%", "%%"))
        return
    with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
        connection.execute(statement)
        connection.commit()


def answers(corpus: Corpus) -> list[Any]:
    snapshot = corpus.latest()
    (vector,) = EMBEDDER.embed(["What do builders take?"], kind="query")
    collected: list[Any] = []
    for principals in (frozenset[str](), ANN):
        collected += [list(map(repr, snapshot.documents(principals)))]
        collected += [list(map(repr, snapshot.all_nodes(group, principals))) for group in ("chunk", "sentence", "near")]
        for hits in (
            snapshot.search("chunk", "stones treasure tides", 9, principals),
            snapshot.nearest("near", EMBEDDER.name, vector, 9, principals),
        ):
            collected.append(list(map(repr, snapshot.hits(hits, principals))))
    return collected


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("address", ["folder", "postgres"], indirect=True)
def test_a_row_that_changed_is_found_by_looking_at_all_rows_and_mended(corpus: Corpus, name: str) -> None:
    previous_answers = answers(corpus)
    assert corpus.latest().check(deep=True) == []
    execute_unguarded(corpus, DAMAGE[name])
    assert [row for row in corpus.backend.row_problems() if "not as they were written" in row]
    report = repair_store(corpus)
    assert report.repaired
    if name in MENDED:
        assert report.left == ()
        assert answers(corpus) == previous_answers
        assert corpus.latest().check(deep=True) == []
    else:
        assert [message for message in report.left if "hidden" in message or "read again" in message]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["audience", "audiences"])
def test_what_nothing_says_any_more_who_may_read_it_is_shown_to_nobody(corpus: Corpus, notes: Path, name: str) -> None:
    previous_answers = answers(corpus)
    execute_unguarded(corpus, DAMAGE[name])
    repair_store(corpus)
    for principals in (frozenset[str](), ANN, frozenset({"everybody"})):
        assert "treasure" not in repr(list(corpus.latest().documents(principals)))
        assert "treasure" not in repr(list(corpus.latest().all_nodes("chunk", principals)))
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    sync(notes, corpus, groups=[corpus.group("near", near)], access=readers)
    assert answers(corpus) == previous_answers
    assert corpus.latest().check(deep=True) == []


def test_all_groups_that_lost_vectors_by_one_embedder_are_embedded_again(notes: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "a.spolia"))
    near = [
        corpus.group(
            parent, Definition(Whole(), parent=parent.removeprefix("near-"), embeddings=(Embedding(EMBEDDER),))
        )
        for parent in ("near-chunk", "near-sentence")
    ]
    sync(notes, corpus, groups=[corpus.group("sentence"), *near])
    copy = Corpus(str(shutil.copytree(corpus.path, tmp_path / "b.spolia")))
    segment = next(Path(copy.path, "vectors").glob("*/*.seg"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    report = repair(copy, groups=[copy.group(group.name, group.definition) for group in near])
    assert [message for message in report.repaired if "vectors were made again" in message]
    assert (report.left, copy.latest().check(deep=True)) == ((), [])
    (vector,) = EMBEDDER.embed(["What do builders take?"], kind="query")
    for group in near:
        rankings = [store.latest().nearest(group.name, EMBEDDER.name, vector, 9, ANN) for store in (corpus, copy)]
        assert rankings[0] == rankings[1]


def test_looking_at_structure_only_does_not_see_it_and_at_a_share_of_rows_does(
    corpus: Corpus,
) -> None:
    execute_unguarded(corpus, DAMAGE["nodes"])
    assert corpus.latest().check() == []
    with closing(corpus.backend.connect_for_reading()) as connection:
        assert {table for table, _ in damaged_rows(connection, 10_000)} == {"nodes"}


def test_an_export_of_damaged_rows_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    execute_unguarded(corpus, DAMAGE["nodes"])
    with pytest.raises(StoreCorrupt, match=r"rows of nodes are not as they were written.* spolia repair --store"):
        export_store(corpus, tmp_path / "notes.zip")
    assert not (tmp_path / "notes.zip").exists()


def test_a_sync_says_that_a_row_is_damaged(corpus: Corpus, notes: Path) -> None:
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    assert sync(notes, corpus, groups=[corpus.group("near", near)], access=readers).is_in_step
    execute_unguarded(corpus, DAMAGE["documents"])
    report = sync(notes, corpus, groups=[corpus.group("near", near)], access=readers)
    assert "rows of documents are not as they were written" in " ".join(report.damaged)
    assert not report.is_in_step


def test_another_reader_list_does_not_hide_that_a_row_is_damaged(corpus: Corpus) -> None:
    execute_unguarded(corpus, DAMAGE["nodes"])
    execute_unguarded(corpus, DAMAGE["documents"])
    with corpus.writer() as writer:
        for document in list(writer.documents()):
            writer.set_readers(document, ("bob",))
    problems = " ".join(corpus.backend.row_problems())
    assert "rows of documents" in problems
    assert "rows of nodes" in problems


@pytest.mark.slow
def test_a_text_without_a_file_that_was_damaged_goes_and_is_said_to_be_lost(corpus: Corpus) -> None:
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    add_texts(corpus, {"faq": "Rome was not built in a day."}, groups=[corpus.group("near", near)], access=readers)
    execute_unguarded(corpus, "UPDATE documents SET title = 'x' WHERE text LIKE 'Rome%'")
    report = repair_store(corpus)
    assert [message for message in report.left if "'text:faq' was damaged and could not be read again" in message]
    assert "Rome" not in repr(answers(corpus))


def flipped_pages(corpus: Corpus, page: int) -> None:
    """A page of the database is full of other bytes."""
    path = Path(corpus.path) / "corpus.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size: int = connection.execute("PRAGMA page_size").fetchone()[0]
    content = bytearray(path.read_bytes())
    content[(page - 1) * size : page * size] = bytes(255 for _ in range(size))
    path.write_bytes(content)


def root_page(corpus: Corpus, name: str) -> int:
    with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
        page: int = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
        return page


@pytest.mark.slow
@pytest.mark.parametrize(
    "table", ["nodes", "documents", "sources", "nodes_parent", "sqlite_autoindex_nodes_1", "unmade"]
)
def test_a_page_that_cannot_be_read_is_mended_from_the_folder(notes: Path, fast_folder: Path, table: str) -> None:
    corpus = Corpus(str(fast_folder / "a.spolia"))
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    shutil.rmtree(notes / "secret")
    sync(notes, corpus, groups=[corpus.group("sentence"), corpus.group("near", near)])
    previous_answers = answers(corpus)
    copy = Corpus(str(shutil.copytree(corpus.path, fast_folder / "b.spolia")))
    flipped_pages(copy, root_page(corpus, table))
    report = repair_store(copy)
    assert "it was written again from the rows that could be read" in report.repaired[0]
    assert report.left == ()
    assert answers(copy) == previous_answers
    assert copy.latest().check(deep=True) == []


@pytest.mark.slow
def test_a_file_of_unknown_readers_keeps_no_other_file_from_being_read_again(notes: Path, fast_folder: Path) -> None:
    corpus = Corpus(str(fast_folder / "a.spolia"))
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    sync(notes, corpus, groups=[corpus.group("sentence"), corpus.group("near", near)], access=readers)
    previous_answers = answers(corpus)
    (notes / "new.txt").write_text("Nobody has said who may read this.")
    flipped_pages(corpus, root_page(corpus, "sources"))
    report = repair_store(corpus)
    assert [message for message in report.left if "'new.txt'" in message] == list(report.left)
    assert answers(corpus) == previous_answers


@pytest.mark.slow
def test_a_damaged_file_of_unknown_readers_is_named_once(notes: Path, fast_folder: Path) -> None:
    corpus = Corpus(str(fast_folder / "a.spolia"))
    near = Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),))
    sync(notes, corpus, groups=[corpus.group("near", near)], access=readers)
    flipped_pages(corpus, root_page(corpus, "documents"))
    report = repair_store(corpus)
    assert [sum(name in message for message in report.left) for name in ("stones.txt", "tides.md", "treasure.txt")] == [
        1
    ] * 3


@pytest.mark.slow
def test_a_database_of_which_nothing_can_be_read_is_left_as_it_is(corpus: Corpus, fast_folder: Path) -> None:
    copy = Corpus(str(shutil.copytree(corpus.path, fast_folder / "b.spolia")))
    flipped_pages(copy, 1)
    was = (Path(copy.path) / "corpus.db").read_bytes()
    with pytest.raises(StoreCorrupt, match="restored from a backup"):
        repair_store(copy)
    assert (Path(copy.path) / "corpus.db").read_bytes() == was


def test_a_digest_tells_rows_apart_by_each_value() -> None:
    row = ("id", 1, None, b"\0", "text")
    changed_rows = [
        ("ie", *row[1:]),
        ("id", 2, *row[2:]),
        (*row[:2], 0, *row[3:]),
        (*row[:3], b"\1", "text"),
        (*row[:4], "t"),
    ]
    assert len({row_digest(changed_row) for changed_row in (row, *changed_rows)}) == 6


def test_every_table_but_those_of_vectors_is_guarded(corpus: Corpus) -> None:
    """Vectors stand in segments, which have checksums; a reader list is found by its digest."""
    with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables - {"sqlite_sequence"} == {*sql.GUARDED, "store", "audiences", "segments", "vectors"}


@pytest.fixture
def ahead_corpus(corpus: Corpus, notes: Path, fast_folder: Path) -> Corpus:
    """A store as a killed process leaves it: what was committed last stands in the log ahead of the database."""
    corpus.latest()  # keeps the log from being put into the database
    add_texts(corpus, {"faq": "Rome was not built in a day."}, groups=[near_of(corpus)], access=readers)
    copy = Corpus(str(shutil.copytree(corpus.path, fast_folder / "b.spolia")))
    assert (Path(copy.path) / "corpus.db-wal").stat().st_size > 20 * 4096
    return copy


def near_of(corpus: Corpus) -> NodeGroup:
    return corpus.group("near", Definition(Whole(), parent="sentence", embeddings=(Embedding(EMBEDDER),)))


@pytest.mark.slow
def test_a_log_that_is_whole_is_not_called_damaged(ahead_corpus: Corpus) -> None:
    assert log_damage(Path(ahead_corpus.path) / "corpus.db") == ""
    assert ahead_corpus.latest().check(deep=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("place", [4, 20, 40, 52, 2_000, -30_000, -4_100, -3])
def test_a_byte_of_the_log_that_changed_is_found(ahead_corpus: Corpus, place: int) -> None:
    path = Path(ahead_corpus.path) / "corpus.db-wal"
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)
    assert "so that what was committed" in log_damage(Path(ahead_corpus.path) / "corpus.db")
    assert [message for message in ahead_corpus.backend.row_problems() if "corpus.db-wal" in message]


@pytest.mark.slow
def test_what_was_not_committed_is_no_damage(ahead_corpus: Corpus) -> None:
    path = Path(ahead_corpus.path) / "corpus.db-wal"
    content = path.read_bytes()
    begun = content[32:36] + bytes(4) + content[16:24] + bytes(8) + bytes(4096)  # no commit, half written
    path.write_bytes(content + begun)
    assert log_damage(Path(ahead_corpus.path) / "corpus.db") == ""


@pytest.mark.slow
def test_what_a_damaged_log_has_lost_is_read_again_from_the_folder(ahead_corpus: Corpus, notes: Path) -> None:
    path = Path(ahead_corpus.path) / "corpus.db-wal"
    content = bytearray(path.read_bytes())
    content[40] ^= 0x10
    path.write_bytes(content)
    report = repair(ahead_corpus, groups=[near_of(ahead_corpus)])
    assert [message for message in report.repaired if "corpus.db-wal" in message]
    assert ahead_corpus.latest().check(deep=True) == []


FOREIGN = {
    "nothing": None,
    "an empty folder": {},
    "notes": {"a.md": b"Salt."},
    "a text": {"corpus.db": b"Salt."},
    "an empty file": {"corpus.db": b""},
    "another database": {"corpus.db": b"SQLite format 3\0" + bytes(4080), "vectors/1.bin": b"x"},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_store_is_refused_and_left_as_it_is(tmp_path: Path, name: str) -> None:
    folder, files = tmp_path / "p", FOREIGN[name]
    for file, content in (files or {}).items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    if files == {}:
        folder.mkdir()
    with pytest.raises(NotAStore, match=r"Not a store|Store not found"):
        repair(Corpus(folder))
    assert folder.exists() is (files is not None)
    assert {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.*")} == (files or {})


def test_a_store_that_lost_its_database_is_not_taken_for_documents(corpus: Corpus) -> None:
    (Path(corpus.path) / "corpus.db").unlink()
    with pytest.raises(NotAStore, match=r"corpus\.db is missing; .* Restore it from a backup, or move the store away"):
        repair(corpus)


@pytest.mark.parametrize("change", ["ALTER TABLE documents ADD COLUMN mood TEXT", "CREATE TABLE moods (mood TEXT)"])
def test_a_store_of_a_newer_version_is_refused_and_one_whose_number_changed_is_mended(
    tmp_path: Path, change: str
) -> None:
    corpus, database = Corpus(tmp_path / "s"), tmp_path / "s" / "corpus.db"
    add_texts(corpus, {"a.md": "Salt is dug."})
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 99")
    assert "its header says" in str(repair(corpus))
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(change)
        connection.execute("PRAGMA user_version = 99")
    previous_content = database.read_bytes()
    with pytest.raises(StoreTooNew, match="schema 99"):
        repair(corpus)
    assert database.read_bytes() == previous_content


def test_a_file_is_refused_as_no_store(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("Salt.")
    with pytest.raises(NotAStore, match="a store is a folder"):
        repair(Corpus(tmp_path / "p"))


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_store_is_ours_by_its_tables_or_folders_if_its_header_is_damaged(tmp_path: Path, is_alone: bool) -> None:
    path = tmp_path / "p" / "corpus.db"
    Corpus(tmp_path / "p").create()
    content = path.read_bytes()
    path.write_bytes(content[:68] + b"\0\0\0\0" + content[72:])  # the application's id, beside folders and alone
    if is_alone:
        (path.parent / "pins" / "0").unlink()
        (path.parent / "pins").rmdir()
    assert "written again" in repair(Corpus(tmp_path / "p")).repaired[0]
    path.write_bytes(b"x" * 100)
    (path.parent / "pins").mkdir(exist_ok=True)
    with pytest.raises(StoreCorrupt, match="restored from a backup"):
        repair(Corpus(tmp_path / "p"))
    assert not list(path.parent.glob("corpus.db.*"))


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_repair_says_that_vectors_were_dropped_and_made_again(tmp_path: Path, damage: str) -> None:
    corpus = Corpus(tmp_path / "p")
    groups = [corpus.group("near", Definition(Whole(), embeddings=(Embedding(EMBEDDER),)))]
    add_texts(corpus, {"a": "Salt is dug in mines.", "b": "The moon causes the tides."}, groups=groups)
    (segment,) = (tmp_path / "p" / "vectors").rglob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content[:100] + b"XXXX" + content[104:] if damage == "changed" else content[:50])
    if damage == "gone":
        segment.unlink()
    (problem,) = [message for message in corpus.latest().check() if "vector segment" in message]
    assert "Write" not in problem
    report = repair(corpus, groups=groups)
    cause, remedy = report.repaired
    assert cause.startswith(f"The vector segment {segment} ")
    assert cause.endswith(". Its 2 vectors were dropped.")
    assert remedy == "Group 'near': 2 vectors were made again."
    assert (report.left, "STORE" in cause, cause.count(str(segment))) == ((), False, 1)


def test_a_log_that_is_a_link_to_a_device_is_named_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "corpus.db-wal").symlink_to("/dev/zero")
    assert log_damage(tmp_path / "corpus.db") == "corpus.db-wal is not a file, but a folder, a device or a pipe"
