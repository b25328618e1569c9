"""Translation of AutoRAG's modules to steps of a flow file: Kim et al., "AutoRAG", 2024 (arXiv 2410.20878)."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spolia.core.codec import Plain
from spolia.errors import DataError
from spolia.types import Value

CHUNKS, CORPUS, EMBEDDER, LLM, SCORER = ({"use": name} for name in ("chunks", "corpus", "embedder", "llm", "scorer"))
LEXICAL, SEMANTIC = "lexical", "semantic"
LABEL = "label"
SPACED = {"corpus": CORPUS, "name": "unstemmed", "definition": {
    "transform": "Whole", "parent": "chunk", "analyzer": {"stem": ""}
}}  # fmt: skip
"""A group of the same passages whose words are not stemmed: an analyzer belongs to a group."""
NORMALISATIONS = {"mm": "min-max", "tmm": "theoretical-min-max", "z": "z-score", "dbsf": "3-sigma"}
ANALYZER_TOKENIZERS = ("porter_stemmer", "ko_kiwi", "ko_kkma", "ko_okt", "sudachipy")
"""Tokenizers in whose place the analyzer of the store stands."""
MODEL_PARAMETERS = ("llm", "model", "model_name", "vectordb", "embedding_model")
WITHOUT_EFFECT = frozenset((
    *MODEL_PARAMETERS, "generator_module_type", "batch", "embedding_batch", "request_timeout", "timeout", "device",
    "use_fp16", "use_bf16", "api_key", "api_base", "host", "uri", "port", "tensor_parallel_size",
    "gpu_memory_utilization", "context_window", "is_chat_model", "target_modules", "target_module_params", "ids",
    "scores", "strategy", "verbose",
))  # fmt: skip
"""Parameters that say where a model is and how it is asked, not what comes out."""


class Unsupported(Exception):
    """Error for a module that has no equal here, with the reason."""


@dataclass(frozen=True)
class AvailableModels(Value):
    """Models that flows may ask, and the language model's server with the variable of its key; an embedder is always
    available."""

    llm: bool = True
    scorer: bool = True
    judge: bool = True
    base_url: str = ""
    key_env: str = ""


@dataclass
class ModuleEntry:
    """Entry of a node's `modules`: its type, the candidates of each parameter, and the names of its places."""

    type: str
    label: str
    params: dict[str, list[Any]]
    available: AvailableModels
    notes: list[str]
    used: set[str] = field(default_factory=set)

    @classmethod
    def from_config(
        cls, entry: Mapping[str, Any], defaults: Mapping[str, Any], available: AvailableModels, notes: list[str]
    ) -> "ModuleEntry":
        """Make an entry: a list is a list of candidates; parameters of the node hold where the module has none."""
        own_values = {name: value for name, value in entry.items() if name not in ("module_type", LABEL)}
        kind, params = str(entry["module_type"]), {**defaults, **own_values}
        listed = {name: value if isinstance(value, list) else [value] for name, value in params.items()}
        candidates = {name: value for name, value in listed.items() if value}
        return cls(kind, str(entry.get(LABEL, kind)), candidates, available, notes)

    def take(self, name: str, *default: Any) -> list[Any]:
        """Return the candidates of a parameter, each once."""
        self.used.add(name)
        return list({repr(candidate): candidate for candidate in self.params.get(name, default)}.values())

    def take_first(self, name: str, default: Any) -> Any:
        """Return the first candidate of a parameter of which only one makes sense."""
        first, *ignored = self.take(name, default)
        if ignored:
            self.notes.append(f"{self.type}: of {name} only {first!r} is read.")
        return first

    def make_step(self, operator: str, fields: Mapping[str, Plain], /, **ranges: Sequence[Plain]) -> Plain:
        """Make a step; fields with several candidates are open."""
        open_ = {name: list(values) for name, values in ranges.items() if len(values) > 1}
        body: dict[str, Plain] = {**fields, **{name: values[0] for name, values in ranges.items() if values}}
        plain: Plain = {operator: body} if body else operator
        if not open_:
            return plain
        names = {name: f"{self.label}.{name}" for name in open_}
        return {"Vary": {"body": plain, "ranges": open_, "names": names}}

    def llm(self) -> Plain:
        """Return the language model of the command line."""
        if not self.available.llm:
            raise Unsupported("it asks a language model; write --llm URL --model NAME")
        return LLM

    def scorer(self) -> Plain:
        """Return the reranker of the command line."""
        if not self.available.scorer:
            raise Unsupported("it asks a reranker; write --reranker URL")
        return SCORER

    def unused(self) -> Iterable[str]:
        """Return parameters that were not read, and might change the result."""
        return sorted(self.params.keys() - self.used - WITHOUT_EFFECT)

    def named_models(self) -> Iterable[str]:
        """Return the models and vector databases that the entry names; those of the command line take their place."""
        return [str(value) for name in MODEL_PARAMETERS for value in self.params.get(name, ())]


