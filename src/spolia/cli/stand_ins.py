"""Flows to look at, without a store or a model behind them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spolia.cli.flow_parts import CHOOSING, Parts, flow_of, parts_of
from spolia.cli.user_modules import own
from spolia.core.environment import unused
from spolia.core.operator import Operator
from spolia.flow_files.built_in import hybrid
from spolia.generation.extract import Extract
from spolia.models.http.chat import ChatModel
from spolia.models.onnx.minilm import MiniLM
from spolia.stores.corpus import Corpus
from spolia.types import Query

STAND_IN = Parts(Corpus("store.spolia").group(), MiniLM(), ChatModel("model", "http://127.0.0.1:8000/v1"))


def looked_at(store: str | None, known: Sequence[str] | None = None, prompts: Path | None = None) -> Parts:
    """The parts of a store, or what stands in for them; with a model that is never asked."""
    if store is None:
        return STAND_IN.but(known=own(known).operators, prompts=prompts)
    return parts_of(store, known=known, prompts=prompts).but(llm=STAND_IN.llm)


def described(name: str, parts: Parts = STAND_IN) -> Operator[Query, Any]:
    """A flow by its name or file, only to be looked at: it may name any environment variable.

    Without a store, the default as it is where the embedder suits the corpus.
    """
    if parts.chunks == STAND_IN.chunks and name in CHOOSING:
        found = hybrid(parts.chunks, parts.embedder, top_k=10 if name == "default" else 5)
        return found if name == "default" else found >> Extract(parts.embedder)
    with unused():
        return flow_of(name, parts.but(llm=None) if name in CHOOSING else parts)[0]
