"""Where operators and addresses are found by their ids, so that no file decides what is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from spolia import types
from spolia.codec import type_id
from spolia.errors import CodecError
from spolia.operator import Operator
from spolia.types import Value

GROUP = "spolia.operators"

BUILT_IN: Mapping[str, str] = {
    "Analyzer": "spolia.stores.lexical.analysis",
    "And": "spolia.filters.conditions",
    "AnswerEnsemble": "spolia.generation.ensemble.answers",
    "AnyOf": "spolia.filters.conditions",
    "AsDicts": "spolia.post_retrieval.forms",
    "AsNodes": "spolia.post_retrieval.forms",
    "AsText": "spolia.post_retrieval.forms",
    "Ask": "spolia.models.ask",
    "AttachMetadata": "spolia.indexing.structure.attach_metadata",
    "AveragedHyDE": "spolia.pre_retrieval.averaged_hyde",
    "BM25": "spolia.retrieval.bm25",
    "BM25Variant": "spolia.retrieval.bm25_variant",
    "Belonging": "spolia.retrieval.graph.edges",
    "Best": "spolia.combinators.best",
    "Between": "spolia.filters.conditions",
    "Blend": "spolia.orchestration.blend",
    "Branch": "spolia.combinators.branch",
    "Brave": "spolia.retrieval.web.brave",
    "ByKeywords": "spolia.orchestration.by_keywords",
    "ByLabel": "spolia.orchestration.by_label",
    "ByMeaning": "spolia.orchestration.by_meaning",
    "ByNextToken": "spolia.orchestration.by_next_token",
    "ByPattern": "spolia.indexing.transforms.by_pattern",
    "BySimilarity": "spolia.retrieval.by_similarity",
    "CSVRows": "spolia.indexing.splitters.csv_rows",
    "ChainOfVerification": "spolia.pre_retrieval.chain_of_verification",
    "ChatModel": "spolia.models.chat",
    "Choice": "spolia.combinators.choice",
    "Chroma": "spolia.stores.adapters.chroma",
    "Classified": "spolia.orchestration.classified",
    "ClosedBook": "spolia.generation.closed_book",
    "CodeSplitter": "spolia.indexing.splitters.code",
    "ColBERT": "spolia.post_retrieval.colbert",
    "CompletionModel": "spolia.models.completions",
    "Confident": "spolia.orchestration.confident",
    "ConstructFilter": "spolia.pre_retrieval.construct_filter",
    "ContextualHeaders": "spolia.indexing.transforms.headers",
    "ControlTokens": "spolia.models.parsers.control_tokens",
    "ConvexCombination": "spolia.orchestration.fusion",
    "Corpus": "spolia.stores.corpus",
    "Critique": "spolia.post_retrieval.selection.critique",
    "CrossEncoder": "spolia.post_retrieval.cross_encoder",
    "Cut": "spolia.post_retrieval.cut",
    "Decisions": "spolia.evaluation.measures.judged.parsers",
    "Decompose": "spolia.pre_retrieval.decompose",
    "Definition": "spolia.stores.definition",
    "Dense": "spolia.retrieval.dense",
    "Descend": "spolia.retrieval.tree",
    "Each": "spolia.combinators.each",
    "Embedding": "spolia.stores.definition",
    "EmbeddingModel": "spolia.models.embeddings",
    "EvenSplit": "spolia.orchestration.even_split",
    "Exact": "spolia.stores.indexes",
    "Exceeds": "spolia.orchestration.exceeds",
    "Explore": "spolia.combinators.explore",
    "Extract": "spolia.generation.extract",
    "Extractive": "spolia.post_retrieval.compression.extractive",
    "ExtractiveSummary": "spolia.indexing.structure.extractive",
    "FString": "spolia.generation.f_string",
    "FieldedBM25": "spolia.retrieval.fielded_bm25",
    "FirstTokens": "spolia.models.first_tokens",
    "Generate": "spolia.generation.generate",
    "GraphFile": "spolia.stores.outside.graph_file",
    "Get": "spolia.combinators.get",
    "Guard": "spolia.combinators.guard",
    "HNSW": "spolia.stores.indexes",
    "HTMLSections": "spolia.indexing.splitters.html",
    "Headed": "spolia.models.parsers.headed",
    "HighestScore": "spolia.orchestration.highest",
    "Hops": "spolia.retrieval.graph.hops",
    "HyDE": "spolia.pre_retrieval.hyde",
    "HypotheticalQuestions": "spolia.indexing.transforms.questions",
    "Identity": "spolia.combinators.identity",
    "InOrder": "spolia.retrieval.graph.edges",
    "JSONRows": "spolia.indexing.splitters.json_rows",
    "JsonObject": "spolia.models.parsers.objects",
    "KeywordFilter": "spolia.post_retrieval.keyword",
    "Keywords": "spolia.indexing.transforms.keywords",
    "KnowledgeGuided": "spolia.orchestration.knowledge_guided",
    "LLMEntities": "spolia.indexing.transforms.llm_entities",
    "LLMFusion": "spolia.orchestration.llm_fusion",
    "LLMLingua": "spolia.post_retrieval.compression.llmlingua",
    "LanceDB": "spolia.stores.adapters.lancedb",
    "LateInteraction": "spolia.retrieval.late_interaction",
    "LearnedSparse": "spolia.retrieval.learned_sparse",
    "LeastToMost": "spolia.pre_retrieval.least_to_most",
    "Likelihood": "spolia.models.likelihood",
    "Limits": "spolia.stores.outside.rows",
    "Lines": "spolia.models.parsers.lines",
    "Local": "spolia.models.local.address",
    "LocalCrossEncoder": "spolia.models.local.cross_encoder",
    "LocalEmbedder": "spolia.models.local.embedder",
    "LocalEncoder": "spolia.models.local.encoder",
    "LocalImageEmbedder": "spolia.models.local.image_embedder",
    "LocalModel": "spolia.models.local.language_model",
    "LocalSeq2Seq": "spolia.models.local.language_model",
    "LocalSparseEmbedder": "spolia.models.local.sparse_embedder",
    "LocalTokenEmbedder": "spolia.models.local.token_embedder",
    "LongContextReorder": "spolia.generation.long_context_reorder",
    "LongLLMLingua": "spolia.post_retrieval.compression.long_llmlingua",
    "Loop": "spolia.combinators.loop",
    "MMR": "spolia.post_retrieval.mmr",
    "MajorityVote": "spolia.orchestration.majority",
    "Mapped": "spolia.post_retrieval.mapped",
    "MarkdownSections": "spolia.indexing.splitters.markdown",
    "Milvus": "spolia.stores.adapters.milvus",
    "MiniLM": "spolia.models.minilm",
    "MonoT5": "spolia.post_retrieval.mono_t5",
    "MultiHead": "spolia.retrieval.multi_head",
    "MultiQuery": "spolia.pre_retrieval.multi_query",
    "MultiSource": "spolia.retrieval.multi_source",
    "NamesWithKinds": "spolia.indexing.transforms.parsers",
    "Neighbours": "spolia.post_retrieval.neighbours",
    "Newest": "spolia.post_retrieval.newest",
    "NodeGraph": "spolia.retrieval.graph.address",
    "NodeGroup": "spolia.stores.corpus",
    "Not": "spolia.filters.conditions",
    "Number": "spolia.models.parsers.number",
    "OneOf": "spolia.models.parsers.words",
    "OneText": "spolia.pre_retrieval.parsers",
    "OpenSearch": "spolia.stores.adapters.opensearch",
    "Or": "spolia.filters.conditions",
    "OrUndetermined": "spolia.evaluation.measures.judged.parsers",
    "Order": "spolia.models.parsers.order",
    "Pages": "spolia.indexing.splitters.pages",
    "Paragraphs": "spolia.indexing.splitters.paragraphs",
    "Part": "spolia.stores.definition",
    "Percentile": "spolia.post_retrieval.selection.percentile",
    "PersonalisedPageRank": "spolia.retrieval.graph.pagerank",
    "Phrase": "spolia.retrieval.phrase",
    "Phrases": "spolia.indexing.transforms.parsers",
    "PickArm": "spolia.orchestration.pick_arm",
    "Piece": "spolia.stores.definition",
    "PostgresDatabase": "spolia.stores.outside.postgres_database",
    "PromptFile": "spolia.models.prompted",
    "Qdrant": "spolia.stores.adapters.qdrant",
    "QuestionAnswers": "spolia.indexing.transforms.questions",
    "Questions": "spolia.indexing.transforms.parsers",
    "QuestionsWithAnswers": "spolia.indexing.transforms.parsers",
    "RankGPT": "spolia.post_retrieval.rank_gpt",
    "Reader": "spolia.generation.reader",
    "Recent": "spolia.post_retrieval.selection.recent",
    "ReciprocalRankFusion": "spolia.orchestration.fusion",
    "RecursiveCharacters": "spolia.indexing.splitters.recursive",
    "Refine": "spolia.post_retrieval.compression.refine",
    "Regions": "spolia.indexing.structure.regions",
    "Remote": "spolia.models.remote",
    "Reorder": "spolia.post_retrieval.reorder",
    "RerankModel": "spolia.models.reranking",
    "Rewrite": "spolia.pre_retrieval.rewrite",
    "Role": "spolia.models.role",
    "Route": "spolia.combinators.route",
    "Rows": "spolia.stores.outside.rows",
    "RuleEntities": "spolia.indexing.transforms.rule_entities",
    "SQLiteFile": "spolia.stores.outside.sqlite_file",
    "Samples": "spolia.combinators.samples",
    "ScriptedModel": "spolia.models.scripted",
    "SearXNG": "spolia.retrieval.web.searxng",
    "Searches": "spolia.pre_retrieval.parsers",
    "Sections": "spolia.indexing.structure.sections",
    "SelectiveContext": "spolia.post_retrieval.compression.selective_context",
    "SemanticBreaks": "spolia.indexing.splitters.semantic",
    "SentenceWindow": "spolia.post_retrieval.sentence_window",
    "Sentences": "spolia.indexing.splitters.sentence_pieces",
    "SharedEntities": "spolia.retrieval.graph.edges",
    "ShowMetadata": "spolia.post_retrieval.show_metadata",
    "ShowRows": "spolia.pre_retrieval.show_rows",
    "Similar": "spolia.retrieval.graph.edges",
    "SimilarityPercentile": "spolia.post_retrieval.selection.similarity_percentile",
    "SimilarityThreshold": "spolia.post_retrieval.selection.similarity_threshold",
    "Situate": "spolia.indexing.transforms.headers",
    "SlidingWindow": "spolia.indexing.splitters.sliding_window",
    "Statement": "spolia.pre_retrieval.statements",
    "Statements": "spolia.evaluation.measures.judged.parsers",
    "StepBack": "spolia.pre_retrieval.step_back",
    "Steps": "spolia.pre_retrieval.parsers",
    "StopOn": "spolia.orchestration.stop_when",
    "StopWhen": "spolia.orchestration.stop_when",
    "Stopped": "spolia.combinators.loop",
    "Sufficient": "spolia.orchestration.sufficient",
    "Summary": "spolia.indexing.transforms.summary",
    "TART": "spolia.post_retrieval.tart",
    "TFIDF": "spolia.retrieval.tfidf",
    "TableAware": "spolia.indexing.splitters.tables",
    "Tags": "spolia.models.parsers.tags",
    "Text": "spolia.models.parsers.text",
    "TextToCypher": "spolia.pre_retrieval.text_to_cypher",
    "TextToSQL": "spolia.pre_retrieval.text_to_sql",
    "Then": "spolia.operator",
    "Threshold": "spolia.post_retrieval.selection.threshold",
    "TimeDecay": "spolia.post_retrieval.time_decay",
    "TitleBoost": "spolia.post_retrieval.title_boost",
    "TokenEnsemble": "spolia.generation.ensemble.tokens",
    "TokenWindow": "spolia.indexing.splitters.token_window",
    "Topics": "spolia.indexing.structure.topics",
    "TreeSummarise": "spolia.post_retrieval.compression.tree_summarise",
    "UPR": "spolia.post_retrieval.upr",
    "Vary": "spolia.operator",
    "VerifyClaims": "spolia.generation.verification.claims",
    "VerifyGrounding": "spolia.generation.verification.grounding",
    "WebSearch": "spolia.retrieval.web.search",
    "Whole": "spolia.stores.definition",
    "WindowReplacement": "spolia.post_retrieval.selection.window_replacement",
    "WithDraft": "spolia.pre_retrieval.with_draft",
    "WithinRows": "spolia.pre_retrieval.within_rows",
    "WordPiece": "spolia.models.tokenizer",
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
