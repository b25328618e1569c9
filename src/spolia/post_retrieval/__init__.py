"""Operators from a ranking to another ranking of the same query."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
