"""A store in a schema of PostgreSQL."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
