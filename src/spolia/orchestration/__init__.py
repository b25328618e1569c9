"""Routers, judges and fusions: operators that decide, and operators that merge."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
