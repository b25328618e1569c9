"""What is read out of a model's reply: frozen values, so that a role that holds one is plain data.

A reply is read as people read it: reasoning before it, fences, bold type, introductions, other quotes or full-width
letters do not matter. What is not clear is refused, never guessed.
"""

from spolia.models.parsers.control_tokens import ControlTokens, without_tokens
from spolia.models.parsers.headed import Headed
from spolia.models.parsers.lines import Lines
from spolia.models.parsers.number import Number
from spolia.models.parsers.objects import JsonObject
from spolia.models.parsers.order import Order, completed
from spolia.models.parsers.parser import Parser, spoken
from spolia.models.parsers.tags import Tags
from spolia.models.parsers.text import Text
from spolia.models.parsers.words import OneOf, YesNo

__all__ = [
    "ControlTokens",
    "JsonObject",
    "Lines",
    "Number",
    "OneOf",
    "Order",
    "Parser",
    "Headed",
    "Tags",
    "Text",
    "YesNo",
    "completed",
    "spoken",
    "without_tokens",
]
