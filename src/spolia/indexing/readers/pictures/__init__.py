"""Readers of pictures: recognised text, descriptions and bytes."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
