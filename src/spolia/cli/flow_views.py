"""Views of flows, with stand-ins for a store and models that are not named."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from spolia.cli.flow_parts import (
    CHOOSING,
    UNNAMED,
    Parts,
    add_capabilities,
    add_second_source,
    build_parts,
    build_second_retriever,
    load_flow,
    override_prompts,
    restrict_to_first,
)
from spolia.cli.model_profile import load_profile
from spolia.cli.models import load_embedder, load_language_model, load_scorer
from spolia.cli.options import MAIN, RerankOptions
from spolia.cli.user_modules import load_user_modules
from spolia.core.environment import display_only
from spolia.core.operator import Operator
from spolia.flow_files.built_in_flows import RETRIEVERS, build_retrieval, from_paper, hybrid
from spolia.flows.catalogue import MODULES, find_flow
from spolia.generation.extract import Extract
from spolia.models.http.chat import ChatModel
from spolia.models.http.reranking import RerankModel
from spolia.models.onnx.minilm import MiniLM
from spolia.retrieval.bm25 import BM25
from spolia.types import Query

_SERVER = "http://127.0.0.1:8000/v1"
STAND_IN = Parts(
    UNNAMED, MiniLM(), ChatModel("model", _SERVER), BM25(UNNAMED, 5, "web"), RerankModel("reranker", _SERVER)
)


def load_view_parts(
    store: str | None,
    modules: Sequence[str] | None = None,
    prompts: Path | None = None,
    web: Sequence[str] | None = None,
    profile_file: Path | None = None,
) -> Parts:
    """Load the parts of a store and the models of the profile, or their stand-ins. Asks no model."""
    profile = load_profile(profile_file)
    settings, store = {**profile.options(), "profile_file": profile_file}, store or profile.store or None
    models = RerankOptions(
        **{option.name: settings[option.name] for option in fields(RerankOptions) if option.name in settings}
    )
    with display_only():
        llm = load_language_model(settings.get("llm", ""), settings.get("model", ""), profile) or STAND_IN.llm
        if store is None:
            scorer, embedder = load_scorer(models) or STAND_IN.scorer, load_embedder(models, None, MAIN, measures=False)
            parts = STAND_IN.but(
                embedder=embedder, scorer=scorer, known_operators=load_user_modules(modules).operators, prompts=prompts
            )
        else:
            parts = build_parts(store, models, modules=modules, prompts=prompts, measures=False)
        trusted = (llm, parts.scorer, parts.embedder) if profile.is_named else ()
        return add_second_source(parts.but(llm=llm, trusted=trusted), web)


def load_flow_view(name: str, parts: Parts = STAND_IN) -> Operator[Query, Any]:
    """Load a flow by its name or file to look at it; it may name any environment variable.

    Without a store, the default as it is where the embedder suits the corpus.
    """
    if parts.scorer == STAND_IN.scorer and name in RETRIEVERS:
        parts = parts.but(scorer=None)  # they rerank only where a reranker is named
    if parts.chunks == UNNAMED and name in CHOOSING:
        scorer = None if parts.scorer == STAND_IN.scorer else parts.scorer
        retrieval_flow = build_retrieval("hybrid", parts.chunks, parts.embedder, 10 if name == "default" else 5, scorer)
        return (
            retrieval_flow if name == "default" else restrict_to_first(retrieval_flow >> Extract(parts.embedder), parts)
        )
    if parts.chunks == UNNAMED and name in MODULES:
        return override_prompts(restrict_to_first(build_published_view(name, parts), parts), parts.prompts)
    if name in MODULES and "scorer" in find_flow(name).needs:
        parts = parts.but(scorer=parts.scorer or STAND_IN.scorer)
    with display_only():
        return load_flow(name, parts.but(llm=None) if name in CHOOSING else parts)[0]


def build_published_view(name: str, parts: Parts = STAND_IN) -> Operator[Query, Any]:
    """Build a published flow to look at it."""
    top_k = find_flow(name).top_k
    search = hybrid(parts.chunks, parts.embedder, top_k=top_k)
    further_parts: dict[str, Any] = {
        "search": search,
        "web": build_second_retriever(parts, top_k),
        "scorer": parts.scorer,
    }
    return from_paper(name, parts.chunks, parts.embedder, add_capabilities(parts.llm, name), **further_parts)
