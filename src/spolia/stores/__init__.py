"""Where documents, nodes, vectors and indexes are kept, and how they are found again."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
