"""The page that maps LazyLLM's names to ours, row by row: what it says is tested, here or where a list says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from spolia import BM25, Branch, Corpus, Cut, Dense, Query, Run, add_texts, sync
from spolia.errors import DocumentError, GroupError, StoreError
from spolia.flow_files import across
from spolia.indexing import ByPattern, MarkdownSections, Paragraphs, Sentences, temporary, transform
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.registry import READERS
from spolia.indexing.structure.regions import AttachMetadata
from spolia.orchestration import ConvexCombination
from spolia.post_retrieval import AsDicts, AsNodes, AsText, KeywordFilter
from spolia.post_retrieval.context_window import Mapped, SentenceWindow
from spolia.post_retrieval.presentation import ShowMetadata
from spolia.post_retrieval.reranker import reranker
from spolia.retrieval import BySimilarity, Phrase, similarity
from spolia.stores.adapters.milvus import Milvus
from spolia.stores.backends.sqlite.folder import FolderBackend
from spolia.stores.corpus import NodeGroup, backend_of
from spolia.stores.definition import DOCUMENT, Definition, Embedding, Metric, Part, Piece, Transform, Whole
from spolia.stores.groups.materialise import materialise
from spolia.stores.indexes import HNSW, Exact
from spolia.stores.manifest import BUILT_IN, GroupEmbedding, Manifest, index_of
from spolia.stores.snapshot.lineage import ancestors, children, descendants, parents
from spolia.stores.vectors.external_index import collection_name
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Node, Value
from tests.cases import check_each

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "lazyllm.md"
NOBODY: frozenset[str] = frozenset()
STONES = "Spolia are stones. Builders take them from older buildings.\n\nThe arch has many."

CONTRACT = "../src/spolia/testing/stores"
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "D1": (
        "indexing/test_texts.py::test_a_list_of_files_and_folders_is_indexed",
        "indexing/test_sync_bad_input.py::test_hidden_files_and_stores_are_left_out",
        "indexing/test_sync.py::test_nothing_changed_means_no_write_and_no_embedding",
    ),
    "D2": ("indexing/test_groups.py::test_declared_fields_are_filtered",),
    "D3": (
        "indexing/test_groups.py::test_a_group_with_two_embeddings",
        "stores/test_vectors.py::test_what_no_vectors_are_is_refused_with_its_row_and_nothing_is_kept",
        "stores/test_vectors_sparse.py::test_rows_that_cannot_be_are_refused",
    ),
    "D4": ("lazyllm/test_defects.py::test_texts_of_many_documents_are_embedded_together",),
    "D7": (
        f"{CONTRACT}/publication.py::test_a_reader_elsewhere_sees_whole_generations_while_they_are_written",
        f"{CONTRACT}/concurrency.py::test_a_second_writer_is_told_who_writes_and_writes_when_the_first_has_ended",
        "stores/adapters/test_qdrant.py::test_one_process_opens_a_folder_and_drops_it_when_it_is_closed",
    ),
    "D9": (
        "indexing/test_texts.py::test_a_temporary_corpus_leaves_nothing",
        "indexing/test_texts.py::test_a_temporary_corpus_is_deleted_after_an_error",
    ),
    "D10": (
        "indexing/test_groups.py::test_declared_fields_are_filtered",
        "retrieval/test_filters.py::test_what_a_filter_means",
        "retrieval/test_filters.py::test_a_value_that_no_filter_could_compare_is_none",
    ),
    "D12": ("stores/test_writer.py::test_two_groups_are_searched_apart",),
    "N3": (
        "indexing/transforms/test_asking.py::test_questions_with_answers_are_searched_by_question_and_shown_with_answer",
        "indexing/splitters/test_structure.py::test_one_piece_a_record",
    ),
    "G3": (
        "indexing/test_groups.py::test_whatever_a_function_returns_becomes_nodes",
        "indexing/transforms/test_function.py::test_whatever_is_returned_becomes_nodes",
    ),
    "G4": (
        "indexing/test_groups.py::test_refs_are_those_below_the_parent",
        "indexing/transforms/test_function.py::test_refs_come_as_texts_or_as_nodes",
    ),
    "G6": (
        "indexing/splitters/test_token_window.py::test_sizes_that_make_no_sense_are_refused",
        "indexing/splitters/test_every_splitter.py::test_pieces_stand_where_they_say_and_nothing_is_lost",
    ),
    "G7": (
        "indexing/transforms/test_asking.py::test_a_summary_is_one_node_that_was_written_not_cut",
        "indexing/transforms/test_asking.py::test_keywords_are_one_node_or_one_each_and_metadata_in_both",
        "indexing/transforms/test_asking.py::test_questions_with_answers_are_searched_by_question_and_shown_with_answer",
    ),
    "G8": (
        "indexing/test_groups.py::test_a_changed_definition_is_refused_and_built_anew_when_asked",
        "lazyllm/test_defects.py::test_the_signature_covers_model_prompt_and_parameters",
    ),
    "G11": ("lazyllm/test_defects.py::test_a_new_group_can_be_searched_when_others_are_embedded",),
    "G12": ("lazyllm/test_defects.py::test_two_embeddings_are_fused_to_exactly_as_many_as_were_asked_for",),
    "S2": (
        "stores/test_vector_databases.py::test_a_database_answers_as_exact_search_does_and_follows",
        "lazyllm/test_defects.py::test_words_find_as_many_with_a_vector_database_beside_them",
    ),
    "S3": (
        "lazyllm/test_defects.py::test_starting_again_embeds_nothing_and_doubles_nothing",
        "stores/test_crashes.py::test_killed_anywhere_nothing_is_lost_and_repeating_gives_the_same",
    ),
    "S6": (
        "stores/adapters/test_engine.py::test_settings_hold_no_secret",
        "stores/adapters/test_opensearch.py::test_user_and_password_come_from_the_environment",
    ),
    "S7": (
        "stores/adapters/test_opensearch.py::test_a_large_batch_is_cut_to_what_a_request_may_hold",
        "lazyllm/test_defects.py::test_words_find_as_many_with_a_vector_database_beside_them",
    ),
    "S9": (
        "stores/test_nearest_adapted.py::test_it_finds_what_exact_search_finds",
        "stores/test_vector_databases.py::test_a_group_has_a_graph_where_it_is_large",
    ),
    "R4": (
        "retrieval/test_filters.py::test_every_retriever_finds_what_the_filter_accepts",
        "retrieval/test_filters.py::test_filters_of_operator_query_and_run_narrow_each_other",
        "lazyllm/test_defects.py::test_the_value_0_can_be_filtered_by",
    ),
    "R5": (
        "post_retrieval/test_parent_mapping.py::test_up_to_the_common_ancestor_and_down_again",
        "post_retrieval/test_parent_mapping.py::test_two_children_of_one_parent_give_it_once_with_the_better_score",
    ),
    "D6": ("services/test_workers.py::test_workers_that_are_started_by_hand_share_the_jobs_of_a_store",),
    "M1": ("indexing/test_texts.py::test_two_temporary_corpora_at_the_same_time_are_two",),
    "M2": (f"{CONTRACT}/publication.py::test_a_reader_elsewhere_sees_whole_generations_while_they_are_written",),
    "M3": ("services/test_workers.py::test_a_service_starts_its_workers_again_and_they_end_with_it",),
    "M4": (
        "server/test_documents.py::test_a_document_is_found_by_those_who_may_read_it_until_it_is_deleted",
        "services/test_documents.py::test_documents_are_transferred_without_embedding_again",
        "services/test_documents.py::test_a_scan_follows_the_files_of_a_folder_and_leaves_what_users_did",
        "services/test_callbacks.py::test_a_receiver_is_told_once_what_became_of_each_task",
    ),
}
"""Tests of rows that are elsewhere; those of the other rows are below, under the row's number."""


