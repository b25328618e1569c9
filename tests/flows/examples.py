"""Random flows, and random operators of every class that Spolia has."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from inspect import isabstract
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from spolia.core.combinators import Best, Branch, Choice, Each, Explore, Guard, Identity, Loop, Route, Samples
from spolia.core.function import step
from spolia.core.operator import Operator, Then
from spolia.core.type_compatibility import parameters_of
from spolia.errors import SpoliaError
from spolia.filters import And, AnyOf, Between, Condition, Not, Or
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Sentences
from spolia.models.vectors import SparseRows, TokenVectors
from spolia.retrieval.similarity_search import similarity
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Whole
from spolia.types import Answer, Node, Query, Scalar, State, Value
from tests.tree import written_in_flows


@dataclass(frozen=True)
class Walk(State):
    text: str = ""
    hops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tag(Operator[Query, Query]):
    """Fields of every kind that a flow file has."""

    text: str = ""
    number: float = 0.5
    count: int = 1
    whether: bool = True
    words: tuple[str, ...] = ()
    weights: tuple[tuple[str, float], ...] = ()
    pair: tuple[int, str] | None = None
    mode: Literal["fast", "exact"] = "fast"
    limit: int | float | str | None = None
    meta: tuple[tuple[str, Scalar], ...] = ()
    judge: Operator[Query, float] | None = None

    def apply(self, value: Query, /) -> Query:
        return value


@step
def language(query: Query) -> str:
    return "en"


@step
def replied(query: Query) -> Answer:
    return Answer("an answer")


@step
def worth(query: Query) -> float:
    return 1.0


@step
def first(queries: Sequence[Query]) -> Query:
    return queries[0]


@step
def hopped(walk: Walk) -> Walk:
    return walk


@step
def grown(walk: Walk) -> tuple[Walk, ...]:
    return (walk,)


@step
def merit(walk: Walk) -> float:
    return 1.0


@similarity
def shared(query: str, node: Node, *, least: int = 1) -> float:
    return float(least)


@similarity(mode="embedding", batch=True, descending=False)
def apart(query: Any, vectors: Any) -> Any:
    return [0.0 for _ in vectors]


@dataclass(frozen=True)
class SparseWords(Value):
    """A sparse embedder, to be written to files."""

    name: str = "words"
    window: int = 100
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed_sparse(self, texts: Sequence[str], *, kind: str) -> SparseRows:
        return SparseRows.from_weights([{len(text): 1.0} for text in texts])

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return list(map(len, texts))

    def covers(self, text: str) -> float:
        return 1.0


@dataclass(frozen=True)
class TokenWords(Value):
    """A token embedder, to be written to files."""

    name: str = "tokens"
    dimension: int = 2
    window: int = 100
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def embed_tokens(self, texts: Sequence[str], *, kind: str) -> TokenVectors:
        return TokenVectors.from_vectors([[[1.0, len(text)]] for text in texts], 2)


OWN = (SparseWords, TokenWords, Tag, Walk, language, replied, worth, first, hopped, grown, merit, shared, apart)

texts = st.text(max_size=8) | st.sampled_from(
    [
        "no",
        "1e3",
        "1:30",
        "~",
        "null",
        "",
        " a",
        "a: b",
        "#",
        "\u2028x\x85",
        "007",
        "a\nb\n",
        " a\n b",
        "\n",
        "a\n\n",
        "\n\n a",
        "a\t\n#",
    ]
)
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = texts | finite | st.integers() | st.booleans() | st.none()


def several(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(item, max_size=3).map(tuple)


def pairs(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(texts, item, max_size=3).map(lambda content: tuple(content.items()))


tags = st.builds(
    Tag,
    text=texts,
    number=finite | st.integers(),
    count=st.integers(),
    whether=st.booleans(),
    words=several(texts),
    weights=pairs(finite),
    pair=st.none() | st.tuples(st.integers(), texts),
    mode=st.sampled_from(["fast", "exact"]),
    limit=scalars.filter(lambda found: not isinstance(found, bool)),
    meta=pairs(scalars),
    judge=st.none() | st.just(worth),
)


def _grow_flows(flow: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Larger flows from Query to Query out of smaller ones."""
    few = st.lists(flow, min_size=1, max_size=3)
    counts = st.integers(1, 4)
    return st.one_of(
        few.map(lambda steps: Then(*steps)),
        few.map(lambda arms: Branch(*arms) >> first),
        few.map(lambda arms: Branch(*arms, min_arms=1) >> Best(worth)),
        st.builds(lambda options, name: Choice(*options, name=name), few, texts),
        st.builds(
            lambda arms: Route(language, arms, default=next(iter(arms))),
            st.dictionaries(texts | st.just("use"), flow, min_size=1, max_size=3),
        ),
        st.builds(Guard, flow, st.none() | flow, st.none() | counts, several(texts)),
        st.builds(lambda n, arm, minimum: Samples(n) >> Each(arm, minimum) >> first, counts, flow, st.none() | counts),
        st.builds(
            lambda body, values: Guard(body).vary(max_calls=values, fallback=(None, body)),
            flow,
            few.map(len).map(range),
        ),
    )


flows: st.SearchStrategy[Operator[Any, Any]] = st.recursive(
    tags | st.just(Identity[Query]()), _grow_flows, max_leaves=6
)

