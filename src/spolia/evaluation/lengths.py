"""Flows that find fewer passages than measures look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from spolia.evaluation.identity import inside
from spolia.evaluation.row import Row

if TYPE_CHECKING:
    from spolia.evaluation.experiment import Experiment


def too_short(experiment: Experiment, rows: Mapping[tuple[str, str], Row]) -> Iterator[str]:
    """Of each flow that is cut off by its `top_k` before a measure's k: that R@10 is then R@3 for it."""
    for name, flow in experiment.flows:
        longest = max(len(rows[name, item.id].found) for item in experiment.asked)
        deeper = [str(one) for one in experiment.measures if (getattr(one, "k", None) or 0) > longest]
        if deeper and longest in {getattr(one, "top_k", None) for one in inside(flow)}:
            yield (
                f"{name} stops at {longest} (top_k={longest}), so that {', '.join(deeper)} cannot say more of it than "
                f"at {longest}."
            )