def rows() -> dict[str, str]:
    """What the page says of each row, in our column."""
    pairs = re.findall(r"^\| ([A-Z]\d+) \|.*? \| (.+) \|$", PAGE.read_text(), re.M)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def here() -> set[str]:
    """The rows that are tested in this file."""
    return {name.split("_")[1].upper() for name in globals() if re.match(r"test_[a-z]\d+_", name)}


def test_the_page_has_every_row() -> None:
    counts = {"D": 15, "N": 4, "G": 12, "S": 10, "R": 7, "M": 4}
    assert set(rows()) == {f"{letter}{n}" for letter, count in counts.items() for n in range(1, count + 1)}


def test_every_row_is_tested_or_said_to_come_later() -> None:
    later = {row for row, place in rows().items() if place == "Later"}
    assert set(rows()) - later == here() | set(ELSEWHERE)
    assert not later & (here() | set(ELSEWHERE))


@check_each("named", sorted({named for tests in ELSEWHERE.values() for named in tests}))
def test_what_is_named_elsewhere_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"def {name}(" in (TESTS / file).read_text()


# Documents.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    (new_folder / "stones.txt").write_text(
        "Spolia are stones. Builders take them from older buildings.\n\nThe arch has many."
    )
    (new_folder / "roads.md").write_text("# Roads\n\nThey were straight. Milestones stood beside them.")
    return new_folder


