"""Contract of search: by words, by vectors, by lineage; access and filters."""

import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spolia.errors import FilterError, StoreError
from spolia.filters import where
from spolia.stores.backends.rows import hash_of
from spolia.stores.corpus import Corpus
from spolia.stores.open_store import forget
from spolia.stores.snapshot.lineage import ancestors, children, descendants, parents
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.testing.stores.fixtures import (
    ALL,
    ASKERS,
    DENSE,
    FILTERS,
    QUESTIONS,
    SPARSE,
    Contract,
    Entry,
    embed_missing,
    expect_error,
    fill_store,
    make_entries,
    put_entry,
    readable_ids,
    weigh_words,
)

K1, B = 1.2, 0.75
RESTRICTIONS = [(principals, filter) for principals in ASKERS for filter in FILTERS]


class SearchContract(Contract):
    def test_access_and_filters_let_be_found_what_their_definition_says(self, tmp_path: Path) -> None:
        shelf = make_entries()
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            for group in ("line", "word"):
                for principals, filter in RESTRICTIONS:
                    allowed = snapshot.allowed(group, principals, filter)
                    keys = allowed.keys[allowed.positions()].tolist()
                    ids = {node.id for node in snapshot.nodes(keys, ALL)}
                    assert ids == readable_ids(shelf, group, principals, filter), (principals, filter)
                    assert len(keys) == len(ids)

    def test_words_are_found_by_bm25(self, tmp_path: Path) -> None:
        with self.store(tmp_path, shelf := make_entries()) as corpus:
            snapshot = corpus.snapshot()
            for text in (*QUESTIONS, "", "?!"):
                for principals, filter in RESTRICTIONS:
                    expected = _bm25_scores(snapshot, text, principals)
                    readable = readable_ids(shelf, "line", principals, filter)
                    for top_k in (0, 1, 5, 500):
                        pairs = snapshot.search("line", text, top_k, principals, filter)
                        hits = snapshot.hits(pairs, principals)
                        assert list(hits) == sorted(hits, key=lambda hit: (-hit.score, hit.node.id)), "not in order"
                        scores = {hit.node.id: hit.score for hit in hits}
                        assert len(scores) == len(pairs) == min(top_k, len(readable & expected.keys()))
                        assert all(id in readable and abs(score - expected[id]) < 1e-4 for id, score in scores.items())
                        missed = [score for id, score in expected.items() if id in readable and id not in scores]
                        assert not (scores and missed) or min(scores.values()) > max(missed) - 1e-4
                full_matches = snapshot.hits(snapshot.search("line", text, 500, ALL, require_all=True), ALL)
                assert all(set(text.split()) - {"the", "of"} <= set(hit.node.text.split()) for hit in full_matches)

    def test_scores_tell_nothing_of_what_is_gone(self, tmp_path: Path) -> None:
        more, unrelated = (
            make_entries(60),
            [entry.but(uri=f"other {entry.uri}") for entry in make_entries(30, version=1)],
        )
        with (
            self.store(tmp_path / "fresh", shelf := make_entries()) as fresh,
            self.store(tmp_path / "old", more) as old,
        ):
            expected = [_search_scores(fresh, text) for text in QUESTIONS]
            for history in (unrelated, shelf, more, shelf):
                fill_store(old, history)
            assert [_search_scores(old, text) for text in QUESTIONS] == expected

    def test_vectors_are_found_as_by_comparing_every_one(self, tmp_path: Path) -> None:
        shelf, queries = make_entries(), DENSE.embed(QUESTIONS, kind="query")
        for metric in ("cosine", "dot", "euclidean"):
            with self.store(tmp_path / metric) as corpus:
                snapshot = fill_store(corpus, shelf, metric).snapshot()
                for principals, filter in RESTRICTIONS:
                    allowed = snapshot.allowed("line", principals, filter)
                    keys = allowed.keys[allowed.positions()].tolist()
                    vectors = DENSE.embed([node.indexed_text for node in snapshot.nodes(keys, ALL)], kind="passage")
                    assert (snapshot.vectors("line", DENSE.name, allowed) == vectors).all(), "not as they were given"
                    for top_k in (1, 7, 500):
                        rows = snapshot.nearest_batch("line", DENSE.name, queries, top_k, principals, filter)
                        for query, row in zip(queries.astype(np.float64), rows, strict=True):
                            _check_hits(
                                snapshot, row, keys, _vector_scores(metric, query, vectors.astype(np.float64)), top_k
                            )

    def test_sparse_vectors_are_found_by_their_products(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as corpus:
            snapshot = fill_store(corpus, make_entries(), sparse=True).snapshot()
            queries = [_sparse_row(text) for text in QUESTIONS]
            for principals, filter in RESTRICTIONS:
                allowed = snapshot.allowed("line", principals, filter)
                keys = allowed.keys[allowed.positions()].tolist()
                rows = [_sparse_row(node.indexed_text) for node in snapshot.nodes(keys, ALL)]
                results = snapshot.nearest_sparse("line", SPARSE, weigh_words(QUESTIONS), 7, principals, filter)
                for query, pairs in zip(queries, results, strict=True):
                    scores = [sum(weight * row.get(term, 0.0) for term, weight in query.items()) for row in rows]
                    positive = [(key, score) for key, score in zip(keys, scores, strict=True) if score > 0]
                    _check_hits(snapshot, pairs, [key for key, _ in positive], [score for _, score in positive], 7)

    def test_other_vectors_of_texts_hold_with_the_next_publication(self, tmp_path: Path) -> None:
        changed = ["stone", "bridge"]
        with self.store(tmp_path) as corpus:
            earlier = fill_store(corpus, make_entries(), sparse=True).snapshot()
            allowed = earlier.allowed("line", ALL, None)
            keys = allowed.keys[allowed.positions()].tolist()
            texts = [node.indexed_text for node in earlier.nodes(keys, ALL)]
            replaced = [text for text in dict.fromkeys(texts) if any(word in text for word in changed)]
            expected = ["other " + text if text in replaced else text for text in texts]
            hashes, new = [hash_of(text) for text in replaced], ["other " + text for text in replaced]
            half = len(replaced) // 2
            parts = [DENSE.embed(part, kind="passage") for part in (new[:half], new[half:])]

            def replace(*parts: Any) -> None:
                with corpus.writer() as writer:
                    writer.replace_vectors(SPARSE, hashes, [weigh_words(new)])
                    writer.replace_vectors(DENSE.name, hashes, parts)

            for wrong in (parts[0][:, 1:], 2 * parts[0]):
                expect_error(StoreError, partial(replace, wrong, parts[1]))
            assert corpus.latest().generation == earlier.generation
            replace(*parts)
            for round in ("inherited", "opened"):
                snapshot = corpus.latest()
                vectors = snapshot.vectors("line", DENSE.name, snapshot.allowed("line", ALL, None))
                assert (vectors == DENSE.embed(expected, kind="passage")).all(), round
                for row, text in zip(
                    snapshot.nearest_sparse("line", SPARSE, weigh_words(changed), 500, ALL), changed, strict=True
                ):
                    scores = [
                        sum(
                            weight * _sparse_row(expected_text).get(term, 0.0)
                            for term, weight in _sparse_row(text).items()
                        )
                        for expected_text in expected
                    ]
                    positive = [(key, score) for key, score in zip(keys, scores, strict=True) if score > 0]
                    _check_hits(snapshot, row, [key for key, _ in positive], [score for _, score in positive], 500)
                assert snapshot.check(deep=True) == []
                forget(corpus.backend)

    def test_nothing_is_handed_out_to_who_may_not_read_it(self, tmp_path: Path) -> None:
        shelf = make_entries()
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            for principals in ASKERS:
                documents = {entry.id for entry in shelf if not entry.readers or principals & set(entry.readers)}
                assert {document.id for document in snapshot.documents(principals)} == documents
                for id in {entry.id for entry in shelf} - documents:
                    expect_error(StoreError, partial(snapshot.document, id, principals))
                for group in ("line", "word"):
                    self._check_nodes(snapshot, shelf, group, principals)

    def _check_nodes(self, snapshot: Snapshot, shelf: list[Entry], group: str, principals: frozenset[str]) -> None:
        readable, nodes = readable_ids(shelf, group, principals), list(snapshot.all_nodes(group, ALL))
        keys = snapshot.allowed(group, ALL).keys.tolist()
        assert {node.id for node in snapshot.all_nodes(group, principals)} == readable
        assert {node.id for node in snapshot.nodes(keys, principals)} == readable
        assert {hit.node.id for hit in snapshot.hits([(key, 1.0) for key in keys], principals)} == readable
        for node in nodes:
            if node.id in readable:
                assert snapshot.node(node.id, principals) == node
            else:
                expect_error(StoreError, partial(snapshot.node, node.id, principals))
        parents = [node.parent for node in nodes]
        assert {node.id for node in children(snapshot, parents, group, principals)} == readable
        for entry in shelf:
            assert {line.id for line in snapshot.numbered_nodes(entry.id, group, 0, 99, principals)} == {
                id for id in readable if id.startswith(f"{entry.id}:")
            }

    def test_lineage_leads_up_and_down(self, tmp_path: Path) -> None:
        shelf = make_entries(4)
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            words = list(snapshot.all_nodes("word", ALL))
            lines = {node.id: node for node in snapshot.all_nodes("line", ALL)}
            assert parents(snapshot, words, ALL) == {word.parent: lines[word.parent] for word in words}
            assert [relative.id for relative in ancestors(snapshot, words, "document", ALL) if relative] == [
                w.document for w in words
            ]
            rows = descendants(snapshot, list(lines.values()), "word", ALL)
            assert [[relative.text for relative in row] for row in rows] == [
                line.text.split() for line in lines.values()
            ]

    def test_another_reader_list_holds_with_the_next_publication_and_embeds_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path, shelf := make_entries(12)) as corpus:
            earlier = corpus.snapshot()
            with corpus.writer() as writer:
                for document in list(writer.documents()):
                    writer.set_readers(document, ("eve",))
                assert embed_missing(writer) == 0
            later = corpus.snapshot()
            assert {document_row.readers for document_row in later.documents(frozenset({"eve"}))} == {("eve",)}
            assert list(later.documents(ALL)) == []
            own = {f"{entry.id}:1" for entry in shelf if entry.first}
            assert {node.id for node in later.all_nodes("line", ALL)} == own, "what has a list of its own keeps it"
            assert list(earlier.documents(ALL)) == [], "a revoked reader reads no more, even from a pinned snapshot"
            assert len(list(earlier.documents(ALL | {"eve"}))) == 12
            assert later.check() == []

    def test_what_cannot_be_asked_is_refused(self, tmp_path: Path) -> None:
        with self.store(tmp_path, make_entries(3)) as corpus:
            snapshot, principals = corpus.snapshot(), frozenset[str]()
            assert "line" in expect_error(StoreError, lambda: snapshot.search("lines", "stone", 1, principals))
            expect_error(FilterError, lambda: snapshot.search("line", "stone", 1, principals, where(colour="red")))
            expect_error(FilterError, lambda: snapshot.search("line", "stone", 1, principals, where(year="2020")))
            for wrong in (np.ones(3, np.float32), np.full(DENSE.dimension, np.nan, np.float32)):
                expect_error(StoreError, partial(snapshot.nearest, "line", DENSE.name, wrong, 1, principals))
            expect_error(StoreError, lambda: snapshot.nearest("line", "other", np.ones(8, np.float32), 1, principals))

    def test_vectors_that_cannot_be_are_refused_and_nothing_is_kept_of_them(self, tmp_path: Path) -> None:
        size = DENSE.dimension
        unit = np.eye(2, size, dtype=np.float32)
        wrong = (2 * unit, np.full((2, size), np.nan, np.float32), unit[:1], np.eye(2, size + 1, dtype=np.float32))
        with self.store(tmp_path, make_entries(3)) as corpus:

            def write(vectors: Any) -> None:
                with corpus.writer() as writer:
                    put_entry(writer, Entry("new.txt", "one zeppelin\nand another"))
                    lacking = [hash for hash, _ in writer.unembedded("line", DENSE.name)]
                    writer.add_vectors(DENSE.name, lacking, vectors)

            for vectors in wrong:
                expect_error(StoreError, partial(write, vectors))
            assert corpus.snapshot().generation == 1
            with corpus.writer() as writer:
                put_entry(writer, Entry("new.txt", "one zeppelin\nand another"))
                assert embed_missing(writer) == 2

    def test_the_first_vectors_have_as_many_numbers_as_the_manifest_states(self, tmp_path: Path) -> None:
        def write(width: int) -> None:
            with corpus.writer() as writer:
                put_entry(writer, Entry("new.txt", "one zeppelin"))
                lacking = [hash for hash, _ in writer.unembedded("line", DENSE.name)]
                writer.add_vectors(DENSE.name, lacking, np.eye(1, width, dtype=np.float32))

        with self.store(tmp_path, []) as corpus:
            expect_error(StoreError, partial(write, DENSE.dimension - 1))
            write(DENSE.dimension)
            assert corpus.snapshot().check() == []