# Retrieval.


def bm25(module: ModuleEntry) -> list[Plain]:
    steps: list[Plain] = []
    top_k, tokenizers = module.take("top_k", 10), module.take("bm25_tokenizer", "porter_stemmer")
    if any(tokenizer in ANALYZER_TOKENIZERS for tokenizer in tokenizers):
        steps.append(module.make_step("BM25", {"group": CHUNKS, "source": LEXICAL}, top_k=top_k))
    if "space" in tokenizers:
        words = module.make_step("BM25", {"group": SPACED, "source": LEXICAL}, top_k=top_k)
        steps.append({"Then": [words, {"Mapped": {"target": CHUNKS}}]})
    if unknown := [str(tokenizer) for tokenizer in tokenizers if tokenizer not in (*ANALYZER_TOKENIZERS, "space")]:
        reason = f"the tokenizer {', '.join(unknown)} needs a file: write Analyzer(tokenizer=FILE) for a group"
        if not steps:
            raise Unsupported(reason)
        module.notes.append(f"bm25: left out: {reason}.")
    return steps


def vectordb(module: ModuleEntry) -> list[Plain]:
    fields: dict[str, Plain] = {"group": CHUNKS, "embedder": EMBEDDER, "source": SEMANTIC}
    return [module.make_step("Dense", fields, top_k=module.take("top_k", 10))]


def hybrid_rrf(module: ModuleEntry) -> list[Plain]:
    fixed = [*module.take("weight"), *module.take("rrf_k")]
    low, high = take_pair(module, "weight_range", (4, 80))
    ks = [float(value) for value in fixed] or [float(k) for k in range(int(low), int(high) + 1)]
    return [module.make_step("ReciprocalRankFusion", {}, k=ks, top_k=module.take("top_k", 10))]


def hybrid_cc(module: ModuleEntry) -> list[Plain]:
    low, high = take_pair(module, "weight_range", (0.0, 1.0))
    size = int(module.take_first("test_weight_size", 101))  # these defaults are AutoRAG's
    shares = [low + (high - low) * index / max(1, size - 1) for index in range(size)]
    fixed = [float(weight) for weight in module.take("weight")]
    if "weights" in module.params:  # of old versions: that of meaning, that of words
        fixed = [take_pair(module, "weights", (0.5, 0.5))[0]]
    # Else the flow file would show 0.30000000000000004.
    weights: list[Plain] = [{LEXICAL: round(1 - w, 6), SEMANTIC: round(w, 6)} for w in fixed or shares]
    methods = module.take("normalize_method", "mm")
    if odd := [method for method in methods if method not in NORMALISATIONS]:
        raise Unsupported(f"normalize_method is {odd[0]!r}, none of {', '.join(NORMALISATIONS)}")
    minimum_parameters = (
        ("lexical_theoretical_min_value", 0.0, LEXICAL),
        ("semantic_theoretical_min_value", -1.0, SEMANTIC),  # a cosine can be -1; BM25 is never negative
    )
    minimums: Plain = {source: float(module.take_first(name, default)) for name, default, source in minimum_parameters}
    normalisations: Sequence[Plain] = [NORMALISATIONS[method] for method in methods]
    ranges: dict[str, Sequence[Plain]] = {
        "normalisation": normalisations,
        "weights": weights,
        "top_k": module.take("top_k", 10),
    }
    return [module.make_step("ConvexCombination", {"minimums": minimums}, **ranges)]


def take_pair(module: ModuleEntry, name: str, default: tuple[float, float]) -> tuple[float, float]:
    """Return two numbers, which AutoRAG writes as the text "(0.0, 1.0)"."""
    value = module.take_first(name, default)
    try:
        low, high = ast.literal_eval(value) if isinstance(value, str) else value
        return float(low), float(high)
    except (ValueError, SyntaxError, TypeError) as error:
        raise DataError(f"{module.type}: {name} is {value!r}. Write two numbers, as (0.0, 1.0).") from error


# Before retrieval: how a question becomes one or several; the search stands after it.


def hyde(module: ModuleEntry) -> list[Plain]:
    return [_make_model_step(module, "HyDE")]