@pytest.fixture
def corpus(folder: Path, tmp_path: Path) -> Corpus:
    new_corpus = Corpus(str(tmp_path / "notes.spolia"))
    sync(folder, new_corpus, metadata=lambda uri: {"author": "Ann"})
    return new_corpus


@transform
def paragraphs(text: str) -> list[str]:
    return text.split("\n\n")


def built(corpus: Corpus) -> Corpus:
    """With paragraphs, and sentences of them."""
    clauses = corpus.group("clause", Definition(Sentences(), parent="paragraph"))
    materialise([corpus.group("paragraph", Definition(paragraphs)), clauses])
    return corpus


@pytest.mark.slow
def test_d5_two_addresses_of_one_path_are_one_store(folder: Path, corpus: Corpus) -> None:
    other_corpus = Corpus(corpus.path)
    assert other_corpus == corpus
    (folder / "more.txt").write_text("A bridge.")
    sync(folder, other_corpus, metadata=lambda uri: {"author": "Ann"})
    assert BM25(corpus.group())(Query("bridge")).nodes[0].uri == "more.txt"


def test_d8_the_address_says_what_a_store_is() -> None:
    assert isinstance(backend_of("notes.spolia"), FolderBackend)
    with pytest.raises(StoreError, match="No store can be kept at"):
        backend_of("http://notes")
    assert not isinstance(backend_of("postgresql://ann@host/notes"), FolderBackend)


class Runes:
    """Reads `.rune` files, of which a text has the suffix `.txt` too: the later reader wins."""

    name, version, media_type, suffixes = "rune", 1, "text/x-rune", (".rune", ".txt")

    def read(self, source: Blob, /) -> Reading:
        if not source.data:
            raise DocumentError(f"{source.uri} is blank.")
        return Reading(source.document(self, source.data.decode().upper()))


def test_d13_readers_of_ones_own_and_splitters_by_pattern(folder: Path, tmp_path: Path) -> None:
    (folder / "a.rune").write_text("carved")
    own = Corpus(str(tmp_path / "own.spolia"))
    splitter = ByPattern((("*.md", MarkdownSections()),), otherwise=Sentences())
    sync(folder, own, readers=(*READERS, Runes()), splitter=splitter)
    uris = {node.text: node.uri for node in own.snapshot().all_nodes("chunk")}
    assert uris["CARVED"] == "a.rune"
    assert uris["SPOLIA ARE STONES."] == "stones.txt"
    assert uris["# Roads\n\nThey were straight. Milestones stood beside them."] == "roads.md"


