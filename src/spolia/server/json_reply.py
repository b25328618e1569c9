"""A reply in JSON."""

from typing import Any

from pydantic_core import to_json
from starlette.responses import JSONResponse


class JsonReply(JSONResponse):
    """Reply in JSON, which pydantic writes in a third of the time of `json`."""

    def render(self, content: Any) -> bytes:
        return to_json(content, inf_nan_mode="null")
