"""How good a flow is: data sets, measures, intervals, and the run of a flow over questions with gold."""

from spolia.core.public_names import exports
from spolia.core.views import register_view

__getattr__, __dir__, __all__ = exports(__name__)

register_view(f"{__name__}.experiment.results:Report", "html", f"{__name__}.report.html:render_fragment")
register_view(f"{__name__}.experiment.results:Report", "text", f"{__name__}.report.tables:format_text")
