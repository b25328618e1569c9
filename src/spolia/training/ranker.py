"""Training of the learned ranker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from spolia.core.plurals import several
from spolia.core.run_context import access, check_cancelled
from spolia.deferred import lightgbm
from spolia.errors import DataError, require
from spolia.evaluation.experiment.gold_locations import is_gold, locate_gold
from spolia.flow_files.built_in_flows import bm25, hybrid
from spolia.models.protocols import Embedder
from spolia.models.trained_weights import RANKER, TrainedWeights
from spolia.retrieval.learned.features import DENSE, FEATURES, CandidateRows, QuestionInGroup, Seeds
from spolia.retrieval.learned.ranker import LearnedRanker, describe_groups, prepare_question, snapshot_of
from spolia.retrieval.learned.scores import FLOOR, TREE, LinearScore, Score, TreeScore, next_seeds, read_score
from spolia.types import Item, Query, Quote

if TYPE_CHECKING:
    from spolia.core.operator import Operator
    from spolia.stores.corpus import NodeGroup
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.training.trainer import Arrays
    from spolia.types import Ranking
    from spolia.types.arrays import Mask, Numbers

DECAY = 0.01
"""λ, by which large weights cost: λ/2 · |w|²."""
FOLDS = 4
"""Folds of the training questions between the two passes: no question is judged by weights that were fitted to it."""
FEW = 10
"""Questions below which weights depend much on which ones they are."""
EVERYTHING = 1 << 30

Objective: TypeAlias = "Callable[[Numbers], tuple[float, Numbers]]"
"""Gives a value and its gradient."""

MEMORY = 10  # steps that are remembered: Nocedal and Wright advise 3 to 20
FLAT = 1e-7
"""Largest part of the gradient at which it has converged."""
# Armijo's constant, as Nocedal and Wright choose it; 2^-40 of a step changes nothing in float64.
SUFFICIENT, HALVINGS = 1e-4, 40


@dataclass(eq=False)
class LBFGS:
    """Limited-memory BFGS: the gradient, turned by the curvature that the last `MEMORY` steps showed.

    A step is halved until the value falls by a share of what the gradient promises (Armijo). It draws nothing by lot.

    Source: Nocedal and Wright, Numerical Optimization, 2006, algorithms 7.4 and 7.5.

    >>> search = LBFGS(np.zeros(2))
    >>> while not search.converged:
    ...     _ = search.step(lambda x: (float(((x - [1, 2]) ** 2 * [1, 50]).sum()), 2 * (x - [1, 2]) * [1, 50]))
    >>> search.point.round(4).tolist()
    [1.0, 2.0]
    """

    point: Numbers
    steps: list[Numbers] = field(default_factory=list)
    changes: list[Numbers] = field(default_factory=list)
    converged: bool = False

    def step(self, objective: Objective) -> float:
        """Make one iteration; return the value before it."""
        value, gradient = objective(self.point)
        if not np.isfinite(value) or float(np.abs(gradient).max(initial=0.0)) <= FLAT:
            self.converged = bool(np.isfinite(value))
            return value
        direction = -self._apply_inverse_hessian(gradient)
        slope = float(gradient @ direction)
        # Without remembered steps, the gradient's length says nothing of the step's.
        length = 1.0 if self.steps else min(1.0, 1.0 / float(np.abs(gradient).sum()))
        for _ in range(HALVINGS):
            candidate = self.point + length * direction
            new_value, new_gradient = objective(candidate)
            if new_value <= value + SUFFICIENT * length * slope:
                break
            length /= 2
        else:
            self.converged = True  # as flat as numbers tell
            return value
        self._remember_change(candidate - self.point, new_gradient - gradient)
        self.point = candidate
        return value

    def _apply_inverse_hessian(self, gradient: Numbers) -> Numbers:
        """Return the inverse Hessian times the gradient, by the remembered steps."""
        product, shares = gradient.copy(), []
        for step, change in zip(reversed(self.steps), reversed(self.changes), strict=True):
            shares.append(float(step @ product) / float(step @ change))
            product -= shares[-1] * change
        if self.steps:
            product *= float(self.steps[-1] @ self.changes[-1]) / float(self.changes[-1] @ self.changes[-1])
        for step, change, share in zip(self.steps, self.changes, reversed(shares), strict=True):
            product += (share - float(change @ product) / float(step @ change)) * step
        return product

    def _remember_change(self, step: Numbers, change: Numbers) -> None:
        # Else the remembered curvature is not positive, and a step could climb.
        if float(step @ change) > 1e-12 * float(change @ change):
            self.steps, self.changes = [*self.steps, step][-MEMORY:], [*self.changes, change][-MEMORY:]


@dataclass(frozen=True, eq=False)
class Example:
    """Candidates of a question, with a mask of the gold ones."""

    candidates: CandidateRows
    gold: Mask

    @property
    def teaches(self) -> bool:
        """Return whether the example has both gold and other candidates."""
        return bool(self.gold.any()) and not bool(self.gold.all())


class ListwiseLoss:
    """Loss of a ranking that should put gold above all else: the mean over questions, of the mean over their gold nodes
    g, of

        -ln(e^s(g) / (e^s(g) + Σ e^s(n))), n not gold,

    with s linear in standardised features, so that it is convex; and λ/2 · |w|² on top.
    """

    def __init__(self, examples: Sequence[Example], mean: Numbers, deviation: Numbers, used: Mask) -> None:
        usable = [example for example in examples if example.teaches]
        rows = np.concatenate([example.candidates.features for example in usable])
        gold = np.concatenate([example.gold for example in usable])
        question = np.repeat(np.arange(len(usable)), [len(example.gold) for example in usable])
        rows = np.where(used, (rows - mean) / np.where(used, deviation, 1.0), 0.0)
        self.gold, self.non_gold = rows[gold], rows[~gold]
        self.gold_of, non_gold_of = question[gold], question[~gold]
        self.starts = np.flatnonzero(np.diff(non_gold_of, prepend=-1))
        self.sizes = np.diff(self.starts, append=len(non_gold_of))
        self.shares = (1 / np.bincount(self.gold_of))[self.gold_of] / len(usable)
        self.questions = len(usable)

    def __call__(self, weights: Numbers, decay: float = DECAY) -> tuple[float, Numbers]:
        """Return the loss and its gradient."""
        scores = self.non_gold @ weights
        highest = np.maximum.reduceat(scores, self.starts)
        raised = np.exp(scores - np.repeat(highest, self.sizes))
        totals = np.add.reduceat(raised, self.starts)
        gaps = (highest + np.log(totals))[self.gold_of] - self.gold @ weights
        loss = float(self.shares @ np.logaddexp(0.0, gaps)) + decay / 2 * float(weights @ weights)
        pulls = self.shares / (1 + np.exp(-np.clip(gaps, -500, 500)))  # e^710 overflows
        by_question = np.bincount(self.gold_of, pulls, self.questions)
        spread = np.repeat(by_question / totals, self.sizes) * raised
        return loss, self.non_gold.T @ spread - self.gold.T @ pulls + decay * weights


@dataclass(eq=False)
class PassFit:
    """Weights of one pass, while they are fitted."""

    mean: Numbers
    deviation: Numbers
    used: Mask
    loss: ListwiseLoss
    search: LBFGS

    @classmethod
    def from_examples(cls, examples: Sequence[Example]) -> PassFit:
        """Begin a fit from zero, with the features that vary; DataError if nothing can be learned."""
        if not any(example.teaches for example in examples):
            raise DataError(
                f"Nothing can be learned from {several(len(examples), 'question')}: none has both gold and other "
                "candidates. Check that gold_ids name passages of this store, or give more questions."
            )
        rows = np.concatenate([example.candidates.features for example in examples if example.teaches])
        if not np.isfinite(rows).all():
            name = FEATURES[int(np.flatnonzero(~np.isfinite(rows).all(axis=0))[0])]
            raise DataError(f"The feature {name!r} is not finite for some candidates. Check the vectors of the group.")
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        used = deviation >= FLOOR
        return cls(mean, deviation, used, ListwiseLoss(examples, mean, deviation, used), LBFGS(np.zeros(len(FEATURES))))

    @property
    def converged(self) -> bool:
        return self.search.converged

    @property
    def score(self) -> LinearScore:
        return LinearScore.rounded(self.mean, self.deviation, np.where(self.used, self.search.point, 0.0))

    def step(self) -> float:
        return self.search.step(self.loss)

    def compute_loss(self, examples: Sequence[Example]) -> float:
        return ListwiseLoss(examples, self.mean, self.deviation, self.used)(self.search.point, 0.0)[0]

    def finish(self, steps: int) -> LinearScore:
        """Return the weights after some steps."""
        while steps and not self.converged:
            self.step()
            steps -= 1
        return self.score

    def idle_features(self) -> list[str]:
        """Return the features that hardly varied."""
        return [name for name, varied in zip(FEATURES, self.used, strict=True) if not varied]

    def state(self) -> dict[str, Any]:
        memory = {f"step{number}": array for number, array in enumerate(self.search.steps)}
        memory |= {f"change{number}": array for number, array in enumerate(self.search.changes)}
        return {**memory, "at": self.search.point, "converged": np.array(self.search.converged)}

    def restore(self, state: Arrays, made_steps: int) -> None:
        count = sum(name.startswith("step") for name in state)
        steps, changes = (
            [np.asarray(state[f"{name}{number}"], np.float64) for number in range(count)] for name in _MEMORY
        )
        self.search = LBFGS(np.asarray(state["at"], np.float64), steps, changes, bool(state["converged"]))


class TreeFit:
    """Boosted trees of one pass, while they are grown: LambdaMART by LightGBM, one tree a step.

    Source: Burges, "From RankNet to LambdaRank to LambdaMART", 2010; Ke et al., "LightGBM", NeurIPS 2017.
    """

    converged = False

    def __init__(self, examples: Sequence[Example], seed: int = 0) -> None:
        require(lightgbm, "Boosted trees")
        usable = [example for example in examples if example.teaches]
        PassFit.from_examples(examples)  # refuses what cannot be learned
        rows = np.concatenate([example.candidates.features for example in usable])
        data = lightgbm.Dataset(
            rows,
            np.concatenate([example.gold for example in usable]).astype(np.int32),
            group=[len(example.gold) for example in usable],
            params={"verbose": -1},
        )
        self.varied = rows.std(axis=0) > 0
        self.booster = lightgbm.Booster(TREES | {"seed": seed}, data)

    @property
    def score(self) -> TreeScore:
        return TreeScore([_tree_columns(tree["tree_structure"]) for tree in self.booster.dump_model()["tree_info"]])

    def step(self) -> float:
        """Grow a tree; return 1 - nDCG@5 on the training questions before it."""
        ndcg = self.booster.eval_train()[0][2] if self.booster.current_iteration() else 0.0
        self.booster.update()
        return 1 - float(ndcg)

    def compute_loss(self, examples: Sequence[Example]) -> float:
        """Return 1 - nDCG@5."""
        score, values = self.score, list[float]()
        for example in examples:
            order = np.argsort(-score.contributions(example.candidates.features).sum(axis=1), kind="stable")
            gains = 1 / np.log2(np.arange(2, 7))
            gain = gains[: len(order[:5])] @ example.gold[order[:5]]
            values.append(float(gain / gains[: int(example.gold.sum())].sum()))
        return 1 - float(np.mean(values))

    def finish(self, steps: int) -> TreeScore:
        """Return the trees after some steps."""
        for _ in range(steps):
            self.booster.update()
        return self.score

    def idle_features(self) -> list[str]:
        return [name for name, varied in zip(FEATURES, self.varied, strict=True) if not varied]

    def state(self) -> dict[str, Any]:
        """Return nothing: the same trees are grown again."""
        return {}

    def restore(self, state: Arrays, made_steps: int) -> None:
        self.finish(made_steps)


# One thread and `deterministic`: the same trees on every machine.
TREES = {
    "objective": "lambdarank", "metric": "ndcg", "eval_at": [5], "num_leaves": 7, "learning_rate": 0.06,
    "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.6, "min_data_in_leaf": 5, "num_threads": 1,
    "deterministic": True, "force_row_wise": True, "verbose": -1,
}  # fmt: skip


def _tree_columns(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nodes of a tree in the columns of `TreeScore`, parents first."""
    rows: list[list[float]] = []

    def add_node(node: Mapping[str, Any]) -> int:
        index = len(rows)
        if "leaf_value" in node:
            rows.append([0, 0.0, index, index, node["leaf_value"]])
        else:
            rows.append([node["split_feature"], node["threshold"], 0, 0, node["internal_value"]])
            rows[index][2:4] = add_node(node["left_child"]), add_node(node["right_child"])
        return index

    add_node(tree)
    return {name: np.array(column, TREE[name]) for name, column in zip(TREE, zip(*rows, strict=True), strict=True)}