walks: st.SearchStrategy[Operator[Any, Any]] = st.recursive(
    st.just(hopped),
    lambda step: (
        st.builds(Loop, step, max_steps=st.integers(1, 9), appends=st.booleans())
        | st.lists(step, min_size=1, max_size=3).map(lambda steps: Then(*steps))
    ),
    max_leaves=4,
).flatmap(
    lambda step: st.sampled_from(
        [
            step,
            step >> Explore(grown, 3),
            step >> Explore(grown, 2, 50, score=merit, width=2),
            Loop(step) >> Explore(grown, 1),
        ]
    )
)


conditions: st.SearchStrategy[Condition] = st.recursive(
    st.builds(AnyOf, texts, several(st.integers() | texts | st.booleans() | st.none()))
    | st.builds(Between, texts, st.integers(), above=st.none() | finite),
    lambda inner: st.builds(And, several(inner)) | st.builds(Or, several(inner)) | st.builds(Not, inner),
    max_leaves=4,
)
definitions = st.builds(
    Definition,
    st.sampled_from([Whole(), Sentences(), SlidingWindow(size=50)]),
    texts.map(lambda name: name or "document"),
)

SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "PostgresDatabase.url": st.sampled_from(["postgresql://reader@db.example/shop", "postgresql:///shop?host=/tmp"]),
    "Neo4jDatabase.url": st.sampled_from(["bolt://db.example:7687", "neo4j+s://graph.example"]),
    "Message.role": st.sampled_from(["system", "user", "assistant"]),
    "answer": st.just(replied),
    "draft": st.just(replied),
    "definition": st.none() | definitions,
    "filter": conditions,
    "filters": several(conditions),
    "base_url": st.sampled_from(["http://127.0.0.1:8000/v1", "https://example.org"]),
    "since": st.sampled_from(["2024", "2026-11-21T09:30:00Z"]),
    "similarity": st.sampled_from([shared, shared.but(least=2), apart]),
    "Descend.levels": st.sampled_from(["notes.spolia", "a: b"]).map(
        lambda path: (Corpus(path).group("section"), Corpus(path).group())
    ),
    "ByLabel.arms": several(texts).map(
        lambda said: tuple(zip(("no", "1e3", "a: b"), (*said, "", "", ""), strict=False))
    ),
    "ByLabel.otherwise": st.just("no"),
}
"""By field, or by class and field where random values are hardly ever taken."""


@cache
def instances(cls: type) -> st.SearchStrategy[Any]:
    """Instances of a class with random fields; those that the class refuses are left out."""
    hints = get_type_hints(cls)
    strategies = {
        f.name: SPECIAL.get(f"{cls.__name__}.{f.name}", SPECIAL.get(f.name, _of(hints[f.name])))
        for f in fields(cls)
        if f.init and f.compare
    }
    optional = {f.name for f in fields(cls) if (f.default, f.default_factory) != (MISSING, MISSING)}
    required = {name: strategy for name, strategy in strategies.items() if name not in optional}
    chosen = st.fixed_dictionaries(
        required, optional={name: strategies[name] for name in strategies if name in optional}
    )
    return chosen.map(lambda content: _try_class(cls, content)).filter(lambda result: result is not None)


def _try_class(cls: Any, arguments: dict[str, Any]) -> Any:
    try:
        return cls(**arguments)
    except (SpoliaError, ValueError):
        return None


def _of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    origin, args = get_origin(hint), get_args(hint)
    plain = {
        str: texts, bytes: st.binary(max_size=9), int: st.integers(1, 99), float: finite | st.floats(0.01, 9),
        bool: st.booleans(),
    }  # fmt: skip
    if hint in plain:
        return plain[hint]
    if hint in (None, type(None)):
        return st.none()
    if origin in (Union, types.UnionType):
        return st.one_of(*map(_of, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and Ellipsis in args:
        pair = get_origin(args[0]) is tuple and get_args(args[0])[0] is str and Ellipsis not in get_args(args[0])
        return pairs(_of(get_args(args[0])[1])) if pair else several(_of(args[0]))
    if origin is tuple:
        return st.tuples(*map(_of, args))
    if origin is frozenset:
        return st.frozensets(st.sampled_from(["chat", "stream", "logprobs"]))
    kind = origin or hint
    if kind is Operator and args:
        return st.sampled_from(_leaves([cls for cls in _possible(kind) if parameters_of(cls, kind) == args])).flatmap(
            instances
        )
    return st.sampled_from(_possible(kind)).flatmap(instances)


def _leaves(kinds: list[type]) -> list[type]:
    """Those without operators in them, where there are any, or examples would hold others without end."""
    return [cls for cls in kinds if not any("Operator[" in str(hint) for hint in get_type_hints(cls).values())] or kinds


@cache
def _possible(kind: type) -> list[type]:
    """Classes whose instances may stand where a class or protocol is declared."""
    kinds = [cls for cls in written_in_flows() if is_dataclass(cls) and not isabstract(cls)]
    if not issubclass(kind, Operator):
        kinds = [cls for cls in kinds if issubclass(cls, Value)]
    if getattr(kind, "_is_protocol", False):
        bases = [base for base in kind.__mro__ if getattr(base, "_is_protocol", False)]
        names = {name for base in bases for name in vars(base) if not name.startswith("_")}
        kinds += [SparseWords, TokenWords]
        fitting = [cls for cls in kinds if all(hasattr(cls, name) or name in _names(cls) for name in names)]
    else:
        fitting = [cls for cls in kinds if issubclass(cls, kind)]
    return sorted(fitting, key=lambda cls: cls.__name__)


def _names(cls: Any) -> set[str]:
    return {f.name for f in fields(cls)}
