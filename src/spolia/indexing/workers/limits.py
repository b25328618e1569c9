"""What a worker may use."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass

from spolia.types import Value

_MEGABYTE = 2**20
_PARENT_DIED = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class Limits(Value):
    """What reading one file may use.

    Args:
        seconds: of wall-clock time, and one more for each megabyte of the file; then the worker is killed.
        memory_mb: megabytes of memory of its own, with what Python and the reader's package take. Enforced where the
            system can (Linux).
        written_mb: megabytes of each file that it writes, for programs that it calls.
        attempts: how often a file that kills its worker is tried; a file whose reader says what is wrong is read once.
    """

    seconds: float = 120.0
    memory_mb: int = 2_048
    written_mb: int = 512
    attempts: int = 2

    def seconds_for(self, size: int) -> float:
        """How long a file of so many bytes may take: 5,000 pages may, also where the machine has much else to do.

        >>> Limits().seconds_for(1_000), Limits().seconds_for(170_000_000)
        (120.0, 290.0)
        """
        return self.seconds + size // 1_000_000


def confine(limits: Limits) -> None:
    """Apply the limits to this process, for good."""
    try:
        import resource
    except ImportError:  # Windows has none of this; time is limited from outside there too
        return
    memory, written = limits.memory_mb * _MEGABYTE, limits.written_mb * _MEGABYTE
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    for what, most in ((kind, memory), (resource.RLIMIT_FSIZE, written), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # a lower limit is there already
            resource.setrlimit(what, (most, most))
    _die_with_parent()


def _die_with_parent() -> None:
    """A worker that hangs in a reader must not outlive who waits for it, however that ended."""
    if sys.platform == "linux":
        import ctypes
        import signal

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PARENT_DIED, signal.SIGKILL)
