"""Build, measure, tune and serve retrieval-augmented generation from interchangeable operators.

Names are imported on first use, so that `import spolia` costs nothing.
"""

# ruff: isort: skip_file

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spolia.checking import check as check
    from spolia.combinators import (
        Best as Best,
        Branch as Branch,
        Choice as Choice,
        Each as Each,
        Explore as Explore,
        Get as Get,
        Guard as Guard,
        Identity as Identity,
        Loop as Loop,
        Route as Route,
        Samples as Samples,
        Stopped as Stopped,
        decide as decide,
        places as places,
        settle as settle,
    )
    from spolia.filters import AnyOf as AnyOf, Between as Between, Field as Field, where as where
    from spolia.flows.across import across as across
    from spolia.flows.files import dump as dump, load as load
    from spolia.function import step as step
    from spolia.generation.closed_book import ClosedBook as ClosedBook
    from spolia.generation.ensemble.answers import AnswerEnsemble as AnswerEnsemble
    from spolia.generation.ensemble.tokens import TokenEnsemble as TokenEnsemble
    from spolia.generation.extract import Extract as Extract
    from spolia.generation.f_string import FString as FString
    from spolia.generation.generate import Generate as Generate
    from spolia.generation.long_context_reorder import LongContextReorder as LongContextReorder
    from spolia.generation.reader import Reader as Reader
    from spolia.generation.verification.claims import VerifyClaims as VerifyClaims
    from spolia.generation.verification.grounding import VerifyGrounding as VerifyGrounding
    from spolia.indexing.planning import planned as planned
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
    from spolia.indexing.structure.attach_metadata import AttachMetadata as AttachMetadata
    from spolia.indexing.structure.extractive import ExtractiveSummary as ExtractiveSummary
    from spolia.indexing.structure.regions import Regions as Regions
    from spolia.indexing.structure.sections import Sections as Sections
    from spolia.indexing.structure.topics import Topics as Topics
    from spolia.indexing.sync import sync as sync
    from spolia.indexing.texts import add_texts as add_texts, temporary as temporary
    from spolia.indexing.transforms.by_pattern import ByPattern as ByPattern
    from spolia.indexing.transforms.function import transform as transform
    from spolia.indexing.transforms.headers import ContextualHeaders as ContextualHeaders
    from spolia.indexing.transforms.keywords import Keywords as Keywords
    from spolia.indexing.transforms.llm_entities import LLMEntities as LLMEntities
    from spolia.indexing.transforms.questions import (
        HypotheticalQuestions as HypotheticalQuestions,
        QuestionAnswers as QuestionAnswers,
    )
    from spolia.indexing.transforms.rule_entities import RuleEntities as RuleEntities
    from spolia.indexing.transforms.summary import Summary as Summary
    from spolia.journal import Cache as Cache, Runs as Runs
    from spolia.models.chat import ChatModel as ChatModel
    from spolia.models.completions import CompletionModel as CompletionModel
    from spolia.models.embeddings import EmbeddingModel as EmbeddingModel
    from spolia.models.local.cross_encoder import LocalCrossEncoder as LocalCrossEncoder
    from spolia.models.local.embedder import LocalEmbedder as LocalEmbedder
    from spolia.models.local.image_embedder import LocalImageEmbedder as LocalImageEmbedder
    from spolia.models.local.language_model import LocalModel as LocalModel, LocalSeq2Seq as LocalSeq2Seq
    from spolia.models.local.sparse_embedder import LocalSparseEmbedder as LocalSparseEmbedder
    from spolia.models.local.token_embedder import LocalTokenEmbedder as LocalTokenEmbedder
    from spolia.models.minilm import MiniLM as MiniLM
    from spolia.models.reranking import RerankModel as RerankModel
    from spolia.models.scripted import ScriptedModel as ScriptedModel
    from spolia.operator import Operator as Operator
    from spolia.orchestration.blend import Blend as Blend
    from spolia.orchestration.by_keywords import ByKeywords as ByKeywords
    from spolia.orchestration.by_label import ByLabel as ByLabel
    from spolia.orchestration.by_meaning import ByMeaning as ByMeaning
    from spolia.orchestration.by_next_token import ByNextToken as ByNextToken
    from spolia.orchestration.classified import Classified as Classified
    from spolia.orchestration.confident import Confident as Confident
    from spolia.orchestration.even_split import EvenSplit as EvenSplit
    from spolia.orchestration.exceeds import Exceeds as Exceeds
    from spolia.orchestration.fusion import (
        ConvexCombination as ConvexCombination,
        ReciprocalRankFusion as ReciprocalRankFusion,
    )
    from spolia.orchestration.highest import HighestScore as HighestScore
    from spolia.orchestration.knowledge_guided import KnowledgeGuided as KnowledgeGuided
    from spolia.orchestration.llm_fusion import LLMFusion as LLMFusion
    from spolia.orchestration.majority import MajorityVote as MajorityVote
    from spolia.orchestration.pick_arm import PickArm as PickArm
    from spolia.orchestration.stop_when import StopOn as StopOn, StopWhen as StopWhen
    from spolia.orchestration.sufficient import Sufficient as Sufficient
    from spolia.post_retrieval.colbert import ColBERT as ColBERT
    from spolia.post_retrieval.compression.extractive import Extractive as Extractive
    from spolia.post_retrieval.compression.llmlingua import LLMLingua as LLMLingua
    from spolia.post_retrieval.compression.long_llmlingua import LongLLMLingua as LongLLMLingua
    from spolia.post_retrieval.compression.refine import Refine as Refine
    from spolia.post_retrieval.compression.selective_context import SelectiveContext as SelectiveContext
    from spolia.post_retrieval.compression.tree_summarise import TreeSummarise as TreeSummarise
    from spolia.post_retrieval.cross_encoder import CrossEncoder as CrossEncoder
    from spolia.post_retrieval.cut import Cut as Cut
    from spolia.post_retrieval.forms import AsDicts as AsDicts, AsNodes as AsNodes, AsText as AsText
    from spolia.post_retrieval.keyword import KeywordFilter as KeywordFilter
    from spolia.post_retrieval.mapped import Mapped as Mapped
    from spolia.post_retrieval.mmr import MMR as MMR
    from spolia.post_retrieval.mono_t5 import MonoT5 as MonoT5
    from spolia.post_retrieval.neighbours import Neighbours as Neighbours
    from spolia.post_retrieval.newest import Newest as Newest
    from spolia.post_retrieval.rank_gpt import RankGPT as RankGPT
    from spolia.post_retrieval.reorder import Reorder as Reorder
    from spolia.post_retrieval.rerank import reranker as reranker
    from spolia.post_retrieval.selection.critique import Critique as Critique
    from spolia.post_retrieval.selection.percentile import Percentile as Percentile
    from spolia.post_retrieval.selection.recent import Recent as Recent
    from spolia.post_retrieval.selection.similarity_percentile import SimilarityPercentile as SimilarityPercentile
    from spolia.post_retrieval.selection.similarity_threshold import SimilarityThreshold as SimilarityThreshold
    from spolia.post_retrieval.selection.threshold import Threshold as Threshold
    from spolia.post_retrieval.selection.window_replacement import WindowReplacement as WindowReplacement
    from spolia.post_retrieval.sentence_window import SentenceWindow as SentenceWindow
    from spolia.post_retrieval.show_metadata import ShowMetadata as ShowMetadata
    from spolia.post_retrieval.tart import TART as TART
    from spolia.post_retrieval.time_decay import TimeDecay as TimeDecay
    from spolia.post_retrieval.title_boost import TitleBoost as TitleBoost
    from spolia.post_retrieval.upr import UPR as UPR
    from spolia.pre_retrieval.averaged_hyde import AveragedHyDE as AveragedHyDE
    from spolia.pre_retrieval.chain_of_verification import ChainOfVerification as ChainOfVerification
    from spolia.pre_retrieval.construct_filter import ConstructFilter as ConstructFilter
    from spolia.pre_retrieval.decompose import Decompose as Decompose
    from spolia.pre_retrieval.hyde import HyDE as HyDE
    from spolia.pre_retrieval.least_to_most import LeastToMost as LeastToMost
    from spolia.pre_retrieval.multi_query import MultiQuery as MultiQuery
    from spolia.pre_retrieval.rewrite import Rewrite as Rewrite
    from spolia.pre_retrieval.show_rows import ShowRows as ShowRows
    from spolia.pre_retrieval.step_back import StepBack as StepBack
    from spolia.pre_retrieval.text_to_cypher import TextToCypher as TextToCypher
    from spolia.pre_retrieval.text_to_sql import TextToSQL as TextToSQL
    from spolia.pre_retrieval.with_draft import WithDraft as WithDraft
    from spolia.pre_retrieval.within_rows import WithinRows as WithinRows
    from spolia.retrieval.bm25 import BM25 as BM25
    from spolia.retrieval.bm25_variant import BM25Variant as BM25Variant
    from spolia.retrieval.by_similarity import BySimilarity as BySimilarity
    from spolia.retrieval.dense import Dense as Dense
    from spolia.retrieval.fielded_bm25 import FieldedBM25 as FieldedBM25
    from spolia.retrieval.graph.address import NodeGraph as NodeGraph
    from spolia.retrieval.graph.edges import (
        Belonging as Belonging,
        InOrder as InOrder,
        SharedEntities as SharedEntities,
        Similar as Similar,
    )
    from spolia.retrieval.graph.hops import Hops as Hops
    from spolia.retrieval.graph.pagerank import PersonalisedPageRank as PersonalisedPageRank
    from spolia.retrieval.late_interaction import LateInteraction as LateInteraction
    from spolia.retrieval.learned_sparse import LearnedSparse as LearnedSparse
    from spolia.retrieval.multi_head import MultiHead as MultiHead
    from spolia.retrieval.multi_source import MultiSource as MultiSource
    from spolia.retrieval.phrase import Phrase as Phrase
    from spolia.retrieval.similarity import similarity as similarity
    from spolia.retrieval.tfidf import TFIDF as TFIDF
    from spolia.retrieval.tree import Descend as Descend
    from spolia.retrieval.web.brave import Brave as Brave
    from spolia.retrieval.web.search import WebSearch as WebSearch
    from spolia.retrieval.web.searxng import SearXNG as SearXNG
    from spolia.run import Budget as Budget, Run as Run
    from spolia.show import mermaid as mermaid, tree as tree
    from spolia.stores.adapters.chroma import Chroma as Chroma
    from spolia.stores.adapters.lancedb import LanceDB as LanceDB
    from spolia.stores.adapters.milvus import Milvus as Milvus
    from spolia.stores.adapters.opensearch import OpenSearch as OpenSearch
    from spolia.stores.adapters.qdrant import Qdrant as Qdrant
    from spolia.stores.corpus import Corpus as Corpus, NodeGroup as NodeGroup
    from spolia.stores.definition import (
        Definition as Definition,
        Embedding as Embedding,
        Part as Part,
        Piece as Piece,
        Splitter as Splitter,
        Whole as Whole,
    )
    from spolia.stores.groups.materialising import materialise as materialise
    from spolia.stores.indexes import HNSW as HNSW, Exact as Exact
    from spolia.stores.outside.graph_file import GraphFile as GraphFile
    from spolia.stores.outside.postgres_database import PostgresDatabase as PostgresDatabase
    from spolia.stores.outside.rows import Limits as Limits
    from spolia.stores.outside.sqlite_file import SQLiteFile as SQLiteFile
    from spolia.surrounding import Done as Done, Emitted as Emitted, Retracted as Retracted
    from spolia.types import (
        Answer as Answer,
        Citation as Citation,
        Document as Document,
        Failure as Failure,
        Generation as Generation,
        Hit as Hit,
        Item as Item,
        Message as Message,
        Node as Node,
        Prompt as Prompt,
        Query as Query,
        Quote as Quote,
        Ranking as Ranking,
        Span as Span,
        State as State,
        Usage as Usage,
        Verdict as Verdict,
    )