@pytest.mark.slow
def test_d14_parents_children_windows_and_phrases(corpus: Corpus) -> None:
    snapshot = built(corpus).snapshot()
    (second,) = snapshot.nodes([key for key, _ in snapshot.search("clause", "builders", 1, NOBODY)], NOBODY)
    (paragraph,) = parents(snapshot, [second], NOBODY).values()
    assert children(snapshot, [paragraph.id], "clause", NOBODY)[1] == second
    assert [node.group for node in ancestors(snapshot, [second], DOCUMENT, NOBODY) if node] == [DOCUMENT]
    assert descendants(snapshot, [paragraph], "clause", NOBODY)[0][-1] == second
    assert snapshot.numbered_nodes(second.document, "clause", 2, 2, NOBODY) == [second]
    assert snapshot.node(second.id, NOBODY) == second
    assert len(list(snapshot.all_nodes("clause"))) == 6
    window = Phrase(corpus.group("clause")) >> SentenceWindow(corpus, before=1, after=1)
    assert window(Query("older buildings")).nodes[0].text.startswith("Spolia are stones. Builders")
    with corpus.writer() as writer:
        writer.drop("clause")
    assert corpus.snapshot().groups() == ("chunk", "paragraph")


# Nodes.


@pytest.mark.slow
def test_n1_a_node_knows_where_it_is(corpus: Corpus, folder: Path, tmp_path: Path) -> None:
    second_corpus = Corpus(str(tmp_path / "again.spolia"))
    sync(folder, second_corpus, metadata=lambda uri: {"author": "Ann"})
    nodes = {node.text: node for node in built(corpus).snapshot().all_nodes("clause")}
    node = nodes["Milestones stood beside them."]
    assert (node.group, node.uri, node.number, node.context, node.readers) == ("clause", "roads.md", 3, "Roads", ())
    assert node.span is not None
    assert (folder / "roads.md").read_text()[node.span.start : node.span.end] == node.text
    assert node.span.lines == (3, 3)
    assert ("author", "Ann") in node.meta
    assert {node.id for node in built(second_corpus).snapshot().all_nodes("clause")} == {
        node.id for node in nodes.values()
    }


@pytest.mark.slow
def test_n2_what_is_quoted_what_is_shown_and_what_is_indexed(corpus: Corpus) -> None:
    group = corpus.group("signed", Definition(AttachMetadata(Sentences(), ("author",))))
    (hit,) = (BM25(group, top_k=1) >> ShowMetadata(("author",)))(Query("milestones by Ann")).hits
    assert hit.node.text == "Milestones stood beside them."
    assert "author: Ann" in hit.node.shown_text
    assert "author: Ann" in corpus.snapshot().node(hit.node.id, NOBODY).indexed_text
    assert BM25(corpus.group())(Query("Ann")).hits == ()


@pytest.mark.slow
def test_n4_nodes_are_equal_by_what_they_are_and_hits_have_the_score(corpus: Corpus) -> None:
    group = corpus.group("sentence", Definition(Sentences(), embeddings=(Embedding(HashingEmbedder()),)))
    by_words, by_meaning = (
        BM25(group, 1)(Query("milestones")),
        Dense(group, HashingEmbedder(), 1)(Query("Milestones stood")),
    )
    assert by_words.nodes == by_meaning.nodes
    assert by_words.hits[0].score != by_meaning.hits[0].score
    assert isinstance(by_words.nodes[0], Value)
    with pytest.raises(AttributeError):
        by_words.nodes[0].text = "other"  # type: ignore[misc]


# Groups.


@pytest.mark.slow
def test_g1_a_group_belongs_to_one_corpus(corpus: Corpus, tmp_path: Path, folder: Path) -> None:
    other_corpus = Corpus(str(tmp_path / "other.spolia"))
    sync(folder, other_corpus)
    materialise([corpus.group("mine", Definition(paragraphs))])
    with pytest.raises(GroupError, match="no node group 'mine'"):
        BM25(other_corpus.group("mine"))(Query("stones"))


@transform
def headed(node: Node) -> str:
    return f"{node.uri}: {node.text}"


@transform
def counted(part: Part) -> int:
    return len(part.document.headings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made_by", "first"),
    [
        (Sentences(), "Builders take them from older buildings."),
        (paragraphs, "# Roads"),
        (headed, "roads.md: # Roads\n\nThey were straight. Milestones stood beside them."),
        (counted, "0"),
        (ByPattern((("*.MD", Paragraphs()),), otherwise=Sentences()), "# Roads"),
    ],
    ids=["operator", "of a text", "of a node", "of a part", "by pattern"],
)
def test_g2_what_may_be_a_transform(corpus: Corpus, made_by: Transform, first: str) -> None:
    materialise([corpus.group("made", Definition(made_by))])
    assert first in {node.text for node in corpus.snapshot().all_nodes("made")}


