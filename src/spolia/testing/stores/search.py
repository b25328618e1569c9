"""Search by words, by vectors, by lineage; access and filters."""

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
    embed,
    entries,
    fill,
    found_by,
    put,
    refused,
    weighed,
)

K1, B = 1.2, 0.75
HOW = [(who, filter) for who in ASKERS for filter in FILTERS]


class Searching(Contract):
    def test_access_and_filters_let_be_found_what_their_definition_says(self, tmp_path: Path) -> None:
        shelf = entries()
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            for group in ("line", "word"):
                for who, filter in HOW:
                    allowed = snapshot.allowed(group, who, filter)
                    keys = allowed.keys[allowed.positions()].tolist()
                    ids = {node.id for node in snapshot.nodes(keys, ALL)}
                    assert ids == found_by(shelf, group, who, filter), (who, filter)
                    assert len(keys) == len(ids)

    def test_words_are_found_by_bm25(self, tmp_path: Path) -> None:
        with self.store(tmp_path, shelf := entries()) as corpus:
            snapshot = corpus.snapshot()
            for text in (*QUESTIONS, "", "?!"):
                for who, filter in HOW:
                    right = _bm25(snapshot, text, who)
                    may = found_by(shelf, "line", who, filter)
                    for top_k in (0, 1, 5, 500):
                        found = snapshot.search("line", text, top_k, who, filter)
                        hits = snapshot.hits(found, who)
                        assert list(hits) == sorted(hits, key=lambda hit: (-hit.score, hit.node.id)), "not in order"
                        got = {hit.node.id: hit.score for hit in hits}
                        assert len(got) == len(found) == min(top_k, len(may & right.keys()))
                        assert all(id in may and abs(score - right[id]) < 1e-4 for id, score in got.items())
                        left = [score for id, score in right.items() if id in may and id not in got]
                        assert not (got and left) or min(got.values()) > max(left) - 1e-4
                every = snapshot.hits(snapshot.search("line", text, 500, ALL, require_all=True), ALL)
                assert all(set(text.split()) - {"the", "of"} <= set(hit.node.text.split()) for hit in every)

    def test_scores_tell_nothing_of_what_is_gone(self, tmp_path: Path) -> None:
        more, other = entries(60), [entry.but(uri=f"other {entry.uri}") for entry in entries(30, version=1)]
        with self.store(tmp_path / "fresh", shelf := entries()) as fresh, self.store(tmp_path / "old", more) as old:
            expected = [_scored(fresh, text) for text in QUESTIONS]
            for history in (other, shelf, more, shelf):
                fill(old, history)
            assert [_scored(old, text) for text in QUESTIONS] == expected

    def test_vectors_are_found_as_by_comparing_every_one(self, tmp_path: Path) -> None:
        shelf, queries = entries(), DENSE.embed(QUESTIONS, kind="query")
        for metric in ("cosine", "dot", "euclidean"):
            with self.store(tmp_path / metric) as corpus:
                snapshot = fill(corpus, shelf, metric).snapshot()
                for who, filter in HOW:
                    allowed = snapshot.allowed("line", who, filter)
                    keys = allowed.keys[allowed.positions()].tolist()
                    given = DENSE.embed([node.indexed_text for node in snapshot.nodes(keys, ALL)], kind="passage")
                    assert (snapshot.vectors("line", DENSE.name, allowed) == given).all(), "not as they were given"
                    for top_k in (1, 7, 500):
                        rows = snapshot.nearest_batch("line", DENSE.name, queries, top_k, who, filter)
                        for query, row in zip(queries.astype(np.float64), rows, strict=True):
                            _compare(snapshot, row, keys, _scores(metric, query, given.astype(np.float64)), top_k)

    def test_sparse_vectors_are_found_by_their_products(self, tmp_path: Path) -> None:
        with self.store(tmp_path) as corpus:
            snapshot = fill(corpus, entries(), sparse=True).snapshot()
            queries = [_row(text) for text in QUESTIONS]
            for who, filter in HOW:
                allowed = snapshot.allowed("line", who, filter)
                keys = allowed.keys[allowed.positions()].tolist()
                rows = [_row(node.indexed_text) for node in snapshot.nodes(keys, ALL)]
                found = snapshot.nearest_sparse("line", SPARSE, weighed(QUESTIONS), 7, who, filter)
                for query, got in zip(queries, found, strict=True):
                    scores = [sum(weight * row.get(term, 0.0) for term, weight in query.items()) for row in rows]
                    held = [(key, score) for key, score in zip(keys, scores, strict=True) if score > 0]
                    _compare(snapshot, got, [key for key, _ in held], [score for _, score in held], 7)

    def test_other_vectors_of_texts_hold_with_the_next_publication(self, tmp_path: Path) -> None:
        changed = ["stone", "bridge"]
        with self.store(tmp_path) as corpus:
            before = fill(corpus, entries(), sparse=True).snapshot()
            allowed = before.allowed("line", ALL, None)
            keys = allowed.keys[allowed.positions()].tolist()
            texts = [node.indexed_text for node in before.nodes(keys, ALL)]
            some = [text for text in dict.fromkeys(texts) if any(word in text for word in changed)]
            expected = ["other " + text if text in some else text for text in texts]
            hashes, new = [hash_of(text) for text in some], ["other " + text for text in some]
            half = len(some) // 2
            parts = [DENSE.embed(part, kind="passage") for part in (new[:half], new[half:])]

            def replace(*parts: Any) -> None:
                with corpus.writer() as writer:
                    writer.replace_vectors(SPARSE, hashes, [weighed(new)])
                    writer.replace_vectors(DENSE.name, hashes, parts)

            for wrong in (parts[0][:, 1:], 2 * parts[0]):
                refused(StoreError, partial(replace, wrong, parts[1]))
            assert corpus.latest().generation == before.generation
            replace(*parts)
            for round in ("inherited", "opened"):
                snapshot = corpus.latest()
                found = snapshot.vectors("line", DENSE.name, snapshot.allowed("line", ALL, None))
                assert (found == DENSE.embed(expected, kind="passage")).all(), round
                for row, text in zip(
                    snapshot.nearest_sparse("line", SPARSE, weighed(changed), 500, ALL), changed, strict=True
                ):
                    scores = [
                        sum(weight * _row(of).get(term, 0.0) for term, weight in _row(text).items()) for of in expected
                    ]
                    held = [(key, score) for key, score in zip(keys, scores, strict=True) if score > 0]
                    _compare(snapshot, row, [key for key, _ in held], [score for _, score in held], 500)
                assert snapshot.check(deep=True) == []
                forget(corpus.backend)

    def test_nothing_is_handed_out_to_who_may_not_read_it(self, tmp_path: Path) -> None:
        shelf = entries()
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            for who in ASKERS:
                documents = {entry.id for entry in shelf if not entry.readers or who & set(entry.readers)}
                assert {one.id for one in snapshot.documents(who)} == documents
                for id in {entry.id for entry in shelf} - documents:
                    refused(StoreError, partial(snapshot.document, id, who))
                for group in ("line", "word"):
                    self._nodes(snapshot, shelf, group, who)

    def _nodes(self, snapshot: Snapshot, shelf: list[Entry], group: str, who: frozenset[str]) -> None:
        may, every = found_by(shelf, group, who), list(snapshot.all_nodes(group, ALL))
        keys = snapshot.allowed(group, ALL).keys.tolist()
        assert {node.id for node in snapshot.all_nodes(group, who)} == may
        assert {node.id for node in snapshot.nodes(keys, who)} == may
        assert {hit.node.id for hit in snapshot.hits([(key, 1.0) for key in keys], who)} == may
        for node in every:
            if node.id in may:
                assert snapshot.node(node.id, who) == node
            else:
                refused(StoreError, partial(snapshot.node, node.id, who))
        parents = [node.parent for node in every]
        assert {node.id for node in children(snapshot, parents, group, who)} == may
        for entry in shelf:
            assert {one.id for one in snapshot.numbered_nodes(entry.id, group, 0, 99, who)} == {
                id for id in may if id.startswith(f"{entry.id}:")
            }

    def test_lineage_leads_up_and_down(self, tmp_path: Path) -> None:
        shelf = entries(4)
        with self.store(tmp_path, shelf) as corpus:
            snapshot = corpus.snapshot()
            words = list(snapshot.all_nodes("word", ALL))
            lines = {node.id: node for node in snapshot.all_nodes("line", ALL)}
            assert parents(snapshot, words, ALL) == {word.parent: lines[word.parent] for word in words}
            assert [one.id for one in ancestors(snapshot, words, "document", ALL) if one] == [w.document for w in words]
            below = descendants(snapshot, list(lines.values()), "word", ALL)
            assert [[one.text for one in row] for row in below] == [line.text.split() for line in lines.values()]

    def test_another_reader_list_holds_with_the_next_publication_and_embeds_nothing(self, tmp_path: Path) -> None:
        with self.store(tmp_path, shelf := entries(12)) as corpus:
            before = corpus.snapshot()
            with corpus.writer() as writer:
                for document in list(writer.documents()):
                    writer.set_readers(document, ("eve",))
                assert embed(writer) == 0
            after = corpus.snapshot()
            assert {one.readers for one in after.documents(frozenset({"eve"}))} == {("eve",)}
            assert list(after.documents(ALL)) == []
            own = {f"{entry.id}:1" for entry in shelf if entry.first}
            assert {node.id for node in after.all_nodes("line", ALL)} == own, "what has a list of its own keeps it"
            assert list(before.documents(ALL)) == [], "a revoked reader reads no more, even from a pinned snapshot"
            assert len(list(before.documents(ALL | {"eve"}))) == 12
            assert after.check() == []

    def test_what_cannot_be_asked_is_refused(self, tmp_path: Path) -> None:
        with self.store(tmp_path, entries(3)) as corpus:
            snapshot, who = corpus.snapshot(), frozenset[str]()
            assert "line" in refused(StoreError, lambda: snapshot.search("lines", "stone", 1, who))
            refused(FilterError, lambda: snapshot.search("line", "stone", 1, who, where(colour="red")))
            refused(FilterError, lambda: snapshot.search("line", "stone", 1, who, where(year="2020")))
            for wrong in (np.ones(3, np.float32), np.full(DENSE.dimension, np.nan, np.float32)):
                refused(StoreError, partial(snapshot.nearest, "line", DENSE.name, wrong, 1, who))
            refused(StoreError, lambda: snapshot.nearest("line", "other", np.ones(8, np.float32), 1, who))

    def test_vectors_that_cannot_be_are_refused_and_nothing_is_kept_of_them(self, tmp_path: Path) -> None:
        size = DENSE.dimension
        unit = np.eye(2, size, dtype=np.float32)
        wrong = (2 * unit, np.full((2, size), np.nan, np.float32), unit[:1], np.eye(2, size + 1, dtype=np.float32))
        with self.store(tmp_path, entries(3)) as corpus:

            def write(vectors: Any) -> None:
                with corpus.writer() as writer:
                    put(writer, Entry("new.txt", "one zeppelin\nand another"))
                    lacking = [hash for hash, _ in writer.unembedded("line", DENSE.name)]
                    writer.add_vectors(DENSE.name, lacking, vectors)

            for vectors in wrong:
                refused(StoreError, partial(write, vectors))
            assert corpus.snapshot().generation == 1
            with corpus.writer() as writer:
                put(writer, Entry("new.txt", "one zeppelin\nand another"))
                assert embed(writer) == 2

    def test_the_first_vectors_have_as_many_numbers_as_the_manifest_states(self, tmp_path: Path) -> None:
        def write(width: int) -> None:
            with corpus.writer() as writer:
                put(writer, Entry("new.txt", "one zeppelin"))
                lacking = [hash for hash, _ in writer.unembedded("line", DENSE.name)]
                writer.add_vectors(DENSE.name, lacking, np.eye(1, width, dtype=np.float32))

        with self.store(tmp_path, []) as corpus:
            refused(StoreError, partial(write, DENSE.dimension - 1))
            write(DENSE.dimension)
            assert corpus.snapshot().check() == []