class RankerTrainer:
    """Trainer of the weights of `LearnedRanker`, on questions with gold passages.

    Args:
        group: the nodes to rank.
        embedder: one that the group was built with; None for a ranker that does without.
        names: the group with the names of the nodes; empty for none.
        passes: 1, or 2 to begin a second pass where the first has led to.
        any_group: the weights may be used on groups that were made in another way.
        trees: boosted trees in place of linear weights (`pip install 'spolia[trees]'`); the flow does without.

    >>> from spolia import Corpus
    >>> RankerTrainer(Corpus("notes.spolia").group()).part
    'ranker'
    """

    part: ClassVar[str] = RANKER
    version: ClassVar[int] = 2
    measure: ClassVar[str] = "R@5"

    def __init__(
        self,
        group: NodeGroup,
        embedder: Embedder | None = None,
        names: str = "entity",
        passes: int = 2,
        any_group: bool = False,
        trees: bool = False,
    ) -> None:
        self.group, self.embedder, self.names, self.passes, self.any_group = group, embedder, names, passes, any_group
        self.trees, self.steps_per_pass = trees, 150 if trees else 45
        self.steps = self.steps_per_pass * passes
        self.fitted: list[Score] = []
        self._made = 0

    def new_fit(self, examples: Sequence[Example]) -> PassFit | TreeFit:
        return TreeFit(examples) if self.trees else PassFit.from_examples(examples)

    # What is learned from.

    def settings(self) -> Mapping[str, Any]:
        snapshot = snapshot_of(self.group, self.names, self.embedder)
        groups = describe_groups(snapshot, self.group, self.names, self.embedder)
        return {
            "groups": groups | ({"group": None, "names": None} if self.any_group else {}),
            "passes": self.passes,
            "features": list(FEATURES),
        } | ({"trees": TREES} if self.trees else {"decay": DECAY})

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.fitted, self._idle = [], list[list[str]]()
        self._training, self._validation = self.prepare_questions(items), self.prepare_questions(validation)
        self._begin_fit(self.build_examples(self._training), self.build_examples(self._validation))

    def prepare_questions(self, items: Sequence[Item]) -> list[tuple[QuestionInGroup, frozenset[int]]]:
        """Prepare the questions in the group, each with the positions of its gold nodes."""
        if not items:
            return []
        snapshot, principals = snapshot_of(self.group, self.names, self.embedder), access()
        locations = locate_gold(items, [self.untrained()])
        keys = snapshot.open.records(self.group.name).keys
        questions = []
        for item in items:
            check_cancelled()
            question = prepare_question(
                snapshot, self.group, self.names, self.embedder, Query(item.question), principals, None
            )
            gold = np.searchsorted(
                keys, sorted(_gold_keys(snapshot, self.group.name, locations.locate_item(item), principals))
            )
            questions.append((question, frozenset(gold.tolist())))
        return questions

    @staticmethod
    def build_examples(
        questions: Sequence[tuple[QuestionInGroup, frozenset[int]]], seeds: Sequence[Seeds] | None = None
    ) -> list[Example]:
        """Collect the candidates of questions, from their first seeds or from given ones."""
        examples = []
        for number, (question, gold) in enumerate(questions):
            check_cancelled()
            candidates = question.candidates(question.first_seeds if seeds is None else seeds[number])
            examples.append(Example(candidates, np.isin(candidates.positions, list(gold))))
        return examples

    # Steps.

    def _begin_fit(self, training: list[Example], validation: list[Example]) -> None:
        self.training, self.validation = training, validation
        self.fit, self._made = self.new_fit(training), 0

    @property
    def converged(self) -> bool:
        return len(self.fitted) >= self.passes - 1 and (self.fit.converged or self._made >= self.steps_per_pass)

    def step(self, done: float) -> float:
        if self.fit.converged or self._made >= self.steps_per_pass:
            self._begin_pass(self.fit.score)
        self._made += 1
        return self.fit.step()

    def _begin_pass(self, score: Score) -> None:
        """Begin the next pass from the seeds that a fitted one finds."""
        seeds = cross_fit_seeds(self.training, score, self.steps_per_pass, self.new_fit)
        self.fitted.append(score)
        self._idle.append(self.fit.idle_features())
        self._begin_fit(
            self.build_examples(self._training, seeds),
            self.build_examples(self._validation, [seeds_of(example, score) for example in self.validation]),
        )

    def validate(self) -> float | None:
        usable = [example for example in self.validation if example.teaches]
        if not usable:
            return None
        return self.fit.compute_loss(usable)

    def state(self) -> Arrays:
        """Return the fitted passes and the search of the present one; examples are computed again."""
        passes = {
            f"pass{number}": np.frombuffer(json.dumps(score.plain()).encode(), np.uint8)
            for number, score in enumerate(self.fitted)
        }
        return {**passes, **self.fit.state(), "made": np.array(self._made)}

    def restore(self, state: Arrays) -> None:
        count = sum(name.startswith("pass") for name in state)
        while len(self.fitted) < count:
            text = np.asarray(state[f"pass{len(self.fitted)}"], np.uint8).tobytes()
            self._begin_pass(read_score(json.loads(text)))
        self._made = int(state["made"])
        self.fit.restore(state, self._made)

    # What comes of it.

    @property
    def notes(self) -> Sequence[str]:
        absent = DENSE if self.embedder is None else frozenset[str]()
        constant = [
            f"Pass {number}: {', '.join(idle)} hardly varied in training and have weight 0."
            for number, names in enumerate([*self._idle, self.fit.idle_features()], start=1)
            if (idle := [name for name in names if name not in absent])  # without an embedder they never vary
        ]
        reached = sum(int(example.gold.sum()) for example in self.training)
        total = sum(len(gold) for _, gold in self._training)
        few = [f"Trained on fewer than {FEW} questions: check it on others."] if len(self._training) < FEW else []
        return [*few, *constant, f"{reached} of {total} gold nodes were among the candidates."]

    def weights(self) -> Mapping[str, Any]:
        passes = [*self.fitted, self.fit.score]
        return {"groups": self.settings()["groups"], "passes": [score.plain() for score in passes]}

    def untrained(self) -> Operator[Query, Ranking]:
        return bm25(self.group) if self.embedder is None else hybrid(self.group, self.embedder)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return LearnedRanker(self.group, weights, self.embedder, self.names)