@pytest.mark.slow
def test_g5_the_sizes_of_what_is_built_in(corpus: Corpus) -> None:
    sizes = {name: BUILT_IN[name]["transform"]["SlidingWindow"] for name in ("fine", "medium", "coarse")}
    assert sizes == {
        "fine": {"size": 128, "overlap": 12},
        "medium": {"size": 256, "overlap": 25},
        "coarse": {"size": 1024, "overlap": 100},
    }
    materialise([corpus.group(name) for name in BUILT_IN])
    assert set(corpus.snapshot().groups()) == {*BUILT_IN, "chunk"}


@pytest.mark.slow
def test_g9_what_is_used_is_built_with_what_is_above_it_and_nothing_else(corpus: Corpus) -> None:
    generation = built(corpus).snapshot().generation
    assert corpus.snapshot().groups() == ("chunk", "clause", "paragraph")
    assert generation == 2  # both of them at once
    with pytest.raises(GroupError, match="no node group 'clauses'"):
        materialise([corpus.group("clauses")])
    with pytest.raises(GroupError, match="in a circle: own → own"):
        materialise([corpus.group("own", Definition(paragraphs, parent="own"))])
    assert corpus.snapshot().generation == generation


@pytest.mark.slow
def test_g9_what_is_searched_first_is_built_with_the_groups_that_were_given(corpus: Corpus) -> None:
    group = corpus.group("above", Definition(paragraphs))
    lower_group = corpus.group("below", Definition(Sentences(), parent="above"))
    ranking = (BM25(lower_group) >> Mapped(group))(Query("older buildings"))
    assert ranking.hits
    assert corpus.snapshot().groups() == ("above", "below", "chunk")


@pytest.mark.slow
def test_r1_built_in_groups_are_searched_by_vectors_as_by_words(corpus: Corpus) -> None:
    embedder = HashingEmbedder(32)
    assert len(Dense(corpus.group("sentence"), embedder, 2)(Query("older buildings"))) == 2
    assert BM25(corpus.group("page"))(Query("milestones")).hits
    assert corpus.snapshot().manifest("page").embeddings == ()
    assert len(Dense(corpus.group("page"), embedder, 1)(Query("older buildings"))) == 1
    embeddings_of_both = [corpus.snapshot().manifest(name).embeddings for name in ("sentence", "page")]
    assert [[embedding.embedder for embedding in embeddings] for embeddings in embeddings_of_both] == [
        [embedder.name],
        [embedder.name],
    ]
    generation = corpus.snapshot().generation
    assert len(Dense(corpus.group("page"), embedder, 1)(Query("older buildings"))) == 1
    assert corpus.snapshot().generation == generation


@pytest.mark.slow
def test_whole_documents_embedded_by_what_is_not_known_here_are_left_behind(corpus: Corpus) -> None:
    assert Dense(corpus.group("document"), HashingEmbedder(32), 1)(Query("older buildings")).hits
    assert add_texts(corpus, {"more": "A new bridge."}).behind[0][0] == "document"
    assert BM25(corpus.group())(Query("bridge")).hits
    group = corpus.group("document", Definition(Whole(), embeddings=(Embedding(HashingEmbedder(32)),)))
    materialise([group])
    assert len(Dense(group, HashingEmbedder(32), 9)(Query("bridge"))) == corpus.snapshot().stats().documents
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_g10_what_is_not_asked_for_is_neither_built_nor_embedded(corpus: Corpus) -> None:
    assert corpus.snapshot().groups() == ("chunk",)
    with Run() as run:
        assert BM25(corpus.group("sentence"))(Query("milestones")).hits
    assert run.usage.embedded == 0
    assert corpus.snapshot().stats().vectors == ()


# Stores.


