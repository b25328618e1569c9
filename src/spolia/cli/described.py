"""Flows to look at, without a store or a model behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spolia.cli.parts import Parts, flow_of, parts_of
from spolia.flows.builtin import hybrid
from spolia.generation.extract import Extract
from spolia.models.chat import ChatModel
from spolia.models.minilm import MiniLM
from spolia.operator import Operator
from spolia.stores.corpus import Corpus
from spolia.types import Query

STAND_IN = Parts(Corpus("store.spolia").group(), MiniLM(), ChatModel("model", "http://127.0.0.1:8000/v1"))


def described(name: str, store: Path | None = None) -> Operator[Query, Any]:
    """A flow by its name or file, as it is over a store; without one, the default as it is where the embedder suits."""
    if store is not None:
        return flow_of(name, parts_of(store).but(llm=None if name == "naive" else STAND_IN.llm))[0]
    if name == "default":
        return hybrid(STAND_IN.chunks, STAND_IN.embedder)
    if name == "naive":
        return hybrid(STAND_IN.chunks, STAND_IN.embedder, top_k=5) >> Extract(STAND_IN.embedder)
    return flow_of(name, STAND_IN)[0]
