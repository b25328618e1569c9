"""A field or argument that does not exist: the error says which is meant."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import spolia
from spolia import BM25, ChatModel, Corpus, Definition, Item, MiniLM, Query, Run, load
from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.evaluation import Experiment
from spolia.filters import Field
from spolia.indexing import transform
from spolia.models.local.embedders import LocalEmbedder
from spolia.retrieval import NodeGraph, SharedEntities
from spolia.stores import HNSW, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Hit, Node, Plan, Ranking, Value
from tests.cases import check_each

CHUNKS = Corpus("notes.spolia").group()
odd: Any = spolia
types: Any = spolia.types
as_any: Any = 5
"""What no type checker looks at."""


class Undecorated(Operator[Query, Query]):
    n: int = 3

    def apply(self, value: Query) -> Query:
        return value


WRONG: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (BM25, {"topk": 3}, "BM25 takes no 'topk'. Write top_k=."),
    (Run, {"principle": "ann"}, "Run takes no 'principle'. Write principal=."),
    (Run, {"principal": None}, "Run(principal='ann'"),
    (Undecorated, {"n": 4}, "Write @dataclass(frozen=True) above its class."),
    (BM25, {"zzz": 3}, "It takes: group, top_k"),
    (Definition, {"transfrom": 1}, "Definition takes no 'transfrom'. Write transform=."),
    (Embedding, {"indx": 1}, "Write index=."),
    (HNSW, {"over": 1}, "Write above=."),
    (Item, {"golds": ()}, "Write gold=."),
    (Experiment, {"flow": {}}, "Write flows=."),
    (MiniLM, {"thread": 1}, "Write threads=."),
    (LocalEmbedder, {"poling": "cls"}, "Write pooling=."),
    (NodeGraph, {"edge": ()}, "Write edges=."),
    (SharedEntities, {"fields": "x"}, "Write field=."),
    (Field, {"nam": "x"}, "Write name=."),
    (Analyzer, {"stems": "english"}, "Write stem=."),
    (load, {"operator": ()}, "load takes no 'operator'. Write operators=."),
    (materialise, {"rebuilt": True}, "Write rebuild=."),
]


MISSING: list[tuple[Callable[[], Any], str]] = [
    (lambda: odd.BM25(), "BM25 needs group. Write BM25(group=…)."),
    (lambda: odd.BM25(top_k=3), "BM25 needs group."),
    (lambda: odd.Dense(CHUNKS, top_k=3), "Dense needs embedder. Write Dense(group=…, embedder=…)."),
    (lambda: odd.Query(), "Query needs text. Write Query(text=…)."),
    (lambda: odd.ChatModel(base_url="http://h/v1"), "ChatModel needs model."),
    (lambda: odd.ChatModel("m", None), "ChatModel has base_url=None (NoneType). Write the address of the server"),
    (lambda: odd.BM25(CHUNKS).vary(top_k=3), "top_k=3 is one value, not candidates. Write top_k=(3, …)."),
    (lambda: BM25(CHUNKS).vary(source="words"), "Write source=('words', …)."),
    (lambda: odd.Run(5), "Run takes no argument without a name, and was given 5 (int)."),
    (lambda: odd.Query("q", "q", None, 1.0, 0, None, (), None, 9), "Query takes 8 arguments without a name"),
    (lambda: types.Plan(), "Plan needs query."),
    (lambda: types.Plan(5), "Plan has query=5 (int). Write Query('…')."),
    (lambda: types.Plan(Query("q"), "first"), "Write a tuple of texts."),
    (lambda: types.Usage("5"), "Usage has calls='5' (str). Write a number, as in Usage(calls=1)."),
    (lambda: odd.Run(groups=None), "groups=None are not principals. Write a list of texts: groups=['staff']."),
    (lambda: odd.BM25 >> odd.Cut(5), "BM25 is a class, not an operator, as the step before Cut"),
    (lambda: 5 >> odd.Cut(5), "5 is not an operator, as the step before Cut"),
    (lambda: len >> odd.Cut(5), "len is a plain function, not an operator, as the step before Cut"),
    (lambda: odd.step(5), "5 is not a function. Write @step above the definition of one."),
    (lambda: transform(as_any), "5 is not a function. Write @transform above the definition of one."),
    (lambda: odd.Query("q", filter=5), "Query has filter=5 (int). Write a condition: where(year=2020)"),
]


@check_each(("made", "advice"), MISSING)
def test_a_missing_argument_or_one_of_another_type_is_refused_with_what_to_write(
    made: Callable[[], Any], advice: str
) -> None:
    with pytest.raises(WiringError) as error:
        made()
    assert advice in str(error.value)


def test_every_value_says_what_is_missing_and_which_names_it_takes() -> None:
    values = [
        exported for exported in vars(types).values() if isinstance(exported, type) and issubclass(exported, Value)
    ]
    assert len(values) > 20
    for value in values:
        with pytest.raises(WiringError, match=rf"^{value.__name__} takes no 'nonesuch'\. (Write|It takes)"):
            value(nonesuch=1)  # type: ignore[call-arg]
        if is_dataclass(value) and any(field.default is field.default_factory for field in fields(value)):
            with pytest.raises(WiringError, match=rf"^{value.__name__} needs .* Write {value.__name__}\("):
                value()


def test_what_is_written_by_hand_goes_through_pickle_and_copy() -> None:
    ranking = Ranking(Query("Why?"), (Hit(Node("a", "b"), 1.0),))
    for value in (Query("Why?"), ranking, BM25(CHUNKS), Plan(Query("Why?"), ("a", "b")), ChatModel("m", "http://h/v1")):
        unpickled = pickle.loads(pickle.dumps(value))
        assert unpickled == value == copy.copy(value)
        assert unpickled.digest == value.digest


@check_each(("made", "given", "advice"), WRONG)
def test_what_a_constructor_does_not_take_is_refused_with_what_to_write(
    made: Callable[..., Any], given: dict[str, Any], advice: str
) -> None:
    with pytest.raises(WiringError) as error:
        made(**given)
    assert advice in str(error.value)
