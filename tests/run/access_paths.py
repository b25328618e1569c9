"""Everything through which nodes of a store can be reached, found by walking the package, so that none is forgotten.

What is added later is found too. Where it needs something that is not known here, the test fails and says what to add.
"""

from __future__ import annotations

import inspect
import itertools
import json
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.evaluation.creation.draft import SampleRange
from spolia.filters import Condition
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import (
    Embedder,
    FoundSpan,
    ImageScorer,
    LanguageModel,
    SpanModel,
    SparseEmbedder,
    TokenEmbedder,
)
from spolia.models.trained_weights import TrainedWeights, hash_of
from spolia.retrieval.graph.edges import Belonging, InOrder, SharedEntities, Similar
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.retrieval.learned.term_weights import FEATURES as TERM_FEATURES
from spolia.retrieval.similarity_search import Similarity, similarity
from spolia.stores.access.allowed_nodes import Allowed
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Backend
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.indexes import IndexSettings
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.testing.hash_embedder import HashingTokens
from spolia.types import Filter, Node, Query, Ranking, Span, Value
from tests.run.secret_store import EMBEDDER, GROUPS, PICTURE, PRINCIPALS, QUERY, SECRET, SPARSE
from tests.tree import classes, modules, operators

# Stores and indexes.


def backends() -> list[type]:
    """Classes of backends."""
    names = [name for name in vars(Backend) if not name.startswith("_") and callable(getattr(Backend, name))]
    kinds = {cls for name in modules() for cls in vars(sys.modules[name]).values() if inspect.isclass(cls)}
    own = [cls for cls in kinds if cls is not Backend and cls.__module__.startswith("spolia.")]
    return sorted((cls for cls in own if all(hasattr(cls, name) for name in names)), key=lambda cls: cls.__name__)


def indexes() -> list[type[IndexSettings]]:
    """Classes of settings of vector indexes."""
    kinds: list[type[IndexSettings]] = classes(IndexSettings)
    return [cls for cls in kinds if is_dataclass(cls)]


# Operators.


@dataclass(frozen=True)
class WholeText(Value):
    """Answers with the whole of each text."""

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False
    name: ClassVar[str] = "whole"

    def fingerprint(self) -> str:
        return self.name

    def spans(self, question: str, texts: Sequence[str]) -> list[FoundSpan | None]:
        return [FoundSpan(1.0, 0, len(text)) for text in texts]


@similarity
def length(query: str, node: Node) -> int:
    return len(node.text)


@similarity(mode="embedding", batch=True)
def product(query: Any, vectors: Any) -> Any:
    return vectors @ query


@dataclass(frozen=True)
class ByLength(Value):
    """Judges texts and pictures by how long they are."""

    name: str = "by length"
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return self.name

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        return self.scores_of(query, texts)

    def scores_of(self, query: str, passages: Sequence[str | bytes]) -> tuple[float, ...]:
        return tuple(float(len(passage)) for passage in passages)


COUNTS = {"top_k": 100, "judged": 100, "heads": 4, "shortest": 1, "per_passage": 100}
"""Fields that are given a number: as many as find everything."""


@cache
def that_reach() -> list[type[Operator[Any, Any]]]:
    """Operators with a field that names a store, or something in one; databases of others have no readers."""
    return [cls for cls in operators() if any(map(_reaches, hints_of(cls).values()))]


