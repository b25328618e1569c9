"""A store as one file and back: the same in all that can be asked of it; a file that was changed is refused."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.errors import StoreCorrupt, StoreError, StoreTooNew
from spolia.filters import Field, where
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.sync import sync
from spolia.stores.backends.rows import hash_of
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.stores.portable import CONTENTS, checksum, export_store, import_store
from spolia.testing.hash_embedder import HashingEmbedder
from tests.retrieval.test_learned_sparse import Counting

NOBODY: frozenset[str] = frozenset()
ALL = frozenset({"ann", "bob"})
EMBEDDER, SECOND, SPARSE = HashingEmbedder(32), HashingEmbedder(16, salt="b"), Counting()
QUESTIONS = ("Who takes stones from older buildings?", "milestones", "salt and whelks", "the number 7")


def metadata(uri: str) -> dict[str, Any]:
    return {"year": 1990 + len(uri), "tag": ["a", "b"], "none": None, "half": 0.5, "is": True}


def lay(path: Path) -> Path:
    (path / "sea").mkdir(parents=True)
    (path / "stones.md").write_text(
        "# Spolia\n\nSpolia are stones. Builders take them from older buildings.\n\n## Rome\n\nRome has many.\n"
    )
    (path / "roads.txt").write_text("Roman roads were straight. Milestones stood beside them. 🐚 Ünïcode.")
    (path / "sea" / "salt.txt").write_text("Salt is dug in mines. Whelks live under the pier. Salt is dug in mines.")
    (path / "same.txt").write_text("Roman roads were straight. Milestones stood beside them. 🐚 Ünïcode.")
    (path / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    (path / "empty.txt").write_text("")
    for number in range(12):
        (path / f"n{number}.txt").write_text(f"Document {number} is about the number {number}. It has no salt.")
    return path


def groups_of(corpus: Corpus) -> list[NodeGroup]:
    pair = Definition(Sentences(), embeddings=(Embedding(EMBEDDER), Embedding(SECOND), Embedding(SPARSE)))
    return [corpus.group("sentence", pair), corpus.group("sub", Definition(Sentences(), parent="chunk"))]


@pytest.fixture(scope="module")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, and a store with a history: groups, embedders, reader lists, deleted and changed documents."""
    place = tmp_path_factory.mktemp("made")
    folder, new_corpus = lay(place / "docs"), Corpus(str(place / "notes.spolia"))
    sync_options: dict[str, Any] = {
        "embedder": EMBEDDER,
        "metadata": metadata,
        "access": lambda uri: ("ann",) if uri == "sea/salt.txt" else (),
        "fields": [Field("year", "int"), Field("kind", default="note")],
    }
    sync(folder, new_corpus, **sync_options)
    groups = groups_of(new_corpus)
    materialise(groups)
    (folder / "n3.txt").unlink()
    (folder / "n5.txt").write_text("Document 5 is about whelks by now.")
    (folder / "n0.txt").write_text("Document 0 was changed too, and is the last one.")
    sync(folder, new_corpus, groups=groups, **sync_options)
    shutil.rmtree(Path(new_corpus.path, "lexical"))  # until they are merged away, BM25 counts deleted documents
    with new_corpus.writer():
        return place


@pytest.fixture
def folder(made_folder: Path, fast_folder: Path) -> Path:
    return shutil.copytree(made_folder / "docs", fast_folder / "docs")


@pytest.fixture
def corpus(made_folder: Path, folder: Path, fast_folder: Path) -> Corpus:
    return Corpus(str(shutil.copytree(made_folder / "notes.spolia", fast_folder / "notes.spolia")))


