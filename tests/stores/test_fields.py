"""Declared fields: what does not fit to them is no value, and they are published with the rows that they are about."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import FilterError
from spolia.filters import Between, Condition, Field, where
from spolia.run import Run
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import Manifest
from spolia.stores.portable import export_store, import_store
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.writer import Writer
from spolia.types import Document, Meta, Node

BACKENDS = ("folder", "postgres")
NOBODY: frozenset[str] = frozenset()
YEAR = Field("year", "int")


def put(writer: Writer, name: str, meta: Meta = (), own: Meta = (), mtime_ns: int = 0) -> None:
    document = Document(name, f"The tide of {name}.", uri=name, meta=meta)
    node = Node(f"{name}:1", document.text, name, meta=meta + own, number=1)
    writer.put_document(document, [node], SourceRow(name, len(document.text), mtime_ns, name))


def filled_corpus(address: str, *fields: Field, **metas: Meta) -> Corpus:
    corpus = Corpus(address).create()
    with corpus.writer() as writer:
        writer.define("chunk", Manifest("chunk"))
        writer.declare(fields)
        for name, meta in metas.items():
            put(writer, name, meta)
    return corpus


def uris_found(snapshot: Snapshot, filter: Condition) -> set[str]:
    allowed = snapshot.allowed("chunk", NOBODY, filter)
    return {node.uri for node in snapshot.nodes(allowed.keys[allowed.positions()].tolist(), NOBODY)}


# What does not fit.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "now"),
    [
        ((Field("year"),), YEAR),
        ((), YEAR),
        ((Field("year"),), Field("year", max_length=3)),
        ((), Field("year", "time")),
    ],
)
def test_a_value_that_does_not_fit_is_no_value(address: str, before: tuple[Field, ...], now: Field) -> None:
    corpus = filled_corpus(address, *before, a=(("year", "x" * 4),))
    values: dict[str, Any] = {"int": 7, "str": "x", "time": "2020"}
    value = values[now.kind]
    with corpus.writer() as writer:
        writer.declare([now])
        put(writer, "b", (("year", value), ("year", 1.5)))
    assert uris_found(corpus.snapshot(), where(year=value)) == {"b"}
    assert uris_found(corpus.snapshot(), ~where(year=value)) == {"a"}
    with corpus.writer() as writer:
        writer.declare([now.but(default=value)])
    assert uris_found(corpus.snapshot(), where(year=value)) == {"a", "b"}, "the default is that of what has none"
    with corpus.writer() as writer:
        writer.declare([Field("year")])
    assert uris_found(corpus.snapshot(), where(year="xxxx")) == {"a"}, "it is kept as it is"


@pytest.mark.slow
def test_the_own_metadata_of_a_node_are_passed_over_alike(address: str) -> None:
    corpus = filled_corpus(address)
    with corpus.writer() as writer:
        writer.declare([YEAR])
        put(writer, "a", own=(("year", 1.5), ("year", 2020)))
    assert uris_found(corpus.snapshot(), Between("year", above=1)) == {"a"}
    assert uris_found(corpus.snapshot(), Between("year", above=1, below=2)) == set()
    with corpus.writer() as writer:
        writer.declare([Field("year", "float")])
    assert uris_found(corpus.snapshot(), Between("year", above=1, below=2)) == {"a"}


def test_two_fields_of_one_name_and_those_of_every_file_are_refused(address: str) -> None:
    corpus = filled_corpus(address, YEAR)
    with corpus.writer() as writer:
        for fields in ([YEAR, Field("year")], [Field("file_name")], [Field("file_size", "int")]):
            with pytest.raises(FilterError, match="is declared twice, or is one that every file has"):
                writer.declare(fields)
    assert corpus.snapshot().schema == (YEAR,)


# They are part of a generation.


def test_a_generation_keeps_its_fields(address: str) -> None:
    corpus = filled_corpus(address, YEAR, a=(("year", 2020),), b=())
    with Run():
        previous_snapshot = corpus.snapshot()
        with corpus.writer() as writer:
            writer.declare([Field("lang", default="en")])
        assert corpus.snapshot() is previous_snapshot
        assert uris_found(previous_snapshot, where(year=2020)) == {
            "a"
        }  # it had read nothing of this when the other was published
        with pytest.raises(FilterError, match="no metadata field 'lang'"):
            uris_found(previous_snapshot, where(lang="en"))
    assert uris_found(corpus.snapshot(), where(lang="en")) == {"a", "b"}
    with pytest.raises(FilterError, match="no metadata field 'year'"):
        uris_found(corpus.snapshot(), where(year=2020))


def test_what_is_declared_and_not_published_is_forgotten(address: str) -> None:
    corpus = filled_corpus(address, YEAR)
    with suppress(KeyError), corpus.writer() as writer:
        writer.declare([])
        raise KeyError
    assert corpus.snapshot().schema == (YEAR,)
    with corpus.writer() as writer:
        assert writer.schema == (YEAR,)


def test_fields_come_back_from_an_export(address: str, fast_folder: Path) -> None:
    fields = (YEAR, Field("lang", default="en", max_length=2))
    corpus = filled_corpus(address, *fields, a=(("year", 2020),))
    export_store(corpus, fast_folder / "notes.zip")
    other_corpus = Corpus(str(fast_folder / "other.spolia"))
    import_store(fast_folder / "notes.zip", other_corpus)
    assert other_corpus.snapshot().schema == fields
    assert uris_found(other_corpus.snapshot(), where(year=2020, lang="en")) == {"a"}


@pytest.mark.slow
def test_a_touched_file_has_its_new_time_from_the_next_generation_on(address: str) -> None:
    corpus = filled_corpus(address)
    with corpus.writer() as writer:
        put(writer, "a", mtime_ns=1_600_000_000_000_000_000)
    lately, previous_snapshot = Between("file_modified", at_least="2023"), corpus.snapshot()
    with corpus.writer() as writer:
        for day in range(2):
            writer.touch(writer.sources()["a"].but(mtime_ns=1_700_000_000_000_000_000 + day))
    assert corpus.snapshot() is previous_snapshot
    assert uris_found(previous_snapshot, lately) == set()
    with corpus.writer() as writer:
        assert writer.sources()["a"].mtime_ns == 1_700_000_000_000_000_001
        put(writer, "b")
    assert uris_found(previous_snapshot, lately) == set()
    assert uris_found(corpus.snapshot(), lately) == {"a"}
    assert corpus.snapshot().check() == []
