"""Tokens for what a model thinks before it replies: set for it, or learnt from the first reply that was cut there."""

from collections.abc import Callable

from spolia.core.run_context import note
from spolia.errors import BudgetSpent, ModelRejected, ThoughtCut
from spolia.models.parsers import spoken
from spolia.models.protocols import LanguageModel
from spolia.types import Generation

LEARNT = 4096
"""Tokens that a model gets to think once it was found to; most thoughts about a question and passages are shorter."""
_learnt: dict[tuple[str, str | None], int] = {}
"""By model and fingerprint, in this process."""


def thought_through(llm: LanguageModel, ask: Callable[[int], Generation], max_tokens: int) -> Generation:
    """Return the reply to `ask(tokens)`, which has `max_tokens` beside what the model thinks.

    A model for which no tokens to think were set (`thought_tokens`), and whose first reply ends within its thought, is
    asked once more with `LEARNT` tokens for it, and has them from then on.

    Raises:
        ThoughtCut: the thought filled these too, or the budget has no room for them.
    """
    room = _learnt.get(_place(llm), 0) if _learnt else 0
    try:
        found = _whole(llm, ask, max_tokens, room)
    except ThoughtCut as cut:
        if room or getattr(llm, "thought_tokens", 0):
            raise
        try:
            found = _whole(llm, ask, max_tokens, LEARNT)
        except ThoughtCut:
            raise
        except (BudgetSpent, ModelRejected):  # a server may refuse so many tokens
            raise cut from None
        _learnt[_place(llm)] = room = LEARNT
    if room:
        note(f"{llm.name} thinks before it replies, and got {room} tokens for it (--think).")
    return found


def _place(llm: LanguageModel) -> tuple[str, str | None]:
    return llm.name, llm.fingerprint()


def _whole(llm: LanguageModel, ask: Callable[[int], Generation], max_tokens: int, room: int) -> Generation:
    """Return the reply with `room` tokens for its thought; ThoughtCut, with their number, if it holds nothing else."""
    try:
        found = ask(max_tokens + room)
    except ThoughtCut:
        pass
    else:
        if found.finish_reason != "length" or spoken(found.text):
            return found
    room += getattr(llm, "thought_tokens", 0)
    more = f"N tokens to think, more than {room:,}" if room else "N tokens to think"
    raise ThoughtCut(
        f"{llm.name} thought until all {max_tokens + room:,} tokens were spent, and wrote no reply. "
        f"Write --think N, in a profile or in Python thought_tokens=N, for {more}."
    )
