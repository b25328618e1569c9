"""Build, measure, tune and serve retrieval-augmented generation from interchangeable operators.

Names are imported on first use, so that `import spolia` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spolia.checking import check
    from spolia.combinators import (
        Best,
        Branch,
        Choice,
        Each,
        Explore,
        Guard,
        Identity,
        Loop,
        Route,
        Samples,
        Stopped,
        decide,
        places,
        settle,
    )
    from spolia.flows.files import dump, load
    from spolia.generation.extract import Extract
    from spolia.generation.reader import Reader
    from spolia.indexing.splitter import SlidingWindow
    from spolia.indexing.sync import sync
    from spolia.journal import Cache, Runs
    from spolia.models.chat import ChatModel
    from spolia.models.minilm import MiniLM
    from spolia.models.scripted import ScriptedModel
    from spolia.operator import Operator, step
    from spolia.orchestration.fusion import ConvexCombination, ReciprocalRankFusion
    from spolia.retrieval.bm25 import BM25
    from spolia.retrieval.dense import Dense
    from spolia.run import Budget, Run
    from spolia.show import mermaid, tree
    from spolia.stores.corpus import Corpus
    from spolia.types import (
        Answer,
        Citation,
        Document,
        Failure,
        Generation,
        Hit,
        Item,
        Message,
        Node,
        Prompt,
        Query,
        Ranking,
        Span,
        State,
        Usage,
        Verdict,
    )

WHERE = {
    "spolia.checking": ("check",),
    "spolia.combinators": (
        "Best", "Branch", "Choice", "Each", "Explore", "Guard", "Identity", "Loop", "Route", "Samples", "Stopped",
        "decide", "places", "settle",
    ),
    "spolia.flows.files": ("dump", "load"),
    "spolia.generation.extract": ("Extract",),
    "spolia.generation.reader": ("Reader",),
    "spolia.indexing.splitter": ("SlidingWindow",),
    "spolia.indexing.sync": ("sync",),
    "spolia.journal": ("Cache", "Runs"),
    "spolia.models.chat": ("ChatModel",),
    "spolia.models.minilm": ("MiniLM",),
    "spolia.models.scripted": ("ScriptedModel",),
    "spolia.operator": ("Operator", "step"),
    "spolia.orchestration.fusion": ("ConvexCombination", "ReciprocalRankFusion"),
    "spolia.retrieval.bm25": ("BM25",),
    "spolia.retrieval.dense": ("Dense",),
    "spolia.run": ("Budget", "Run"),
    "spolia.show": ("mermaid", "tree"),
    "spolia.stores.corpus": ("Corpus",),
    "spolia.types": (
        "Answer", "Citation", "Document", "Failure", "Generation", "Hit", "Item", "Message", "Node", "Prompt", "Query",
        "Ranking", "Span", "State", "Usage", "Verdict",
    ),
}  # fmt: skip
MODULE_OF = {name: module for module, names in WHERE.items() for name in names}

__version__ = "0.1.0"
__all__ = sorted(MODULE_OF)


def __getattr__(name: str) -> object:
    module = MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"spolia has no {name!r}. It has: {', '.join(__all__)}.")
    found = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
