"""A store as it was published once: read, and searched with access and filters."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
