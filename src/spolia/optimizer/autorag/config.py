"""AutoRAG's `config.yaml` as a space of flows, with what it calls best: Kim et al., "AutoRAG", 2024."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.core.codec import Plain
from spolia.errors import DataError, SpoliaError
from spolia.flow_files.yaml_text import YamlReader, written
from spolia.optimizer.autorag.modules import LABEL, LLM, MODULES, UNSUPPORTED, GivenModels, ModuleEntry, Unsupported
from spolia.types import Value

EXPANSION, PROMPT, GENERATOR = "query_expansion", "prompt_maker", "generator"
LEXICAL, SEMANTIC, HYBRID, RETRIEVAL = (
    "lexical_retrieval", "semantic_retrieval", "hybrid_retrieval", "retrieval"
)  # fmt: skip
SEARCHES = (LEXICAL, SEMANTIC, HYBRID, RETRIEVAL)
AFTER = ("passage_augmenter", "passage_reranker", "passage_filter", "passage_compressor")
ALSO = {"sparse_retrieval": LEXICAL, "dense_retrieval": SEMANTIC}
SEVERAL = ("query_decompose", "multi_query_expansion")
"""Expansions that make several questions of one."""
STRATEGIES = ("mean", "rank", "normalize_mean")
MEASURES: Mapping[str, str] = {
    "retrieval_f1": "SetF1", "retrieval_recall": "SetR", "retrieval_precision": "SetP",
    "retrieval_ndcg": 'nDCG@{top_k}(rule="autorag")', "retrieval_map": 'MAP(rule="autorag")',
    "retrieval_mrr": 'MRR(rule="autorag")', "bleu": "SentenceBLEU", "meteor": "METEOR-no-synonyms", "rouge": "ROUGE-L",
    "sem_score": "SemScore", "g_eval": 'GEval(aspect="mean", rule="autorag")',
    "deepeval_faithfulness": "Faithfulness",
}  # fmt: skip
JUDGED = ("g_eval", "deepeval_faithfulness")
ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLSum": "ROUGE-L"}


@dataclass(frozen=True)
class ImportedConfig(Value):
    """What a configuration of AutoRAG is here.

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
        """The space as a flow file."""
        lines = [f"# {line}" for line in ("Made from a configuration of AutoRAG.", *self.notes)]
        return "\n".join(lines) + "\n" + written(self.plain)


