"""Whatever is put, moved, removed and failed, in whatever order: the store holds what a plain dictionary would."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spolia.stores import opened
from spolia.stores.corpus import Corpus
from spolia.stores.writer import Writer
from tests.stores.scenario import MANIFEST, add_missing_vectors, put, source_of
from tests.stores.servers import Server

URIS = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(["one stone", "two stones\nand a wall", "", "three"])
CHANGES = st.one_of(
    st.tuples(st.just("put"), URIS, TEXTS),
    st.tuples(st.just("move"), URIS, URIS),
    st.tuples(st.just("remove"), URIS, st.just("")),
    st.tuples(st.just("fail"), URIS, st.sampled_from(["kept", ""])),
    st.tuples(st.just("publish"), st.just(""), st.just("")),
)


def change(writer: Writer, model: dict[str, str | None], kind: str, uri: str, other: str) -> None:
    if kind == "put":
        put(writer, uri, other, ("ann",) if other == "three" else ())
        model[uri] = other
    elif kind == "publish":
        add_missing_vectors(writer)
        writer.publish()
    elif uri in model:
        row = writer.sources()[uri]
        if kind == "move":
            writer.move(uri, row.but(uri=other))
            model[other] = model.pop(uri)
        elif kind == "remove":
            writer.remove(uri)
            del model[uri]
        else:
            writer.fail(row.but(status="failed", document=row.document if other else ""))
            model[uri] = model[uri] if other else None


@settings(max_examples=40, deadline=None)
@given(st.lists(CHANGES, max_size=15))
def test_a_store_holds_what_a_dictionary_would(changes: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        holds_what_a_dictionary_would(Corpus(str(Path(folder) / "notes.spolia")), changes)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(CHANGES, max_size=15))
def test_a_store_in_a_database_holds_it_too(server: Server, changes: list[tuple[str, str, str]]) -> None:
    corpus = Corpus(server.address())
    holds_what_a_dictionary_would(corpus, changes)
    opened._open.pop(corpus.truth.place)


def holds_what_a_dictionary_would(corpus: Corpus, changes: list[tuple[str, str, str]]) -> None:
    model: dict[str, str | None] = {}
    with corpus.create().writer() as writer:
        writer.define("chunk", MANIFEST)
        for kind, uri, other in changes:
            change(writer, model, kind, uri, other)
        add_missing_vectors(writer)
    snapshot = corpus.snapshot()
    documents = {uri: row.document for uri, row in snapshot.sources().items()}
    assert documents == {uri: "" if text is None else source_of(uri, text).document for uri, text in model.items()}
    ann = frozenset(["ann"])
    texts = {text for text in model.values() if text is not None}
    assert {document.text for document in snapshot.documents(ann)} == texts
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    assert sorted(node.text for node in snapshot.all_nodes("chunk", ann)) == sorted(lines)
    assert snapshot.check() == []