def query_decompose(module: ModuleEntry) -> list[Plain]:
    return [_make_model_step(module, "Decompose")]


def multi_query_expansion(module: ModuleEntry) -> list[Plain]:
    return [_make_model_step(module, "MultiQuery")]


def _make_model_step(module: ModuleEntry, operator: str, models: Sequence[Plain] = ()) -> Plain:
    tokens = module.take("max_token") or module.take("max_tokens")
    settings = {"max_tokens": tokens, "temperature": [float(value) for value in module.take("temperature")]}
    ranges: dict[str, Sequence[Plain]] = {"llm": models or [module.llm()], **settings}
    return module.make_step(operator, {}, **{name: values for name, values in ranges.items() if values})


# After retrieval.


def pass_through(module: ModuleEntry) -> list[Plain]:
    """Make the step of a pass module, which keeps the first `top_k` of its node."""
    top_k = module.take("top_k")
    return [module.make_step("Cut", {}, top_k=top_k)] if top_k else ["Identity"]


def prev_next_augmenter(module: ModuleEntry) -> list[Plain]:
    """Make steps that add neighbours, then order all passages by the cosine of their vectors, as AutoRAG does."""
    steps: list[Plain] = []
    scored: dict[str, Plain] = {"embedder": EMBEDDER, "group": CHUNKS, "relevance": 1.0}
    rescoring = module.make_step("MMR", scored, top_k=module.take("top_k", 10))
    for mode in module.take("mode", "both"):
        for count in module.take("num_passages", 1):
            fields: dict[str, Plain] = {"corpus": CORPUS, "before": 0 if mode == "next" else int(count)}
            fields["after"] = 0 if mode == "prev" else int(count)
            steps.append({"Then": [module.make_step("Neighbours", fields), rescoring]})
    return steps


def cross_encoder(module: ModuleEntry) -> list[Plain]:
    return [module.make_step("CrossEncoder", {"scorer": module.scorer()}, top_k=module.take("top_k", 10))]


def tart(module: ModuleEntry) -> list[Plain]:
    instructions = module.take("instruction")
    fields: dict[str, Plain] = {"scorer": module.scorer()} | ({"instruction": instructions[0]} if instructions else {})
    return [module.make_step("TART", fields, top_k=module.take("top_k", 10))]


def rankgpt(module: ModuleEntry) -> list[Plain]:
    return [module.make_step("RankGPT", {"llm": module.llm()}, top_k=module.take("top_k", 10))]


def threshold_cutoff(module: ModuleEntry) -> list[Plain]:
    if module.take_first("reverse", False):
        raise Unsupported("reverse is set, and higher is better always here; a distance d has the score -d")
    return [module.make_step("Threshold", {}, at_least=[float(bound) for bound in module.take("threshold", 0.5)])]


def percentile_cutoff(module: ModuleEntry) -> list[Plain]:
    if module.take_first("reverse", False):
        raise Unsupported("reverse is set, and higher is better always here")
    return [module.make_step("Percentile", {}, share=[float(share) for share in module.take("percentile", 0.6)])]


def similarity_threshold_cutoff(module: ModuleEntry) -> list[Plain]:
    bounds = [float(bound) for bound in module.take("threshold", 0.5)]
    return [module.make_step("SimilarityThreshold", {"embedder": EMBEDDER}, at_least=bounds)]


def similarity_percentile_cutoff(module: ModuleEntry) -> list[Plain]:
    shares = [float(share) for share in module.take("percentile", 0.6)]
    return [module.make_step("SimilarityPercentile", {"embedder": EMBEDDER}, share=shares)]


def tree_summarize(module: ModuleEntry) -> list[Plain]:
    return [module.make_step("TreeSummarise", {"llm": module.llm()})]


def refine(module: ModuleEntry) -> list[Plain]:
    return [module.make_step("Refine", {"llm": module.llm()})]


# Prompts and generators: together they are one step, `Reader`.

_PLACE = re.compile(r"\{(query|retrieved_contents)\}|\{\{|\}\}")
_PLACE_TEXTS = {"{query}": "{{question}}", "{retrieved_contents}": "{{passages}}", "{{": "{", "}}": "}"}


