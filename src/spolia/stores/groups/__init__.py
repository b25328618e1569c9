"""Building node groups: definitions, nodes, vectors, storage."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