@pytest.mark.slow
def test_s1_the_address_and_the_index_of_each_embedding(corpus: Corpus) -> None:
    embeddings = (Embedding(HashingEmbedder(32), Exact()), Embedding(HashingEmbedder(64), HNSW(above=2), "dot"))
    group = corpus.group("both", Definition(Sentences(), embeddings=embeddings))
    for embedding in embeddings:
        ranking = Dense(group, HashingEmbedder(embedding.embedder.dimension), 3)(Query("older buildings"))  # type: ignore[union-attr]
        assert len(ranking) == 3
    kept_embeddings = corpus.snapshot().manifest("both").embeddings
    assert [(index_of(extra_embedding), extra_embedding.metric) for extra_embedding in kept_embeddings] == [
        (Exact(), "cosine"),
        (HNSW(above=2), "dot"),
    ]


def test_s4_no_two_vectors_share_a_collection() -> None:
    metrics: tuple[Metric, ...] = ("cosine", "dot")
    names = {
        collection_name(store, Manifest(group), GroupEmbedding(embedder, dimension, metric))
        for store in ("a1", "b2")
        for group in ("Ä group", "A group", "a" * 300)
        for embedder in ("small", "large")
        for dimension in (32, 64)
        for metric in metrics
    }
    assert len(names) == 48
    assert all(re.fullmatch(r"[a-z0-9_]{1,60}", name) for name in names)


def test_s5_settings_that_nobody_knows_are_refused() -> None:
    with pytest.raises(TypeError):
        Milvus(index_kwargs={"index_type": "IVF_PQ"})  # type: ignore[call-arg]
    with pytest.raises(StoreError, match=r"index='IVF_PQ'\. Write one of: 'HNSW', 'FLAT'"):
        Milvus(index="IVF_PQ")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="connectivity=0"):
        Milvus(connectivity=0)


@pytest.mark.slow
def test_s8_nodes_are_streamed_counted_and_paged_in_order(corpus: Corpus) -> None:
    snapshot = built(corpus).snapshot()
    (document,) = [document for document in snapshot.documents() if document.uri == "stones.txt"]
    pages = [snapshot.numbered_nodes(document.id, "clause", first, first + 1, NOBODY) for first in (1, 3, 5)]
    assert [[node.number for node in page] for page in pages] == [[1, 2], [3], []]
    assert dict(snapshot.stats().nodes)["clause"] == len(list(snapshot.all_nodes("clause"))) == 6


@transform
def pictured(text: str) -> Piece:
    return Piece("An arch", meta=(("image", "arch.png"), ("width", 640)))


def test_s10_a_node_has_fields_of_its_own(corpus: Corpus) -> None:
    group = corpus.group("pictured", Definition(pictured))
    (hit, *_) = BM25(group)(Query("arch")).hits
    assert set(hit.node.meta) >= {("image", "arch.png"), ("width", 640), ("author", "Ann")}


# Retrieval.


@pytest.mark.slow
def test_r1_what_a_retriever_is_put_together_from(corpus: Corpus, folder: Path, tmp_path: Path) -> None:
    other_corpus = Corpus(str(tmp_path / "other.spolia"))
    sync(folder, other_corpus, metadata=lambda uri: {"author": "Ann"})
    (folder / "stones.txt").unlink()
    sync(folder, corpus, metadata=lambda uri: {"author": "Ann"})
    flow = across((corpus.group("sentence"), other_corpus.group("sentence")), top_k=3)
    assert [hit.node.uri for hit in flow(Query("older buildings milestones")).hits] == ["roads.md", "stones.txt"]
    query = Query("milestones beside")
    mapped_flow = BM25(built(corpus).group("clause")) >> Cut(top_k=1) >> Mapped(corpus.group("paragraph"))
    assert (mapped_flow >> AsText(join=" "))(query) == "They were straight. Milestones stood beside them."
    assert (mapped_flow >> AsNodes())(query)[0].group == "paragraph"
    assert (mapped_flow >> AsDicts(("uri", "lines")))(query) == ({"uri": "roads.md", "lines": [3, 3]},)


@similarity
def letters(query: str, node: Node, *, of: str = "aeiou") -> int:
    return sum(node.text.count(letter) for letter in of if letter in query)


@similarity(batch=True)
def rank(query: str, nodes: list[Node]) -> list[int]:
    return [len(query) - number for number, _ in enumerate(nodes)]


