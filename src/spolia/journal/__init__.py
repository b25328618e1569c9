"""Traces and cached results, in one SQLite file of their own: droppable, and never in the way of an answer."""

from spolia.journal.cache import Cache, Entry
from spolia.journal.runs import Runs
from spolia.journal.trace import Journal, Span

__all__ = ["Cache", "Entry", "Journal", "Runs", "Span"]
