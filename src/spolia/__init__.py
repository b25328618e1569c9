"""Build, measure, tune and serve retrieval-augmented generation from interchangeable operators.

Names are imported on first use, so that `import spolia` costs nothing.
"""

# ruff: isort: skip_file

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spolia.core.check import check as check
    from spolia.core.combinators import (
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
    from spolia.flow_files.federated_search import across as across
    from spolia.flow_files.files import dump as dump, load as load
    from spolia.core.function import step as step
    from spolia.generation.closed_book import ClosedBook as ClosedBook
    from spolia.generation.ensemble import AnswerEnsemble as AnswerEnsemble
    from spolia.generation.ensemble import TokenEnsemble as TokenEnsemble
    from spolia.generation.extract import Extract as Extract
    from spolia.generation.prompt import FString as FString
    from spolia.generation.prompt import Generate as Generate
    from spolia.generation.prompt import LongContextReorder as LongContextReorder
    from spolia.generation.reader import Reader as Reader
    from spolia.generation.verification import VerifyClaims as VerifyClaims
    from spolia.generation.verification import VerifyGrounding as VerifyGrounding
    from spolia.indexing.planning import planned as planned
    from spolia.indexing.sources.api import APIItems as APIItems
    from spolia.indexing.sources.remote_files import RemoteFiles as RemoteFiles
    from spolia.indexing.sources.sql import SQLRows as SQLRows
    from spolia.indexing.sources.web import WebPages as WebPages
    from spolia.indexing.splitters.code import CodeSplitter as CodeSplitter
    from spolia.indexing.splitters.csv_rows import CSVRows as CSVRows
    from spolia.indexing.splitters.html import HTMLSections as HTMLSections
    from spolia.indexing.splitters.json_rows import JSONRows as JSONRows
    from spolia.indexing.splitters.markdown import MarkdownSections as MarkdownSections
    from spolia.indexing.splitters.paragraphs import Pages as Pages
    from spolia.indexing.splitters.paragraphs import Paragraphs as Paragraphs
    from spolia.indexing.splitters.recursive import RecursiveCharacters as RecursiveCharacters
    from spolia.indexing.splitters.semantic import SemanticBreaks as SemanticBreaks
    from spolia.indexing.splitters.sentences import Sentences as Sentences
    from spolia.indexing.splitters.sliding_window import SlidingWindow as SlidingWindow
    from spolia.indexing.splitters.tables import TableAware as TableAware
    from spolia.indexing.splitters.token_window import TokenWindow as TokenWindow
    from spolia.indexing.structure.regions import AttachMetadata as AttachMetadata
    from spolia.indexing.structure.extractive_summary import ExtractiveSummary as ExtractiveSummary
    from spolia.indexing.structure.regions import Regions as Regions
    from spolia.indexing.structure.sections import Sections as Sections
    from spolia.indexing.structure.topics import Topics as Topics
    from spolia.indexing.sync import sync as sync
    from spolia.indexing.texts import add_texts as add_texts, temporary as temporary
    from spolia.indexing.transforms.by_pattern import ByPattern as ByPattern
    from spolia.indexing.transforms.function import transform as transform
    from spolia.indexing.transforms.contextual_headers import ContextualHeaders as ContextualHeaders
    from spolia.indexing.transforms.keywords import Keywords as Keywords
    from spolia.indexing.transforms.llm_entities import LLMEntities as LLMEntities
    from spolia.indexing.transforms.questions import (
        HypotheticalQuestions as HypotheticalQuestions,
        QuestionAnswers as QuestionAnswers,
    )
    from spolia.indexing.transforms.rule_entities import RuleEntities as RuleEntities
    from spolia.indexing.transforms.summary import Summary as Summary
    from spolia.journal import Cache as Cache, Runs as Runs
    from spolia.models.http.chat import ChatModel as ChatModel
    from spolia.models.http.completions import CompletionModel as CompletionModel
    from spolia.models.http.embeddings import EmbeddingModel as EmbeddingModel
    from spolia.models.local.cross_encoder import LocalCrossEncoder as LocalCrossEncoder
    from spolia.models.local.embedders import LocalEmbedder as LocalEmbedder
    from spolia.models.local.image_embedder import LocalImageEmbedder as LocalImageEmbedder
    from spolia.models.local.language_model import LocalModel as LocalModel, LocalSeq2Seq as LocalSeq2Seq
    from spolia.models.local.embedders import LocalSparseEmbedder as LocalSparseEmbedder
    from spolia.models.local.embedders import LocalTokenEmbedder as LocalTokenEmbedder
    from spolia.models.onnx.minilm import MiniLM as MiniLM
    from spolia.models.http.reranking import RerankModel as RerankModel
    from spolia.models.prompting.stand_in_models import ScriptedModel as ScriptedModel
    from spolia.core.operator import Operator as Operator
    from spolia.orchestration.arm_choice import Blend as Blend
    from spolia.orchestration.similarity_router import ByKeywords as ByKeywords
    from spolia.orchestration.llm_router import ByLabel as ByLabel
    from spolia.orchestration.similarity_router import ByMeaning as ByMeaning
    from spolia.orchestration.llm_router import ByNextToken as ByNextToken
    from spolia.orchestration.judges import Classified as Classified
    from spolia.orchestration.judges import Confident as Confident
    from spolia.orchestration.rank_fusion import EvenSplit as EvenSplit
    from spolia.orchestration.arm_choice import Exceeds as Exceeds
    from spolia.orchestration.rank_fusion import (
        ConvexCombination as ConvexCombination,
        ReciprocalRankFusion as ReciprocalRankFusion,
    )
    from spolia.orchestration.rank_fusion import HighestScore as HighestScore
    from spolia.orchestration.knowledge_plan import KnowledgeGuided as KnowledgeGuided
    from spolia.orchestration.answer_fusion import LLMFusion as LLMFusion
    from spolia.orchestration.answer_fusion import MajorityVote as MajorityVote
    from spolia.orchestration.arm_choice import PickArm as PickArm
    from spolia.orchestration.judges import StopOn as StopOn, StopWhen as StopWhen
    from spolia.orchestration.judges import Sufficient as Sufficient
    from spolia.post_retrieval.encoder_rerankers import ColBERT as ColBERT
    from spolia.post_retrieval.compression.extractive import Extractive as Extractive
    from spolia.post_retrieval.compression.llmlingua import LLMLingua as LLMLingua
    from spolia.post_retrieval.compression.llmlingua import LongLLMLingua as LongLLMLingua
    from spolia.post_retrieval.compression.summary import Refine as Refine
    from spolia.post_retrieval.compression.extractive import SelectiveContext as SelectiveContext
    from spolia.post_retrieval.compression.summary import TreeSummarise as TreeSummarise
    from spolia.post_retrieval.encoder_rerankers import CrossEncoder as CrossEncoder
    from spolia.post_retrieval.selection import Cut as Cut
    from spolia.post_retrieval.presentation import AsDicts as AsDicts, AsNodes as AsNodes, AsText as AsText
    from spolia.post_retrieval.selection import KeywordFilter as KeywordFilter
    from spolia.post_retrieval.group_map import Mapped as Mapped
    from spolia.post_retrieval.mmr import MMR as MMR
    from spolia.post_retrieval.likelihood_rerankers import MonoT5 as MonoT5
    from spolia.post_retrieval.context_window import Neighbours as Neighbours
    from spolia.post_retrieval.recency import Newest as Newest
    from spolia.post_retrieval.rank_gpt import RankGPT as RankGPT
    from spolia.post_retrieval.presentation import Reorder as Reorder
    from spolia.post_retrieval.reranker import reranker as reranker
    from spolia.post_retrieval.critique import Critique as Critique
    from spolia.post_retrieval.selection import Percentile as Percentile
    from spolia.post_retrieval.recency import Recent as Recent
    from spolia.post_retrieval.selection import SimilarityPercentile as SimilarityPercentile
    from spolia.post_retrieval.selection import SimilarityThreshold as SimilarityThreshold
    from spolia.post_retrieval.selection import Threshold as Threshold
    from spolia.post_retrieval.group_map import WindowReplacement as WindowReplacement
    from spolia.post_retrieval.context_window import SentenceWindow as SentenceWindow
    from spolia.post_retrieval.presentation import ShowMetadata as ShowMetadata
    from spolia.post_retrieval.encoder_rerankers import TART as TART
    from spolia.post_retrieval.recency import TimeDecay as TimeDecay
    from spolia.post_retrieval.title_boost import TitleBoost as TitleBoost
    from spolia.post_retrieval.likelihood_rerankers import UPR as UPR
    from spolia.pre_retrieval.hyde import AveragedHyDE as AveragedHyDE
    from spolia.pre_retrieval.chain_of_verification import ChainOfVerification as ChainOfVerification
    from spolia.pre_retrieval.metadata_filter import ConstructFilter as ConstructFilter
    from spolia.pre_retrieval.decomposition import Decompose as Decompose
    from spolia.pre_retrieval.hyde import HyDE as HyDE
    from spolia.pre_retrieval.decomposition import LeastToMost as LeastToMost
    from spolia.pre_retrieval.rewrite import MultiQuery as MultiQuery
    from spolia.pre_retrieval.rewrite import Rewrite as Rewrite
    from spolia.pre_retrieval.row_search import ShowRows as ShowRows
    from spolia.pre_retrieval.rewrite import StepBack as StepBack
    from spolia.pre_retrieval.text_to_query import TextToCypher as TextToCypher
    from spolia.pre_retrieval.text_to_query import TextToSQL as TextToSQL
    from spolia.pre_retrieval.hyde import WithDraft as WithDraft
    from spolia.pre_retrieval.row_search import WithinRows as WithinRows
    from spolia.retrieval.bm25 import BM25 as BM25
    from spolia.retrieval.bm25_variants import BM25Variant as BM25Variant
    from spolia.retrieval.similarity_search import BySimilarity as BySimilarity
    from spolia.retrieval.dense import Dense as Dense
    from spolia.retrieval.bm25_variants import FieldedBM25 as FieldedBM25
    from spolia.retrieval.graph.node_graph import NodeGraph as NodeGraph
    from spolia.retrieval.graph.edges import (
        Belonging as Belonging,
        InOrder as InOrder,
        SharedEntities as SharedEntities,
        Similar as Similar,
    )
    from spolia.retrieval.graph.walk import Hops as Hops
    from spolia.retrieval.graph.walk import PersonalisedPageRank as PersonalisedPageRank
    from spolia.retrieval.late_interaction import LateInteraction as LateInteraction
    from spolia.retrieval.learned_sparse import LearnedSparse as LearnedSparse
    from spolia.retrieval.multi_head import MultiHead as MultiHead
    from spolia.retrieval.multi_source import MultiSource as MultiSource
    from spolia.retrieval.bm25 import Phrase as Phrase
    from spolia.retrieval.similarity_search import similarity as similarity
    from spolia.retrieval.tfidf import TFIDF as TFIDF
    from spolia.retrieval.tree import Descend as Descend
    from spolia.retrieval.web.engines import Brave as Brave
    from spolia.retrieval.web.search import WebSearch as WebSearch
    from spolia.retrieval.web.engines import SearXNG as SearXNG
    from spolia.run import Budget as Budget, Run as Run
    from spolia.core.draw import mermaid as mermaid, tree as tree
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
    from spolia.core.run_context import Done as Done, Emitted as Emitted, Retracted as Retracted
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
    "spolia.core.check": ("check",),
    "spolia.core.combinators": (
        "Best", "Branch", "Choice", "Each", "Explore", "Get", "Guard", "Identity", "Loop", "Route", "Samples",
        "Stopped",        "decide", "places", "settle",
    ),
    "spolia.filters": ("AnyOf", "Between", "Field", "where",),
    "spolia.flow_files.federated_search": ("across",),
    "spolia.flow_files.files": ("dump", "load",),
    "spolia.core.function": ("step",),
    "spolia.generation.closed_book": ("ClosedBook",),
    "spolia.generation.ensemble": ("AnswerEnsemble",),
    "spolia.generation.ensemble": ("TokenEnsemble",),
    "spolia.generation.extract": ("Extract",),
    "spolia.generation.prompt": ("FString",),
    "spolia.generation.prompt": ("Generate",),
    "spolia.generation.prompt": ("LongContextReorder",),
    "spolia.generation.reader": ("Reader",),
    "spolia.generation.verification": ("VerifyClaims",),
    "spolia.generation.verification": ("VerifyGrounding",),
    "spolia.indexing.planning": ("planned",),
    "spolia.indexing.sources.api": ("APIItems",),
    "spolia.indexing.sources.remote_files": ("RemoteFiles",),
    "spolia.indexing.sources.sql": ("SQLRows",),
    "spolia.indexing.sources.web": ("WebPages",),
    "spolia.indexing.splitters.code": ("CodeSplitter",),
    "spolia.indexing.splitters.csv_rows": ("CSVRows",),
    "spolia.indexing.splitters.html": ("HTMLSections",),
    "spolia.indexing.splitters.json_rows": ("JSONRows",),
    "spolia.indexing.splitters.markdown": ("MarkdownSections",),
    "spolia.indexing.splitters.paragraphs": ("Pages",),
    "spolia.indexing.splitters.paragraphs": ("Paragraphs",),
    "spolia.indexing.splitters.recursive": ("RecursiveCharacters",),
    "spolia.indexing.splitters.semantic": ("SemanticBreaks",),
    "spolia.indexing.splitters.sentences": ("Sentences",),
    "spolia.indexing.splitters.sliding_window": ("SlidingWindow",),
    "spolia.indexing.splitters.tables": ("TableAware",),
    "spolia.indexing.splitters.token_window": ("TokenWindow",),
    "spolia.indexing.structure.regions": ("AttachMetadata",),
    "spolia.indexing.structure.extractive_summary": ("ExtractiveSummary",),
    "spolia.indexing.structure.regions": ("Regions",),
    "spolia.indexing.structure.sections": ("Sections",),
    "spolia.indexing.structure.topics": ("Topics",),
    "spolia.indexing.sync": ("sync",),
    "spolia.indexing.texts": ("add_texts", "temporary",),
    "spolia.indexing.transforms.by_pattern": ("ByPattern",),
    "spolia.indexing.transforms.function": ("transform",),
    "spolia.indexing.transforms.contextual_headers": ("ContextualHeaders",),
    "spolia.indexing.transforms.keywords": ("Keywords",),
    "spolia.indexing.transforms.llm_entities": ("LLMEntities",),
    "spolia.indexing.transforms.questions": ("HypotheticalQuestions", "QuestionAnswers",),
    "spolia.indexing.transforms.rule_entities": ("RuleEntities",),
    "spolia.indexing.transforms.summary": ("Summary",),
    "spolia.journal": ("Cache", "Runs",),
    "spolia.models.http.chat": ("ChatModel",),
    "spolia.models.http.completions": ("CompletionModel",),
    "spolia.models.http.embeddings": ("EmbeddingModel",),
    "spolia.models.local.cross_encoder": ("LocalCrossEncoder",),
    "spolia.models.local.embedders": ("LocalEmbedder",),
    "spolia.models.local.image_embedder": ("LocalImageEmbedder",),
    "spolia.models.local.language_model": ("LocalModel", "LocalSeq2Seq",),
    "spolia.models.local.embedders": ("LocalSparseEmbedder",),
    "spolia.models.local.embedders": ("LocalTokenEmbedder",),
    "spolia.models.onnx.minilm": ("MiniLM",),
    "spolia.models.http.reranking": ("RerankModel",),
    "spolia.models.prompting.stand_in_models": ("ScriptedModel",),
    "spolia.core.operator": ("Operator",),
    "spolia.orchestration.arm_choice": ("Blend",),
    "spolia.orchestration.similarity_router": ("ByKeywords",),
    "spolia.orchestration.llm_router": ("ByLabel",),
    "spolia.orchestration.similarity_router": ("ByMeaning",),
    "spolia.orchestration.llm_router": ("ByNextToken",),
    "spolia.orchestration.judges": ("Classified",),
    "spolia.orchestration.judges": ("Confident",),
    "spolia.orchestration.rank_fusion": ("EvenSplit",),
    "spolia.orchestration.arm_choice": ("Exceeds",),
    "spolia.orchestration.rank_fusion": ("ConvexCombination", "ReciprocalRankFusion",),
    "spolia.orchestration.rank_fusion": ("HighestScore",),
    "spolia.orchestration.knowledge_plan": ("KnowledgeGuided",),
    "spolia.orchestration.answer_fusion": ("LLMFusion",),
    "spolia.orchestration.answer_fusion": ("MajorityVote",),
    "spolia.orchestration.arm_choice": ("PickArm",),
    "spolia.orchestration.judges": ("StopOn", "StopWhen"),
    "spolia.orchestration.judges": ("Sufficient",),
    "spolia.post_retrieval.encoder_rerankers": ("ColBERT",),
    "spolia.post_retrieval.compression.extractive": ("Extractive",),
    "spolia.post_retrieval.compression.llmlingua": ("LLMLingua",),
    "spolia.post_retrieval.compression.llmlingua": ("LongLLMLingua",),
    "spolia.post_retrieval.compression.summary": ("Refine",),
    "spolia.post_retrieval.compression.extractive": ("SelectiveContext",),
    "spolia.post_retrieval.compression.summary": ("TreeSummarise",),
    "spolia.post_retrieval.encoder_rerankers": ("CrossEncoder",),
    "spolia.post_retrieval.selection": ("Cut",),
    "spolia.post_retrieval.presentation": ("AsDicts", "AsNodes", "AsText",),
    "spolia.post_retrieval.selection": ("KeywordFilter",),
    "spolia.post_retrieval.group_map": ("Mapped",),
    "spolia.post_retrieval.mmr": ("MMR",),
    "spolia.post_retrieval.likelihood_rerankers": ("MonoT5",),
    "spolia.post_retrieval.context_window": ("Neighbours",),
    "spolia.post_retrieval.recency": ("Newest",),
    "spolia.post_retrieval.rank_gpt": ("RankGPT",),
    "spolia.post_retrieval.presentation": ("Reorder",),
    "spolia.post_retrieval.reranker": ("reranker",),
    "spolia.post_retrieval.critique": ("Critique",),
    "spolia.post_retrieval.selection": ("Percentile",),
    "spolia.post_retrieval.recency": ("Recent",),
    "spolia.post_retrieval.selection": ("SimilarityPercentile",),
    "spolia.post_retrieval.selection": ("SimilarityThreshold",),
    "spolia.post_retrieval.selection": ("Threshold",),
    "spolia.post_retrieval.group_map": ("WindowReplacement",),
    "spolia.post_retrieval.context_window": ("SentenceWindow",),
    "spolia.post_retrieval.presentation": ("ShowMetadata",),
    "spolia.post_retrieval.encoder_rerankers": ("TART",),
    "spolia.post_retrieval.recency": ("TimeDecay",),
    "spolia.post_retrieval.title_boost": ("TitleBoost",),
    "spolia.post_retrieval.likelihood_rerankers": ("UPR",),
    "spolia.pre_retrieval.hyde": ("AveragedHyDE",),
    "spolia.pre_retrieval.chain_of_verification": ("ChainOfVerification",),
    "spolia.pre_retrieval.metadata_filter": ("ConstructFilter",),
    "spolia.pre_retrieval.decomposition": ("Decompose",),
    "spolia.pre_retrieval.hyde": ("HyDE",),
    "spolia.pre_retrieval.decomposition": ("LeastToMost",),
    "spolia.pre_retrieval.rewrite": ("MultiQuery",),
    "spolia.pre_retrieval.rewrite": ("Rewrite",),
    "spolia.pre_retrieval.row_search": ("ShowRows",),
    "spolia.pre_retrieval.rewrite": ("StepBack",),
    "spolia.pre_retrieval.text_to_query": ("TextToCypher",),
    "spolia.pre_retrieval.text_to_query": ("TextToSQL",),
    "spolia.pre_retrieval.hyde": ("WithDraft",),
    "spolia.pre_retrieval.row_search": ("WithinRows",),
    "spolia.retrieval.bm25": ("BM25",),
    "spolia.retrieval.bm25_variants": ("BM25Variant",),
    "spolia.retrieval.similarity_search": ("BySimilarity",),
    "spolia.retrieval.dense": ("Dense",),
    "spolia.retrieval.bm25_variants": ("FieldedBM25",),
    "spolia.retrieval.graph.node_graph": ("NodeGraph",),
    "spolia.retrieval.graph.edges": ("Belonging", "InOrder", "SharedEntities", "Similar",),
    "spolia.retrieval.graph.walk": ("Hops",),
    "spolia.retrieval.graph.walk": ("PersonalisedPageRank",),
    "spolia.retrieval.late_interaction": ("LateInteraction",),
    "spolia.retrieval.learned_sparse": ("LearnedSparse",),
    "spolia.retrieval.multi_head": ("MultiHead",),
    "spolia.retrieval.multi_source": ("MultiSource",),
    "spolia.retrieval.bm25": ("Phrase",),
    "spolia.retrieval.similarity_search": ("similarity",),
    "spolia.retrieval.tfidf": ("TFIDF",),
    "spolia.retrieval.tree": ("Descend",),
    "spolia.retrieval.web.engines": ("Brave",),
    "spolia.retrieval.web.search": ("WebSearch",),
    "spolia.retrieval.web.engines": ("SearXNG",),
    "spolia.run": ("Budget", "Run",),
    "spolia.core.draw": ("mermaid", "tree",),
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
    "spolia.core.run_context": ("Done", "Emitted", "Retracted",),
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