def answers_of(corpus: Corpus) -> dict[str, Any]:
    """What a store answers, without keys, which are its own."""
    snapshot = corpus.latest()

    def hits(group: str, scored_keys: list[tuple[int, float]]) -> list[tuple[str, float]]:
        return [(hit.node.id, hit.score) for hit in snapshot.hits(scored_keys, ALL)]

    def nearest(group: str, embedder: HashingEmbedder) -> list[list[tuple[str, float]]]:
        vectors = embedder.embed(QUESTIONS, kind="query")
        return [hits(group, row) for row in snapshot.nearest_batch(group, embedder.name, vectors, 9, ALL)]

    terms = snapshot.nearest_sparse("sentence", SPARSE.name, SPARSE.embed_sparse(QUESTIONS, kind="query"), 9, ALL)
    dense = [("chunk", EMBEDDER), ("sentence", EMBEDDER), ("sentence", SECOND)]
    condition = where(year=(1996, 1997), kind="note")
    return {
        "sources": snapshot.sources(),
        "documents": list(snapshot.documents(ALL)),
        "open": [document.id for document in snapshot.documents()],
        "manifests": snapshot.manifests,
        "nodes": {group: list(snapshot.all_nodes(group, ALL)) for group in snapshot.groups()},
        "words": [
            (group, hits(group, snapshot.search(group, text, 9, principals, condition if principals else None)))
            for group in snapshot.groups()
            for text in QUESTIONS
            for principals in (NOBODY, ALL)
        ],
        "vectors": [(group, e.name, nearest(group, e)) for group, e in dense],
        "terms": [hits("sentence", row) for row in terms],
        "fields": snapshot.schema,
        "stats": snapshot.stats().nodes,
    }


@pytest.mark.slow
def test_what_is_imported_answers_as_what_was_exported(corpus: Corpus, fast_folder: Path) -> None:
    export_contents = export_store(corpus, fast_folder / "notes.zip")
    other_corpus = Corpus(str(fast_folder / "other.spolia"))
    import_contents = import_store(fast_folder / "notes.zip", other_corpus)
    assert import_contents == export_contents
    assert (export_contents.documents, export_contents.sources, set(export_contents.nodes)) == (
        16,
        17,
        {"chunk", "sentence", "sub"},
    )
    assert answers_of(other_corpus) == answers_of(corpus)
    assert other_corpus.latest().check() == []


@pytest.mark.slow
def test_an_imported_store_is_the_same_file_again(corpus: Corpus, fast_folder: Path) -> None:
    other_corpus = Corpus(str(fast_folder / "other.spolia"))
    export_store(corpus, fast_folder / "1.zip")
    import_store(fast_folder / "1.zip", other_corpus)
    export_store(other_corpus, fast_folder / "2.zip")
    export_store(corpus, fast_folder / "3.zip")
    first = (fast_folder / "1.zip").read_bytes()
    assert first == (fast_folder / "2.zip").read_bytes()
    assert first == (fast_folder / "3.zip").read_bytes()


@pytest.mark.slow
def test_replaced_vectors_are_no_source(folder: Path, fast_folder: Path) -> None:
    corpus = Corpus(str(fast_folder / "notes.spolia"))
    sync(folder, corpus, embedder=EMBEDDER)
    export_store(corpus, fast_folder / "before.zip")
    hashes = [hash_of(node.indexed_text) for node in corpus.latest().all_nodes("chunk")]
    with corpus.writer() as writer:
        writer.remember("vectors", {EMBEDDER.name: "a user's own source"})
        writer.replace_vectors(EMBEDDER.name, hashes, [EMBEDDER.embed(["x"] * len(hashes), kind="passage")])
        assert writer.cursors()["vectors"] == {EMBEDDER.name: "a user's own source"}
        assert len(writer.cursors()) == 2  # the folder, too
        writer.remember("vectors", {EMBEDDER.name: ""})
        with pytest.raises(StoreError, match="Give it one"):  # as a file may say that is imported
            writer.remember("", {EMBEDDER.name: "1"})
    with zipfile.ZipFile(fast_folder / "before.zip") as previous_archive:
        export_store(corpus, fast_folder / "after.zip")
        with zipfile.ZipFile(fast_folder / "after.zip") as later_archive:
            assert previous_archive.read("cursors.jsonl") == later_archive.read("cursors.jsonl")


@pytest.mark.slow
def test_an_imported_store_goes_on_with_its_folder(corpus: Corpus, folder: Path, fast_folder: Path) -> None:
    export_store(corpus, fast_folder / "notes.zip")
    other_corpus = Corpus(str(fast_folder / "other.spolia"))
    import_store(fast_folder / "notes.zip", other_corpus)
    (folder / "n9.txt").write_text("Document 9 is new.")
    sync_options: dict[str, Any] = {"metadata": metadata, "access": lambda uri: ("ann",) if "salt" in uri else ()}
    report = sync(folder, other_corpus, embedder=EMBEDDER, groups=groups_of(other_corpus), **sync_options)
    assert (report.added, report.changed, report.removed, report.embedded) == (0, 1, 0, 3)


