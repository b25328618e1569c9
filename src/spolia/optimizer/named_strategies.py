"""The strategies by name, as `spolia tune --strategy` takes them."""

from collections.abc import Mapping

from spolia.errors import DataError
from spolia.optimizer.bandit import HierarchicalBandit
from spolia.optimizer.strategies import (
    GreedySearch,
    GridSearch,
    Halving,
    HalvingWithNeighbours,
    ModelsFirst,
    Racing,
    RandomSearch,
    Strategy,
)
from spolia.optimizer.tree_parzen import TreeParzen

STRATEGIES: Mapping[str, Strategy] = {
    "neighbours": HalvingWithNeighbours(), "halving": Halving(), "third": Halving(1 / 3), "greedy": GreedySearch(),
    "models-first": ModelsFirst(), "tpe": TreeParzen(), "prove": Racing(), "random": RandomSearch(),
    "grid": GridSearch(), "bandit": HierarchicalBandit(),
}  # fmt: skip


def strategy_named(name: str) -> Strategy:
    """The strategy of a name; `DataError` for an unknown name."""
    if name not in STRATEGIES:
        raise DataError(f"There is no strategy {name!r}. Write one of: {', '.join(STRATEGIES)}.")
    return STRATEGIES[name]