_MEMORY = ("step", "change")


def seeds_of(example: Example, score: Score) -> Seeds:
    """Return the seeds of the next pass for a question."""
    scores = score.contributions(example.candidates.features).sum(axis=1)
    return next_seeds(example.candidates.positions, scores)


def cross_fit_seeds(
    examples: Sequence[Example],
    score: Score,
    steps: int,
    make_fit: Callable[[Sequence[Example]], PassFit | TreeFit] = PassFit.from_examples,
) -> list[Seeds]:
    """Return the seeds of the next pass for each training question, by weights not fitted to it where possible."""
    seeds = dict[int, Seeds]()
    for fold in range(FOLDS):
        training = [example for number, example in enumerate(examples) if number % FOLDS != fold]
        fold_score = make_fit(training).finish(steps) if any(example.teaches for example in training) else score
        seeds |= {
            number: seeds_of(example, fold_score) for number, example in enumerate(examples) if number % FOLDS == fold
        }
    return [seeds[number] for number in range(len(examples))]


def _gold_keys(snapshot: Snapshot, group: str, item: Item, principals: frozenset[str]) -> Iterator[int]:
    """Yield the keys of the gold nodes: those of a gold document, or that overlap a gold quote."""
    ids = list[str]()
    for gold in {place for group_of_gold in item.gold for place in group_of_gold}:
        document = gold.document if isinstance(gold, Quote) else gold
        for node in snapshot.numbered_nodes(document, group, 0, EVERYTHING, principals):
            if is_gold(node, gold):
                ids.append(node.id)
    yield from snapshot.keys_of(ids).values()
