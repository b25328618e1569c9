"""Traces and cached results, in one SQLite file of their own: droppable, and never in the way of an answer."""

from spolia.journal.cache import Cache, CacheEntry
from spolia.journal.trace import Journal, Runs, TraceSpan

__all__ = ["Cache", "CacheEntry", "Journal", "Runs", "TraceSpan"]
