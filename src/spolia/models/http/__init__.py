"""Http."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
