"""AutoRAG's configuration and the folder of a trial, read as spaces of flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spolia.core.combinators.space import Space
from spolia.core.operator import Operator
from spolia.errors import DataError
from spolia.evaluation.measures.registry import parse_measures
from spolia.flow_files.files import load
from spolia.models.http.chat import ChatModel
from spolia.models.http.reranking import RerankModel
from spolia.models.protocols import CHAT, NEXT_TOKENS
from spolia.optimizer.autorag.config import ImportedConfig, import_config, is_config, read_config, refuse_other_config
from spolia.optimizer.autorag.modules import MODULES, UNSUPPORTED, AvailableModels
from spolia.optimizer.autorag.trial import is_trial, read_trial
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.plan import TuningPlan
from spolia.stores.corpus import Corpus
from spolia.testing import HashingEmbedder
from spolia.types import Item
from tests.cases import check_each

SERVER = "http://127.0.0.1:1/v1"
CORPUS = Corpus("notes.spolia")
GIVEN: dict[str, Any] = {
    "corpus": CORPUS,
    "chunks": CORPUS.group(),
    "embedder": HashingEmbedder(),
    "llm": ChatModel("asked", SERVER),
    "scorer": RerankModel("judge", SERVER),
}
SIX = "[retrieval_f1, retrieval_recall, retrieval_precision, retrieval_ndcg, retrieval_map, retrieval_mrr]"
HYBRID = f"""
vectordb:
  - name: lights
    db_type: chroma
    embedding_model: huggingface_minilm
    path: ${{PROJECT_DIR}}/data/chroma
node_lines:
- node_line_name: search   # any name
  nodes:
    - node_type: lexical_retrieval
      strategy: {{metrics: {SIX}, strategy: rank, speed_threshold: 7}}
      top_k: 10
      modules:
        - module_type: bm25
          bm25_tokenizer: [porter_stemmer, space, gpt2]
    - node_type: semantic_retrieval
      strategy: {{metrics: {SIX}}}
      top_k: 10
      modules:
        - module_type: vectordb
          vectordb: lights
          embedding_batch: 64
    - node_type: hybrid_retrieval
      strategy: {{metrics: {SIX}, strategy: normalize_mean, speed_threshold: 3}}
      top_k: 10
      modules:
        - module_type: hybrid_rrf
          weight_range: (4,80)
        - module_type: hybrid_cc
          normalize_method: [mm, tmm, z, dbsf]
          weight_range: (0.0, 1.0)
          test_weight_size: 101
"""
WHOLE = (
    HYBRID.replace(
        "node_lines:\n",
        """node_lines:
- node_line_name: before
  nodes:
    - node_type: query_expansion
      strategy:
        metrics: [retrieval_f1]
        retrieval_modules: [{module_type: bm25}]
      modules:
        - module_type: pass_query_expansion
        - module_type: hyde
          generator_module_type: llama_index_llm
          llm: openai
          model: [big, small]
          max_token: 64
        - module_type: query_decompose
          llm: openai
        - module_type: multi_query_expansion
          llm: openai
          temperature: [0.2, 1.0]
""",
    )
    + """
    - node_type: passage_augmenter
      strategy: {metrics: [retrieval_f1]}
      top_k: 8
      modules:
        - module_type: pass_passage_augmenter
        - module_type: prev_next_augmenter
          mode: next
    - node_type: passage_reranker
      strategy: {metrics: [retrieval_f1]}
      top_k: [5, 3]
      modules:
        - module_type: pass_reranker
        - module_type: monot5
        - module_type: tart
        - module_type: cohere_reranker
        - module_type: flag_embedding_reranker
        - module_type: rankgpt
    - node_type: passage_filter
      strategy: {metrics: [retrieval_f1]}
      modules:
        - module_type: pass_passage_filter
        - module_type: threshold_cutoff
          threshold: [0.2, 0.85]
        - module_type: percentile_cutoff
          percentile: 0.6
        - module_type: similarity_threshold_cutoff
          threshold: 0.85
        - module_type: similarity_percentile_cutoff
          percentile: 0.6
        - module_type: recency_filter
          threshold_datetime: 2015-01-01 3:45:07
    - node_type: passage_compressor
      strategy: {metrics: [retrieval_token_f1]}
      modules:
        - module_type: pass_compressor
        - module_type: tree_summarize
          llm: openai
        - module_type: refine
          llm: openai
