"""Parsers read a value out of a model's reply; they refuse what is not clear and never guess."""

from spolia.models.parsers.json_object import JsonObject
from spolia.models.parsers.lines import Headed, Lines, list_texts
from spolia.models.parsers.numbers import Number, Order, complete_order, completed
from spolia.models.parsers.parser import NOTHING, Parser, Text, refuses, says_nothing, strip_thoughts
from spolia.models.parsers.tags import THOUGHT, AnswerText, ControlTokens, Tags, strip_tokens
from spolia.models.parsers.verdicts import Reasoned
from spolia.models.parsers.words import OneOf, YesNo

__all__ = [
    "NOTHING",
    "THOUGHT",
    "AnswerText",
    "ControlTokens",
    "JsonObject",
    "Lines",
    "Number",
    "OneOf",
    "Order",
    "Parser",
    "Reasoned",
    "Headed",
    "Tags",
    "Text",
    "YesNo",
    "complete_order",
    "completed",
    "list_texts",
    "refuses",
    "says_nothing",
    "strip_thoughts",
    "strip_tokens",
]