WHERE = {
    "spolia.checking": ("check",),
    "spolia.combinators": (
        "Best", "Branch", "Choice", "Each", "Explore", "Get", "Guard", "Identity", "Loop", "Route", "Samples",
        "Stopped",        "decide", "places", "settle",
    ),
    "spolia.filters": ("AnyOf", "Between", "Field", "where",),
    "spolia.flows.across": ("across",),
    "spolia.flows.files": ("dump", "load",),
    "spolia.function": ("step",),
    "spolia.generation.closed_book": ("ClosedBook",),
    "spolia.generation.ensemble.answers": ("AnswerEnsemble",),
    "spolia.generation.ensemble.tokens": ("TokenEnsemble",),
    "spolia.generation.extract": ("Extract",),
    "spolia.generation.f_string": ("FString",),
    "spolia.generation.generate": ("Generate",),
    "spolia.generation.long_context_reorder": ("LongContextReorder",),
    "spolia.generation.reader": ("Reader",),
    "spolia.generation.verification.claims": ("VerifyClaims",),
    "spolia.generation.verification.grounding": ("VerifyGrounding",),
    "spolia.indexing.planning": ("planned",),
    "spolia.indexing.sources.api": ("APIItems",),
    "spolia.indexing.sources.remote": ("RemoteFiles",),
    "spolia.indexing.sources.sql": ("SQLRows",),
    "spolia.indexing.sources.web": ("WebPages",),
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
    "spolia.indexing.structure.attach_metadata": ("AttachMetadata",),
    "spolia.indexing.structure.extractive": ("ExtractiveSummary",),
    "spolia.indexing.structure.regions": ("Regions",),
    "spolia.indexing.structure.sections": ("Sections",),
    "spolia.indexing.structure.topics": ("Topics",),
    "spolia.indexing.sync": ("sync",),
    "spolia.indexing.texts": ("add_texts", "temporary",),
    "spolia.indexing.transforms.by_pattern": ("ByPattern",),
    "spolia.indexing.transforms.function": ("transform",),
    "spolia.indexing.transforms.headers": ("ContextualHeaders",),
    "spolia.indexing.transforms.keywords": ("Keywords",),
    "spolia.indexing.transforms.llm_entities": ("LLMEntities",),
    "spolia.indexing.transforms.questions": ("HypotheticalQuestions", "QuestionAnswers",),
    "spolia.indexing.transforms.rule_entities": ("RuleEntities",),
    "spolia.indexing.transforms.summary": ("Summary",),
    "spolia.journal": ("Cache", "Runs",),
    "spolia.models.chat": ("ChatModel",),
    "spolia.models.completions": ("CompletionModel",),
    "spolia.models.embeddings": ("EmbeddingModel",),
    "spolia.models.local.cross_encoder": ("LocalCrossEncoder",),
    "spolia.models.local.embedder": ("LocalEmbedder",),
    "spolia.models.local.image_embedder": ("LocalImageEmbedder",),
    "spolia.models.local.language_model": ("LocalModel", "LocalSeq2Seq",),
    "spolia.models.local.sparse_embedder": ("LocalSparseEmbedder",),
    "spolia.models.local.token_embedder": ("LocalTokenEmbedder",),
    "spolia.models.minilm": ("MiniLM",),
    "spolia.models.reranking": ("RerankModel",),
    "spolia.models.scripted": ("ScriptedModel",),
    "spolia.operator": ("Operator",),
    "spolia.orchestration.blend": ("Blend",),
    "spolia.orchestration.by_keywords": ("ByKeywords",),
    "spolia.orchestration.by_label": ("ByLabel",),
    "spolia.orchestration.by_meaning": ("ByMeaning",),
    "spolia.orchestration.by_next_token": ("ByNextToken",),
    "spolia.orchestration.classified": ("Classified",),
    "spolia.orchestration.confident": ("Confident",),
    "spolia.orchestration.even_split": ("EvenSplit",),
    "spolia.orchestration.exceeds": ("Exceeds",),
    "spolia.orchestration.fusion": ("ConvexCombination", "ReciprocalRankFusion",),
    "spolia.orchestration.highest": ("HighestScore",),
    "spolia.orchestration.knowledge_guided": ("KnowledgeGuided",),
    "spolia.orchestration.llm_fusion": ("LLMFusion",),
    "spolia.orchestration.majority": ("MajorityVote",),
    "spolia.orchestration.pick_arm": ("PickArm",),
    "spolia.orchestration.stop_when": ("StopOn", "StopWhen"),
    "spolia.orchestration.sufficient": ("Sufficient",),
    "spolia.post_retrieval.colbert": ("ColBERT",),
    "spolia.post_retrieval.compression.extractive": ("Extractive",),
    "spolia.post_retrieval.compression.llmlingua": ("LLMLingua",),
    "spolia.post_retrieval.compression.long_llmlingua": ("LongLLMLingua",),
    "spolia.post_retrieval.compression.refine": ("Refine",),
    "spolia.post_retrieval.compression.selective_context": ("SelectiveContext",),
    "spolia.post_retrieval.compression.tree_summarise": ("TreeSummarise",),
    "spolia.post_retrieval.cross_encoder": ("CrossEncoder",),
    "spolia.post_retrieval.cut": ("Cut",),
    "spolia.post_retrieval.forms": ("AsDicts", "AsNodes", "AsText",),
    "spolia.post_retrieval.keyword": ("KeywordFilter",),
    "spolia.post_retrieval.mapped": ("Mapped",),
    "spolia.post_retrieval.mmr": ("MMR",),
    "spolia.post_retrieval.mono_t5": ("MonoT5",),
    "spolia.post_retrieval.neighbours": ("Neighbours",),
    "spolia.post_retrieval.newest": ("Newest",),
    "spolia.post_retrieval.rank_gpt": ("RankGPT",),
    "spolia.post_retrieval.reorder": ("Reorder",),
    "spolia.post_retrieval.rerank": ("reranker",),
    "spolia.post_retrieval.selection.critique": ("Critique",),
    "spolia.post_retrieval.selection.percentile": ("Percentile",),
    "spolia.post_retrieval.selection.recent": ("Recent",),
    "spolia.post_retrieval.selection.similarity_percentile": ("SimilarityPercentile",),
    "spolia.post_retrieval.selection.similarity_threshold": ("SimilarityThreshold",),
    "spolia.post_retrieval.selection.threshold": ("Threshold",),
    "spolia.post_retrieval.selection.window_replacement": ("WindowReplacement",),
    "spolia.post_retrieval.sentence_window": ("SentenceWindow",),
    "spolia.post_retrieval.show_metadata": ("ShowMetadata",),
    "spolia.post_retrieval.tart": ("TART",),
    "spolia.post_retrieval.time_decay": ("TimeDecay",),
    "spolia.post_retrieval.title_boost": ("TitleBoost",),
    "spolia.post_retrieval.upr": ("UPR",),
    "spolia.pre_retrieval.averaged_hyde": ("AveragedHyDE",),
    "spolia.pre_retrieval.chain_of_verification": ("ChainOfVerification",),
    "spolia.pre_retrieval.construct_filter": ("ConstructFilter",),
    "spolia.pre_retrieval.decompose": ("Decompose",),
    "spolia.pre_retrieval.hyde": ("HyDE",),
    "spolia.pre_retrieval.least_to_most": ("LeastToMost",),
    "spolia.pre_retrieval.multi_query": ("MultiQuery",),
    "spolia.pre_retrieval.rewrite": ("Rewrite",),
    "spolia.pre_retrieval.show_rows": ("ShowRows",),
    "spolia.pre_retrieval.step_back": ("StepBack",),
    "spolia.pre_retrieval.text_to_cypher": ("TextToCypher",),
    "spolia.pre_retrieval.text_to_sql": ("TextToSQL",),
    "spolia.pre_retrieval.with_draft": ("WithDraft",),
    "spolia.pre_retrieval.within_rows": ("WithinRows",),
    "spolia.retrieval.bm25": ("BM25",),
    "spolia.retrieval.bm25_variant": ("BM25Variant",),
    "spolia.retrieval.by_similarity": ("BySimilarity",),
    "spolia.retrieval.dense": ("Dense",),
    "spolia.retrieval.fielded_bm25": ("FieldedBM25",),
    "spolia.retrieval.graph.address": ("NodeGraph",),
    "spolia.retrieval.graph.edges": ("Belonging", "InOrder", "SharedEntities", "Similar",),
    "spolia.retrieval.graph.hops": ("Hops",),
    "spolia.retrieval.graph.pagerank": ("PersonalisedPageRank",),
    "spolia.retrieval.late_interaction": ("LateInteraction",),
    "spolia.retrieval.learned_sparse": ("LearnedSparse",),
    "spolia.retrieval.multi_head": ("MultiHead",),
    "spolia.retrieval.multi_source": ("MultiSource",),
    "spolia.retrieval.phrase": ("Phrase",),
    "spolia.retrieval.similarity": ("similarity",),
    "spolia.retrieval.tfidf": ("TFIDF",),
    "spolia.retrieval.tree": ("Descend",),
    "spolia.retrieval.web.brave": ("Brave",),
    "spolia.retrieval.web.search": ("WebSearch",),
    "spolia.retrieval.web.searxng": ("SearXNG",),
    "spolia.run": ("Budget", "Run",),
    "spolia.show": ("mermaid", "tree",),
    "spolia.stores.adapters.chroma": ("Chroma",),
    "spolia.stores.adapters.lancedb": ("LanceDB",),
    "spolia.stores.adapters.milvus": ("Milvus",),
    "spolia.stores.adapters.opensearch": ("OpenSearch",),
    "spolia.stores.adapters.qdrant": ("Qdrant",),
    "spolia.stores.corpus": ("Corpus", "NodeGroup",),
    "spolia.stores.definition": ("Definition", "Embedding", "Part", "Piece", "Splitter", "Whole",),
    "spolia.stores.groups.materialising": ("materialise",),
    "spolia.stores.indexes": ("Exact", "HNSW",),
    "spolia.stores.outside.graph_file": ("GraphFile",),
    "spolia.stores.outside.postgres_database": ("PostgresDatabase",),
    "spolia.stores.outside.rows": ("Limits",),
    "spolia.stores.outside.sqlite_file": ("SQLiteFile",),
    "spolia.surrounding": ("Done", "Emitted", "Retracted",),
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