def _search_scores(corpus: Corpus, text: str) -> list[tuple[str, float]]:
    snapshot = corpus.snapshot()
    return [(hit.node.id, hit.score) for hit in snapshot.hits(snapshot.search("line", text, 500, ALL), ALL)]


def _bm25_scores(snapshot: Snapshot, text: str, principals: frozenset[str]) -> dict[str, float]:
    """Compute Okapi BM25, by its formula, of every line that the principals may read and that shares a term, as if no
    other lines existed."""
    analyzer = snapshot.manifest("line").analyzer
    nodes = {node.id: Counter(analyzer.terms(node.indexed_text)) for node in snapshot.all_nodes("line", principals)}
    mean = sum(terms.total() for terms in nodes.values()) / max(1, len(nodes))
    scores: dict[str, float] = {}
    for term, repeated in Counter(analyzer.terms(text)).items():
        holding = [id for id, terms in nodes.items() if term in terms]
        idf = math.log(1 + (len(nodes) - len(holding) + 0.5) / (len(holding) + 0.5))
        for id in holding:
            tf, length = nodes[id][term], nodes[id].total()
            score = idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / mean))
            scores[id] = scores.get(id, 0.0) + repeated * score
    return scores


def _vector_scores(metric: str, query: Any, vectors: Any) -> list[float]:
    if metric == "euclidean":
        return [float(-np.linalg.norm(vector - query)) for vector in vectors]
    return [float(vector @ query) for vector in vectors]  # of length 1


def _sparse_row(text: str) -> dict[int, float]:
    rows = weigh_words([text])
    return dict(zip(rows.terms.tolist(), rows.weights.tolist(), strict=True))


def _check_hits(
    snapshot: Snapshot, pairs: list[tuple[int, float]], keys: list[int], scores: list[float], top_k: int
) -> None:
    ids = snapshot.ids(keys)
    expected = sorted(zip(keys, scores, strict=True), key=lambda hit: (-hit[1], ids[hit[0]]))
    assert pairs == sorted(pairs, key=lambda hit: (-hit[1], ids[hit[0]])), "not in order"
    assert len(pairs) == min(top_k, len(expected))
    for (_, score), (_, expected_score) in zip(pairs, expected, strict=False):
        assert abs(score - expected_score) < 1e-5, f"{score} in place of {expected_score}"
    score_of = dict(expected)
    assert all(abs(score_of[key] - score) < 1e-5 for key, score in pairs), "a score of another node"