def _scored(corpus: Corpus, text: str) -> list[tuple[str, float]]:
    snapshot = corpus.snapshot()
    return [(hit.node.id, hit.score) for hit in snapshot.hits(snapshot.search("line", text, 500, ALL), ALL)]


def _bm25(snapshot: Snapshot, text: str, who: frozenset[str]) -> dict[str, float]:
    """Okapi BM25, by its formula, of every line that they may read and that shares a term, as if no others were."""
    analyzer = snapshot.manifest("line").analyzer
    nodes = {node.id: Counter(analyzer.terms(node.indexed_text)) for node in snapshot.all_nodes("line", who)}
    mean = sum(terms.total() for terms in nodes.values()) / max(1, len(nodes))
    found: dict[str, float] = {}
    for term, repeated in Counter(analyzer.terms(text)).items():
        holding = [id for id, terms in nodes.items() if term in terms]
        idf = math.log(1 + (len(nodes) - len(holding) + 0.5) / (len(holding) + 0.5))
        for id in holding:
            tf, length = nodes[id][term], nodes[id].total()
            score = idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / mean))
            found[id] = found.get(id, 0.0) + repeated * score
    return found


def _scores(metric: str, query: Any, vectors: Any) -> list[float]:
    if metric == "euclidean":
        return [float(-np.linalg.norm(vector - query)) for vector in vectors]
    return [float(vector @ query) for vector in vectors]  # of length 1


def _row(text: str) -> dict[int, float]:
    rows = weighed([text])
    return dict(zip(rows.terms.tolist(), rows.weights.tolist(), strict=True))


def _compare(
    snapshot: Snapshot, found: list[tuple[int, float]], keys: list[int], scores: list[float], top_k: int
) -> None:
    ids = snapshot.ids(keys)
    right = sorted(zip(keys, scores, strict=True), key=lambda hit: (-hit[1], ids[hit[0]]))
    assert found == sorted(found, key=lambda hit: (-hit[1], ids[hit[0]])), "not in order"
    assert len(found) == min(top_k, len(right))
    for (_, score), (_, wanted) in zip(found, right, strict=False):
        assert abs(score - wanted) < 1e-5, f"{score} in place of {wanted}"
    known = dict(right)
    assert all(abs(known[key] - score) < 1e-5 for key, score in found), "a score of another node"
