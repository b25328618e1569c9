"""What one question took and found: the account of everything that is called while a lane is open."""

from typing import TYPE_CHECKING

from spolia.types import Ranking, Usage

if TYPE_CHECKING:
    from spolia.run.frame import Frame


class Lane:
    """The account of one question; `Run.lane` opens it.

    A retrieval is a step that made a ranking of a query, without another such step inside it: what a flow is composed
    of tells, not what the steps are called. Those at the same time stand in the order in which they ended.

    Attributes:
        retrievals: what each call of a retriever found, in order.
        cached: whether a step's result was taken from the cache, so that the time says nothing.
        interrupted: whether a step failed for a reason that may pass, such as a server that is down, whatever became of
            that: what was found may be another one tomorrow.
        why: what the first step that failed said; empty where none did.
        number: of the question's first span in the journal; 0 without one.
    """

    __slots__ = ("_frame", "cached", "interrupted", "number", "retrievals", "why")

    def __init__(self) -> None:
        self.retrievals: list[Ranking] = []
        self.cached = self.interrupted = False
        self.number = 0
        self.why = ""
        self._frame: Frame | None = None

    def opened(self, frame: "Frame") -> None:
        """Everything inside this frame is on the account."""
        self._frame = frame

    @property
    def usage(self) -> Usage:
        """What was needed, results taken from the cache included."""
        return (self._frame and self._frame.logical) or Usage()

    @property
    def spent(self) -> Usage:
        """What was really spent."""
        return (self._frame and self._frame.spent) or Usage()

    def failed(self, error: Exception | None) -> None:
        """A step has failed."""
        self.why = self.why or (f"{type(error).__name__}: {error}" if error is not None else "")
        self.interrupted |= getattr(error, "transient", False)
