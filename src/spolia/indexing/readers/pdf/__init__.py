"""PDF: lines, rules, tables, pictures and notes of a page, and the order in which they are read."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
