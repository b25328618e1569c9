"""Operators, and what checks, wires, names and draws them."""

from spolia.core.public_names import exports
from spolia.core.views import register_view

__getattr__, __dir__, __all__ = exports(__name__)

register_view("spolia.core.operator:Operator", "html", f"{__name__}.draw_svg:svg")
