"""Build, measure, tune and serve retrieval-augmented generation from interchangeable operators.

Names are imported on first use, so that `import spolia` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spolia.checking import check as check
    from spolia.combinators import (
        Best as Best,
    )
    from spolia.combinators import (
        Branch as Branch,
    )
    from spolia.combinators import (
        Choice as Choice,
    )
    from spolia.combinators import (
        Each as Each,
    )
    from spolia.combinators import (
        Explore as Explore,
    )
    from spolia.combinators import (
        Guard as Guard,
    )
    from spolia.combinators import (
        Identity as Identity,
    )
    from spolia.combinators import (
        Loop as Loop,
    )
    from spolia.combinators import (
        Route as Route,
    )
    from spolia.combinators import (
        Samples as Samples,
    )
    from spolia.combinators import (
        Stopped as Stopped,
    )
    from spolia.combinators import (
        decide as decide,
    )
    from spolia.combinators import (
        places as places,
    )
    from spolia.combinators import (
        settle as settle,
    )
    from spolia.flows.across import across as across
    from spolia.flows.files import dump as dump
    from spolia.flows.files import load as load
    from spolia.function import step as step
    from spolia.generation.extract import Extract as Extract
    from spolia.generation.reader import Reader as Reader
    from spolia.indexing.sources.api import APIItems as APIItems
    from spolia.indexing.sources.remote import RemoteFiles as RemoteFiles
    from spolia.indexing.sources.sql import SQLRows as SQLRows
    from spolia.indexing.sources.web import WebPages as WebPages
    from spolia.indexing.splitters.code import CodeSplitter as CodeSplitter
    from spolia.indexing.splitters.csv_rows import CSVRows as CSVRows
    from spolia.indexing.splitters.html import HTMLSections as HTMLSections
    from spolia.indexing.splitters.json_rows import JSONRows as JSONRows
    from spolia.indexing.splitters.markdown import MarkdownSections as MarkdownSections
    from spolia.indexing.splitters.pages import Pages as Pages
    from spolia.indexing.splitters.paragraphs import Paragraphs as Paragraphs
    from spolia.indexing.splitters.recursive import RecursiveCharacters as RecursiveCharacters
    from spolia.indexing.splitters.semantic import SemanticBreaks as SemanticBreaks
    from spolia.indexing.splitters.sentence_pieces import Sentences as Sentences
    from spolia.indexing.splitters.sliding_window import SlidingWindow as SlidingWindow
    from spolia.indexing.splitters.tables import TableAware as TableAware
    from spolia.indexing.splitters.token_window import TokenWindow as TokenWindow
    from spolia.indexing.sync import sync as sync
    from spolia.indexing.texts import (
        add_texts as add_texts,
    )
    from spolia.indexing.texts import (
        temporary as temporary,
    )
    from spolia.indexing.transforms.by_pattern import ByPattern as ByPattern
    from spolia.indexing.transforms.function import transform as transform
    from spolia.indexing.transforms.headers import ContextualHeaders as ContextualHeaders
    from spolia.indexing.transforms.keywords import Keywords as Keywords
    from spolia.indexing.transforms.llm_entities import LLMEntities as LLMEntities
    from spolia.indexing.transforms.questions import (
        HypotheticalQuestions as HypotheticalQuestions,
    )
    from spolia.indexing.transforms.questions import (
        QuestionAnswers as QuestionAnswers,
    )
    from spolia.indexing.transforms.rule_entities import RuleEntities as RuleEntities
    from spolia.indexing.transforms.summary import Summary as Summary
    from spolia.journal import Cache as Cache
    from spolia.journal import Runs as Runs
    from spolia.models.chat import ChatModel as ChatModel
    from spolia.models.minilm import MiniLM as MiniLM
    from spolia.models.scripted import ScriptedModel as ScriptedModel
    from spolia.operator import Operator as Operator
    from spolia.orchestration.fusion import (
        ConvexCombination as ConvexCombination,
    )
    from spolia.orchestration.fusion import (
        ReciprocalRankFusion as ReciprocalRankFusion,
    )
    from spolia.orchestration.highest import HighestScore as HighestScore
    from spolia.post_retrieval.cut import Cut as Cut
    from spolia.post_retrieval.forms import (
        AsDicts as AsDicts,
    )
    from spolia.post_retrieval.forms import (
        AsNodes as AsNodes,
    )
    from spolia.post_retrieval.forms import (
        AsText as AsText,
    )
    from spolia.post_retrieval.keyword import KeywordFilter as KeywordFilter
    from spolia.post_retrieval.rerank import reranker as reranker
    from spolia.retrieval.bm25 import BM25 as BM25
    from spolia.retrieval.by_similarity import BySimilarity as BySimilarity
    from spolia.retrieval.dense import Dense as Dense
    from spolia.retrieval.phrase import Phrase as Phrase
    from spolia.retrieval.similarity import similarity as similarity
    from spolia.run import Budget as Budget
    from spolia.run import Run as Run
    from spolia.show import mermaid as mermaid
    from spolia.show import tree as tree
    from spolia.stores.corpus import Corpus as Corpus
    from spolia.surrounding import Done as Done
    from spolia.surrounding import Emitted as Emitted
    from spolia.surrounding import Retracted as Retracted
    from spolia.types import (
        Answer as Answer,
    )
    from spolia.types import (
        Citation as Citation,
    )
    from spolia.types import (
        Document as Document,
    )
    from spolia.types import (
        Failure as Failure,
    )
    from spolia.types import (
        Generation as Generation,
    )
    from spolia.types import (
        Hit as Hit,
    )
    from spolia.types import (
        Item as Item,
    )
    from spolia.types import (
        Message as Message,
    )
    from spolia.types import (
        Node as Node,
    )
    from spolia.types import (
        Prompt as Prompt,
    )
    from spolia.types import (
        Query as Query,
    )
    from spolia.types import (
        Quote as Quote,
    )
    from spolia.types import (
        Ranking as Ranking,
    )
    from spolia.types import (
        Span as Span,
    )
    from spolia.types import (
        State as State,
    )
    from spolia.types import (
        Usage as Usage,
    )
    from spolia.types import (
        Verdict as Verdict,
    )

WHERE = {
    "spolia.checking": ("check",),
    "spolia.combinators": (
        "Best", "Branch", "Choice", "Each", "Explore", "Guard", "Identity", "Loop", "Route", "Samples", "Stopped",
        "decide", "places", "settle",
    ),
    "spolia.flows.across": ("across",),
    "spolia.flows.files": ("dump", "load"),
    "spolia.generation.extract": ("Extract",),
    "spolia.generation.reader": ("Reader",),
    "spolia.indexing.sources.api": ("APIItems",),
    "spolia.indexing.sources.remote": ("RemoteFiles",),
    "spolia.indexing.sources.sql": ("SQLRows",),
    "spolia.indexing.sources.web": ("WebPages",),
    "spolia.indexing.texts": ("add_texts", "temporary"),
    "spolia.indexing.transforms.by_pattern": ("ByPattern",),
    "spolia.indexing.splitters.code": ("CodeSplitter",),
    "spolia.indexing.splitters.csv_rows": ("CSVRows",),
    "spolia.indexing.splitters.html": ("HTMLSections",),
    "spolia.indexing.splitters.json_rows": ("JSONRows",),
    "spolia.indexing.splitters.markdown": ("MarkdownSections",),
    "spolia.indexing.splitters.pages": ("Pages",),
    "spolia.indexing.splitters.paragraphs": ("Paragraphs",),
    "spolia.indexing.splitters.recursive": ("RecursiveCharacters",),
    "spolia.indexing.splitters.semantic": ("SemanticBreaks",),
    "spolia.indexing.splitters.sentence_pieces": ("Sentences",),
    "spolia.indexing.splitters.sliding_window": ("SlidingWindow",),
    "spolia.indexing.splitters.tables": ("TableAware",),
    "spolia.indexing.splitters.token_window": ("TokenWindow",),
    "spolia.indexing.sync": ("sync",),
    "spolia.indexing.transforms.function": ("transform",),
    "spolia.indexing.transforms.headers": ("ContextualHeaders",),
    "spolia.indexing.transforms.keywords": ("Keywords",),
    "spolia.indexing.transforms.llm_entities": ("LLMEntities",),
    "spolia.indexing.transforms.questions": ("HypotheticalQuestions", "QuestionAnswers",),
    "spolia.indexing.transforms.rule_entities": ("RuleEntities",),
    "spolia.indexing.transforms.summary": ("Summary",),
    "spolia.journal": ("Cache", "Runs"),
    "spolia.models.chat": ("ChatModel",),
    "spolia.models.minilm": ("MiniLM",),
    "spolia.models.scripted": ("ScriptedModel",),
    "spolia.function": ("step",),
    "spolia.operator": ("Operator",),
    "spolia.orchestration.highest": ("HighestScore",),
    "spolia.post_retrieval.cut": ("Cut",),
    "spolia.post_retrieval.forms": ("AsDicts", "AsNodes", "AsText"),
    "spolia.post_retrieval.keyword": ("KeywordFilter",),
    "spolia.post_retrieval.rerank": ("reranker",),
    "spolia.orchestration.fusion": ("ConvexCombination", "ReciprocalRankFusion"),
    "spolia.retrieval.by_similarity": ("BySimilarity",),
    "spolia.retrieval.phrase": ("Phrase",),
    "spolia.retrieval.similarity": ("similarity",),
    "spolia.retrieval.bm25": ("BM25",),
    "spolia.retrieval.dense": ("Dense",),
    "spolia.run": ("Budget", "Run"),
    "spolia.show": ("mermaid", "tree"),
    "spolia.stores.corpus": ("Corpus",),
    "spolia.surrounding": ("Done", "Emitted", "Retracted"),
    "spolia.types": (
        "Answer", "Citation", "Document", "Failure", "Generation", "Hit", "Item", "Message", "Node", "Prompt", "Query",
        "Quote", "Ranking", "Span", "State", "Usage", "Verdict",
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
