"""A store in a folder: rows in SQLite's file, everything derived beside it."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
