"""The nouns: frozen values that flow between operators.

Documents are cut into nodes, a query finds hits, hits make a ranking, a ranking is read into an answer. Values are
immutable and comparable, and know a hash of their content. What a value was made from (`compare=False`) is carried
along and belongs neither to its identity nor to its hash.
"""

from spolia.types.answers import Answer, Citation, Generation, Prompt, Token
from spolia.types.documents import (
    NO_BOXES,
    Box,
    Boxes,
    Document,
    Heading,
    Node,
    Region,
    Span,
    check_principals,
    is_unicode,
)
from spolia.types.items import SOMEWHERE, Gold, Item, Quote, SubQuestion
from spolia.types.outcomes import ArmScores, Chain, Failure, Plan, State, Usage, Verdict
from spolia.types.rankings import Filter, Hit, LateHits, Message, Queries, Query, Ranking
from spolia.types.times import Time, format_time, is_time, scalar_of
from spolia.types.value import (
    Addressed,
    Meta,
    Record,
    Scalar,
    Value,
    digest_of,
    identity_fields,
    lazy_property,
    qualified_name,
)

__all__ = [
    "Addressed", "Answer", "ArmScores", "Box", "Boxes", "Chain", "Citation", "Document", "Failure", "Filter",
    "Generation", "Gold", "Heading", "Hit", "Item", "LateHits", "Message", "Meta", "NO_BOXES", "Node", "Plan", "Prompt",
    "Queries", "Query", "Quote", "Ranking", "Record", "Region", "SOMEWHERE", "Scalar", "Span", "State",
    "SubQuestion", "Time", "Token", "Usage", "Value", "Verdict", "digest_of", "identity_fields", "is_time",
    "is_unicode", "lazy_property", "check_principals", "qualified_name", "scalar_of", "format_time",
]  # fmt: skip
