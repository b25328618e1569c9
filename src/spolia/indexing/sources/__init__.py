"""Sources of documents beside folders: web pages, file systems, databases, HTTP APIs."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
