"""Search along links between nodes: to similar nodes, nodes with the same entities, and neighbours."""

from spolia.core.public_names import submodules

__getattr__ = submodules(__name__)
