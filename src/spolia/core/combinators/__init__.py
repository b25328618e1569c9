"""Operators made of operators, one file each: how steps are put together, not what they do."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
