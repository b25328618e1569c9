"""Language models, embedders and the roles that prompts play; each adapter is a file of its own."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
