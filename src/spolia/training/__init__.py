"""Training: parts of flows fitted to your own questions, by steps that can be killed, with a card that says how."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
