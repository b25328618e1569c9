"""How good a flow is: data sets, measures, intervals, and the run of a flow over questions with gold."""

from spolia.core.public_names import exports

__getattr__, __dir__, __all__ = exports(__name__)
