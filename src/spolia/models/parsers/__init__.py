"""Parsers read a value out of a model's reply; they refuse what is not clear and never guess."""

from spolia.models.parsers.json_object import JsonObject
from spolia.models.parsers.lines import Headed, Lines, listed
from spolia.models.parsers.numbers import Number, Order, completed
from spolia.models.parsers.parser import NOTHING, Parser, Text, refuses, says_nothing, spoken
from spolia.models.parsers.tags import THOUGHT, AnswerText, ControlTokens, Tags, without_tokens
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
    "completed",
    "listed",
    "refuses",
    "says_nothing",
    "spoken",
    "without_tokens",
]
