"""Traces and cached results, in one SQLite file of their own: droppable, and never in the way of an answer."""

from spolia.journal.cache import Cache, CacheEntry
from spolia.journal.trace import Journal, Runs, SpanDetail, TraceSpan
from spolia.journal.values import Exchange, ValueLost, ValueReader

__all__ = ["Cache", "CacheEntry", "Exchange", "Journal", "Runs", "SpanDetail", "TraceSpan", "ValueLost", "ValueReader"]