def test_an_empty_store_can_be_carried(fast_folder: Path) -> None:
    export_store(Corpus(str(fast_folder / "a.spolia")).create(), fast_folder / "a.zip")
    other_corpus = Corpus(str(fast_folder / "b.spolia"))
    assert import_store(fast_folder / "a.zip", other_corpus).documents == 0
    assert other_corpus.latest().groups() == ()


@pytest.mark.slow
def test_only_the_pinned_generation_is_written(corpus: Corpus, fast_folder: Path) -> None:
    with corpus.writer() as writer:
        writer.remove("stones.md")
        export_store(corpus, fast_folder / "notes.zip")
    other_corpus = Corpus(str(fast_folder / "other.spolia"))
    import_store(fast_folder / "notes.zip", other_corpus)
    assert "stones.md" in other_corpus.latest().sources()


@pytest.mark.slow
def test_nothing_is_written_over(corpus: Corpus, fast_folder: Path) -> None:
    file = fast_folder / "notes.zip"
    file.write_text("mine")
    with pytest.raises(StoreError, match="there already"):
        export_store(corpus, file)
    assert file.read_text() == "mine"
    file.unlink()
    export_store(corpus, file)
    with pytest.raises(StoreError, match="not an empty one"):
        import_store(file, corpus)
    assert sorted(path.name for path in fast_folder.iterdir()) == ["docs", "notes.spolia", "notes.zip"]


def test_a_file_in_a_folder_that_is_not_there_is_refused(corpus: Corpus, fast_folder: Path) -> None:
    with pytest.raises(StoreError, match="Name a file elsewhere"):
        export_store(corpus, fast_folder / "nowhere" / "notes.zip")
    with pytest.raises(StoreError, match="There is no file"):
        import_store(fast_folder / "nowhere.zip", corpus)


# What is not as it was written.


@pytest.fixture
def export_path(corpus: Corpus, fast_folder: Path) -> Path:
    export_store(corpus, fast_folder / "notes.zip")
    return fast_folder / "notes.zip"


def refusal_of(path: Path, kind: type[StoreError] = StoreCorrupt) -> str:
    """Why an import was refused, after which nothing is there."""
    target = path.with_name("target.spolia")
    with pytest.raises(kind) as caught:
        import_store(path, Corpus(str(target)))
    assert not target.exists()
    return str(caught.value)


@pytest.mark.parametrize("left", [0, 1, 21, 22, 300, -1, -70])
def test_a_truncated_file_is_refused(export_path: Path, left: int) -> None:
    export_path.write_bytes(export_path.read_bytes()[:left])
    refusal_of(export_path)


