"""Indexing of documents: they are read, cut into nodes, and kept in step with a folder."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
