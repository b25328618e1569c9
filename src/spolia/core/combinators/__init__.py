"""Operators made of operators, one file each: how steps are put together, not what they do."""

from spolia.core.combinators.best import Best, Samples
from spolia.core.combinators.branch import Branch
from spolia.core.combinators.choice import Choice
from spolia.core.combinators.each import Each
from spolia.core.combinators.explore import Explore
from spolia.core.combinators.get import Get
from spolia.core.combinators.guard import Guard
from spolia.core.combinators.identity import Identity
from spolia.core.combinators.loop import Loop, Stopped
from spolia.core.combinators.route import Route
from spolia.core.combinators.space import OpenPlace, Point, Space, decide, places, settle

__all__ = [
    "Best", "Branch", "Choice", "Each", "Explore", "Get", "Guard", "Identity", "Loop", "OpenPlace", "Point",
    "Route", "Samples", "Space", "Stopped", "decide", "places", "settle",
]  # fmt: skip