def test_a_changed_bit_of_the_end_record_is_damage(export_path: Path, corpus: Corpus) -> None:
    data, expected, damaged = export_path.read_bytes(), answers_of(corpus), 0
    for position in range(len(data) - 22, len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x40
        export_path.write_bytes(changed)
        target = Corpus(str(export_path.with_name(f"target{position}.spolia")))
        try:
            import_store(export_path, target)
        except StoreCorrupt:
            damaged += 1
        else:
            assert answers_of(target) == expected
    assert damaged > 10


@pytest.mark.slow
def test_a_changed_byte_is_noticed_wherever_it_matters(export_path: Path, corpus: Corpus) -> None:
    data, draw, expected = export_path.read_bytes(), random.Random(7), answers_of(corpus)
    harmless = 0
    for number in range(150):
        position = draw.randrange(len(data))
        export_path.write_bytes(
            data[:position] + bytes([data[position] ^ (1 << draw.randrange(8))]) + data[position + 1 :]
        )
        target = Corpus(str(export_path.with_name(f"{number}.spolia")))
        try:
            import_store(export_path, target)
        except StoreError:
            assert not target.exists()
            continue
        harmless += 1  # a time or a permission in the ZIP's directory, which nobody reads
        assert answers_of(target) == expected
    assert harmless < 30


def rewrite_members(path: Path, change: Callable[[dict[str, bytes]], None], *, sealed: bool = True) -> None:
    """Change what is in the file; `sealed`: with the checksums of what it is then."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
        comment = file.comment
    change(members)
    if sealed and CONTENTS in members:
        contents = json.loads(members[CONTENTS])
        for name, data in members.items():
            if name in contents["members"]:
                contents["members"][name] |= {"bytes": len(data), "blake2b": checksum(data).hexdigest()}
        members[CONTENTS] = json.dumps(contents).encode()
        comment = checksum(members[CONTENTS]).hexdigest().encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
        file.comment = comment


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../../evil.txt", "/tmp/evil.txt", "nodes/../../x", "C:\\evil", "extra.jsonl"])
def test_what_does_not_belong_there_is_refused_and_written_nowhere(export_path: Path, name: str) -> None:
    previous_paths = set(export_path.parent.parent.rglob("*evil*"))
    rewrite_members(export_path, lambda members: members.update({name: b"evil"}))
    assert "too much" in refusal_of(export_path)
    assert set(export_path.parent.parent.rglob("*evil*")) == previous_paths


def test_a_member_twice_is_refused(export_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(export_path, "a") as file:
        file.writestr("documents.jsonl", b"{}\n")
    refusal_of(export_path)


@pytest.mark.parametrize("name", ["documents.jsonl", "vectors/0-0.f32", CONTENTS])
def test_a_missing_member_is_refused(export_path: Path, name: str) -> None:
    rewrite_members(export_path, lambda members: members.__delitem__(name))
    refusal_of(export_path)


def test_a_link_in_the_file_is_no_way_out(export_path: Path) -> None:
    link = zipfile.ZipInfo("documents.jsonl")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(export_path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(export_path, "w") as file:
        for name, data in members.items():
            file.writestr(link if name == link.filename else name, b"/etc/passwd" if name == link.filename else data)
    refusal_of(export_path)


def test_a_changed_line_is_refused_by_its_checksum(export_path: Path) -> None:
    def change(members: dict[str, bytes]) -> None:
        members["nodes/0.jsonl"] = members["nodes/0.jsonl"].replace(b"Milestones", b"Millstones")

    rewrite_members(export_path, change, sealed=False)
    assert "checksum of nodes/0.jsonl differs" in refusal_of(export_path)


@pytest.mark.slow
def test_more_than_fits_on_the_disk_is_refused_before_it_is_unpacked(export_path: Path) -> None:
    bomb = zipfile.ZipFile(export_path, "a", zipfile.ZIP_DEFLATED)
    with bomb, bomb.open("bomb", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    assert export_path.stat().st_size < 1_000_000
    refusal_of(export_path)


def test_a_size_that_is_not_true_is_refused(export_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(members: dict[str, bytes]) -> None:
        contents = json.loads(members[CONTENTS])
        contents["members"]["documents.jsonl"]["bytes"] = 1 << 50
        members[CONTENTS] = json.dumps(contents).encode()

    rewrite_members(export_path, lie, sealed=False)
    with zipfile.ZipFile(export_path, "a") as file:
        file.comment = checksum(file.read(CONTENTS)).hexdigest().encode()
    assert "were written" in refusal_of(export_path)


@pytest.mark.parametrize(
    ("member", "line"),
    [
        ("documents.jsonl", b"[" * 100_000 + b"\n"),
        ("documents.jsonl", b'{"document": {"id": 7, "text": "x"}, "readers": 0}\n'),
        ("documents.jsonl", b'{"document": {"id": "x", "text": "x"}, "readers": 99}\n'),
        ("documents.jsonl", b'{"document": {"use": "x"}, "readers": 0}\n'),
        ("nodes/0.jsonl", b'{"node": {"id": "x", "text": "x", "document": "nobody"}, "readers": 0}\n'),
        ("nodes/0.jsonl", b"\xff\xfe\n"),
        ("sources.jsonl", b'{"uri": "x", "document": "nobody"}\n'),
        ("sources.jsonl", b"1\n"),
        ("readers.jsonl", b'{"a": 1}\n'),
        ("vectors/0-0.f32", b"\0"),
        ("vectors/0-0.f32", np.full(32, np.nan, "<f4").tobytes()),
        ("vectors/1-2.sparse", b"\0"),
        ("vectors/1-2.sparse", b"\0\0\0\0"),
    ],
)
def test_what_cannot_be_understood_is_not_published(export_path: Path, member: str, line: bytes) -> None:
    """With checksums that are right, as somebody who means ill writes them."""
    rewrite_members(export_path, lambda members: members.update({member: members[member] + line}))
    target = Corpus(str(export_path.with_name("target.spolia")))
    with pytest.raises(StoreError):
        import_store(export_path, target)
    assert not target.exists() or target.latest().generation == 0


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\xff\xff\xff\xff",
        b"\x02\0\0\0" + np.array([1, 2], "<i4").tobytes() + np.array([1, np.nan], "<f4").tobytes(),
        b"\x02\0\0\0" + np.array([2, 1], "<i4").tobytes() + np.array([1, 1], "<f4").tobytes(),
        b"\x01\0\0\0" + np.array([1], "<i4").tobytes(),
    ],
)
def test_sparse_rows_that_are_none_are_not_published(export_path: Path, row: bytes) -> None:
    rewrite_members(export_path, lambda members: members.update({"vectors/1-2.sparse": row}))
    target = Corpus(str(export_path.with_name("target.spolia")))
    with pytest.raises(StoreCorrupt, match=r"vectors/1-2.sparse"):
        import_store(export_path, target)
    assert not target.exists() or target.latest().generation == 0


@pytest.mark.parametrize(("version", "kind"), [(4, StoreTooNew), ("2", StoreCorrupt), (None, StoreCorrupt)])
def test_a_newer_format_is_refused(export_path: Path, version: object, kind: type[StoreError]) -> None:
    def newer(members: dict[str, bytes]) -> None:
        members[CONTENTS] = json.dumps(json.loads(members[CONTENTS]) | {"version": version}).encode()

    rewrite_members(export_path, newer)
    assert str(version) in refusal_of(export_path, kind)


# Whoever is killed.

IMPORT = """
import sys
from spolia.stores.corpus import Corpus
from spolia.stores.portable import import_store
import_store(sys.argv[1], Corpus(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["create.rename", "define.write", "put.document", "add.nodes", "vectors.register", "publish.commit"]
)
def test_a_killed_import_leaves_no_half_store(export_path: Path, corpus: Corpus, point: str) -> None:
    target = Corpus(str(export_path.with_name("target.spolia")))
    command = [sys.executable, "-c", IMPORT, str(export_path), target.path]
    killed = subprocess.run(command, env=os.environ | {"SPOLIA_FAIL_POINT": point}, capture_output=True, check=False)
    assert killed.returncode == -9
    assert not target.exists() or (target.latest().generation, target.latest().groups()) == (0, ())
    import_store(export_path, target)
    assert answers_of(target) == answers_of(corpus)
    assert target.latest().check() == []


@pytest.mark.slow
def test_an_import_may_be_killed_at_any_time(export_path: Path, corpus: Corpus) -> None:
    target, draw, expected = Corpus(str(export_path.with_name("target.spolia"))), random.Random(3), answers_of(corpus)
    command = [sys.executable, "-c", IMPORT, str(export_path), target.path]
    began = time.monotonic()
    subprocess.run([*command[:-1], str(export_path.with_name("timed.spolia"))], check=True)
    whole = time.monotonic() - began
    for _ in range(6):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.5, 1.0) * whole)
        process.kill()
        process.wait()
        if target.exists() and target.latest().generation:
            break
    else:
        import_store(export_path, target)
    assert answers_of(target) == expected
    assert target.latest().check() == []


@pytest.mark.slow
@pytest.mark.parametrize("address", ["postgres"], indirect=True)
def test_a_store_goes_to_another_database_and_back(export_path: Path, corpus: Corpus, address: str) -> None:
    between, back = Corpus(address), Corpus(str(export_path.with_name("back.spolia")))
    import_store(export_path, between)
    assert answers_of(between) == answers_of(corpus)
    export_store(between, export_path.with_name("between.zip"))
    assert export_path.with_name("between.zip").read_bytes() == export_path.read_bytes()
    import_store(export_path.with_name("between.zip"), back)
    assert answers_of(back) == answers_of(corpus)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "."])
def test_an_export_that_is_a_link_to_a_device_or_folder_is_no_file(tmp_path: Path, device: str) -> None:
    (tmp_path / "notes.zip").symlink_to(device)
    with pytest.raises(StoreError, match=r"notes.zip is not a file, but a folder, a device or a pipe"):
        import_store(tmp_path / "notes.zip", Corpus(str(tmp_path / "s.spolia")))
    assert not (tmp_path / "s.spolia").exists()
