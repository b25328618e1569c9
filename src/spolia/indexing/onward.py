"""How far a run is that keeps a store in step with several lots, one after the other."""

from __future__ import annotations

from collections.abc import Callable

from spolia.indexing.report import Progress


class Onward:
    """Tells of lots as of one run: what was done of those before is counted too.

    Args:
        progress: is told.

    >>> told = []
    >>> onward = Onward(told.append)
    >>> onward(Progress(done=2, total=2))
    >>> onward.next()
    >>> onward(Progress(done=1, total=3))
    >>> [(now.done, now.total) for now in told]
    [(2, 2), (3, 5)]
    """

    def __init__(self, progress: Callable[[Progress], None] | None) -> None:
        self.progress = progress
        self.before = self.last = Progress(0, 0)

    def __call__(self, now: Progress) -> None:
        """How far the lot is."""
        before = self.before
        self.last = (
            now
            if not before.total
            else now.but(
                done=before.done + now.done,
                total=before.total + now.total,
                failed=before.failed + now.failed,
                chunks=before.chunks + now.chunks,
                embedded=before.embedded + now.embedded,
            )
        )
        if self.progress is not None:
            self.progress(self.last)

    def next(self) -> None:
        """What follows is of the next lot."""
        self.before = self.last
