"""The one rule for flows whose judge cannot be asked: a classifier, a grader, an evaluator on a server that is down."""

from collections.abc import Callable
from typing import TypeVar

from spolia.core.run_context import degrade
from spolia.errors import ModelRejected, ModelUnavailable

T = TypeVar("T")


def ask_judge(ask: Callable[[], T], otherwise: str) -> T | None:
    """Return a judge's verdict; None if it cannot be asked, which is recorded as degraded.

    The flow goes on without a verdict: what the judge would have ended goes on, what it would have cut stays, and
    where it would have chosen between two, both are taken. A wrong verdict costs tokens then, and no answer.

    Args:
        otherwise: what holds without a verdict, in words.

    >>> ask_judge(lambda: 0.7, "the chain goes on")
    0.7
    """
    try:
        return ask()
    except (ModelUnavailable, ModelRejected) as error:
        degrade(f"A judge could not be asked, and {otherwise}: {error}", error=error)
        return None
