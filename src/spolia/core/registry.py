"""Catalogue of operators and addresses by their ids, so that no file decides what is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from spolia import types
from spolia.core.codec import type_id
from spolia.core.function import FLOWS
from spolia.core.operator import Operator
from spolia.core.public_names import MODULE_OF, RENAMED, load_name
from spolia.deferred import metadata
from spolia.errors import CodecError
from spolia.types import Value

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "spolia.operators"

PYTHON_ONLY = frozenset((
    "APIItems", "Brief", "Budget", "Cache", "DataSet", "Done", "Embedder", "Emitted", "Executor", "Experiment",
    "FictionalWorld", "Field", "ForetellsTokens", "FoundSpan", "ImageEmbedder", "ImageScorer", "InProcess",
    "LanguageModel", "Operator", "Parser", "Prepared", "Profile", "RankerTrainer", "RemoteFiles", "Retracted",
    "Retriever", "Run", "Runs", "SQLRows", "Scorer", "ScoresContinuations", "Setting", "SimulatedReader",
    "Space", "SpanModel", "SparseEmbedder", "SplitPlan", "Splitter", "StatesDistributions", "StatesHidden",
    "StatesLogprobs", "TokenEmbedder", "Trained", "Trainer", "WebPages", "WorkerLimits", "WorkerProcesses",
))  # fmt: skip
OPTIMIZER = "spolia.optimizer."
"""Classes that no flow file holds, and the package that chooses flows."""

NOUNS: Mapping[str, type[Value]] = {
    name: cls
    for name, cls in vars(types).items()
    if isinstance(cls, type) and issubclass(cls, Value) and is_dataclass(cls)
}


BUILT_IN: Mapping[str, str] = {
    name: module
    for name, module in MODULE_OF.items()
    if name[0].isupper() and name not in NOUNS and name not in PYTHON_ONLY and not module.startswith(OPTIMIZER)
}
"""Ids of flow files, with the module of each."""


_FLOWS = frozenset(module for module in MODULE_OF.values() if module.startswith(f"{FLOWS}."))


class Catalogue(Mapping[str, Any]):
    """Operators, addresses and values by id: passed, built in, or installed under the entry point `GROUP`."""

    def __init__(self, passed: Iterable[Operator[Any, Any] | type] = ()) -> None:
        classes = [item if isinstance(item, type) else type(item) for item in passed]
        self.passed = {type_id(cls): cls for cls in classes}

    def __getitem__(self, name: str) -> Any:
        if name in self.passed:
            return self.passed[name]
        if name in NOUNS:
            return NOUNS[name]
        if name in BUILT_IN:
            return load_name(BUILT_IN[name], name)
        if name in RENAMED:
            return self[RENAMED[name]]
        if (module := f"{FLOWS}.{name.partition('.')[0]}") in _FLOWS:  # a step of a published flow: `corag.hop`
            return type(load_name(module, name.partition(".")[2]))
        if ":" in name and (offered := _installed().get(name)) is not None:
            return _load_operator(name, offered)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.passed, *BUILT_IN, *NOUNS, *_installed()]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def operators(self) -> Iterator[type[Operator[Any, Any]]]:
        for name in self:
            if isinstance(cls := self[name], type) and issubclass(cls, Operator):
                yield cls


def _installed() -> dict[str, EntryPoint]:
    return {f"{point.module.partition('.')[0]}:{point.name}": point for point in metadata.entry_points(group=GROUP)}


def _load_operator(name: str, offered: EntryPoint) -> Any:
    try:
        value = offered.load()
    except Exception as error:
        raise CodecError(
            f"The installed operator {name} could not be imported: {error}. Update its package."
        ) from error
    return type(value) if isinstance(value, Operator) else value
