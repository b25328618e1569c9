"""Tuning: the best flow of a space on your own questions, within a budget, with an honest report."""

from spolia.core.public_names import exports
from spolia.core.views import register_view

__getattr__, __dir__, __all__ = exports(__name__)

register_view(f"{__name__}.tuned_flow:TunedFlow", "html", f"{__name__}.report:render_fragment")
