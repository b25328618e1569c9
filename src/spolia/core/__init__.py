"""Operators, and what checks, wires, names and draws them."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
