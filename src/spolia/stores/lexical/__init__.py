"""Search by words: how texts become terms, frozen indexes of them, and how they follow a backend elsewhere."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
