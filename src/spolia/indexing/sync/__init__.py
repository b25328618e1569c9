"""A run of sync: what has changed is found, read ahead, cut, embedded and stored batch by batch."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
