"""Build, measure, tune and serve retrieval-augmented generation from interchangeable operators.

Names are imported on first use, so that `import spolia` costs nothing.
"""

from spolia.core.public_names import exports

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = exports(__name__)
