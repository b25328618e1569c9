"""Import of AutoRAG's `config.yaml` as a space of flows, with its measures: Kim et al., "AutoRAG", 2024."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.core.codec import Plain
from spolia.errors import DataError, SpoliaError
from spolia.flow_files.yaml_text import YamlReader, dump_yaml
from spolia.optimizer.autorag.modules import LABEL, LLM, MODULES, UNSUPPORTED, AvailableModels, ModuleEntry, Unsupported
from spolia.types import Value

EXPANSION, PROMPT, GENERATOR = "query_expansion", "prompt_maker", "generator"
LEXICAL, SEMANTIC, HYBRID, RETRIEVAL = (
    "lexical_retrieval", "semantic_retrieval", "hybrid_retrieval", "retrieval"
)  # fmt: skip
SEARCHES = (LEXICAL, SEMANTIC, HYBRID, RETRIEVAL)
POST_SEARCH = ("passage_augmenter", "passage_reranker", "passage_filter", "passage_compressor")
NODE_ALIASES = {"sparse_retrieval": LEXICAL, "dense_retrieval": SEMANTIC}
SPLITTING_EXPANSIONS = ("query_decompose", "multi_query_expansion")
"""Expansions that make several questions of one."""
COMBINE_RULES = ("mean", "rank", "normalize_mean")
MEASURES: Mapping[str, str] = {
    "retrieval_f1": "SetF1", "retrieval_recall": "SetR", "retrieval_precision": "SetP",
    "retrieval_ndcg": 'nDCG@{top_k}(rule="autorag")', "retrieval_map": 'MAP(rule="autorag")',
    "retrieval_mrr": 'MRR(rule="autorag")', "bleu": "SentenceBLEU", "meteor": "METEOR-no-synonyms", "rouge": "ROUGE-L",
    "sem_score": "SemScore", "g_eval": 'GEval(aspect="mean", rule="autorag")',
    "deepeval_faithfulness": "Faithfulness",
}  # fmt: skip
JUDGED_METRICS = ("g_eval", "deepeval_faithfulness")
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLSum": "ROUGE-L"}


@dataclass(frozen=True)
class ImportedConfig(Value):
    """Space of flows that a configuration of AutoRAG describes.

    Args:
        plain: the space as plain data of a flow file.
        objective: the measures of the last node that has some, as `spolia tune --objective` takes them.
        combine: how AutoRAG makes one number of them: `mean`, `rank` or `normalize_mean`.
        under: limits, as `--under` takes them.
        notes: what is left out or other, in words.
    """

    plain: Plain
    objective: str
    combine: str = "mean"
    under: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the space as a flow file."""
        lines = [f"# {line}" for line in ("Made from a configuration of AutoRAG.", *self.notes)]
        return "\n".join(lines) + "\n" + dump_yaml(self.plain)


