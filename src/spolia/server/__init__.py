"""Flows served over HTTP: routes, keys, limits. The extra `server` brings what its modules import."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
