"""Candidates for a question, and what speaks for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from spolia.retrieval.learned.links import NodeLinks, node_links, words_of
from spolia.retrieval.term_counts import ALL, CONTEXT, Counts, counts_of
from spolia.stores.vectors.search import unit

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
BASE, SEEDS, NEAR_SEEDS, NAMED, EXPANDED_NAMED = 40, 8, 5, 12, 6
LINKED, SHARED = 30, 60
NAME_SPREAD = 12
"""Nodes that a name may be in, at most, for the nodes that have it to become candidates."""
K1, B = 1.2, 0.75


@dataclass(frozen=True, eq=False)
class CandidateRows:
    """Nodes that may answer a question, by position, and a row of features for each."""

    positions: Positions  # int64[n]
    features: Numbers  # float64[n, features]


@dataclass(frozen=True, eq=False)
class Seeds:
    """The nodes from which more are looked for, and how much each counts."""

    positions: Positions
    weights: Numbers
    earlier: Mapping[int, float] = field(default_factory=dict)  # probabilities by the pass before


@dataclass(frozen=True, eq=False)
class QuestionInGroup:
    """A question in a group: everything that does not change between passes.

    Args:
        text: of the question.
        vector: float32[d] of length 1; None without an embedder, whose name is empty then.
        wanted: which nodes may be found.
    """

    snapshot: Snapshot
    group: str
    names: str
    embedder: str
    text: str
    vector: Vectors | None
    who: frozenset[str]
    wanted: Filter | None = None

    @cached_property
    def links(self) -> NodeLinks:
        return node_links(self.snapshot, self.group, self.names, self.who)

    @cached_property
    def allowed(self) -> Mask | None:
        return self.snapshot.allowed(self.group, self.who, self.wanted).mask

    def _allowed(self, positions: Positions) -> Positions:
        return positions if self.allowed is None else positions[self.allowed[positions]]

    # By words.

    @cached_property
    def counts(self) -> tuple[Counts, Counts]:
        """Counts in all indexed text of the nodes, and in the text above theirs."""
        return (
            counts_of(self.snapshot, self.group, self.who, ALL),
            counts_of(self.snapshot, self.group, self.who, CONTEXT),
        )

    @cached_property
    def terms(self) -> tuple[list[str], Numbers]:
        """The question's distinct terms that are indexed, and their idf."""
        found = dict.fromkeys(self.snapshot.manifest(self.group).analyzer.terms(self.text))
        holding = {term: len(self.counts[0].holding(term)[0]) for term in found}
        kept = [term for term, nodes in holding.items() if nodes]
        n, total = np.array([holding[term] for term in kept], dtype=np.float64), self.counts[0].count
        return kept, np.log1p((total - n + 0.5) / (n + 0.5))

    def _held(self, counts: Counts, positions: Positions) -> Numbers:
        """float64[terms, n]: how often each node has each term of the question."""
        wanted = positions.astype(np.int32)
        found = np.zeros((len(self.terms[0]), len(positions)))
        for row, term in enumerate(self.terms[0]):
            nodes, often = counts.holding(term)
            if len(nodes):
                at = np.minimum(np.searchsorted(nodes, wanted), len(nodes) - 1)
                found[row] = np.where(nodes[at] == wanted, often[at], 0.0)
        return found

    # By meaning.

    @cached_property
    def _known(self) -> dict[int, Vectors]:
        return {}

    def vectors(self, positions: Positions) -> Vectors:
        """float32[n, d] of length 1; each node is read once."""
        wanted = positions.tolist()
        if lacking := np.array(sorted({at for at in wanted if at not in self._known}), dtype=np.int64).tolist():
            rows = unit(self.snapshot.open.stored(self.group, self.embedder).at(np.array(lacking)))
            self._known.update(zip(lacking, rows, strict=True))
        assert self.vector is not None
        return np.array([self._known[at] for at in wanted], np.float32).reshape(len(wanted), len(self.vector))

    def likeness(self, positions: Positions) -> Numbers:
        """float64[n]: the cosine with the question; without an embedder, its terms that each node has."""
        if self.vector is not None:
            return (self.vectors(positions) @ self.vector).astype(np.float64)
        shared: Numbers = self.terms[1] @ (self._held(self.counts[0], positions) > 0)
        return shared

    def _positions(self, keys: Sequence[int]) -> Positions:
        return np.searchsorted(self.snapshot.open.records(self.group).keys, np.array(keys, dtype=np.int64))

    # Where the search begins.

    @cached_property
    def ranks(self) -> tuple[dict[int, int], dict[int, int]]:
        """The rank of the best nodes by words, and by meaning."""
        words = self.snapshot.search(self.group, self.text, DEPTH, self.who, self.wanted)
        meaning: list[tuple[int, float]] = []
        if self.vector is not None:
            meaning = self.snapshot.nearest(self.group, self.embedder, self.vector, DEPTH, self.who, self.wanted)
        return self._ranks(words), self._ranks(meaning)

    def _ranks(self, found: Sequence[tuple[int, float]]) -> dict[int, int]:
        positions = self._positions([key for key, _ in found]).tolist()
        return {at: rank for rank, at in enumerate(positions, start=1)}

    @cached_property
    def fused(self) -> dict[int, float]:
        """Reciprocal rank fusion of both, best first; equal ones by position."""
        scores: dict[int, float] = {}
        for ranks in self.ranks:
            for at, rank in ranks.items():
                scores[at] = scores.get(at, 0.0) + 1 / (60 + rank)
        return dict(sorted(scores.items(), key=lambda one: (-one[1], one[0])))

    @cached_property
    def first_seeds(self) -> Seeds:
        positions = np.array(list(self.fused)[:SEEDS], dtype=np.int64)
        return Seeds(positions, 1 / np.arange(1, len(positions) + 1))

    @cached_property
    def title_lengths(self) -> dict[int, int]:
        """The title keys that occur in the question, and how many words each has."""
        return dict(self.links.texts.titles.found(words_of(self.text)))

    @cached_property
    def named(self) -> Positions:
        """The nodes whose titles occur in the question: long titles first, then what is like the question."""
        by_node: dict[int, int] = {}
        for key, length in self.title_lengths.items():
            for at in self._allowed(self.links.nodes_of_title.row(key)[: 4 * NAMED]).tolist():
                by_node[at] = max(by_node.get(at, 0), length)
        positions = np.array(list(by_node), dtype=np.int64)
        scores = 10.0 * np.array(list(by_node.values()), dtype=np.float64) + self.likeness(positions)
        return positions[np.lexsort((positions, -scores))][:NAMED]

    @cached_property
    def asked_names(self) -> frozenset[int]:
        """The names that the question has itself."""
        return frozenset(number for number, _ in self.links.texts.names.found(words_of(self.text)))

    # A pass.

    def candidates(self, seeds: Seeds) -> CandidateRows:
        """Nodes that are near the question, or linked with what is, and their features."""
        expanded = np.unique(np.concatenate([seeds.positions, self.named[:EXPANDED_NAMED]]))
        linked = {at: self._linked(at) for at in expanded.tolist()}
        rarity = self._rarity(seeds)
        found = [np.array(list(self.fused)[:BASE], dtype=np.int64), seeds.positions, self.named]
        found += [self._best(np.concatenate([*linked.values(), _NONE]), LINKED), self._shared(rarity)]
        positions = np.unique(np.concatenate(found))
        return CandidateRows(positions, self._features(positions, seeds, linked, rarity))

    def _linked(self, at: int) -> Positions:
        both = self.links.leads_to.row(at), self.links.led_to_by.row(at)
        return self._allowed(np.unique(np.concatenate(both)))

    def _best(self, positions: Positions, top_k: int) -> Positions:
        """The nodes that are most like the question, where there are more."""
        positions = np.unique(positions)
        if len(positions) <= top_k:
            return positions
        return positions[np.lexsort((positions, -self.likeness(positions)))[:top_k]]

    def _sums(self, seeds: Seeds) -> Vectors:
        assert self.vector is not None
        return unit(self.vector + self.vectors(seeds.positions[:NEAR_SEEDS]))

    def _rarity(self, seeds: Seeds) -> list[dict[int, tuple[float, int]]]:
        """For each seed, the nodes that share a name with it: ln(N / n) of the rarest, and n; n of N have it."""
        found: list[dict[int, tuple[float, int]]] = []
        links, total = self.links, self.links.count
        for at in seeds.positions.tolist():
            best: dict[int, tuple[float, int]] = {}
            rows = [links.nodes_of_name.row(name) for name in _labels(links.names_of_node, at) - self.asked_names]
            for nodes in sorted(rows, key=len):
                rarity = float(np.log(total / len(nodes)))
                for other in nodes.tolist():
                    best.setdefault(other, (rarity, len(nodes)))
            best.pop(at, None)
            found.append(best)
        return found

    def _shared(self, rarity: Sequence[Mapping[int, tuple[float, int]]]) -> Positions:
        spread: dict[int, int] = {}
        for best in rarity[:NEAR_SEEDS]:
            for at, (_, nodes) in best.items():
                if nodes <= NAME_SPREAD:
                    spread[at] = min(nodes, spread.get(at, nodes))
        rarest = sorted(spread, key=lambda at: (spread[at], at))
        return self._allowed(np.array(rarest, dtype=np.int64))[:SHARED]

    def _features(
        self,
        positions: Positions,
        seeds: Seeds,
        linked: Mapping[int, Positions],
        rarity: Sequence[Mapping[int, tuple[float, int]]],
    ) -> Numbers:
        of = {name: np.zeros(len(positions)) for name in FEATURES}
        listed = positions.tolist()
        self._by_words(of, positions, seeds)
        self._by_meaning(of, positions, seeds)
        self._by_links(of, positions, seeds, linked)
        for ranks, name in zip(self.ranks, ("words_rank", "meaning_rank"), strict=True):
            of[name][:] = [1 / ranks[at] if at in ranks else 0.0 for at in listed]
        of["both_ranks"][:] = [30 * self.fused.get(at, 0.0) for at in listed]
        for best, weight in zip(rarity, seeds.weights.tolist(), strict=True):
            shared = np.array([best[at][0] if at in best else 0.0 for at in listed])
            np.maximum(of["rarest_name"], shared, out=of["rarest_name"])
            np.maximum(of["shared_name"], weight * shared, out=of["shared_name"])
        if seeds.earlier:
            of["earlier_pass"][:] = [seeds.earlier.get(at, 0.0) for at in listed]
        return np.stack([of[name] for name in FEATURES], axis=1)

    def _by_words(self, of: Mapping[str, Numbers], positions: Positions, seeds: Seeds) -> None:
        every, above = self.counts
        idf = self.terms[1]
        total = float(idf.sum()) or 1.0
        often, title = self._held(every, positions), self._held(above, positions) > 0
        lengths = every.lengths[positions] / every.mean_length
        words = idf @ (often * (K1 + 1) / (often + K1 * (1 - B + B * lengths)))
        held = (often > 0).astype(np.float64)
        of["words"][:] = words / (float(words.max(initial=0.0)) or 1.0)
        of["coverage"][:] = idf @ held / total
        of["title_weight"][:] = idf @ title / total
        of["title_share"][:] = np.minimum(1.0, title.sum(axis=0) / np.maximum(1.0, above.lengths[positions]))
        for row, at in enumerate(positions.tolist()):
            keys = self.title_lengths.keys() & _labels(self.links.keys_of_node, at) if self.title_lengths else ()
            of["title_in_question"][row] = min(4, max((self.title_lengths[key] for key in keys), default=0))
        both = (held.T * idf) @ (self._held(every, seeds.positions) > 0) / total  # float64[n, seeds]
        seen, itself = of["coverage"], positions[:, None] == seeds.positions
        if len(seeds.positions):
            seed_seen = idf @ (self._held(every, seeds.positions) > 0) / total
            joint = np.where(itself, 0.0, seeds.weights * (seen[:, None] + seed_seen - both))
            new = np.where(itself, 0.0, seeds.weights * (seen[:, None] - both))
            of["joint_coverage"][:], of["new_coverage"][:] = joint.max(axis=1), new.max(axis=1)

    def _by_meaning(self, of: Mapping[str, Numbers], positions: Positions, seeds: Seeds) -> None:
        if self.vector is None or not len(positions):
            return
        vectors = self.vectors(positions)
        of["meaning"][:] = vectors @ self.vector
        if not len(seeds.positions):
            return
        itself = positions[:, None] == seeds.positions
        near = (vectors @ self.vectors(seeds.positions).T).astype(np.float64)
        of["near_seed"][:] = np.where(itself, 0.0, seeds.weights * near).max(axis=1)
        sums = (vectors @ self._sums(seeds).T).astype(np.float64)
        weights = seeds.weights[:NEAR_SEEDS] if seeds.earlier else 1.0
        of["near_sum"][:] = np.where(itself[:, :NEAR_SEEDS], 0.0, weights * sums).max(axis=1)

    def _by_links(
        self, of: Mapping[str, Numbers], positions: Positions, seeds: Seeds, linked: Mapping[int, Positions]
    ) -> None:
        leads_to, led_to_by = self.links.leads_to, self.links.led_to_by
        for at, weight in zip(seeds.positions.tolist(), seeds.weights.tolist(), strict=True):
            for name, rows in (("linked_from_seed", leads_to), ("links_to_seed", led_to_by)):
                there = _among(positions, rows.row(at))
                np.maximum(of[name], weight * there, out=of[name])
        for at in self.named[:SEEDS].tolist():
            for name, rows in (("linked_from_named", leads_to), ("links_to_named", led_to_by)):
                np.maximum(of[name], _among(positions, rows.row(at)), out=of[name])
        for nodes in linked.values():
            of["ways"][:] += _among(positions, nodes)
        np.minimum(of["ways"], 5.0, out=of["ways"])


_NONE = np.zeros(0, dtype=np.int64)


def _labels(rows: SparseLabelRows, at: int) -> frozenset[int]:
    return frozenset(rows.row(at).tolist())


def _among(positions: Positions, row: Positions) -> Numbers:
    """1.0 for each position that is in an ascending row."""
    if not len(row):
        return np.zeros(len(positions))
    at = np.minimum(np.searchsorted(row, positions), len(row) - 1)
    found: Numbers = (row[at] == positions).astype(np.float64)
    return found
