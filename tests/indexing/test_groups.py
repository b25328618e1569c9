"""Node groups: defined, built at their first use with those that they are made from, kept in step, built anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DegradedWarning, GroupError, ManifestMismatch, StoreError, WiringError
from spolia.filters import Between, Field, where
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.indexing.transforms.function import transform
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.stores.adapters.lancedb import LanceDB
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import DOCUMENT, Definition, Embedding, Metric
from spolia.stores.groups.materialise import materialise
from spolia.stores.indexes import HNSW, Exact, IndexSettings
from spolia.stores.manifest import Manifest, built_in, transform_of
from spolia.stores.snapshot.lineage import ancestors, descendants, parents
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Query
from tests.flows.examples import SparseWords

NOBODY: frozenset[str] = frozenset()
STONES = "Spolia are stones. Builders take them from older buildings.\n\nThe Arch of Constantine has many."
ROADS = "Roman roads were straight. Milestones stood beside them."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    (new_folder / "stones.txt").write_text(STONES)
    (new_folder / "roads.txt").write_text(ROADS)
    return new_folder


@pytest.fixture
def corpus(folder: Path, tmp_path: Path) -> Corpus:
    new_corpus = Corpus(str(tmp_path / "notes.spolia"))
    sync(folder, new_corpus)
    return new_corpus


def texts(corpus: Corpus, group: str) -> list[str]:
    return sorted(node.text for node in corpus.snapshot().all_nodes(group))


CALLS: list[str] = []


@transform(version=1)
def words(text: str) -> list[str]:
    CALLS.append(text)
    return text.split()


@transform
def lengths(text: str) -> int:
    return len(text) - 18  # 0 for one of them


@pytest.mark.slow
def test_a_built_in_group_is_built_at_its_first_use(corpus: Corpus) -> None:
    assert corpus.snapshot().groups() == ("chunk",)
    ranking = BM25(corpus.group("sentence"), top_k=1)(Query("Who takes older buildings?"))
    assert [node.text for node in ranking.nodes] == ["Builders take them from older buildings."]
    assert set(corpus.snapshot().groups()) == {"chunk", "sentence"}
    assert corpus.snapshot().check() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["document", "page", "sentence", "fine", "medium", "coarse"])
def test_every_built_in_group_can_be_searched(corpus: Corpus, name: str) -> None:
    ranking = BM25(corpus.group(name), top_k=1)(Query("milestones beside roads"))
    assert ranking.nodes[0].uri == "roads.txt"
    assert ranking.nodes[0].group == name
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_a_group_is_built_with_those_that_it_is_made_from(corpus: Corpus) -> None:
    paragraphs = corpus.group("paragraph", Definition(Paragraphs()))
    sentences = Corpus(corpus.path).group("clause", Definition(Sentences(), parent="paragraph"))
    with pytest.raises(GroupError, match=r"no node group 'paragraph'.*corpus\.group\('paragraph', Definition"):
        materialise([sentences])
    materialise([paragraphs, sentences])
    snapshot = corpus.snapshot()
    (arch,) = [node for node in snapshot.all_nodes("clause") if "Arch" in node.text]
    (parent,) = parents(snapshot, [arch], NOBODY).values()
    assert parent.text == "The Arch of Constantine has many."
    assert parent.group == "paragraph"
    assert ancestors(snapshot, [arch], DOCUMENT, NOBODY)[0] == parents(snapshot, [parent], NOBODY)[parent.parent]
    assert descendants(snapshot, [parent], "clause", NOBODY) == [[arch]]
    assert arch.span is not None
    assert STONES[arch.span.start : arch.span.end] == arch.text
    assert arch.span.lines == (3, 3)


@pytest.mark.slow
def test_within_a_run_a_group_that_is_built_is_found(corpus: Corpus) -> None:
    with Run():
        assert BM25(corpus.group())(Query("stones")).hits
        assert BM25(corpus.group("sentence"))(Query("stones")).hits
        assert BM25(corpus.group())(Query("stones")).hits


@pytest.mark.slow
def test_whatever_a_function_returns_becomes_nodes(corpus: Corpus) -> None:
    sentences = corpus.group("sentence")
    measured = corpus.group("length", Definition(lengths, parent="sentence"))
    materialise([sentences, measured])
    assert "0" in texts(corpus, "length")


@pytest.mark.slow
def test_one_changed_document_recomputes_its_subtree_only(corpus: Corpus, folder: Path) -> None:
    group = corpus.group("word", Definition(words, parent="sentence"))
    CALLS.clear()
    materialise([corpus.group("sentence"), group])
    assert len(CALLS) == 5
    (folder / "roads.txt").write_text("Roads. They are long.")
    CALLS.clear()
    sync(folder, corpus, groups=[group])
    assert sorted(CALLS) == ["Roads.", "They are long."]
    assert "Milestones" not in texts(corpus, "word")
    CALLS.clear()
    sync(folder, corpus, groups=[group])
    assert CALLS == []
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_a_group_of_functions_has_to_be_known_to_go_on(corpus: Corpus, folder: Path) -> None:
    materialise([corpus.group("word", Definition(words))])
    (folder / "roads.txt").write_text("Roads.")
    ((group, reason),) = sync(folder, Corpus(corpus.path)).behind
    assert group == "word"
    assert re.search(r"Group 'word' is made by an operator that is unknown here.*operators=.*groups drop word", reason)
    assert "Milestones" not in texts(corpus, "word")
    assert "Roads." not in texts(corpus, "word")
    sync(folder, Corpus(corpus.path), operators=[words])
    assert "Roads." in texts(corpus, "word")


@pytest.mark.slow
def test_a_changed_definition_is_refused_and_built_anew_when_asked(corpus: Corpus) -> None:
    lower_group = corpus.group("word", Definition(words, parent="part"))
    materialise([corpus.group("part", Definition(Sentences())), lower_group])
    other_group = corpus.group("part", Definition(Paragraphs()))
    previous_snapshot = corpus.snapshot()
    with pytest.raises(ManifestMismatch, match=r"'part'.*Sentences.*Paragraphs.*rebuild=True"):
        BM25(other_group)(Query("stones"))
    materialise([other_group], rebuild=True, operators=[words])
    assert texts(corpus, "part") == sorted([*STONES.split("\n\n"), ROADS])
    assert sorted(node.text for node in previous_snapshot.all_nodes("part")) != texts(
        corpus, "part"
    )  # it is seen by who began
    snapshot = corpus.snapshot()
    assert all(parents(snapshot, [node], NOBODY) for node in snapshot.all_nodes("word"))
    assert snapshot.check() == []
    assert BM25(lower_group)(Query("milestones")).hits


@pytest.mark.slow
def test_a_group_whose_code_has_changed_is_not_gone_on_with(
    corpus: Corpus, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    materialise([corpus.group("sentence")])
    monkeypatch.setattr(Sentences, "version", 99)
    (folder / "roads.txt").write_text("Roads.")
    with pytest.raises(ManifestMismatch, match=r"'sentence' was made by Sentences.*groups build sentence --rebuild"):
        sync(folder, corpus)
    materialise([corpus.group("sentence", built_in("sentence"))], rebuild=True)
    sync(folder, corpus)
    assert "Roads." in texts(corpus, "sentence")


@pytest.mark.slow
def test_refs_are_those_below_the_parent(corpus: Corpus) -> None:
    paragraph, sentence = corpus.group("paragraph", Definition(Paragraphs())), Definition(Sentences(), "paragraph")
    materialise([paragraph, corpus.group("clause", sentence)])
    refs = corpus.group("refs", Definition(joined, "paragraph", "clause"))
    materialise([refs])
    assert "Spolia are stones.|Builders take them from older buildings." in texts(corpus, "refs")
    with pytest.raises(GroupError, match="ref 'chunk', which is not made from its parent 'paragraph'"):
        materialise([corpus.group("wrong", Definition(joined, "paragraph", "chunk"))])
    with pytest.raises(GroupError, match="The ref 'chunk' is the parent itself"):
        Definition(joined, "chunk", "chunk")


@pytest.mark.parametrize(
    "how",
    [{"index": HNSW(above=5)}, {"index": HNSW()}, {"index": LanceDB()}, {"metric": "euclidean"}],
    ids=["graph", "default graph", "database", "metric"],
)
def test_an_index_or_metric_of_sparse_vectors_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(WiringError, match=r"vectors of 'words' are sparse.* Write Embedding\(SparseWords"):
        Embedding(SparseWords(), **how)
    assert Embedding(SparseWords(), Exact(), "dot").embedder == SparseWords()


@pytest.mark.slow
def test_refs_are_found_through_a_group_between_that_was_built_before(corpus: Corpus, folder: Path) -> None:
    paragraph, clause = Definition(Paragraphs()), Definition(Sentences(), "paragraph")
    materialise([corpus.group("paragraph", paragraph), corpus.group("clause", clause)])
    refs = corpus.group("refs", Definition(joined, ref="clause"))
    materialise([refs])
    joint = "Spolia are stones.|Builders take them from older buildings.|The Arch of Constantine has many."
    assert joint in texts(corpus, "refs")
    (folder / "stones.txt").write_text(STONES + "\n\nAnd more.")
    sync(folder, corpus)
    assert f"{joint}|And more." in texts(corpus, "refs")


@pytest.mark.slow
def test_a_group_that_would_lose_its_refs_is_named_with_what_it_is_made_from(corpus: Corpus) -> None:
    paragraph, clause = Definition(Paragraphs()), Definition(Sentences(), "paragraph")
    groups = [corpus.group("paragraph", paragraph), corpus.group("clause", clause)]
    materialise([*groups, corpus.group("refs", Definition(joined, ref="clause"))])
    other_group = Corpus(corpus.path).group("clause", Definition(Sentences(size=50), "paragraph"))
    with pytest.raises(GroupError, match="Group 'refs' is made from 'document' and 'clause', and would be lost by"):
        materialise([other_group], rebuild=True)


def test_a_built_in_group_that_is_not_there_is_built_by_its_name(corpus: Corpus) -> None:
    with pytest.raises(StoreError, match=r"materialise\(\[corpus.group\('sentence'\)\]\), or spolia groups build sent"):
        corpus.snapshot().manifest("sentence")


@pytest.mark.slow
def test_texts_are_added_to_groups_of_functions_that_the_corpus_was_told_of_and_to_others_not_in_silence(
    corpus: Corpus,
) -> None:
    materialise([corpus.group("words", Definition(words))])
    assert add_texts(corpus, {"a": "Rome fell"}).behind == ()
    assert "fell" in texts(corpus, "words")
    with pytest.warns(
        DegradedWarning, match="Group 'words' lacks texts that were added: .* made by an operator that is unknown"
    ):
        report = add_texts(Corpus(corpus.path), {"b": "Troy burned"})
    assert [group for group, _ in report.behind] == ["words"]
    add_texts(Corpus(corpus.path), {"c": "Tyre"}, groups=[corpus.group("words", Definition(words))])
    assert {"burned", "Tyre"} <= set(texts(corpus, "words"))


@transform
def joined(text: str, refs: list[str]) -> str:
    return "|".join(refs)


@pytest.mark.slow
def test_a_lambda_in_a_stored_group_is_refused(corpus: Corpus) -> None:
    with pytest.raises(GroupError, match="lambda"):
        materialise([corpus.group("x", Definition(transform(lambda text: text)))])
    assert corpus.snapshot().groups() == ("chunk",)


@pytest.mark.slow
def test_the_root_cannot_be_made_of_something_else(corpus: Corpus) -> None:
    with pytest.raises(GroupError, match=r"'document' is the whole documents.*another name"):
        materialise([corpus.group(DOCUMENT, Definition(Sentences()))])
    materialise([corpus.group(DOCUMENT)])
    add_texts(corpus, {"more": "More text."})
    assert corpus.snapshot().check() == []


def test_a_function_that_is_not_known_here_is_not_taken_for_another(corpus: Corpus) -> None:
    """`Lines`, of the parsers, is near to `lines` by its letters only."""
    manifest = Manifest("mine", "lines()", definition='"cutting:lines"')
    with pytest.raises(GroupError, match=r"Give the group too.*corpus\.group\('mine', Definition.*operators=") as error:
        transform_of(manifest)
    assert "Unknown operator 'cutting:lines'" in str(error.value)
    assert "nearest" not in str(error.value)
    assert "load(" not in str(error.value)


def test_an_unknown_group_says_what_there_is(corpus: Corpus) -> None:
    with pytest.raises(GroupError, match=r"no node group 'chunks'.*coarse.*Definition"):
        BM25(corpus.group("chunks"))(Query("stones"))


@pytest.mark.slow
def test_a_group_with_two_embeddings(corpus: Corpus, folder: Path) -> None:
    embeddings = (Embedding(HashingEmbedder(dimension=32)), Embedding(HashingEmbedder(dimension=64)))
    group = corpus.group("both", Definition(Sentences(), embeddings=embeddings))
    for dimension in (32, 64):
        assert len(Dense(group, HashingEmbedder(dimension=dimension), top_k=3)(Query("older buildings"))) == 3
    (folder / "more.txt").write_text("Something about bridges.")
    sync(folder, corpus, groups=[group])
    ranking = Dense(group, HashingEmbedder(dimension=64), top_k=1)(Query("Something about bridges."))
    assert ranking.nodes[0].uri == "more.txt"
    assert corpus.snapshot().check() == []


# Labels.


def test_declared_fields_are_filtered(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "labelled.spolia"))

    def metadata(uri: str) -> dict[str, Any]:
        return {"year": 2020 if uri == "roads.txt" else 0, "tag": ["a", "b"]}

    fields = [Field("year", "int"), Field("tag"), Field("lang", default="en")]
    sync(folder, corpus, fields=fields, metadata=metadata, embedder=HashingEmbedder())

    def search_uris(filter: Any) -> set[str]:
        by_words = BM25(corpus.group())(Query("stones roads", filter=filter))
        dense = Dense(corpus.group(), HashingEmbedder())(Query("stones roads", filter=filter))
        assert {node.uri for node in by_words.nodes} == {node.uri for node in dense.nodes}
        return {node.uri for node in dense.nodes}

    assert search_uris(where(year=0)) == {"stones.txt"}
    assert search_uris(Between("year", above=0)) == {"roads.txt"}
    assert search_uris(where(tag="b", lang="en")) == {"stones.txt", "roads.txt"}
    assert search_uris(where(file_name="roads.txt")) == {"roads.txt"}
    assert search_uris(Between("file_size", at_most=70)) == {"roads.txt"}
    assert search_uris(Between("file_modified", at_least="2020-01-01")) == {"stones.txt", "roads.txt"}
    assert search_uris(where(file_type="pdf")) == set()


@pytest.mark.slow
def test_another_reader_list_applies_at_once_and_embeds_nothing(folder: Path, tmp_path: Path) -> None:
    corpus, embedder = Corpus(str(tmp_path / "closed.spolia")), HashingEmbedder()
    sync(folder, corpus, access=lambda uri: ["ann"], embedder=embedder)

    def seen_by(*principals: str) -> set[str]:
        with Run(groups=principals):
            return {node.uri for node in BM25(corpus.group())(Query("stones roads")).nodes}

    assert seen_by("ann") == {"stones.txt", "roads.txt"}
    report = sync(folder, corpus, access=lambda uri: ["bob"] if uri == "roads.txt" else ["ann"], embedder=embedder)
    assert (report.changed, report.embedded, report.chunks) == (1, 0, 0)
    assert seen_by("ann") == {"stones.txt"}
    assert seen_by("bob") == {"roads.txt"}
    assert seen_by() == set()
    report = sync(folder, corpus, embedder=embedder)
    assert report.changed == 0  # without access lists nothing is said of them
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_where_nothing_is_said_of_readers_nobody_new_may_read(folder: Path, tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "kept.spolia"))
    sync(folder, corpus, access=lambda uri: ["ann"])
    (folder / "roads.txt").write_text("Roman roads were changed.")
    (folder / "stones.txt").rename(folder / "moved.txt")
    for options in ({}, {"rebuild": True}, {"splitter": Sentences(), "rebuild": True}):
        sync(folder, corpus, **options)
        assert BM25(corpus.group())(Query("roads stones changed")).hits == ()
        with Run(principal="ann"):
            assert len({node.uri for node in BM25(corpus.group())(Query("roads stones changed")).nodes}) == 2
    (folder / "copy.txt").write_text("Roman roads were changed.")
    with pytest.raises(StoreError, match=r"Nothing says who may read 'copy\.txt'.*access="):
        sync(folder, corpus, splitter=Sentences())
    assert BM25(corpus.group())(Query("roads")).hits == ()


@pytest.mark.parametrize("said", ["ann", [3], [""], None])
def test_reader_lists_are_lists_of_names(folder: Path, tmp_path: Path, said: Any) -> None:
    with pytest.raises(StoreError, match="Give a list of principals"):
        sync(folder, Corpus(str(tmp_path / "wrong.spolia")), access=lambda uri: said)


def test_a_misspelt_argument_is_refused(corpus: Corpus) -> None:
    with pytest.raises(TypeError, match="no argument acces"):
        add_texts(corpus, {"a": "The treasure."}, acces=lambda uri: ["ann"])  # type: ignore[call-arg]


@pytest.mark.slow
def test_more_hits_than_there_are_nodes_may_be_asked_for(corpus: Corpus) -> None:
    assert len(BM25(corpus.group(), top_k=10**12)(Query("stones roads"))) == 2


def test_one_content_under_two_names_with_two_reader_lists(folder: Path, tmp_path: Path) -> None:
    (folder / "copy.txt").write_text(ROADS)
    corpus = Corpus(str(tmp_path / "two.spolia"))
    sync(folder, corpus, access=lambda uri: {"copy.txt": ["ann"], "roads.txt": ["bob"]}.get(uri, []))
    for principals, uri in (("ann", "copy.txt"), ("bob", "roads.txt")):
        with Run(principal=principals):
            assert [node.uri for node in BM25(corpus.group())(Query("milestones")).nodes] == [uri]


@pytest.mark.slow
@pytest.mark.parametrize("copy", ["copy.txt", "z.txt"])  # it comes before the other one, or after it
@pytest.mark.parametrize("at_once", [True, False])
def test_a_copy_does_not_bring_back_who_might_read_before(
    folder: Path, tmp_path: Path, copy: str, at_once: bool
) -> None:
    corpus = Corpus(str(tmp_path / "copied.spolia"))
    sync(folder, corpus, access=lambda uri: ["ann"])
    if not at_once:
        sync(folder, corpus, access=lambda uri: ["bob"])
    (folder / copy).write_text(ROADS)
    sync(folder, corpus, access=lambda uri: ["ann"] if uri == copy else ["bob"])
    for principals, uri in (("ann", copy), ("bob", "roads.txt")):
        with Run(principal=principals):
            assert [node.uri for node in BM25(corpus.group())(Query("milestones")).nodes] == [uri]


@pytest.mark.slow
def test_groups_are_part_of_flow_files(corpus: Corpus) -> None:
    from spolia.flow_files.files import dump, load

    flow = BM25(NodeGroup(corpus, "clause", Definition(Sentences(), embeddings=())), filter=where(file_type="txt"))
    assert load(dump(flow)) == flow
    assert flow(Query("older")).hits


# In any order, in no circle, and searched as asked for.


@pytest.mark.slow
def test_groups_may_be_named_in_any_order(corpus: Corpus) -> None:
    paragraphs = corpus.group("paragraph", Definition(Paragraphs()))
    clauses = corpus.group("clause", Definition(Sentences(), parent="paragraph"))
    refs = corpus.group("refs", Definition(joined, "paragraph", "clause"))
    materialise([refs, clauses, paragraphs])
    assert "Spolia are stones.|Builders take them from older buildings." in texts(corpus, "refs")
    changed_paragraphs = corpus.group("paragraph", Definition(Sentences()))
    materialise([refs, clauses, changed_paragraphs], rebuild=True)
    assert "Spolia are stones." in texts(corpus, "refs")
    materialise([changed_paragraphs, clauses, refs])  # each is what it says
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_groups_made_from_each_other_are_refused_in_words(corpus: Corpus) -> None:
    a, b = corpus.group("a", Definition(Sentences(), parent="b")), corpus.group("b", Definition(words, parent="a"))
    with pytest.raises(GroupError, match=r"from each other in a circle: a → b → a\. Change a parent"):
        materialise([a, b])
    with pytest.raises(GroupError, match=r"in a circle: a → a\."):
        materialise([corpus.group("a", Definition(Sentences(), parent="a"))])
    materialise([corpus.group("a", Definition(Sentences())), b])
    with pytest.raises(GroupError, match=r"'a' would be made from itself, by way of its parent 'b'"):
        materialise([a], rebuild=True, operators=[words])
    with pytest.raises(GroupError, match="'a' is asked for with two definitions"):
        materialise([a, corpus.group("a", Definition(Sentences()))])


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", "a\nb", "a\0", "a:1", "\ud800", "x" * 81])
def test_odd_names_of_groups_are_refused(corpus: Corpus, name: str) -> None:
    with pytest.raises(GroupError, match="A node group cannot be called"):
        materialise([corpus.group(name, Definition(Sentences()))])
    with corpus.writer() as writer, pytest.raises(GroupError, match="A node group cannot be called"):
        writer.define(name, Manifest(name))
    assert corpus.snapshot().groups() == ("chunk",)


@pytest.mark.slow
def test_another_index_is_taken_when_asked_for_and_embeds_nothing(corpus: Corpus) -> None:
    embedder, embedded = HashingEmbedder(), []

    def group(index: IndexSettings, metric: Metric = "cosine") -> NodeGroup:
        return corpus.group("s", Definition(Sentences(), embeddings=(Embedding(embedder, index, metric),)))

    materialise([group(HNSW())])
    with pytest.raises(ManifestMismatch, match=r"are searched by .*HNSW.*asked for .*Exact.*materialise\(\[group\]\)"):
        Dense(group(Exact()), embedder)(Query("stones"))
    materialise([group(Exact())], tell=lambda name, documents, count: embedded.append(count))
    assert sum(embedded) == 0
    assert corpus.snapshot().manifest("s").embeddings[0].index == '{"Exact": {}}'
    materialise([group(Exact(), "dot")])
    ranking = Dense(group(Exact(), "dot"), embedder, top_k=1)(Query("Spolia are stones."))
    assert ranking.nodes[0].text == "Spolia are stones."
    with pytest.raises(GroupError, match=r"compared by dot.*the cosine needs vectors of length 1"):
        materialise([group(Exact())])
    assert corpus.snapshot().check() == []
