"""From a query to better ones: more of them, another text, another vector, a filter, a statement for a database."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
