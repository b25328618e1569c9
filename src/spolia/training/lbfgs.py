"""Minimising a smooth convex function, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from spolia.types.arrays import Numbers

Objective: TypeAlias = "Callable[[Numbers], tuple[float, Numbers]]"
"""Gives a value and its gradient."""

MEMORY = 10
FLAT = 1e-7
"""Largest part of the gradient at which it has converged."""
SUFFICIENT, HALVINGS = 1e-4, 40


@dataclass(eq=False)
class LBFGS:
    """Limited-memory BFGS: the gradient, turned by what the last `MEMORY` steps said of the curvature.

    A step is halved until the value falls by a share of what the gradient promises (Armijo). It draws nothing by lot.

    Source: Nocedal and Wright, Numerical Optimization, 2006, algorithms 7.4 and 7.5.

    >>> search = LBFGS(np.zeros(2))
    >>> while not search.converged:
    ...     _ = search.step(lambda x: (float(((x - [1, 2]) ** 2 * [1, 50]).sum()), 2 * (x - [1, 2]) * [1, 50]))
    >>> search.at.round(4).tolist()
    [1.0, 2.0]
    """

    at: Numbers
    steps: list[Numbers] = field(default_factory=list)
    changes: list[Numbers] = field(default_factory=list)
    converged: bool = False

    def step(self, objective: Objective) -> float:
        """Make one iteration; the value before it."""
        value, gradient = objective(self.at)
        if not np.isfinite(value) or float(np.abs(gradient).max(initial=0.0)) <= FLAT:
            self.converged = bool(np.isfinite(value))
            return value
        direction = -self._turned(gradient)
        slope = float(gradient @ direction)
        length = 1.0 if self.steps else min(1.0, 1.0 / float(np.abs(gradient).sum()))
        for _ in range(HALVINGS):
            there = self.at + length * direction
            reached, after = objective(there)
            if reached <= value + SUFFICIENT * length * slope:
                break
            length /= 2
        else:
            self.converged = True  # as flat as numbers tell
            return value
        self._remember(there - self.at, after - gradient)
        self.at = there
        return value

    def _turned(self, gradient: Numbers) -> Numbers:
        """The inverse Hessian times the gradient, as far as it is known."""
        found, shares = gradient.copy(), []
        for step, change in zip(reversed(self.steps), reversed(self.changes), strict=True):
            shares.append(float(step @ found) / float(step @ change))
            found -= shares[-1] * change
        if self.steps:
            found *= float(self.steps[-1] @ self.changes[-1]) / float(self.changes[-1] @ self.changes[-1])
        for step, change, share in zip(self.steps, self.changes, reversed(shares), strict=True):
            found += (share - float(change @ found) / float(step @ change)) * step
        return found

    def _remember(self, step: Numbers, change: Numbers) -> None:
        if float(step @ change) > 1e-12 * float(change @ change):
            self.steps, self.changes = [*self.steps, step][-MEMORY:], [*self.changes, change][-MEMORY:]
