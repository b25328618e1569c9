"""The user's own SQL databases and graphs: queried, never written."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