def prompts(module: ModuleEntry) -> list[Plain]:
    """Return the texts of a prompt maker, in the form of `FString`."""
    templates = module.take("prompt")
    # One chat prompt is a list too: of messages, not of candidates.
    if module.type == "chat_fstring" and all(isinstance(template, Mapping) for template in templates):
        templates = [templates]
    # In one pass: a brace that was put in is not read again.
    texts = [_PLACE.sub(lambda match: _PLACE_TEXTS[match[0]], _join_messages(template)) for template in templates]
    if odd := next(
        (text for text in texts if not all(place in text for place in ("{{passages}}", "{{question}}"))), None
    ):
        raise Unsupported(f"its prompt {odd!r:.60} lacks {{query}} or {{retrieved_contents}}")
    return list(texts)


def _join_messages(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"[{message['role']}]\n{message['content']}" for message in prompt)


def prompt_maker(operator: str) -> Callable[[ModuleEntry], list[Plain]]:
    def make_prompt_step(module: ModuleEntry) -> list[Plain]:
        module.llm()  # raises Unsupported without a language model
        texts = prompts(module)
        return [module.make_step(operator, {}, **({"template": texts} if texts else {}))]

    return make_prompt_step


def window_replacement(module: ModuleEntry) -> list[Plain]:
    return [{"Then": ["WindowReplacement", *prompt_maker("FString")(module)]}]


def generator(module: ModuleEntry) -> list[Plain]:
    """Make the reader; several models of one server are candidates."""
    names = [str(name) for name in module.params.get("model") or module.params.get("llm") or ()]
    if len(names) < 2:
        return [_make_model_step(module, "Reader")]
    if not module.available.base_url:
        module.llm()
        module.notes.append(
            f"{module.type}: of its models ({', '.join(names)}) only that of the command line is asked. To compare "
            "them, name their server: --llm URL."
        )
        return [_make_model_step(module, "Reader")]
    server = {"base_url": module.available.base_url, "api_key_env": module.available.key_env}
    return [_make_model_step(module, "Reader", [{"ChatModel": {"model": name, **server}} for name in names])]


MODULES: Mapping[str, Callable[[ModuleEntry], list[Plain]]] = {
    "bm25": bm25, "vectordb": vectordb, "hybrid_rrf": hybrid_rrf, "hybrid_cc": hybrid_cc,
    "pass_query_expansion": pass_through, "pass_passage_augmenter": pass_through, "pass_reranker": pass_through,
    "pass_passage_filter": pass_through, "pass_compressor": pass_through,
    "hyde": hyde, "query_decompose": query_decompose, "multi_query_expansion": multi_query_expansion,
    "prev_next_augmenter": prev_next_augmenter,
    "koreranker": cross_encoder, "sentence_transformer_reranker": cross_encoder,
    "flag_embedding_reranker": cross_encoder, "flag_embedding_llm_reranker": cross_encoder,
    "cohere_reranker": cross_encoder, "jina_reranker": cross_encoder, "voyageai_reranker": cross_encoder,
    "flashrank_reranker": cross_encoder, "tart": tart, "rankgpt": rankgpt,
    "threshold_cutoff": threshold_cutoff, "percentile_cutoff": percentile_cutoff,
    "similarity_threshold_cutoff": similarity_threshold_cutoff,
    "similarity_percentile_cutoff": similarity_percentile_cutoff,
    "tree_summarize": tree_summarize, "refine": refine,
    "fstring": prompt_maker("FString"), "chat_fstring": prompt_maker("FString"),
    "long_context_reorder": prompt_maker("LongContextReorder"), "window_replacement": window_replacement,
    "llama_index_llm": generator, "openai_llm": generator, "minimax_llm": generator, "vllm": generator,
    "vllm_api": generator,
}  # fmt: skip

_NEEDS_TOKENS = (
    "it asks a model for probabilities of tokens, which --llm does not promise; write it into the space with one"
)
_NEEDS_TIMES = (
    "AutoRAG keeps the time of a passage inside of `metadata`, which is one text here; write it into the space"
)
_NOT_BUILT = "not built: its requests have other fields"
UNSUPPORTED: Mapping[str, str] = {
    "monot5": _NEEDS_TOKENS, "upr": _NEEDS_TOKENS, "longllmlingua": _NEEDS_TOKENS,
    "colbert_reranker": "it needs the folder of a checkpoint; write ColBERT with LocalColBERT into the space",
    "time_reranker": _NEEDS_TIMES, "recency_filter": _NEEDS_TIMES,
    "openvino_reranker": "not built; OnnxCrossEncoder runs cross-encoders on a CPU",
    "mixedbreadai_reranker": _NOT_BUILT, "nvidia_reranker": _NOT_BUILT,
}  # fmt: skip
"""Modules that are left out, with why."""