def is_config(path: Path) -> bool:
    """Whether a file is a configuration of AutoRAG, and no flow file."""
    try:
        return path.is_file() and any(line.startswith("node_lines:") for line in path.read_text("utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return False


def refuse_other_config(path: Path) -> None:
    """Raise DataError for AutoRAG's configurations of parsing and chunking, which hold no flows."""
    try:
        plain = YamlReader(str(path)).read(path.read_text("utf-8-sig")) if path.suffix in (".yaml", ".yml") else None
    except (OSError, UnicodeDecodeError, SpoliaError):
        return  # whoever reads the space says what is wrong
    modules = plain.get("modules") if isinstance(plain, dict) else None
    if not isinstance(modules, list) or not all(isinstance(one, dict) and "module_type" in one for one in modules):
        return
    kinds = {str(one["module_type"]) for one in modules}
    does = "chunks documents" if any("chunk" in kind for kind in kinds) else "parses documents"
    raise DataError(
        f"{path} is a configuration of AutoRAG that {does} ({', '.join(sorted(kinds))}), and holds no flow to tune. "
        "Read the documents with `spolia index FOLDER --store STORE`; write chunking as a node group "
        "(docs/how-to/groups.md). `spolia tune` reads AutoRAG's configuration with node_lines."
    )


def read_config(path: Path, given: GivenModels | None = None) -> ImportedConfig:
    """The space that a configuration of AutoRAG describes.

    Raises:
        DataError: it is no configuration, or nothing of it has an equal here; says what to write.
        FlowFileError: it is no YAML.
    """
    return imported(plain_of(path), str(path), given or GivenModels())


def plain_of(path: Path) -> Mapping[str, Any]:
    """A configuration as plain data."""
    try:
        plain = YamlReader(str(path)).read(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}. Name a config.yaml of AutoRAG.") from error
    if not isinstance(plain, dict) or not isinstance(plain.get("node_lines"), list):
        raise DataError(f"{path} is not an AutoRAG configuration: it has no list `node_lines`.")
    return plain


def imported(plain: Mapping[str, Any], name: str, given: GivenModels) -> ImportedConfig:
    """The space of a configuration that was read.

    >>> node = {"node_type": "lexical_retrieval", "strategy": {"metrics": ["retrieval_recall"]},
    ...         "top_k": [5, 10], "modules": [{"module_type": "bm25"}]}
    >>> found = imported({"node_lines": [{"nodes": [node]}]}, "config.yaml", GivenModels())
    >>> found.objective, found.plain[0]["Vary"]["ranges"]
    ('SetR', {'top_k': [5, 10]})
    """
    nodes = list(_nodes(plain, name))
    notes: list[str] = []
    options = [(node, _options(node, given, notes)) for node in nodes]
    kept = [(node, found) for node, found in options if found]
    notes += [
        f"The node {node['node_type']} is left out: none of its modules is left."
        for node, found in options
        if not found
    ]
    if not any(node["node_type"] in SEARCHES for node, _ in kept):
        raise DataError(f"{name}: nothing that searches is left. " + (" ".join(notes) or "Write a node of retrieval."))
    steps = [*_search(kept, notes), *_after(kept)]
    reader = [(node, found) for node, found in kept if node["node_type"] in (PROMPT, GENERATOR)]
    if reader:
        steps.append(_reader({node["node_type"]: found for node, found in reader}, _shown(kept)))
    if not given.llm and len(reader) < sum(node["node_type"] in (PROMPT, GENERATOR) for node in nodes):
        notes.append("Without a language model the space ends with the passages that are found.")
    objective, deciding = _objective(kept, given, notes)
    strategy = deciding.get("strategy") or {}
    combine = str(strategy.get("strategy", STRATEGIES[0]))
    notes += _thresholds(nodes)
    if models := sorted({model for node in nodes for model in _named_models(node)}):
        notes.append(
            f"Models and databases that it names are not used ({', '.join(models[:6])}): the language model, the "
            "embedder and the reranker are those of the command line."
        )
    plain_steps: Plain = steps if len(steps) > 1 else steps[:1]
    return ImportedConfig(plain_steps, objective, combine, _limits(kept), tuple(dict.fromkeys(notes)))


def _nodes(plain: Mapping[str, Any], name: str) -> Iterable[dict[str, Any]]:
    """The nodes in their order; repeated ones get labels of their own."""
    seen: Counter[str] = Counter()
    for number, line in enumerate(plain["node_lines"]):
        nodes = line.get("nodes") if isinstance(line, dict) else None
        if not isinstance(nodes, list):
            raise DataError(f"{name}: node_lines.{number} has no list `nodes`.")
        for at, node in enumerate(nodes):
            place = f"{name}: node_lines.{number}.nodes.{at}"
            if not isinstance(node, dict) or not isinstance(node.get("node_type"), str):
                raise DataError(f"{place} has no `node_type`.")
            kind = ALSO.get(node["node_type"], node["node_type"])
            if kind not in (EXPANSION, *SEARCHES, *AFTER, PROMPT, GENERATOR):
                raise DataError(f"{place}: there is no node_type {kind!r} in AutoRAG 0.3.")
            modules = node.get("modules")
            if not isinstance(modules, list) or not all(isinstance(m, dict) and "module_type" in m for m in modules):
                raise DataError(f"{place} ({kind}) has no list `modules` of mappings with a `module_type`.")
            strategy = str((node.get("strategy") or {}).get("strategy", STRATEGIES[0]))
            if strategy not in STRATEGIES:
                raise DataError(f"{place}: the strategy {strategy!r} is none of {', '.join(STRATEGIES)}.")
            labelled = [{**module, LABEL: _label(str(module["module_type"]), seen)} for module in modules]
            yield {**node, "node_type": kind, LABEL: _label(kind, seen), "modules": labelled}


def _label(name: str, seen: Counter[str]) -> str:
    seen[name] += 1
    return name if seen[name] == 1 else f"{name} {seen[name]}"


def _defaults(node: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a node, which hold for each of its modules."""
    return {name: value for name, value in node.items() if name not in ("node_type", LABEL, "modules", "strategy")}


def _module(node: Mapping[str, Any], entry: Mapping[str, Any], given: GivenModels, notes: list[str]) -> ModuleEntry:
    return ModuleEntry.of(entry, _defaults(node), given, notes)


def _named_models(node: Mapping[str, Any]) -> Iterable[str]:
    for entry in node["modules"]:
        yield from _module(node, entry, GivenModels(), []).named_models()


def _options(node: Mapping[str, Any], given: GivenModels, notes: list[str]) -> list[tuple[str, Plain]]:
    """The options for a node, each with its module's type."""
    found: list[tuple[str, Plain]] = []
    for entry in node["modules"]:
        module = _module(node, entry, given, notes)
        make = MODULES.get(module.type)
        try:
            if make is None:
                raise Unsupported(UNSUPPORTED.get(module.type, "unknown module"))
            made = make(module)
        except Unsupported as error:
            notes.append(f"{module.type} is left out: {error}.")
            continue
        notes += [f"{module.type}: the parameter {name} is not used." for name in module.unused()]
        found += [(module.type, one) for one in made]
    return list({repr(_unnamed(one)): (kind, one) for kind, one in reversed(found)}.values())[::-1]


def _unnamed(plain: Plain) -> Plain:
    """A step without the names of its places: what makes equal flows is one option."""
    if isinstance(plain, dict):
        return {name: _unnamed(value) for name, value in plain.items() if name != "names"}
    return [_unnamed(one) for one in plain] if isinstance(plain, list) else plain


def _choice(name: str, options: Sequence[Plain]) -> Plain:
    return options[0] if len(options) == 1 else {"Choice": {"options": list(options), "name": name}}


def _chain(steps: Sequence[Plain]) -> Plain:
    return steps[0] if len(steps) == 1 else {"Then": list(steps)}


Kept = Sequence[tuple[Mapping[str, Any], list[tuple[str, Plain]]]]


def _of(kept: Kept, kind: str) -> list[tuple[str, Plain]]:
    return [one for node, found in kept if node["node_type"] == kind for one in found]


def _plain(options: Sequence[tuple[str, Plain]]) -> list[Plain]:
    return [one for _, one in options]


def _search(kept: Kept, notes: list[str]) -> list[Plain]:
    """The steps from a question to its passages."""
    words, meaning, hybrid = (_plain(_of(kept, kind)) for kind in (LEXICAL, SEMANTIC, HYBRID))
    if several := _of(kept, RETRIEVAL):  # one node of old versions, of which the fusions use the others
        words = [one for kind, one in several if kind == "bm25"]
        meaning = [one for kind, one in several if kind == "vectordb"]
        fusions = [one for kind, one in several if kind.startswith("hybrid")]
        options = [*words, *meaning]
        if fusions:
            options += [_chain([_arms(words, meaning), one]) for one in fusions]
        search = [_choice(RETRIEVAL, options)]
    elif hybrid:
        search = [_arms(words, meaning), _choice(HYBRID, hybrid)]
    else:
        if words and meaning:
            notes.append("Words and meaning are searched and nothing joins them: the space chooses one of both.")
        search = [_choice(LEXICAL if words else SEMANTIC, [*words, *meaning])]
    expansions = _of(kept, EXPANSION)
    if not expansions:
        return search
    return [_choice(EXPANSION, [_chain(_expanded(kind, one, search)) for kind, one in expansions])]


def _arms(words: Sequence[Plain], meaning: Sequence[Plain]) -> Plain:
    default: dict[str, Any] = {"node_type": "", "modules": []}
    missing = [("bm25", words), ("vectordb", meaning)]
    arms = [
        [*found] or MODULES[kind](_module(default, {"module_type": kind}, GivenModels(), [])) for kind, found in missing
    ]
    return {"Branch": [_choice(name, arm) for name, arm in zip((LEXICAL, SEMANTIC), arms, strict=True)]}


def _expanded(kind: str, step: Plain, search: list[Plain]) -> list[Plain]:
    if kind == "pass_query_expansion":
        return search
    if kind not in SEVERAL:
        return [step, *search]
    answered: list[Plain] = []
    if kind == "query_decompose":
        answered = [{"LeastToMost": {"answer": {"Then": [*search, {"Reader": {"llm": LLM}}]}}}]
    return [step, *answered, {"Each": {"arm": _chain(search)}}, {"EvenSplit": {"once": False}}]


def _after(kept: Kept) -> list[Plain]:
    """The steps between search and prompt, in the order of the configuration."""
    found: list[Plain] = []
    for node, options in kept:
        if node["node_type"] in AFTER:
            found.append(_choice(str(node[LABEL]), _plain(options)))
    return found


def _shown(kept: Kept) -> int:
    """How many passages a prompt has: the last `top_k` of a node."""
    found = [node["top_k"] for node, _ in kept if "top_k" in node]
    last = found[-1] if found else 10
    return int(max(last) if isinstance(last, list) else last)


def _reader(nodes: Mapping[str, list[tuple[str, Plain]]], shown: int) -> Plain:
    """Prompt maker and generator as one step that answers."""
    readers = _plain(nodes.get(GENERATOR, [])) or [{"Reader": {"llm": LLM}}]
    makers = [_with(one, {"max_passages": shown}) for one in _plain(nodes.get(PROMPT, []))]
    more: dict[str, Plain] = {"max_passages": shown}
    if makers:
        more["maker"] = _choice(PROMPT, makers)
    return _choice(GENERATOR, [_with(one, more) for one in readers])


def _with(step: Plain, more: Mapping[str, Plain]) -> Plain:
    """The step with further fields; of a chain, the last one."""
    if isinstance(step, str):
        return {step: dict(more)}
    assert isinstance(step, dict)
    ((operator, fields),) = step.items()
    if operator == "Then":
        assert isinstance(fields, list)
        return {"Then": [*fields[:-1], _with(fields[-1], more)]}
    assert isinstance(fields, dict)
    if operator == "Vary":
        return {"Vary": {**fields, "body": _with(fields["body"], more)}}
    return {operator: {**fields, **more}}


def _objective(kept: Kept, given: GivenModels, notes: list[str]) -> tuple[str, Mapping[str, Any]]:
    """The measures of the last node that has some which exist here, and that node."""
    answers = any(node["node_type"] in (PROMPT, GENERATOR) for node, _ in kept)
    for node, _ in reversed(kept):
        measured = [_measure(one, kept, given, notes) for one in (node.get("strategy") or {}).get("metrics") or ()]
        if found := [one for one in measured if one]:
            return ",".join(dict.fromkeys(found)), node
    notes.append(f"No metric is named that exists here: {'F1' if answers else 'nDCG@10'} is taken.")
    return "F1" if answers else "nDCG@10", {}


def _measure(metric: Any, kept: Kept, given: GivenModels, notes: list[str]) -> str:
    name = str(metric.get("metric_name")) if isinstance(metric, dict) else str(metric)
    if name == "rouge" and isinstance(metric, dict):
        return ROUGE.get(str(metric.get("rouge_type", "rougeL")), "ROUGE-L")
    if name in JUDGED and not given.judge:
        notes.append(f"The metric {name} is left out: it asks a judge; write --llm URL --model NAME.")
        return ""
    if name not in MEASURES:
        why = (
            "it needs a model that gives a vector for each token"
            if name == "bert_score"
            else "Spolia lacks this measure"
        )
        notes.append(f"The metric {name} is left out: {why}.")
        return ""
    return MEASURES[name].format(top_k=_shown(kept))


def _thresholds(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    slow = [(node["node_type"], (node.get("strategy") or {}).get("speed_threshold")) for node in nodes]
    named = [f"{kind} {bound}" for kind, bound in slow if bound is not None]
    if not named:
        return []
    most = sum(float(bound) for _, bound in slow if bound is not None)
    return [
        f"speed_threshold is not applied ({', '.join(named)} s): to time flows, nothing may be shared or cached. "
        f"--under Seconds={most:g} limits all of a flow."
    ]


def _limits(kept: Kept) -> tuple[str, ...]:
    """The tokens that a prompt may take, as tokens of all that a flow asks."""
    answering = [node for node, _ in kept if node["node_type"] in (PROMPT, GENERATOR)]
    bounds = [(node.get("strategy") or {}).get("token_threshold") for node in answering]
    known = [float(bound) for bound in bounds if bound is not None]
    return (f"ATC={sum(known):g}",) if known else ()
