"""Operators made of operators, one file each: how steps are put together, not what they do."""

from spolia.combinators.best import Best
from spolia.combinators.branch import Branch
from spolia.combinators.choice import Choice, Point, decide, places, settle
from spolia.combinators.each import Each
from spolia.combinators.explore import Explore
from spolia.combinators.get import Get
from spolia.combinators.guard import Guard
from spolia.combinators.identity import Identity
from spolia.combinators.loop import Loop, Stopped
from spolia.combinators.route import Route
from spolia.combinators.samples import Samples

__all__ = [
    "Best",
    "Branch",
    "Choice",
    "Each",
    "Explore",
    "Get",
    "Guard",
    "Identity",
    "Loop",
    "Point",
    "Route",
    "Samples",
    "Stopped",
    "decide",
    "places",
    "settle",
]