- node_line_name: answer
  nodes:
    - node_type: prompt_maker
      strategy:
        metrics: [bleu]
        token_threshold: 2000
        generator_modules: [{module_type: llama_index_llm, llm: mock}]
      modules:
        - module_type: fstring
          prompt: ["Read {retrieved_contents} and {{say}}: {query}", "{query} \\n {retrieved_contents}"]
        - module_type: long_context_reorder
          prompt: "{retrieved_contents} {query}"
        - module_type: window_replacement
          prompt: "{retrieved_contents} {query}"
        - module_type: chat_fstring
          prompt:
            - - {role: system, content: Be brief.}
              - {role: user, content: "{retrieved_contents} {query}"}
    - node_type: generator
      strategy:
        metrics:
          - bleu
          - metric_name: rouge
            rouge_type: rouge2
          - {metric_name: sem_score, embedding_model: openai}
          - {metric_name: g_eval}
          - bert_score
      modules:
        - module_type: llama_index_llm
          llm: [openai]
          model: [big]
          temperature: [0.5, 1.0]
        - module_type: openai_llm
          llm: big
          temperature: 0.0
"""
)


def config(tmp_path: Path, text: str, **options: Any) -> ImportedConfig:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert is_config(path)
    return read_config(path, AvailableModels(**options))


def node(kind: str, *modules: dict[str, Any], **more: Any) -> dict[str, Any]:
    strategy = {"metrics": ["retrieval_recall"]}
    return {"node_type": kind, "strategy": strategy, "modules": [*modules]} | more


def of(*nodes: dict[str, Any], **options: Any) -> ImportedConfig:
    return import_config({"node_lines": [{"nodes": [*nodes]}]}, "config.yaml", AvailableModels(**options))


WORDS = node("lexical_retrieval", {"module_type": "bm25"}, top_k=10)


def flow(imported_config: ImportedConfig) -> Operator[Any, Any]:
    return load(imported_config.text, GIVEN)


def test_a_hybrid_search_is_the_space_that_autorag_sweeps(tmp_path: Path) -> None:
    imported_config = config(tmp_path, HYBRID)
    space = Space(flow(imported_config))
    assert space.size == 2 * (77 + 4 * 101)
    assert {name: len(place.values) for name, place in space.places.items()} == {
        "lexical_retrieval": 2,
        "hybrid_retrieval": 2,
        "hybrid_rrf.k": 77,
        "hybrid_cc.normalisation": 4,
        "hybrid_cc.weights": 101,
    }
    assert space.places["hybrid_rrf.k"].values[::76] == (4.0, 80.0)
    words_only, *_, meaning_only = space.places["hybrid_cc.weights"].values
    assert dict(words_only) == {"lexical": 1.0, "semantic": 0.0}
    assert dict(meaning_only) == {"lexical": 0.0, "semantic": 1.0}


def test_the_measures_and_the_strategy_are_those_of_the_last_node(tmp_path: Path) -> None:
    imported_config = config(tmp_path, HYBRID)
    measures = 'SetF1,SetR,SetP,nDCG@10(rule="autorag"),MAP(rule="autorag"),MRR(rule="autorag")'
    assert (imported_config.objective, imported_config.combine) == (measures, "normalize_mean")
    assert len(Objectives.from_measures(parse_measures(measures), combine=imported_config.combine).best) == 6


def test_what_has_no_equal_is_left_out_and_named(tmp_path: Path) -> None:
    message = "\n".join(config(tmp_path, WHOLE).notes)
    for name in ("gpt2", "monot5", "recency_filter", "retrieval_token_f1", "bert_score", "speed_threshold", "lights"):
        assert (name in message) == (name != "retrieval_token_f1")  # only the measures of the last node count
    assert "--under Seconds=10" in message


@pytest.mark.slow
def test_a_whole_pipeline_is_a_flow_that_answers(tmp_path: Path) -> None:
    imported_config = config(tmp_path, WHOLE)
    space = Space(flow(imported_config))
    assert set(space.places) >= {
        "query_expansion", "passage_augmenter", "passage_reranker", "pass_reranker.top_k", "passage_filter",
        "threshold_cutoff.at_least", "passage_compressor", "prompt_maker", "fstring.template", "generator",
        "llama_index_llm.temperature",
    }  # fmt: skip
    assert len(space.places["query_expansion"].values) == 4
    assert len(space.places["passage_reranker"].values) == 4  # two cross-encoders are one
    judge = ChatModel("judge", SERVER, capabilities=frozenset((CHAT, NEXT_TOKENS)))
    assert imported_config.objective == 'SentenceBLEU,ROUGE-2,SemScore,GEval(aspect="mean", rule="autorag")'
    parse_measures(imported_config.objective, llm=judge, embedder=HashingEmbedder())
    assert imported_config.under == ("ATC=2000",)
    default = space.decide(space.default)
    assert default.gives(default.takes()).__name__ == "Answer"
    (template,) = (option.body.template for option in space.places["prompt_maker"].values[:1])
    assert template == "Read {{passages}} and {say}: {{question}}"


def test_without_models_the_space_ends_with_passages_and_says_so(tmp_path: Path) -> None:
    imported_config = config(tmp_path, WHOLE, llm=False, scorer=False, judge=False)
    assert flow(imported_config).gives(flow(imported_config).takes()).__name__ == "Ranking"
    assert imported_config.objective == "SetF1"
    message = "\n".join(imported_config.notes)
    assert "write --llm URL --model NAME" in message
    assert "write --reranker URL" in message
    assert "ends with the passages" in message


def test_a_retrieval_node_of_old_versions_chooses_among_retrievers_and_fusions() -> None:
    modules = ({"module_type": "bm25"}, {"module_type": "vectordb"}, {"module_type": "hybrid_rrf", "rrf_k": [10, 60]})
    imported_config = of(node("retrieval", *modules, top_k=[5, 10]))
    assert Space(flow(imported_config)).size == 2 + 2 + 2 * 2 * 2 * 2  # each with its top_k


@check_each("kind", sorted(MODULES))
def test_every_module_that_is_read_makes_a_flow(kind: str) -> None:
    fusing = kind.startswith("hybrid")
    searched = () if fusing or kind in ("bm25", "vectordb") else (WORDS,)
    prompt = {"prompt": "{query} {retrieved_contents}"}
    name = next(
        place
        for place, kinds in {
            "query_expansion": ("pass_query_expansion", "hyde", "query_decompose", "multi_query_expansion"),
            "hybrid_retrieval": ("hybrid_rrf", "hybrid_cc"),
            "lexical_retrieval": ("bm25",),
            "semantic_retrieval": ("vectordb",),
            "prompt_maker": ("fstring", "chat_fstring", "long_context_reorder", "window_replacement"),
            "generator": ("llama_index_llm", "openai_llm", "minimax_llm", "vllm", "vllm_api"),
            "passage_reranker": (kind,),
        }.items()
        if kind in kinds
    )
    module = {"module_type": kind} | (prompt if name == "prompt_maker" else {})
    imported_config = of(*searched, node(name, module))
    new_flow = flow(imported_config)
    assert new_flow.gives(new_flow.takes()).__name__ in ("Ranking", "Answer")


@check_each("kind", sorted(UNSUPPORTED))
def test_every_module_that_is_not_read_is_named_with_why(kind: str) -> None:
    imported_config = of(WORDS, node("passage_reranker", {"module_type": "pass_reranker"}, {"module_type": kind}))
    assert any(note.startswith(f"{kind} is left out: ") for note in imported_config.notes)


def test_nodes_and_modules_that_stand_there_twice_are_chosen_apart() -> None:
    cuts = ({"module_type": "threshold_cutoff", "threshold": [0.1, 0.2]}, {"module_type": "pass_passage_filter"})
    other_cuts = (
        {"module_type": "threshold_cutoff", "threshold": [0.3, 0.4, 0.5]},
        {"module_type": "pass_passage_filter"},
    )
    imported_config = of(WORDS, node("passage_filter", *cuts), node("passage_filter", *other_cuts))
    assert Space(flow(imported_config)).size == 3 * 4


SEARCHES = {
    "bm25": [WORDS],
    "vectordb": [node("semantic_retrieval", {"module_type": "vectordb", "vectordb": "default"})],
    "hybrid": [
        WORDS,
        node("semantic_retrieval", {"module_type": "vectordb"}),
        node("hybrid_retrieval", {"module_type": "hybrid_rrf", "weight_range": "(4,80)"}, {"module_type": "hybrid_cc"}),
    ],
}
"""How the configurations that AutoRAG ships search."""
BETWEEN = {
    "simple": [],
    "compact": [
        node("passage_augmenter", {"module_type": "pass_passage_augmenter"}, {"module_type": "prev_next_augmenter"}),
        node("passage_reranker", {"module_type": "pass_reranker"}, {"module_type": "tart"}, {"module_type": "upr"}),
    ],
    "full": [
        node("query_expansion", {"module_type": "pass_query_expansion"}, {"module_type": "hyde"}),
        node("passage_filter", {"module_type": "pass_passage_filter"}, {"module_type": "recency_filter"}),
        node("passage_compressor", {"module_type": "pass_compressor"}, {"module_type": "longllmlingua"}),
    ],
}
"""What they put between search and answer."""
METRICS = [{"metric_name": "bleu"}, {"metric_name": "rouge"}, {"metric_name": "sem_score"}]
ANSWERS = [
    node("prompt_maker", {"module_type": "fstring", "prompt": "{query} {retrieved_contents}"}),
    node(
        "generator",
        {"module_type": "llama_index_llm", "llm": "openai", "model": ["small", "large"]},
        strategy={"metrics": METRICS},
    ),
]


@pytest.mark.slow
@check_each("answers", [True, False])
@check_each("between", BETWEEN)
@check_each("search", SEARCHES)
def test_configurations_of_every_shape_start(search: str, between: str, answers: bool) -> None:
    imported_config = of(*SEARCHES[search], *BETWEEN[between], *(ANSWERS * answers), base_url=SERVER)
    measures = parse_measures(imported_config.objective, embedder=HashingEmbedder())
    items = [Item(f"q{index}", f"Who is {index}?", ("Olsen",), gold=(("a",),)) for index in range(9)]
    plan = TuningPlan.from_space(
        flow(imported_config), items, measures, combine=imported_config.combine, under=imported_config.under
    )
    models = "llama_index_llm.llm" in plan.candidates.space.places
    assert (plan.candidates.size >= 1, models) == (True, answers)


def test_several_models_need_the_address_of_their_server() -> None:
    imported_config = of(WORDS, *ANSWERS)
    assert "To compare them, name their server: --llm URL." in "\n".join(imported_config.notes)


def test_neighbours_are_scored_again_before_the_best_are_taken() -> None:
    augmented = node("passage_augmenter", {"module_type": "prev_next_augmenter"}, top_k=5)
    assert repr(flow(of(WORDS, augmented))).endswith("relevance=1.0, top_k=5)")


@pytest.mark.parametrize(
    ("modules", "does"),
    [("[{module_type: langchain_parse}]", "parses documents"), ("[{module_type: llama_index_chunk}]", "chunks")],
)
def test_a_configuration_of_parsing_or_chunking_is_named_for_what_it_is(
    tmp_path: Path, modules: str, does: str
) -> None:
    (tmp_path / "other.yaml").write_text(f"modules: {modules}\n")
    with pytest.raises(DataError, match=f"{does}.*spolia index.*node group.*with node_lines"):
        refuse_other_config(tmp_path / "other.yaml")


def test_a_misspelt_module_or_parameter_is_told_of() -> None:
    imported_config = of(
        node("lexical_retrieval", {"module_type": "bm25", "bm25_tokeniser": "space"}, {"module_type": "bm52"})
    )
    assert "bm25: the parameter bm25_tokeniser is not used." in imported_config.notes
    assert "bm52 is left out: unknown module." in imported_config.notes


@check_each(
    ("plain", "said"),
    [
        ({"node_lines": [{}]}, "node_lines.0 has no list `nodes`"),
        ({"node_lines": [{"nodes": [{}]}]}, "node_lines.0.nodes.0 has no `node_type`"),
        ({"node_lines": [{"nodes": [node("reader")]}]}, "no node_type 'reader'"),
        ({"node_lines": [{"nodes": [node("retrieval", {})]}]}, "no list `modules`"),
        ({"node_lines": [{"nodes": [node("retrieval", {"module_type": "splade"})]}]}, "nothing that searches is left"),
        ({"node_lines": [{"nodes": [{**WORDS, "strategy": {"strategy": "best"}}]}]}, "'best' is none of mean"),
        (
            {
                "node_lines": [
                    {"nodes": [node("hybrid_retrieval", {"module_type": "hybrid_cc", "weight_range": "0,1)"})]}
                ]
            },
            "Write two numbers",
        ),
    ],
)
def test_what_is_no_configuration_says_where(plain: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said.replace("(", r"\(")):
        import_config(plain, "config.yaml", AvailableModels())


def test_an_ordinary_flow_file_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text("- BM25: {group: {use: chunks}}\n")
    assert not is_config(tmp_path / "space.yaml")
    assert not is_config(tmp_path)


CHOSEN = """node_line_name,node_type,best_module_filename,best_module_name,best_module_params,best_execution_time
search,lexical_retrieval,1.parquet,BM25,"{'top_k': 10, 'bm25_tokenizer': 'space'}",0.0055
search,semantic_retrieval,0.parquet,VectorDB,"{'top_k': 10, 'vectordb': 'lights', 'embedding_batch': 64}",0.0282
search,hybrid_retrieval,2.parquet,HybridCC,"{'top_k': 10, 'normalize_method': 'mm', 'weight': 0.58}",0.414
"""
TRIED = """filename,module_name,module_params,execution_time,retrieval_f1,retrieval_recall,is_best
0.parquet,HybridRRF,"{'top_k': 10, 'weight': 4}",0.511,0.3033,0.91,False
1.parquet,HybridCC,"{'top_k': 10, 'normalize_method': 'tmm', 'weight': 0.38}",0.755,0.3017,0.905,False
2.parquet,HybridCC,"{'top_k': 10, 'normalize_method': 'mm', 'weight': 0.58}",0.414,0.305,0.915,True
"""


def trial(tmp_path: Path, chosen: str = CHOSEN) -> Path:
    folder = tmp_path / "project" / "0"
    (folder / "search" / "hybrid_retrieval").mkdir(parents=True)
    (folder / "config.yaml").write_text(HYBRID)
    (folder / "summary.csv").write_text(chosen)
    (folder / "search" / "hybrid_retrieval" / "summary.csv").write_text(TRIED)
    assert is_trial(folder)
    return folder


def test_the_pipeline_that_a_trial_chose_is_a_flow_and_a_point_of_its_space(tmp_path: Path) -> None:
    read = read_trial(trial(tmp_path))
    chosen, space = flow(read.best), Space(flow(read.space))
    assert not Space(chosen).places
    assert read.point is not None
    assert space.decide(read.point).digest == chosen.digest
    assert read.best.objective == read.space.objective
    assert [(module.module, module.seconds, module.is_best) for module in read.tried] == [
        ("hybrid_rrf", 0.511, False),
        ("hybrid_cc", 0.755, False),
        ("hybrid_cc", 0.414, True),
    ]
    assert dict(read.tried[2].metrics) == {"retrieval_f1": 0.305, "retrieval_recall": 0.915}


def test_a_pipeline_that_the_space_does_not_hold_has_no_point(tmp_path: Path) -> None:
    assert read_trial(trial(tmp_path, CHOSEN.replace("0.58", "0.585"))).point is None


@pytest.mark.parametrize(
    ("chosen", "said"),
    [("a,b\n1,2\n", "no column 'node_line_name'"), (CHOSEN.replace("'weight': 0.58}", "weight}"), "not a dict")],
)
def test_a_summary_that_autorag_did_not_write_is_refused(tmp_path: Path, chosen: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_trial(trial(tmp_path, chosen))