@cache
def hints_of(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _reaches(hint: Any) -> bool:
    if isinstance(hint, type) and is_dataclass(hint) and hasattr(hint, "scoped") and hasattr(hint, "fingerprint"):
        if hint.__module__.startswith("spolia.databases."):
            return False
        return not any(hasattr(hint, method) for method in ("generate", "embed", "scores"))
    return any(_reaches(arg) for arg in get_args(hint))


@cache
def by_vectors() -> frozenset[str]:
    """Names of what asks for vectors: operators with an embedder or a graph, functions that are told an embedder."""
    asking = {Embedder, NodeGraph}
    ops = {cls.__name__ for cls in that_reach() for hint in hints_of(cls).values() if asking & {hint, *get_args(hint)}}
    names = {name for name, function in told_who_asks().items() if "embedder" in inspect.signature(function).parameters}
    return frozenset(ops | names)


def built(cls: type[Operator[Any, Any]], corpus: Corpus, filter: Condition | None) -> list[Operator[Any, Any]]:
    """Operators of a class with every combination of what can stand in its fields, and this filter where they have
    one."""
    hints = hints_of(cls)
    choices: dict[str, Sequence[Any]] = {
        f.name: (filter,) if is_filter(hints[f.name]) else _choices(cls, f.name, hints[f.name], corpus, f)
        for f in fields(cls)  # type: ignore[arg-type]
        if f.init
    }
    instances = []
    for values in itertools.product(*choices.values()):
        try:
            instances.append(cls.from_fields(dict(zip(choices, values, strict=True))))
        except WiringError:
            continue
    if not instances:
        pytest.fail(
            f"No {cls.__name__} can be made of what tests/run/access_paths.py knows. Add values for its fields there."
        )
    return instances


def is_filter(hint: Any) -> bool:
    """Whether a field or parameter says what may be found."""
    options = get_args(hint) or (hint,)
    return any(isinstance(option, type) and issubclass(option, Filter) for option in options)


@cache
def rewriter() -> TrainedWeights:
    """Weights of words that differ, in a folder of their own."""
    folder = Path(mkdtemp())
    weights = folder / "weights.json"
    weights.write_text(json.dumps({"weights": dict.fromkeys(TERM_FEATURES, 1.0)}))
    (folder / "card.json").write_text(json.dumps({"part": "rewriter", "sha256": hash_of(weights)}))
    return TrainedWeights(str(folder))


def _choices(cls: type, name: str, hint: Any, corpus: Corpus, field: Any) -> Sequence[Any]:
    if name in COUNTS:
        return (COUNTS[name],)
    groups = [corpus.group(group) for group in GROUPS]
    graph = NodeGraph(corpus.group("sentence"), (Similar(), InOrder(), Belonging(to="chunk"), SharedEntities()))
    usual: Mapping[Any, Sequence[Any]] = {
        NodeGroup: groups,
        Corpus: [corpus],
        NodeGraph: [graph],
        Embedder: [EMBEDDER],
        SparseEmbedder: [SPARSE],
        TokenEmbedder: [HashingTokens()],
        ImageScorer: [ByLength()],
        LanguageModel: [ScriptedModel(("{}",))],
        Similarity: [length, product],
        SpanModel: [WholeText()],
        TrainedWeights: [TrainedWeights("multi-hop"), TrainedWeights("multi-hop-words"), rewriter()],
        tuple[NodeGroup, ...]: [tuple(groups[:2]), tuple(groups[:1])],
    }
    options = list(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else [hint]
    values = [value for option in options for value in usual.get(option, ())]
    if values or get_origin(hint) is Literal:
        return [*values, *([None] if type(None) in options else [])] or get_args(hint)
    if _reaches(hint) or (field.default is MISSING and field.default_factory is MISSING):
        pytest.fail(
            f"What can {cls.__name__}.{name} be, of type {hint}? Add values of that type to tests/run/access_paths.py."
        )
    return (field.default if field.default is not MISSING else field.default_factory(),)


def given_to(op: Operator[Any, Any], query: Query, rankings: Sequence[Ranking]) -> list[Any]:
    """Values of the type that an operator takes, made of the query and of what the asker has found."""
    values: Mapping[Any, list[Any]] = {
        Query: [query],
        Ranking: list(rankings),
        Sequence[Ranking]: [tuple(rankings)],
        SampleRange: [SampleRange(0, 50)],
    }
    if op.takes() not in values:
        pytest.fail(
            f"What does {op.short} take? Add a value of type {op.takes()} to given_to in tests/run/access_paths.py."
        )
    return values[op.takes()]


# Functions that are told who asks.


OPEN = {
    "check", "derived_of", "document_ids", "groups", "ids", "is_exact", "keys_of", "lineage_of", "manifest",
    "reader_versions", "sources", "stats", "unmade", "vectors",
}  # fmt: skip
"""Methods of a snapshot that are not told who asks: they give no nodes, are for its owner, or take `Allowed`."""


@cache
def told_who_asks() -> dict[str, Callable[..., Any]]:
    """Public functions of the stores with a parameter `access`, by name."""
    return dict(_told_who_asks())


def _told_who_asks() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(Snapshot, inspect.isfunction):
        if name.startswith("_"):
            continue
        if "access" in inspect.signature(method).parameters:
            yield f"Snapshot.{name}", method
        elif name not in OPEN:
            pytest.fail(
                f"Snapshot.{name} takes no `access`. If it gives no nodes, add it to OPEN in tests/run/access_paths.py."
            )
    for module in modules():
        if module.startswith("spolia.stores."):
            for name, function in inspect.getmembers(sys.modules[module], inspect.isfunction):
                parameters = inspect.signature(function).parameters
                if (
                    function.__module__ == module
                    and not name.startswith("_")
                    and {"snapshot", "access"} <= set(parameters)
                ):
                    yield f"{module}.{name}", function


def calls(
    function: Callable[..., Any], snapshot: Snapshot, access: frozenset[str], filter: Condition | None
) -> Iterator[Callable[[], Any]]:
    """The function with every combination of arguments that are known by the names of its parameters.

    Nodes are those that the asker may read; ids and keys are all there are.
    """
    everyone = frozenset(PRINCIPALS)
    nodes = {group: list(snapshot.all_nodes(group, everyone)) for group in GROUPS}
    mine = [list(snapshot.all_nodes(group, access)) for group in GROUPS]
    keys = [int(key) for group in GROUPS for key in snapshot.allowed(group, everyone).keys]
    ids = [node.id for nodes_of_group in nodes.values() for node in nodes_of_group]
    documents = sorted({node.document for nodes_of_group in nodes.values() for node in nodes_of_group})
    vectors = EMBEDDER.embed([QUERY.text], kind="query")
    arguments: Mapping[str, Sequence[Any]] = {
        "self": [snapshot],
        "snapshot": [snapshot],
        "access": [access],
        "group": list(GROUPS),
        "text": [QUERY.text],
        "top_k": [100],
        "embedder": [EMBEDDER.name, SPARSE.name],
        "queries": [SPARSE.embed_sparse([QUERY.text], kind="query")],
        "vector": [vectors[0]],
        "vectors": [vectors],
        "filter": [filter],
        "require_all": [False],
        "defer_ties": [False, True],
        "candidates": [None],
        "keys": [keys],
        "ranking": [[(key, 1.0) for key in keys]],
        "nodes": mine,
        "ids": [[*ids, *documents]],
        "id": [*ids, *documents],
        "document": documents,
        "hash": [PICTURE],
        "first": [0],
        "last": [100],
        "span": [Span(0, 100)],
        "rows": [snapshot.open_store.rows(sql.NODES, {"grp": group, "at": snapshot.generation}) for group in GROUPS],
    }
    parameters = list(inspect.signature(function).parameters)
    for name in parameters:
        if name not in arguments:
            pytest.fail(
                f"What is {name!r} of {function.__qualname__}? Add values for it to calls in tests/run/access_paths.py."
            )
    for values in itertools.product(*(arguments[name] for name in parameters)):
        positional = list(inspect.signature(function).parameters.values())
        keywords = {p.name: v for p, v in zip(positional, values, strict=True) if p.kind is p.KEYWORD_ONLY}
        plain = [v for p, v in zip(positional, values, strict=True) if p.kind is not p.KEYWORD_ONLY]
        yield partial(function, *plain, **keywords)


def secrets(value: Any, snapshot: Snapshot | None = None) -> set[str]:
    """The secrets in a value, and those of the nodes whose keys it holds."""
    if isinstance(value, Iterator):
        value = list(value)
    if isinstance(value, Allowed):
        value = [(int(key), 1.0) for key in value.keys[value.positions()]]
    if snapshot is not None and isinstance(value, list):
        pairs = [pair for part in value for pair in (part if isinstance(part, list) else [part])]
        keys = [pair[0] for pair in pairs if isinstance(pair, tuple) and isinstance(pair[0], int)]
        if keys:
            return {f"secret-{node.id}" for node in snapshot.nodes(keys, frozenset(PRINCIPALS))}
    return set(SECRET.findall(repr(value)))


def outcome(call: Callable[[], Any], snapshot: Snapshot) -> tuple[set[str], bool]:
    """The secrets in what a call gives, or in the error that it raises, and whether it gave something."""
    try:
        return secrets(call(), snapshot), True
    except Exception as error:  # some combinations of arguments make no sense
        return set(SECRET.findall(str(error))), False
