"""Trial of AutoRAG: the pipeline that it chose, and its scores of each module."""

import ast
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spolia.core.codec import Plain
from spolia.errors import DataError
from spolia.optimizer.autorag.config import ImportedConfig, import_config, read_plain
from spolia.optimizer.autorag.modules import MODULES, UNSUPPORTED, AvailableModels
from spolia.types import Value

SUMMARY, CONFIG = "summary.csv", "config.yaml"
MODULE_TYPES = {"prevnextpassageaugmenter": "prev_next_augmenter"}  # its class has another name than its `module_type`
MODULE_TYPES |= {name.replace("_", ""): name for name in (*MODULES, *UNSUPPORTED)}
"""The `module_type` of each class, in small letters."""
_CHOSEN = ("node_line_name", "node_type", "best_module_name", "best_module_params")
_TRIED = ("module_name", "module_params", "is_best")
# Summaries hold Python reprs, and `ast.literal_eval` reads no calls: a datetime becomes its tuple.
_TIME = re.compile(r"datetime\.datetime\(([\d, ]+)\)")


@dataclass(frozen=True)
class TriedModule(Value):
    """Module that AutoRAG measured: its parameters, its metrics by name, and seconds a question."""

    node: str
    module: str
    params: tuple[tuple[str, str], ...]
    metrics: tuple[tuple[str, float], ...]
    seconds: float
    is_best: bool


@dataclass(frozen=True)
class AutoRagTrial(Value):
    """Folder that AutoRAG wrote: its configuration as a space, and the pipeline that it chose.

    Args:
        space: its configuration.
        best: the chosen pipeline, a space of one flow.
        tried: all modules that have a score, in the order of the nodes.
    """

    space: ImportedConfig
    best: ImportedConfig
    tried: tuple[TriedModule, ...]

    @property
    def point(self) -> dict[str, int] | None:
        """Return where the chosen pipeline is in the space; None if the space does not hold it."""
        return find_point(self.space.plain, self.best.plain)


def is_trial(path: Path) -> bool:
    """Return whether a folder is a trial of AutoRAG."""
    return (path / SUMMARY).is_file() and (path / CONFIG).is_file()


def read_trial(folder: Path, available: AvailableModels | None = None) -> AutoRagTrial:
    """Read the folder of a trial of AutoRAG, such as `project/0`.

    Raises:
        DataError: a file is not as AutoRAG writes it; says which, and what is wrong.
    """
    models = available or AvailableModels()
    config = read_plain(folder / CONFIG)
    strategies = {
        (line.get("node_line_name"), node.get("node_type")): node.get("strategy")
        for line in config["node_lines"]
        for node in line.get("nodes", ())
    }
    lines: dict[str, list[dict[str, Any]]] = {}
    tried: list[TriedModule] = []
    for row in _read_rows(folder / SUMMARY, _CHOSEN):
        line, node = row["node_line_name"], row["node_type"]
        module = {
            "module_type": _module_type(row["best_module_name"]),
            **_parse_params(row["best_module_params"], folder / SUMMARY),
        }
        entry = {"node_type": node, "strategy": strategies.get((line, node)) or {}, "modules": [module]}
        if "top_k" in module:
            entry["top_k"] = module["top_k"]  # `_passage_count` reads it from the node
        lines.setdefault(line, []).append(entry)
        tried += _read_tried(folder / line / node / SUMMARY, node)
    chosen = {"node_lines": [{"node_line_name": name, "nodes": nodes} for name, nodes in lines.items()]}
    space = import_config(config, str(folder / CONFIG), models)
    return AutoRagTrial(space, import_config(chosen, str(folder / SUMMARY), models), tuple(tried))


def _read_tried(path: Path, node: str) -> Iterator[TriedModule]:
    if not path.is_file():
        return
    for row in _read_rows(path, _TRIED):
        metrics = {name: _parse_number(value) for name, value in row.items() if name not in (*_TRIED, "filename")}
        seconds = metrics.pop("execution_time", None) or 0.0
        known_metrics = tuple((name, value) for name, value in metrics.items() if value is not None)
        params = tuple((name, str(value)) for name, value in _parse_params(row["module_params"], path).items())
        is_best = row["is_best"].strip() == "True"
        yield TriedModule(node, _module_type(row["module_name"]), params, known_metrics, seconds, is_best)


def _read_rows(path: Path, columns: Sequence[str]) -> Iterator[Mapping[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            if missing := [name for name in columns if name not in (table.fieldnames or ())]:
                raise DataError(f"{path} has no column {missing[0]!r}. It has: {', '.join(table.fieldnames or ())}.")
            yield from table
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}. Name the folder of a trial of AutoRAG.") from error


def _module_type(name: str) -> str:
    """Return the `module_type` of a class, which summaries name: `HybridCC` is hybrid_cc."""
    return MODULE_TYPES.get(name.lower().replace("_", ""), name)


def _parse_params(text: str, path: Path) -> dict[str, Any]:
    """Parse the parameters of a module, written as a Python dict."""
    try:
        params = ast.literal_eval(_TIME.sub(r"(\1)", text))
    except (ValueError, SyntaxError) as error:
        raise DataError(f"{path}: {text!r:.80} is not a dict of parameters.") from error
    if not isinstance(params, dict):
        raise DataError(f"{path}: {text!r:.80} is not a dict of parameters.")
    return {str(name): value for name, value in params.items()}


def _parse_number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def find_point(space: Plain, flow: Plain) -> dict[str, int] | None:
    """Return where a flow is in a space, by the names of the places, both as plain data; None if it is not in it.

    >>> space = {"Choice": {"options": ["Identity", {"Cut": {"top_k": 5}}], "name": "cut"}}
    >>> find_point(space, {"Cut": {"top_k": 5}}), find_point(space, {"Cut": {"top_k": 6}})
    ({'cut': 1}, None)
    """
    if isinstance(space, dict) and "Choice" in space:
        choice: Any = space["Choice"]
        for index, option in enumerate(choice["options"]):
            if (point := find_point(option, flow)) is not None:
                return {choice["name"]: index} | point
        return None
    if isinstance(space, dict) and "Vary" in space:
        return _find_in_ranges(space["Vary"], flow)
    if isinstance(space, dict) and isinstance(flow, dict) and space.keys() == flow.keys():
        return _merge_points(find_point(space[name], flow[name]) for name in space)
    if isinstance(space, list) and isinstance(flow, list) and len(space) == len(flow):
        return _merge_points(
            find_point(space_part, flow_part) for space_part, flow_part in zip(space, flow, strict=True)
        )
    return {} if space == flow else None


def _find_in_ranges(vary: Any, flow: Plain) -> dict[str, int] | None:
    ((operator, fields),) = vary["body"].items()
    own_fields: Any = flow.get(operator) if isinstance(flow, dict) else None
    if not isinstance(own_fields, dict):
        return None
    point: dict[str, int] = {}
    for name, values in vary["ranges"].items():
        if own_fields.get(name) not in values:
            return None
        point[vary["names"][name]] = values.index(own_fields[name])
    rest = find_point(_without(fields, vary["ranges"]), _without(own_fields, vary["ranges"]))
    return None if rest is None else point | rest


def _without(fields: Mapping[str, Plain], names: Mapping[str, Plain]) -> Plain:
    return {name: value for name, value in fields.items() if name not in names}


def _merge_points(points: Iterator[dict[str, int] | None]) -> dict[str, int] | None:
    merged: dict[str, int] = {}
    for point in points:
        if point is None:
            return None
        merged |= point
    return merged