@similarity(mode="embedding", descending=False)
def distance(query: npt.NDArray[np.float32], vector: npt.NDArray[np.float32]) -> float:
    return float(np.abs(query - vector).sum())


@similarity(mode="embedding", batch=True)
def cosines(query: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.asarray(vectors @ query)


@pytest.mark.slow
def test_r2_similarities_of_all_four_kinds_and_chinese_words(corpus: Corpus) -> None:
    embedder = HashingEmbedder()
    group = corpus.group("near", Definition(Sentences(), embeddings=(Embedding(embedder),)))
    query = Query("Milestones stood beside them.")
    for function in (letters, letters.but(of="s"), rank):
        scores = [hit.score for hit in BySimilarity(group, function, 5)(query)]
        assert scores == sorted(scores, reverse=True)
    for function in (distance, cosines):
        ranking = BySimilarity(group, function, 2, embedder)(
            Query("Milestones stood", vector=tuple(_vector(embedder, group)))
        )
        assert ranking.nodes[0].text == "Milestones stood beside them."
    add_texts(corpus, {"zh": "石头来自古老的建筑。"}, metadata=lambda uri: {"author": "Ann"}, groups=[group])
    assert BM25(corpus.group())(Query("古老建筑")).nodes[0].uri == "text:zh"


def _vector(embedder: HashingEmbedder, group: NodeGroup) -> list[float]:
    (node,) = [node for node in group.snapshot().all_nodes("near") if node.text.startswith("Milestones")]
    return [float(number) for number in embedder.embed([node.indexed_text], kind="query")[0]]


def test_r3_a_cut_off_keeps_what_is_exactly_as_high(corpus: Corpus) -> None:
    small, large = HashingEmbedder(32), HashingEmbedder(64)
    group = corpus.group("both", Definition(Sentences(), embeddings=(Embedding(small), Embedding(large))))
    for flow in (BM25(group), Dense(group, small)):
        first, second, *_ = [hit.score for hit in flow(Query("older buildings stood")).hits]
        assert [hit.score for hit in (flow >> Cut(at_least=second))(Query("older buildings stood"))] == [first, second]
    none = across(group, (small, large), 5, at_least={small.name: 2.0, large.name: 2.0})
    some_flow = across(group, (small, large), 5, at_least={small.name: 2.0})
    assert (len(none(Query("stone"))), len(some_flow(Query("stone")))) == (0, 5)


@pytest.mark.slow
def test_r6_stores_for_one_use_and_weights(corpus: Corpus, folder: Path) -> None:
    with temporary([folder / "roads.md"]) as files, temporary({"a": "Milestones of gold."}) as strings:
        assert BM25(files.group("sentence"))(Query("milestones")).nodes[0].uri == "roads.md"
        assert BM25(strings.group("sentence"))(Query("milestones")).nodes[0].text == "Milestones of gold."
    arms = Branch(BM25(corpus.group(), source="a"), BM25(corpus.group("sentence"), source="b"))
    for weights, group in (((("a", 1.0), ("b", 0.0)), "chunk"), ((("a", 0.0), ("b", 1.0)), "sentence")):
        best = (arms >> ConvexCombination(weights, normalisation="min-max", top_k=1))(Query("older buildings stones"))
        assert best.nodes[0].group == group


@reranker
def of_roads(node: Node) -> Node | None:
    return node if node.uri == "roads.md" else None


@reranker(batch=True)
def shortest_first(nodes: list[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: len(node.text))


def test_r7_rerankers_and_keywords(corpus: Corpus) -> None:
    search = BM25(corpus.group("sentence"))
    query = Query("arch builders milestones straight")
    assert {hit.node.uri for hit in (search >> of_roads)(query)} == {"roads.md"}
    lengths = [len(node.text) for node in (search >> shortest_first)(query).nodes]
    assert lengths == sorted(lengths)
    assert len((search >> KeywordFilter(required=("milestones", "beside"), excluded=("straight",)))(query)) == 1
    assert (search >> of_roads >> shortest_first)(Query("nothing")).hits == ()
