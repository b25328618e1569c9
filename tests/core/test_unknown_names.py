"""A field or argument that does not exist: the error says which is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spolia import BM25, Definition, Item, MiniLM, Query, Run, load
from spolia.core.operator import Operator
from spolia.errors import WiringError
from spolia.evaluation import Experiment
from spolia.filters import Field
from spolia.models.local.embedders import LocalEmbedder
from spolia.retrieval import NodeGraph, SharedEntities
from spolia.stores import HNSW, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.stores.lexical.analysis import Analyzer


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


@pytest.mark.parametrize(("made", "given", "advice"), WRONG)
def test_what_a_constructor_does_not_take_is_refused_with_what_to_write(
    made: Callable[..., Any], given: dict[str, Any], advice: str
) -> None:
    with pytest.raises(WiringError) as error:
        made(**given)
    assert advice in str(error.value)
