"""Models on this machine, run by torch or llama.cpp."""

from typing import TYPE_CHECKING

from spolia.core.public_names import submodules

if TYPE_CHECKING:
    from spolia.models.local import scorers as scorers

__getattr__ = submodules(__name__)