def is_config(path: Path) -> bool:
    """Return whether a file is a configuration of AutoRAG, and no flow file."""
    try:
        return path.is_file() and any(line.startswith("node_lines:") for line in path.read_text("utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return False


def refuse_other_config(path: Path) -> None:
    """Raise DataError for AutoRAG's configurations of parsing and chunking, which hold no flows."""
    try:
        # Editors on Windows write a byte order mark.
        plain = YamlReader(str(path)).read(path.read_text("utf-8-sig")) if path.suffix in (".yaml", ".yml") else None
    except (OSError, UnicodeDecodeError, SpoliaError):
        return  # whoever reads the space says what is wrong
    modules = plain.get("modules") if isinstance(plain, dict) else None
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and "module_type" in module for module in modules
    ):
        return
    kinds = {str(module["module_type"]) for module in modules}
    does = "chunks documents" if any("chunk" in kind for kind in kinds) else "parses documents"
    raise DataError(
        f"{path} is a configuration of AutoRAG that {does} ({', '.join(sorted(kinds))}), and holds no flow to tune. "
        "Read the documents with `spolia index FOLDER --store STORE`; write chunking as a node group "
        "(docs/how-to/groups.md). `spolia tune` reads AutoRAG's configuration with node_lines."
    )


def read_config(path: Path, available: AvailableModels | None = None) -> ImportedConfig:
    """Read the space that a configuration of AutoRAG describes.

    Raises:
        DataError: it is no configuration, or nothing of it has an equal here; says what to write.
        FlowFileError: it is no YAML.
    """
    return import_config(read_plain(path), str(path), available or AvailableModels())


def read_plain(path: Path) -> Mapping[str, Any]:
    """Read a configuration as plain data."""
    try:
        plain = YamlReader(str(path)).read(path.read_text("utf-8-sig"))  # editors on Windows write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}. Name a config.yaml of AutoRAG.") from error
    if not isinstance(plain, dict) or not isinstance(plain.get("node_lines"), list):
        raise DataError(f"{path} is not an AutoRAG configuration: it has no list `node_lines`.")
    return plain


def import_config(plain: Mapping[str, Any], name: str, available: AvailableModels) -> ImportedConfig:
    """Make the space of a configuration that was read.

    >>> node = {"node_type": "lexical_retrieval", "strategy": {"metrics": ["retrieval_recall"]},
    ...         "top_k": [5, 10], "modules": [{"module_type": "bm25"}]}
    >>> found = import_config({"node_lines": [{"nodes": [node]}]}, "config.yaml", AvailableModels())
    >>> found.objective, found.plain[0]["Vary"]["ranges"]
    ('SetR', {'top_k': [5, 10]})
    """
    nodes = list(_list_nodes(plain, name))
    notes: list[str] = []
    options = [(node, _build_options(node, available, notes)) for node in nodes]
    node_options = [(node, steps_found) for node, steps_found in options if steps_found]
    notes += [
        f"The node {node['node_type']} is left out: none of its modules is left."
        for node, steps_found in options
        if not steps_found
    ]
    if not any(node["node_type"] in SEARCHES for node, _ in node_options):
        raise DataError(f"{name}: nothing that searches is left. " + (" ".join(notes) or "Write a node of retrieval."))
    steps = [*_build_search(node_options, notes), *_build_post_search(node_options)]
    reader = [(node, steps_found) for node, steps_found in node_options if node["node_type"] in (PROMPT, GENERATOR)]
    if reader:
        steps.append(
            _build_reader(
                {node["node_type"]: steps_found for node, steps_found in reader}, _passage_count(node_options)
            )
        )
    if not available.llm and len(reader) < sum(node["node_type"] in (PROMPT, GENERATOR) for node in nodes):
        notes.append("Without a language model the space ends with the passages that are found.")
    objective, deciding = _find_objective(node_options, available, notes)
    strategy = deciding.get("strategy") or {}
    combine = str(strategy.get("strategy", COMBINE_RULES[0]))
    notes += _describe_thresholds(nodes)
    if models := sorted({model for node in nodes for model in _named_models(node)}):
        notes.append(
            f"Models and databases that it names are not used ({', '.join(models[:6])}): the language model, the "
            "embedder and the reranker are those of the command line."
        )
    plain_steps: Plain = steps if len(steps) > 1 else steps[:1]
    return ImportedConfig(plain_steps, objective, combine, _find_limits(node_options), tuple(dict.fromkeys(notes)))


def _list_nodes(plain: Mapping[str, Any], name: str) -> Iterable[dict[str, Any]]:
    """Yield the nodes in their order; repeated ones get labels of their own."""
    label_counts: Counter[str] = Counter()
    for number, line in enumerate(plain["node_lines"]):
        nodes = line.get("nodes") if isinstance(line, dict) else None
        if not isinstance(nodes, list):
            raise DataError(f"{name}: node_lines.{number} has no list `nodes`.")
        for index, node in enumerate(nodes):
            place = f"{name}: node_lines.{number}.nodes.{index}"
            if not isinstance(node, dict) or not isinstance(node.get("node_type"), str):
                raise DataError(f"{place} has no `node_type`.")
            kind = NODE_ALIASES.get(node["node_type"], node["node_type"])
            if kind not in (EXPANSION, *SEARCHES, *POST_SEARCH, PROMPT, GENERATOR):
                raise DataError(f"{place}: there is no node_type {kind!r} in AutoRAG 0.3.")
            modules = node.get("modules")
            if not isinstance(modules, list) or not all(isinstance(m, dict) and "module_type" in m for m in modules):
                raise DataError(f"{place} ({kind}) has no list `modules` of mappings with a `module_type`.")
            strategy = str((node.get("strategy") or {}).get("strategy", COMBINE_RULES[0]))
            if strategy not in COMBINE_RULES:
                raise DataError(f"{place}: the strategy {strategy!r} is none of {', '.join(COMBINE_RULES)}.")
            labelled = [{**module, LABEL: _make_label(str(module["module_type"]), label_counts)} for module in modules]
            yield {**node, "node_type": kind, LABEL: _make_label(kind, label_counts), "modules": labelled}


def _make_label(name: str, label_counts: Counter[str]) -> str:
    label_counts[name] += 1
    return name if label_counts[name] == 1 else f"{name} {label_counts[name]}"


def _node_defaults(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a node, which hold for each of its modules."""
    return {name: value for name, value in node.items() if name not in ("node_type", LABEL, "modules", "strategy")}


def _make_entry(
    node: Mapping[str, Any], entry: Mapping[str, Any], available: AvailableModels, notes: list[str]
) -> ModuleEntry:
    return ModuleEntry.from_config(entry, _node_defaults(node), available, notes)


def _named_models(node: Mapping[str, Any]) -> Iterable[str]:
    for entry in node["modules"]:
        yield from _make_entry(node, entry, AvailableModels(), []).named_models()


def _build_options(node: Mapping[str, Any], available: AvailableModels, notes: list[str]) -> list[tuple[str, Plain]]:
    """Build the options for a node, each with its module's type."""
    options: list[tuple[str, Plain]] = []
    for entry in node["modules"]:
        module = _make_entry(node, entry, available, notes)
        make = MODULES.get(module.type)
        try:
            if make is None:
                raise Unsupported(UNSUPPORTED.get(module.type, "unknown module"))
            built = make(module)
        except Unsupported as error:
            notes.append(f"{module.type} is left out: {error}.")
            continue
        notes += [f"{module.type}: the parameter {name} is not used." for name in module.unused()]
        options += [(module.type, step) for step in built]
    # Reversed twice, so that of equal options the first one stays, at its place.
    return list({repr(_drop_names(step)): (kind, step) for kind, step in reversed(options)}.values())[::-1]


def _drop_names(plain: Plain) -> Plain:
    """Return a step without the names of its places, since equal flows are one option."""
    if isinstance(plain, dict):
        return {name: _drop_names(value) for name, value in plain.items() if name != "names"}
    return [_drop_names(member) for member in plain] if isinstance(plain, list) else plain


def _choice(name: str, options: Sequence[Plain]) -> Plain:
    return options[0] if len(options) == 1 else {"Choice": {"options": list(options), "name": name}}


def _chain(steps: Sequence[Plain]) -> Plain:
    return steps[0] if len(steps) == 1 else {"Then": list(steps)}


NodeOptions = Sequence[tuple[Mapping[str, Any], list[tuple[str, Plain]]]]


def _select_options(node_options: NodeOptions, kind: str) -> list[tuple[str, Plain]]:
    return [option for node, options in node_options if node["node_type"] == kind for option in options]


def _drop_types(options: Sequence[tuple[str, Plain]]) -> list[Plain]:
    return [step for _, step in options]


def _build_search(node_options: NodeOptions, notes: list[str]) -> list[Plain]:
    """Build the steps from a question to its passages."""
    words, meaning, hybrid = (_drop_types(_select_options(node_options, kind)) for kind in (LEXICAL, SEMANTIC, HYBRID))
    if combined := _select_options(
        node_options, RETRIEVAL
    ):  # one node of old versions, of which the fusions use the others
        words = [step for kind, step in combined if kind == "bm25"]
        meaning = [step for kind, step in combined if kind == "vectordb"]
        fusions = [step for kind, step in combined if kind.startswith("hybrid")]
        options = [*words, *meaning]
        if fusions:
            options += [_chain([_build_arms(words, meaning), step]) for step in fusions]
        search = [_choice(RETRIEVAL, options)]
    elif hybrid:
        search = [_build_arms(words, meaning), _choice(HYBRID, hybrid)]
    else:
        if words and meaning:
            notes.append("Words and meaning are searched and nothing joins them: the space chooses one of both.")
        search = [_choice(LEXICAL if words else SEMANTIC, [*words, *meaning])]
    expansions = _select_options(node_options, EXPANSION)
    if not expansions:
        return search
    return [_choice(EXPANSION, [_chain(_expand_search(kind, step, search)) for kind, step in expansions])]


def _build_arms(words: Sequence[Plain], meaning: Sequence[Plain]) -> Plain:
    default: dict[str, Any] = {"node_type": "", "modules": []}
    missing = [("bm25", words), ("vectordb", meaning)]
    arms = [
        # A fusion needs both searches: one that the configuration lacks has AutoRAG's defaults.
        [*steps] or MODULES[kind](_make_entry(default, {"module_type": kind}, AvailableModels(), []))
        for kind, steps in missing
    ]
    return {"Branch": [_choice(name, arm) for name, arm in zip((LEXICAL, SEMANTIC), arms, strict=True)]}


def _expand_search(kind: str, step: Plain, search: list[Plain]) -> list[Plain]:
    if kind == "pass_query_expansion":
        return search
    if kind not in SPLITTING_EXPANSIONS:
        return [step, *search]
    answer_steps: list[Plain] = []
    if kind == "query_decompose":
        answer_steps = [{"LeastToMost": {"answer": {"Then": [*search, {"Reader": {"llm": LLM}}]}}}]
    return [step, *answer_steps, {"Each": {"arm": _chain(search)}}, {"EvenSplit": {"once": False}}]


def _build_post_search(node_options: NodeOptions) -> list[Plain]:
    """Build the steps between search and prompt, in the order of the configuration."""
    steps: list[Plain] = []
    for node, options in node_options:
        if node["node_type"] in POST_SEARCH:
            steps.append(_choice(str(node[LABEL]), _drop_types(options)))
    return steps


def _passage_count(node_options: NodeOptions) -> int:
    """Return how many passages a prompt has: the last `top_k` of a node."""
    counts = [node["top_k"] for node, _ in node_options if "top_k" in node]
    last = counts[-1] if counts else 10
    return int(max(last) if isinstance(last, list) else last)


def _build_reader(nodes: Mapping[str, list[tuple[str, Plain]]], passage_count: int) -> Plain:
    """Join prompt maker and generator into one step that answers."""
    readers = _drop_types(nodes.get(GENERATOR, [])) or [{"Reader": {"llm": LLM}}]
    makers = [_add_fields(maker, {"max_passages": passage_count}) for maker in _drop_types(nodes.get(PROMPT, []))]
    extra_fields: dict[str, Plain] = {"max_passages": passage_count}
    if makers:
        extra_fields["maker"] = _choice(PROMPT, makers)
    return _choice(GENERATOR, [_add_fields(reader, extra_fields) for reader in readers])


def _add_fields(step: Plain, extra_fields: Mapping[str, Plain]) -> Plain:
    """Return the step with further fields; of a chain, the last step gets them."""
    if isinstance(step, str):
        return {step: dict(extra_fields)}
    assert isinstance(step, dict)
    ((operator, fields),) = step.items()
    if operator == "Then":
        assert isinstance(fields, list)
        return {"Then": [*fields[:-1], _add_fields(fields[-1], extra_fields)]}
    assert isinstance(fields, dict)
    if operator == "Vary":
        return {"Vary": {**fields, "body": _add_fields(fields["body"], extra_fields)}}
    return {operator: {**fields, **extra_fields}}


def _find_objective(
    node_options: NodeOptions, available: AvailableModels, notes: list[str]
) -> tuple[str, Mapping[str, Any]]:
    """Return the measures of the last node with a metric that exists here, and that node."""
    answers = any(node["node_type"] in (PROMPT, GENERATOR) for node, _ in node_options)
    for node, _ in reversed(node_options):
        measured = [
            _translate_metric(metric, node_options, available, notes)
            for metric in (node.get("strategy") or {}).get("metrics") or ()
        ]
        if notations := [notation for notation in measured if notation]:
            return ",".join(dict.fromkeys(notations)), node
    notes.append(f"No metric is named that exists here: {'F1' if answers else 'nDCG@10'} is taken.")
    return "F1" if answers else "nDCG@10", {}


def _translate_metric(metric: Any, node_options: NodeOptions, available: AvailableModels, notes: list[str]) -> str:
    name = str(metric.get("metric_name")) if isinstance(metric, dict) else str(metric)
    if name == "rouge" and isinstance(metric, dict):
        return ROUGE.get(str(metric.get("rouge_type", "rougeL")), "ROUGE-L")
    if name in JUDGED_METRICS and not available.judge:
        notes.append(f"The metric {name} is left out: it asks a judge; write --llm URL --model NAME.")
        return ""
    if name not in MEASURES:
        reason = (
            "it needs a model that gives a vector for each token"
            if name == "bert_score"
            else "Spolia lacks this measure"
        )
        notes.append(f"The metric {name} is left out: {reason}.")
        return ""
    return MEASURES[name].format(top_k=_passage_count(node_options))


def _describe_thresholds(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    slow = [(node["node_type"], (node.get("strategy") or {}).get("speed_threshold")) for node in nodes]
    texts = [f"{kind} {bound}" for kind, bound in slow if bound is not None]
    if not texts:
        return []
    total = sum(float(bound) for _, bound in slow if bound is not None)
    return [
        f"speed_threshold is not applied ({', '.join(texts)} s): to time flows, nothing may be shared or cached. "
        f"--under Seconds={total:g} limits all of a flow."
    ]


def _find_limits(node_options: NodeOptions) -> tuple[str, ...]:
    """Return the tokens that a prompt may take, as a limit for all that a flow asks."""
    answering = [node for node, _ in node_options if node["node_type"] in (PROMPT, GENERATOR)]
    bounds = [(node.get("strategy") or {}).get("token_threshold") for node in answering]
    known_bounds = [float(bound) for bound in bounds if bound is not None]
    return (f"ATC={sum(known_bounds):g}",) if known_bounds else ()
