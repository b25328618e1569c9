"""`spolia fail-points`: the places at which tests kill the process."""

from __future__ import annotations

from spolia.cli.exits import Exit
from spolia.cli.options import AsJson
from spolia.cli.screen import Screen


def fail_points(json: AsJson = False) -> Exit:
    """List the fail points; SPOLIA_FAIL_POINT=name, or name@n for the n-th time, kills the process there."""
    from spolia.stores.failpoints import FAIL_POINTS

    screen = Screen(json=json)
    screen.give(fail_points=list(FAIL_POINTS))
    screen.show("\n".join(FAIL_POINTS))
    return Exit.DONE
