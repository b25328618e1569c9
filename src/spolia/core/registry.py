"""Where operators and addresses are found by their ids, so that no file decides what is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from spolia import types
from spolia.core.codec import type_id
from spolia.core.operator import Operator
from spolia.errors import CodecError
from spolia.types import Value

GROUP = "spolia.operators"

BUILT_IN: Mapping[str, str] = {
    "Analyzer": "spolia.stores.lexical.analysis",
    "And": "spolia.filters.conditions",
    "AnswerEnsemble": "spolia.generation.ensemble",
    "AnyOf": "spolia.filters.conditions",
    "AsDicts": "spolia.post_retrieval.presentation",
    "AsNodes": "spolia.post_retrieval.presentation",
    "AsText": "spolia.post_retrieval.presentation",
    "Ask": "spolia.models.prompting.role",
    "AttachMetadata": "spolia.indexing.structure.regions",
    "AveragedHyDE": "spolia.pre_retrieval.hyde",
    "BM25": "spolia.retrieval.bm25",
    "BM25Variant": "spolia.retrieval.bm25_variants",
    "Belonging": "spolia.retrieval.graph.edges",
    "Best": "spolia.core.combinators.best",
    "Between": "spolia.filters.conditions",
    "Blend": "spolia.orchestration.arm_choice",
    "Branch": "spolia.core.combinators.branch",
    "Brave": "spolia.retrieval.web.engines",
    "ByKeywords": "spolia.orchestration.similarity_router",
    "ByLabel": "spolia.orchestration.llm_router",
    "ByMeaning": "spolia.orchestration.similarity_router",
    "ByNextToken": "spolia.orchestration.llm_router",
    "ByPattern": "spolia.indexing.transforms.by_pattern",
    "BySimilarity": "spolia.retrieval.similarity_search",
    "CSVRows": "spolia.indexing.splitters.csv_rows",
    "ChainOfVerification": "spolia.pre_retrieval.chain_of_verification",
    "ChatModel": "spolia.models.http.chat",
    "Choice": "spolia.core.combinators.choice",
    "Chroma": "spolia.stores.adapters.chroma",
    "Classified": "spolia.orchestration.judges",
    "ClosedBook": "spolia.generation.closed_book",
    "CodeSplitter": "spolia.indexing.splitters.code",
    "ColBERT": "spolia.post_retrieval.encoder_rerankers",
    "CompletionModel": "spolia.models.http.completions",
    "Confident": "spolia.orchestration.judges",
    "ConstructFilter": "spolia.pre_retrieval.metadata_filter",
    "ContextualHeaders": "spolia.indexing.transforms.contextual_headers",
    "ControlTokens": "spolia.models.parsers.tags",
    "ConvexCombination": "spolia.orchestration.rank_fusion",
    "Corpus": "spolia.stores.corpus",
    "Critique": "spolia.post_retrieval.critique",
    "CrossEncoder": "spolia.post_retrieval.encoder_rerankers",
    "Cut": "spolia.post_retrieval.selection",
    "Decisions": "spolia.evaluation.measures.judged.judge",
    "Decompose": "spolia.pre_retrieval.decomposition",
    "Definition": "spolia.stores.definition",
    "Dense": "spolia.retrieval.dense",
    "Descend": "spolia.retrieval.tree",
    "Each": "spolia.core.combinators.each",
    "Embedding": "spolia.stores.definition",
    "EmbeddingModel": "spolia.models.http.embeddings",
    "EvenSplit": "spolia.orchestration.rank_fusion",
    "Exact": "spolia.stores.indexes",
    "Exceeds": "spolia.orchestration.arm_choice",
    "Explore": "spolia.core.combinators.explore",
    "Extract": "spolia.generation.extract",
    "Extractive": "spolia.post_retrieval.compression.extractive",
    "ExtractiveSummary": "spolia.indexing.structure.extractive_summary",
    "FString": "spolia.generation.prompt",
    "FieldedBM25": "spolia.retrieval.bm25_variants",
    "FirstTokens": "spolia.models.prompting.likelihood",
    "Generate": "spolia.generation.prompt",
    "GraphFile": "spolia.stores.outside.graph_file",
    "Get": "spolia.core.combinators.get",
    "Guard": "spolia.core.combinators.guard",
    "HNSW": "spolia.stores.indexes",
    "HTMLSections": "spolia.indexing.splitters.html",
    "Headed": "spolia.models.parsers.lines",
    "HighestScore": "spolia.orchestration.rank_fusion",
    "Hops": "spolia.retrieval.graph.walk",
    "HyDE": "spolia.pre_retrieval.hyde",
    "HypotheticalQuestions": "spolia.indexing.transforms.questions",
    "Identity": "spolia.core.combinators.identity",
    "InOrder": "spolia.retrieval.graph.edges",
    "JSONRows": "spolia.indexing.splitters.json_rows",
    "JsonObject": "spolia.models.parsers.json_object",
    "KeywordFilter": "spolia.post_retrieval.selection",
    "Keywords": "spolia.indexing.transforms.keywords",
    "KnowledgeGuided": "spolia.orchestration.knowledge_plan",
    "LLMEntities": "spolia.indexing.transforms.llm_entities",
    "LLMFusion": "spolia.orchestration.answer_fusion",
    "LLMLingua": "spolia.post_retrieval.compression.llmlingua",
    "LanceDB": "spolia.stores.adapters.lancedb",
    "LateInteraction": "spolia.retrieval.late_interaction",
    "LearnedSparse": "spolia.retrieval.learned_sparse",
    "LeastToMost": "spolia.pre_retrieval.decomposition",
    "Likelihood": "spolia.models.prompting.likelihood",
    "Limits": "spolia.stores.outside.rows",
    "Lines": "spolia.models.parsers.lines",
    "Local": "spolia.models.local.address",
    "LocalCrossEncoder": "spolia.models.local.cross_encoder",
    "LocalEmbedder": "spolia.models.local.embedders",
    "LocalEncoder": "spolia.models.local.embedders",
    "LocalImageEmbedder": "spolia.models.local.image_embedder",
    "LocalModel": "spolia.models.local.language_model",
    "LocalSeq2Seq": "spolia.models.local.language_model",
    "LocalSparseEmbedder": "spolia.models.local.embedders",
    "LocalTokenEmbedder": "spolia.models.local.embedders",
    "LongContextReorder": "spolia.generation.prompt",
    "LongLLMLingua": "spolia.post_retrieval.compression.llmlingua",
    "Loop": "spolia.core.combinators.loop",
    "MMR": "spolia.post_retrieval.mmr",
    "MajorityVote": "spolia.orchestration.answer_fusion",
    "Mapped": "spolia.post_retrieval.group_map",
    "MarkdownSections": "spolia.indexing.splitters.markdown",
    "Milvus": "spolia.stores.adapters.milvus",
    "MiniLM": "spolia.models.onnx.minilm",
    "MonoT5": "spolia.post_retrieval.likelihood_rerankers",
    "MultiHead": "spolia.retrieval.multi_head",
    "MultiQuery": "spolia.pre_retrieval.rewrite",
    "MultiSource": "spolia.retrieval.multi_source",
    "NamesWithKinds": "spolia.indexing.transforms.llm_transform",
    "Neighbours": "spolia.post_retrieval.context_window",
    "Newest": "spolia.post_retrieval.recency",
    "NodeGraph": "spolia.retrieval.graph.node_graph",
    "NodeGroup": "spolia.stores.corpus",
    "Not": "spolia.filters.conditions",
    "Number": "spolia.models.parsers.numbers",
    "OneOf": "spolia.models.parsers.words",
    "OneText": "spolia.pre_retrieval.query_llm",
    "OpenSearch": "spolia.stores.adapters.opensearch",
    "Or": "spolia.filters.conditions",
    "OrUndetermined": "spolia.evaluation.measures.judged.judge",
    "Order": "spolia.models.parsers.numbers",
    "Pages": "spolia.indexing.splitters.paragraphs",
    "Paragraphs": "spolia.indexing.splitters.paragraphs",
    "Part": "spolia.stores.definition",
    "Percentile": "spolia.post_retrieval.selection",
    "PersonalisedPageRank": "spolia.retrieval.graph.walk",
    "Phrase": "spolia.retrieval.bm25",
    "Phrases": "spolia.indexing.transforms.llm_transform",
    "PickArm": "spolia.orchestration.arm_choice",
    "Piece": "spolia.stores.definition",
    "PostgresDatabase": "spolia.stores.outside.postgres_database",
    "PromptFile": "spolia.models.prompting.role",
    "Qdrant": "spolia.stores.adapters.qdrant",
    "QuestionAnswers": "spolia.indexing.transforms.questions",
    "Questions": "spolia.indexing.transforms.llm_transform",
    "QuestionsWithAnswers": "spolia.indexing.transforms.llm_transform",
    "RankGPT": "spolia.post_retrieval.rank_gpt",
    "Reader": "spolia.generation.reader",
    "Recent": "spolia.post_retrieval.recency",
    "ReciprocalRankFusion": "spolia.orchestration.rank_fusion",
    "RecursiveCharacters": "spolia.indexing.splitters.recursive",
    "Refine": "spolia.post_retrieval.compression.summary",
    "Regions": "spolia.indexing.structure.regions",
    "Remote": "spolia.models.http.remote",
    "Reorder": "spolia.post_retrieval.presentation",
    "RerankModel": "spolia.models.http.reranking",
    "Rewrite": "spolia.pre_retrieval.rewrite",
    "Role": "spolia.models.prompting.role",
    "Route": "spolia.core.combinators.route",
    "Rows": "spolia.stores.outside.rows",
    "RuleEntities": "spolia.indexing.transforms.rule_entities",
    "SQLiteFile": "spolia.stores.outside.sqlite_file",
    "Samples": "spolia.core.combinators.samples",
    "ScriptedModel": "spolia.models.prompting.stand_in_models",
    "SearXNG": "spolia.retrieval.web.engines",
    "Searches": "spolia.pre_retrieval.query_llm",
    "Sections": "spolia.indexing.structure.sections",
    "SelectiveContext": "spolia.post_retrieval.compression.extractive",
    "SemanticBreaks": "spolia.indexing.splitters.semantic",
    "SentenceWindow": "spolia.post_retrieval.context_window",
    "Sentences": "spolia.indexing.splitters.sentences",
    "SharedEntities": "spolia.retrieval.graph.edges",
    "ShowMetadata": "spolia.post_retrieval.presentation",
    "ShowRows": "spolia.pre_retrieval.row_search",
    "Similar": "spolia.retrieval.graph.edges",
    "SimilarityPercentile": "spolia.post_retrieval.selection",
    "SimilarityThreshold": "spolia.post_retrieval.selection",
    "Situate": "spolia.indexing.transforms.contextual_headers",
    "SlidingWindow": "spolia.indexing.splitters.sliding_window",
    "Statement": "spolia.pre_retrieval.text_to_query",
    "Statements": "spolia.evaluation.measures.judged.judge",
    "StepBack": "spolia.pre_retrieval.rewrite",
    "Steps": "spolia.pre_retrieval.query_llm",
    "StopOn": "spolia.orchestration.judges",
    "StopWhen": "spolia.orchestration.judges",
    "Stopped": "spolia.core.combinators.loop",
    "Sufficient": "spolia.orchestration.judges",
    "Summary": "spolia.indexing.transforms.summary",
    "TART": "spolia.post_retrieval.encoder_rerankers",
    "TFIDF": "spolia.retrieval.tfidf",
    "TableAware": "spolia.indexing.splitters.tables",
    "Tags": "spolia.models.parsers.tags",
    "Text": "spolia.models.parsers.parser",
    "TextToCypher": "spolia.pre_retrieval.text_to_query",
    "TextToSQL": "spolia.pre_retrieval.text_to_query",
    "Then": "spolia.core.operator",
    "Threshold": "spolia.post_retrieval.selection",
    "TimeDecay": "spolia.post_retrieval.recency",
    "TitleBoost": "spolia.post_retrieval.title_boost",
    "TokenEnsemble": "spolia.generation.ensemble",
    "TokenWindow": "spolia.indexing.splitters.token_window",
    "Topics": "spolia.indexing.structure.topics",
    "TreeSummarise": "spolia.post_retrieval.compression.summary",
    "UPR": "spolia.post_retrieval.likelihood_rerankers",
    "Vary": "spolia.core.operator",
    "VerifyClaims": "spolia.generation.verification",
    "VerifyGrounding": "spolia.generation.verification",
    "WebSearch": "spolia.retrieval.web.search",
    "Whole": "spolia.stores.definition",
    "WindowReplacement": "spolia.post_retrieval.group_map",
    "WithDraft": "spolia.pre_retrieval.hyde",
    "WithinRows": "spolia.pre_retrieval.row_search",
    "WordPiece": "spolia.models.onnx.tokenizer",
    "YesNo": "spolia.models.parsers.words",
}

NOUNS: Mapping[str, type[Value]] = {
    name: cls
    for name, cls in vars(types).items()
    if isinstance(cls, type) and issubclass(cls, Value) and is_dataclass(cls)
}


class Catalogue(Mapping[str, Any]):
    """Operators, addresses and values by id: what the caller passes, what is built in, what is installed.

    An installed package offers operators under the entry point group `spolia.operators`; their ids are prefixed by
    the package: `acme:Rerank`. Looking an id up imports the module that offers it, never one that the id names.
    """

    def __init__(self, passed: Iterable[Operator[Any, Any] | type] = ()) -> None:
        classes = [item if isinstance(item, type) else type(item) for item in passed]
        self.passed = {type_id(cls): cls for cls in classes}

    def __getitem__(self, name: str) -> Any:
        if name in self.passed:
            return self.passed[name]
        if name in NOUNS:
            return NOUNS[name]
        if name in BUILT_IN:
            return getattr(import_module(BUILT_IN[name]), name)
        if ":" in name and (offered := _installed().get(name)) is not None:
            return _loaded(name, offered)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.passed, *BUILT_IN, *NOUNS, *_installed()]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def operators(self) -> Iterator[type[Operator[Any, Any]]]:
        """Every operator, imported."""
        for name in self:
            if isinstance(cls := self[name], type) and issubclass(cls, Operator):
                yield cls


def _installed() -> dict[str, EntryPoint]:
    return {f"{point.module.partition('.')[0]}:{point.name}": point for point in entry_points(group=GROUP)}


def _loaded(name: str, offered: EntryPoint) -> Any:
    try:
        found = offered.load()
    except Exception as error:
        raise CodecError(
            f"The installed operator {name} could not be imported: {error}. Update its package."
        ) from error
    return type(found) if isinstance(found, Operator) else found
