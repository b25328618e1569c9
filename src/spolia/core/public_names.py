"""The one registry of public names and their modules: for flow files, lazy exports, type stubs and the docs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

_TABLE = """
core.check: check
core.combinators.best: Best
core.combinators.branch: Branch
core.combinators.choice: Choice
core.combinators.each: Each
core.combinators.explore: Explore
core.combinators.get: Get
core.combinators.guard: Guard
core.combinators.identity: Identity
core.combinators.loop: Loop Stopped
core.combinators.route: Route
core.combinators.samples: Samples
core.combinators.space: Space decide places settle
core.draw: mermaid tree
core.function: step
core.operator: Operator Retriever Then Vary
core.run_context: Done Emitted Retracted
databases.database: QueryLimits QueryRows
databases.graph_file: GraphFile
databases.postgres_database: PostgresDatabase
databases.sqlite_file: SQLiteFile
evaluation.data.dataset: DataSet
evaluation.experiment.execution: ask
evaluation.experiment.experiment: Experiment
evaluation.measures.judged.judge: Decisions OrUndetermined Statements
evaluation.measures.registry: parse_measures
filters.conditions: And AnyOf Between Not Or where
filters.fields: Field
flow_files.federated_search: across
flow_files.files: dump load
generation.closed_book: ClosedBook
generation.ensemble: AnswerEnsemble TokenEnsemble
generation.extract: Extract
generation.prompt: FString Generate LongContextReorder
generation.reader: Reader
generation.verification: VerifyClaims VerifyGrounding
indexing.sync.dry_run: planned
indexing.sync.sync: sync
indexing.sources.api: APIItems
indexing.sources.remote_files: RemoteFiles
indexing.sources.sql: SQLRows
indexing.sources.web: WebPages
indexing.splitters.code: CodeSplitter
indexing.splitters.rows: CSVRows JSONRows TableAware
indexing.splitters.markup: HTMLSections MarkdownSections
indexing.splitters.text_units: Pages Paragraphs RecursiveCharacters Sentences
indexing.splitters.semantic: SemanticBreaks
indexing.splitters.sized_splitter: SlidingWindow
indexing.splitters.token_window: TokenWindow
indexing.structure.topics: ExtractiveSummary Topics
indexing.structure.regions: AttachMetadata Regions
indexing.structure.sections: Sections
indexing.sync.texts: add_texts temporary
indexing.transforms.by_pattern: ByPattern
indexing.transforms.contextual_headers: ContextualHeaders Situate
indexing.transforms.function: transform
indexing.transforms.text_enrichment: Keywords LLMEntities HypotheticalQuestions QuestionAnswers Summary
indexing.transforms.llm_transform: NamesWithKinds Phrases Questions QuestionsWithAnswers
indexing.transforms.rule_entities: RuleEntities
journal: Cache Runs
models.http.chat: ChatModel
models.http.completions: CompletionModel
models.http.embeddings: EmbeddingModel
models.http.remote: Remote
models.http.reranking: RerankModel
models.local.address: Local
models.local.cross_encoder: LocalCrossEncoder
models.local.embedders: LocalEmbedder LocalEncoder LocalSparseEmbedder LocalTokenEmbedder
models.local.image_embedder: LocalImageEmbedder
models.local.language_model: LocalModel LocalSeq2Seq
models.onnx.minilm: MiniLM
models.onnx.tokenizer: WordPiece
models.parsers.json_object: JsonObject
models.parsers.lines: Headed Lines
models.parsers.numbers: Number Order
models.parsers.parser: Parser Text
models.parsers.tags: ControlTokens Tags
models.parsers.words: OneOf YesNo
models.prompting.likelihood: FirstTokens Likelihood
models.prompting.role: Ask Brief PromptFile Role
models.prompting.stand_in_models: ScriptedModel
models.prompting.template: Setting
models.protocols: Embedder ForetellsTokens ImageEmbedder LanguageModel Scorer ScoresContinuations SparseEmbedder
models.protocols: StatesDistributions StatesHidden StatesLogprobs TokenEmbedder
orchestration.answer_fusion: LLMFusion MajorityVote
orchestration.arm_choice: Blend Exceeds PickArm
orchestration.judges: Classified Confident StopOn StopWhen Sufficient
orchestration.knowledge_plan: KnowledgeGuided
orchestration.llm_router: ByLabel ByNextToken
orchestration.rank_fusion: ConvexCombination EvenSplit HighestScore ReciprocalRankFusion
orchestration.similarity_router: ByKeywords ByMeaning
post_retrieval.compression.extractive: Extractive SelectiveContext
post_retrieval.compression.llmlingua: LLMLingua LongLLMLingua
post_retrieval.compression.summary: Refine TreeSummarise
post_retrieval.context_window: Neighbours SentenceWindow
post_retrieval.critique: Critique
post_retrieval.encoder_rerankers: ColBERT CrossEncoder TART
post_retrieval.group_map: Mapped WindowReplacement
post_retrieval.likelihood_rerankers: MonoT5 UPR
post_retrieval.mmr: MMR
post_retrieval.presentation: AsDicts AsNodes AsText Reorder ShowMetadata
post_retrieval.rank_gpt: RankGPT
post_retrieval.recency: Newest Recent TimeDecay
post_retrieval.reranker: reranker
post_retrieval.selection: Cut KeywordFilter Percentile SimilarityPercentile SimilarityThreshold Threshold
post_retrieval.title_boost: TitleBoost
pre_retrieval.chain_of_verification: ChainOfVerification
pre_retrieval.decomposition: Decompose LeastToMost
pre_retrieval.hyde: AveragedHyDE HyDE WithDraft
pre_retrieval.metadata_filter: ConstructFilter
pre_retrieval.query_llm: OneText Searches Steps
pre_retrieval.rewrite: Condense MultiQuery Rewrite StepBack
pre_retrieval.row_search: ShowRows WithinRows
pre_retrieval.text_to_query: Statement TextToCypher TextToSQL
retrieval.bm25: BM25 Phrase
retrieval.bm25_variants: BM25Variant FieldedBM25
retrieval.dense: Dense
retrieval.graph.edges: Belonging InOrder SharedEntities Similar
retrieval.graph.node_graph: NodeGraph
retrieval.graph.walk: Hops PersonalisedPageRank
retrieval.late_interaction: LateInteraction
retrieval.learned_sparse: LearnedSparse
retrieval.multi_head: MultiHead
retrieval.multi_source: MultiSource
retrieval.similarity_search: BySimilarity similarity
retrieval.tfidf: TFIDF
retrieval.tree: Descend
retrieval.web.engines: Brave SearXNG
retrieval.web.search: WebSearch
run: Budget Run
stores.adapters.chroma: Chroma
stores.adapters.lancedb: LanceDB
stores.adapters.milvus: Milvus
stores.adapters.opensearch: OpenSearch
stores.adapters.qdrant: Qdrant
stores.corpus: Corpus NodeGroup
stores.definition: Definition Embedding Part Piece Splitter Whole
stores.groups.materialise: materialise
stores.indexes: Exact HNSW
stores.lexical.analysis: Analyzer
types: Answer Citation Document Failure Generation Hit Item Message Node Prompt Query Quote Ranking Span State
types: Usage Verdict
"""
"""A module below `spolia`, and the public names that it defines."""

_TOP = """
Answer Citation Document Failure Hit Item Message Node Query Ranking Span State Verdict Operator Retriever step Branch
Each Route Loop Explore Guard Choice Samples Best Identity check dump load decide places settle Run Budget Cache Runs
Corpus Definition sync add_texts where Field Between ChatModel EmbeddingModel MiniLM RerankModel ScriptedModel BM25
Dense HyDE MultiQuery Decompose ReciprocalRankFusion CrossEncoder Cut Reader Extract
"""

MODULE_OF: Mapping[str, str] = {
    name: f"spolia.{module}"
    for module, _, names in (line.partition(": ") for line in _TABLE.strip().splitlines())
    for name in names.split()
}
"""Every public name, with the module that defines it."""

TOP = frozenset(_TOP.split())
"""What `from spolia import …` offers: the first hour. The rest is imported from its package."""


def names_of(package: str) -> dict[str, str]:
    """The names that a package offers, with the module of each; without those that a module of the package is called.

    >>> names_of("spolia")["BM25"], "Phrase" in names_of("spolia"), names_of("spolia.retrieval")["Phrase"]
    ('spolia.retrieval.bm25', False, 'spolia.retrieval.bm25')
    """
    if package == "spolia":
        return {name: module for name, module in MODULE_OF.items() if name in TOP}
    inside = f"{package}."
    return {
        name: module
        for name, module in MODULE_OF.items()
        if module.startswith(inside) and module.removeprefix(inside).partition(".")[0] != name
    }


def exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package that imports its names on first use (PEP 562)."""
    offered = names_of(package)
    public = sorted(offered)

    def get(name: str) -> object:
        if name not in offered:
            raise AttributeError(_absent(package, name, public), name=name, obj=sys.modules[package])
        found = getattr(import_module(offered[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return get, lambda: public, public


def _absent(package: str, name: str, public: list[str]) -> str:
    if name in MODULE_OF:
        module = MODULE_OF[name]
        lazy = ".".join(module.split(".")[:2])
        home = "spolia" if name in TOP else lazy if name in names_of(lazy) else module
        return f"{package} has no {name!r}. Write: from {home} import {name}"
    return f"{package} has no {name!r}. It has: {', '.join(public)}."
