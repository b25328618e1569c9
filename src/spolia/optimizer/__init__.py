"""Tuning: the best flow of a space on your own questions, within a budget, with an honest report."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
