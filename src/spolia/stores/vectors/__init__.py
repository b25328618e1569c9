"""Search by vectors: segment files, exact and approximate search, graphs and databases beside them."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
