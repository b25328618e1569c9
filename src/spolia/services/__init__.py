"""Work that a server does behind requests: a queue of jobs, and documents that users send."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
