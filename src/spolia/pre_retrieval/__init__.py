"""Operators that improve a query: more queries, another text or vector, a filter, a statement for a database."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
