"""Run with everything that surrounds a step: trace, cache, budget, threads, access, streaming."""

from spolia.run.budget import Budget
from spolia.run.run import Run

__all__ = ["Budget", "Run"]
