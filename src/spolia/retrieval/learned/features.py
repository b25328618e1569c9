"""Candidates for a question, and the features of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from spolia.retrieval.learned.links import NodeLinks, node_links, split_words
from spolia.retrieval.term_counts import ALL, CONTEXT, Counts, counts_of
from spolia.stores.vectors.search import unit_rows

if TYPE_CHECKING:
    from spolia.retrieval.graph.links import SparseLabelRows
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types import Filter
    from spolia.types.arrays import Mask, Numbers, Positions, Vectors

FEATURES = (
    "words",  # BM25, as a share of the best candidate's
    "words_rank",  # 1 / its rank by words
    "meaning",  # cosine with the question
    "meaning_rank",  # 1 / its rank by meaning
    "both_ranks",  # 30 · Σ 1 / (60 + rank)
    "title_in_question",  # words of the longest form of its title that occurs in the question, at most 4
    "title_share",  # share of the title's terms that the question has
    "title_weight",  # weight of the question's terms that the title has
    "coverage",  # weight of the question's terms that it has
    "linked_from_seed",  # a seed's text has its title: the seed's weight
    "links_to_seed",  # its text has a seed's title: the seed's weight
    "linked_from_named",  # the text of a node that the question names has its title
    "links_to_named",  # its text has the title of a node that the question names
    "joint_coverage",  # seed's weight · weight of the question's terms that it and the seed have together
    "new_coverage",  # seed's weight · weight of the question's terms that it has and the seed has not
    "near_sum",  # cosine with the sum of question and seed
    "near_seed",  # seed's weight · cosine with the seed
    "shared_name",  # seed's weight · rarity of the rarest name that both have and the question has not
    "rarest_name",  # that rarity
    "ways",  # seeds and named nodes that it is linked with, at most 5
    "earlier_pass",  # its probability by the pass before
)
DENSE = frozenset(("meaning", "meaning_rank", "near_sum", "near_seed"))
"""Features that need an embedder."""

DEPTH = 100
"""Hits by words and by meaning that have a rank."""
# How many nodes each way may add: they bound the candidates, and so the time of a question.
BASE, SEEDS, NEAR_SEEDS, NAMED, EXPANDED_NAMED = 40, 8, 5, 12, 6
LINKED, SHARED = 30, 60
NAME_SPREAD = 12
"""Nodes that a name may be in, at most, for the nodes that have it to become candidates."""
# The usual parameters of BM25, as the lexical index has them.
K1, B = 1.2, 0.75


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """Nodes that may answer a question, by position, and a row of features for each."""

    positions: Positions  # int64[n]
    features: Numbers  # float64[n, features]


@dataclass(frozen=True, eq=False)
class Seeds:
    """Nodes that the next pass searches around, with a weight each."""

    positions: Positions
    weights: Numbers
    earlier: Mapping[int, float] = field(default_factory=dict)  # probabilities by the pass before


@dataclass(frozen=True, eq=False)
class QuestionInGroup:
    """Question in a group: everything that does not change between passes.

    Args:
        text: of the question.
        vector: float32[d] of length 1; None without an embedder, whose name is empty then.
        filter: which nodes may be found.
    """

    snapshot: Snapshot
    group: str
    names: str
    embedder: str
    text: str
    vector: Vectors | None
    principals: frozenset[str]
    filter: Filter | None = None

    @cached_property
    def links(self) -> NodeLinks:
        return node_links(self.snapshot, self.group, self.names, self.principals)

    @cached_property
    def allowed(self) -> Mask | None:
        return self.snapshot.allowed(self.group, self.principals, self.filter).mask

    def _allowed(self, positions: Positions) -> Positions:
        return positions if self.allowed is None else positions[self.allowed[positions]]

    # By words.

    @cached_property
    def counts(self) -> tuple[Counts, Counts]:
        """Return counts in all indexed text of the nodes, and in the text above theirs."""
        return (
            counts_of(self.snapshot, self.group, self.principals, ALL),
            counts_of(self.snapshot, self.group, self.principals, CONTEXT),
        )

    @cached_property
    def terms(self) -> tuple[list[str], Numbers]:
        """Return the question's distinct terms that are indexed, and their idf."""
        distinct = dict.fromkeys(self.snapshot.manifest(self.group).analyzer.terms(self.text))
        holding = {term: len(self.counts[0].find_term(term)[0]) for term in distinct}
        indexed = [term for term, nodes in holding.items() if nodes]
        n, total = np.array([holding[term] for term in indexed], dtype=np.float64), self.counts[0].count
        return indexed, np.log1p((total - n + 0.5) / (n + 0.5))

    def _term_frequencies(self, counts: Counts, positions: Positions) -> Numbers:
        """Return float64[terms, n]: how often each node has each term of the question."""
        # The same type as the index has: else numpy would convert its long rows at each search.
        positions32 = positions.astype(np.int32)
        frequencies = np.zeros((len(self.terms[0]), len(positions)))
        for row, term in enumerate(self.terms[0]):
            nodes, often = counts.find_term(term)
            if len(nodes):
                places = np.minimum(np.searchsorted(nodes, positions32), len(nodes) - 1)
                frequencies[row] = np.where(nodes[places] == positions32, often[places], 0.0)
        return frequencies

    # By meaning.

    @cached_property
    def _vector_cache(self) -> dict[int, Vectors]:
        return {}

    def vectors(self, positions: Positions) -> Vectors:
        """Return float32[n, d] of length 1; each node is read from the store once."""
        listed = positions.tolist()
        if lacking := np.array(
            sorted({node for node in listed if node not in self._vector_cache}), dtype=np.int64
        ).tolist():
            rows = unit_rows(self.snapshot.open.stored_vectors(self.group, self.embedder).vectors_at(np.array(lacking)))
            self._vector_cache.update(zip(lacking, rows, strict=True))
        assert self.vector is not None
        return np.array([self._vector_cache[node] for node in listed], np.float32).reshape(
            len(listed), len(self.vector)
        )

    def likeness(self, positions: Positions) -> Numbers:
        """Return float64[n]: the cosine with the question; without an embedder, the weight of its terms that each node
        has."""
        if self.vector is not None:
            return (self.vectors(positions) @ self.vector).astype(np.float64)
        shared: Numbers = self.terms[1] @ (self._term_frequencies(self.counts[0], positions) > 0)
        return shared

    def _positions(self, keys: Sequence[int]) -> Positions:
        return np.searchsorted(self.snapshot.open.records(self.group).keys, np.array(keys, dtype=np.int64))

    # Where the search begins.

    @cached_property
    def ranks(self) -> tuple[dict[int, int], dict[int, int]]:
        """Return the ranks of the best nodes by words, and by meaning."""
        words = self.snapshot.search(self.group, self.text, DEPTH, self.principals, self.filter)
        meaning: list[tuple[int, float]] = []
        if self.vector is not None:
            meaning = self.snapshot.nearest(self.group, self.embedder, self.vector, DEPTH, self.principals, self.filter)
        return self._ranks(words), self._ranks(meaning)

    def _ranks(self, pairs: Sequence[tuple[int, float]]) -> dict[int, int]:
        positions = self._positions([key for key, _ in pairs]).tolist()
        return {node: rank for rank, node in enumerate(positions, start=1)}

    @cached_property
    def fused(self) -> dict[int, float]:
        """Return the reciprocal rank fusion of both, best first; equal ones by position."""
        scores: dict[int, float] = {}
        for ranks in self.ranks:
            for node, rank in ranks.items():
                scores[node] = scores.get(node, 0.0) + 1 / (60 + rank)
        return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))

    @cached_property
    def first_seeds(self) -> Seeds:
        positions = np.array(list(self.fused)[:SEEDS], dtype=np.int64)
        return Seeds(positions, 1 / np.arange(1, len(positions) + 1))

    @cached_property
    def title_lengths(self) -> dict[int, int]:
        """Return the title keys that occur in the question, and how many words each has."""
        return dict(self.links.texts.titles.find_keys(split_words(self.text)))

    @cached_property
    def named_nodes(self) -> Positions:
        """Return the nodes whose titles occur in the question: long titles first, then by likeness to the question."""
        by_node: dict[int, int] = {}
        for key, length in self.title_lengths.items():
            # Bounded before they are compared: thousands may share a title.
            for node in self._allowed(self.links.nodes_of_title.row(key)[: 4 * NAMED]).tolist():
                by_node[node] = max(by_node.get(node, 0), length)
        positions = np.array(list(by_node), dtype=np.int64)
        scores = 10.0 * np.array(list(by_node.values()), dtype=np.float64) + self.likeness(positions)
        return positions[np.lexsort((positions, -scores))][:NAMED]

    @cached_property
    def question_names(self) -> frozenset[int]:
        """Return the names that occur in the question itself."""
        return frozenset(number for number, _ in self.links.texts.names.find_keys(split_words(self.text)))

    # A pass.

    def candidates(self, seeds: Seeds) -> CandidateRows:
        """Return nodes that are near the question, or linked with such nodes, and their features."""
        expanded = np.unique(np.concatenate([seeds.positions, self.named_nodes[:EXPANDED_NAMED]]))
        linked = {node: self._linked_nodes(node) for node in expanded.tolist()}
        rarity = self._name_rarity(seeds)
        parts = [np.array(list(self.fused)[:BASE], dtype=np.int64), seeds.positions, self.named_nodes]
        parts += [self._best(np.concatenate([*linked.values(), _NONE]), LINKED), self._nodes_with_rare_names(rarity)]
        positions = np.unique(np.concatenate(parts))
        return CandidateRows(positions, self._compute_features(positions, seeds, linked, rarity))

    def _linked_nodes(self, node: int) -> Positions:
        rows = self.links.leads_to.row(node), self.links.led_to_by.row(node)
        return self._allowed(np.unique(np.concatenate(rows)))

    def _best(self, positions: Positions, top_k: int) -> Positions:
        """Return the `top_k` nodes that are most like the question, by position where they are no more."""
        positions = np.unique(positions)
        if len(positions) <= top_k:
            return positions
        return positions[np.lexsort((positions, -self.likeness(positions)))[:top_k]]

    def _sums(self, seeds: Seeds) -> Vectors:
        assert self.vector is not None
        return unit_rows(self.vector + self.vectors(seeds.positions[:NEAR_SEEDS]))

    def _name_rarity(self, seeds: Seeds) -> list[dict[int, tuple[float, int]]]:
        """Return for each seed the nodes that share a name with it: ln(N / n) of the rarest, and n; n of N have it."""
        by_seed: list[dict[int, tuple[float, int]]] = []
        links, total = self.links, self.links.count
        for seed in seeds.positions.tolist():
            best: dict[int, tuple[float, int]] = {}
            rows = [links.nodes_of_name.row(name) for name in _labels(links.names_of_node, seed) - self.question_names]
            # The rarest name first, so that `setdefault` keeps it.
            for nodes in sorted(rows, key=len):
                rarity = float(np.log(total / len(nodes)))
                for node in nodes.tolist():
                    best.setdefault(node, (rarity, len(nodes)))
            best.pop(seed, None)
            by_seed.append(best)
        return by_seed

    def _nodes_with_rare_names(self, rarity: Sequence[Mapping[int, tuple[float, int]]]) -> Positions:
        spread: dict[int, int] = {}
        for best in rarity[:NEAR_SEEDS]:
            for node, (_, nodes) in best.items():
                if nodes <= NAME_SPREAD:
                    spread[node] = min(nodes, spread.get(node, nodes))
        rarest = sorted(spread, key=lambda node: (spread[node], node))
        return self._allowed(np.array(rarest, dtype=np.int64))[:SHARED]

    def _compute_features(
        self,
        positions: Positions,
        seeds: Seeds,
        linked: Mapping[int, Positions],
        rarity: Sequence[Mapping[int, tuple[float, int]]],
    ) -> Numbers:
        columns = {name: np.zeros(len(positions)) for name in FEATURES}
        listed = positions.tolist()
        self._add_word_features(columns, positions, seeds)
        self._add_meaning_features(columns, positions, seeds)
        self._add_link_features(columns, positions, seeds, linked)
        for ranks, name in zip(self.ranks, ("words_rank", "meaning_rank"), strict=True):
            columns[name][:] = [1 / ranks[node] if node in ranks else 0.0 for node in listed]
        columns["both_ranks"][:] = [30 * self.fused.get(node, 0.0) for node in listed]  # two first places give about 1
        for best, weight in zip(rarity, seeds.weights.tolist(), strict=True):
            shared = np.array([best[node][0] if node in best else 0.0 for node in listed])
            np.maximum(columns["rarest_name"], shared, out=columns["rarest_name"])
            np.maximum(columns["shared_name"], weight * shared, out=columns["shared_name"])
        if seeds.earlier:
            columns["earlier_pass"][:] = [seeds.earlier.get(node, 0.0) for node in listed]
        return np.stack([columns[name] for name in FEATURES], axis=1)

    def _add_word_features(self, columns: Mapping[str, Numbers], positions: Positions, seeds: Seeds) -> None:
        all_counts, context_counts = self.counts
        idf = self.terms[1]
        total = float(idf.sum()) or 1.0
        often, title = (
            self._term_frequencies(all_counts, positions),
            self._term_frequencies(context_counts, positions) > 0,
        )
        lengths = all_counts.lengths[positions] / all_counts.mean_length
        words = idf @ (often * (K1 + 1) / (often + K1 * (1 - B + B * lengths)))
        has_term = (often > 0).astype(np.float64)
        columns["words"][:] = words / (float(words.max(initial=0.0)) or 1.0)
        columns["coverage"][:] = idf @ has_term / total
        columns["title_weight"][:] = idf @ title / total
        columns["title_share"][:] = np.minimum(
            1.0, title.sum(axis=0) / np.maximum(1.0, context_counts.lengths[positions])
        )
        for row, node in enumerate(positions.tolist()):
            keys = self.title_lengths.keys() & _labels(self.links.keys_of_node, node) if self.title_lengths else ()
            columns["title_in_question"][row] = min(4, max((self.title_lengths[key] for key in keys), default=0))
        shared = (
            (has_term.T * idf) @ (self._term_frequencies(all_counts, seeds.positions) > 0) / total
        )  # float64[n, seeds]
        coverage, itself = columns["coverage"], positions[:, None] == seeds.positions
        if len(seeds.positions):
            seed_seen = idf @ (self._term_frequencies(all_counts, seeds.positions) > 0) / total
            joint = np.where(itself, 0.0, seeds.weights * (coverage[:, None] + seed_seen - shared))
            new = np.where(itself, 0.0, seeds.weights * (coverage[:, None] - shared))
            columns["joint_coverage"][:], columns["new_coverage"][:] = joint.max(axis=1), new.max(axis=1)

    def _add_meaning_features(self, columns: Mapping[str, Numbers], positions: Positions, seeds: Seeds) -> None:
        if self.vector is None or not len(positions):
            return
        vectors = self.vectors(positions)
        columns["meaning"][:] = vectors @ self.vector
        if not len(seeds.positions):
            return
        itself = positions[:, None] == seeds.positions
        near = (vectors @ self.vectors(seeds.positions).T).astype(np.float64)
        columns["near_seed"][:] = np.where(itself, 0.0, seeds.weights * near).max(axis=1)
        sums = (vectors @ self._sums(seeds).T).astype(np.float64)
        weights = seeds.weights[:NEAR_SEEDS] if seeds.earlier else 1.0
        columns["near_sum"][:] = np.where(itself[:, :NEAR_SEEDS], 0.0, weights * sums).max(axis=1)

    def _add_link_features(
        self, columns: Mapping[str, Numbers], positions: Positions, seeds: Seeds, linked: Mapping[int, Positions]
    ) -> None:
        leads_to, led_to_by = self.links.leads_to, self.links.led_to_by
        for node, weight in zip(seeds.positions.tolist(), seeds.weights.tolist(), strict=True):
            for name, rows in (("linked_from_seed", leads_to), ("links_to_seed", led_to_by)):
                is_linked = _is_in_row(positions, rows.row(node))
                np.maximum(columns[name], weight * is_linked, out=columns[name])
        for node in self.named_nodes[:SEEDS].tolist():
            for name, rows in (("linked_from_named", leads_to), ("links_to_named", led_to_by)):
                np.maximum(columns[name], _is_in_row(positions, rows.row(node)), out=columns[name])
        for nodes in linked.values():
            columns["ways"][:] += _is_in_row(positions, nodes)
        np.minimum(columns["ways"], 5.0, out=columns["ways"])


_NONE = np.zeros(0, dtype=np.int64)


def _labels(rows: SparseLabelRows, node: int) -> frozenset[int]:
    return frozenset(rows.row(node).tolist())


def _is_in_row(positions: Positions, row: Positions) -> Numbers:
    """Return 1.0 for each position that is in an ascending row."""
    if not len(row):
        return np.zeros(len(positions))
    places = np.minimum(np.searchsorted(row, positions), len(row) - 1)
    membership: Numbers = (row[places] == positions).astype(np.float64)
    return membership
