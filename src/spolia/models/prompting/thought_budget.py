"""Tokens for a model's thought before it replies: set by the user, or learnt from the first reply that it cut."""

from collections.abc import Callable

from spolia.core.run_context import note
from spolia.errors import BudgetSpent, ModelRejected, ThoughtCut
from spolia.models.parsers import strip_thoughts
from spolia.models.protocols import LanguageModel
from spolia.types import Generation

LEARNT = 4096
"""Tokens that a model gets to think once it was found to; most thoughts about a question and passages are shorter."""
_learnt_room: dict[tuple[str, str | None], int] = {}
"""By model and fingerprint, in this process."""


def ask_with_thought(llm: LanguageModel, ask: Callable[[int], Generation], max_tokens: int) -> Generation:
    """Return the reply to `ask(tokens)`, which has `max_tokens` beside what the model thinks.

    A model for which no tokens to think were set (`thought_tokens`), and whose first reply ends within its thought, is
    asked once more with `LEARNT` tokens for it, and has them from then on.

    Raises:
        ThoughtCut: the thought filled these too, or the budget has no room for them.
    """
    # most runs have learnt nothing: no fingerprint is taken
    room = _learnt_room.get(_model_key(llm), 0) if _learnt_room else 0
    try:
        generation = _complete_reply(llm, ask, max_tokens, room)
    except ThoughtCut as cut:
        if room or getattr(llm, "thought_tokens", 0):
            raise
        try:
            generation = _complete_reply(llm, ask, max_tokens, LEARNT)
        except ThoughtCut:
            raise
        except (BudgetSpent, ModelRejected):  # a server may refuse so many tokens
            raise cut from None
        _learnt_room[_model_key(llm)] = room = LEARNT
    if room:
        note(f"{llm.name} thinks before it replies, and got {room} tokens for it (--think).")
    return generation


def _model_key(llm: LanguageModel) -> tuple[str, str | None]:
    return llm.name, llm.fingerprint()


def _complete_reply(llm: LanguageModel, ask: Callable[[int], Generation], max_tokens: int, room: int) -> Generation:
    """Return the reply with `room` tokens for its thought; ThoughtCut, with their number, if it holds nothing else."""
    try:
        generation = ask(max_tokens + room)
    except ThoughtCut:
        pass
    else:
        if generation.finish_reason != "length" or strip_thoughts(generation.text):
            return generation
    room += getattr(llm, "thought_tokens", 0)
    amount = f"N tokens to think, more than {room:,}" if room else "N tokens to think"
    raise ThoughtCut(
        f"{llm.name} thought until all {max_tokens + room:,} tokens were spent, and wrote no reply. "
        f"Write --think N, in a profile or in Python thought_tokens=N, for {amount}."
    )
