"""Parts that a command gives to a flow: node group, embedder, language model; flows by name, to run or to look at."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from spolia import flow_files, generation, models
from spolia.cli.destinations import confirm_builds
from spolia.cli.load_errors import reword_load_errors
from spolia.cli.metadata import refuse_empty_source
from spolia.cli.models import first_embedding, load_embedder, load_scorer
from spolia.cli.node_groups import refuse_unknown
from spolia.cli.options import MAIN, RerankOptions
from spolia.cli.user_modules import load_user_modules
from spolia.core.environment import is_display_only
from spolia.core.operator import Operator, Retriever
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import FlowFileError, GroupError, ManifestMismatch, ModelError, QueryError, StoreError, WiringError
from spolia.filters import Condition, Field, Not, Schema
from spolia.filters.text import condition_of, list_fields
from spolia.flow_files.built_in_flows import (
    BUILT_IN,
    RETRIEVERS,
    add_condition,
    build_retrieval,
    choose,
    find_builder,
    hybrid,
    suggest_names,
)
from spolia.flows.catalogue import MODULES, find_flow
from spolia.models.http.remote import Remote
from spolia.models.protocols import NEXT_TOKENS, SCORES, Embedder, LanguageModel, Scorer
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.types import Answer, Query, Ranking, Value

NO_MODELS = RerankOptions()
CHOOSING = ("default", "naive")
SUFFIXES = (".yaml", ".yml", ".json")


UNNAMED = Corpus("store.spolia").group()
"""The group to search where no store is named, and a flow is only looked at."""


@dataclass(frozen=True)
class Parts(Value):
    """Parts that a flow file may use by name: `{use: chunks}`, `{use: corpus}`, `{use: embedder}`, `{use: llm}`, and
    where they exist `{use: web}`, a second retriever, and `{use: scorer}`."""

    chunks: NodeGroup
    embedder: Embedder | None = None
    llm: LanguageModel | None = None
    web: Retriever | None = None
    scorer: Scorer | None = None
    retriever: str = "default"
    ranker: str = ""
    known_operators: tuple[Operator[Any, Any] | type, ...] = ()
    prompts: Path | None = None
    embedder_error: str = ""
    second_condition: Condition | None = None
    trusted: tuple[object, ...] = ()

    def by_name(self) -> dict[str, Any]:
        """Return the parts that exist, by name."""
        parts: dict[str, Any] = {
            "chunks": self.chunks,
            "corpus": self.chunks.corpus,
            "embedder": self.embedder,
            "llm": self.llm,
        }
        parts |= {"web": self.web, "scorer": self.scorer}
        return {name: part for name, part in parts.items() if part is not None}


def build_parts(
    store: str,
    models: RerankOptions = NO_MODELS,
    llm: LanguageModel | None = None,
    group: str = MAIN,
    modules: Sequence[str] | None = None,
    prompts: Path | None = None,
    measures: bool = True,
) -> Parts:
    """Build the parts for searching a group of a store, with the user's own modules and prompts.

    Of an embedder that cannot be made or asked, `embedder_error` says why: flows that need none run without it.

    Args:
        measures: a server may be asked for the dimension of its embedder, where the store does not know it.
    """
    corpus, user_modules = Corpus(str(store)), load_user_modules(modules)
    if group != MAIN:
        refuse_unknown(corpus, [group], user_modules)
    node_group = corpus.group(group, user_modules.groups.get(group))
    parts = Parts(
        node_group, None, llm, scorer=load_scorer(models), known_operators=user_modules.operators, prompts=prompts
    )
    parts = parts.but(ranker=models.ranker)
    embedding = first_embedding(corpus, group) or (None if group == MAIN else first_embedding(corpus, MAIN))
    try:
        return parts.but(embedder=load_embedder(models, embedding, group, measures=measures))
    # The options name another embedder than the store's: a mistake to report, not a missing embedder.
    except ManifestMismatch:
        raise
    except (StoreError, GroupError, ModelError, WiringError) as error:
        return parts.but(embedder_error=str(error))


def add_second_source(parts: Parts, web: Sequence[str] | None, access: Sequence[str] | None = None) -> Parts:
    """Add a condition on the documents of the second source; the others are the first source.

    Without a store nothing is known of its fields: they are taken for texts.

    Args:
        access: who asks; None for a flow that is only looked at.

    Raises:
        FilterError: the asker may read no document of one of the two sources.
    """
    if not web:
        return parts
    is_known = parts.chunks != UNNAMED
    schema = parts.chunks.snapshot().schema if is_known else Schema(map(Field, list_fields(web)))
    condition = condition_of(web, schema)
    assert condition is not None
    if is_known:
        refuse_empty_source(web, condition, parts.chunks, None if access is None else frozenset(access))
    return parts.but(second_condition=condition, web=build_second_retriever(parts.but(second_condition=condition)))


def refuse_unused_sources(flow: str, web: Sequence[str] | None) -> None:
    """Refuse a second source for a flow that searches all documents alike.

    Raises:
        QueryError: as it says.
    """
    if web and flow in RETRIEVERS:
        raise QueryError(
            f"The flow {flow!r} searches all documents, so --web would have no effect. To search one source, write "
            f"--where {web[0]!r}; to search two, --flow FILE with {{use: web}} in it."
        )


def build_second_retriever(parts: Parts, top_k: int = 5) -> Retriever | None:
    """Build the retriever of the second source: beside the store if no condition selects its documents."""
    if parts.second_condition is None:
        return parts.web
    if parts.chunks == UNNAMED:
        return add_condition(hybrid(parts.chunks, parts.embedder, top_k=top_k), parts.second_condition)
    return add_condition(build_retrieval(parts.retriever, parts.chunks, parts.embedder, top_k), parts.second_condition)


def restrict_to_first(flow: Operator[Query, Any], parts: Parts) -> Operator[Query, Any]:
    """Restrict the other searches of a flow to the first source, if there are two."""
    return flow if parts.second_condition is None else add_condition(flow, Not(parts.second_condition))


def build_query(question: str, conditions: Sequence[str] | None, parts: Parts) -> Query:
    """Build a query with its conditions; a group that the store lacks is built first."""
    target = parts.chunks if parts.chunks.name != MAIN else parts.chunks.corpus
    return Query(question, filter=condition_of(conditions or (), target.snapshot().schema))


def prepare_judge(llm: LanguageModel | None) -> LanguageModel | None:
    """Let measures ask the model for token probabilities; the first call shows whether its server states them."""
    return llm.but(capabilities=llm.capabilities | {NEXT_TOKENS}) if isinstance(llm, models.ChatModel) else llm


def add_capabilities(llm: LanguageModel | None, flow: str) -> LanguageModel | None:
    """Give the model the capabilities and protocol that a published flow needs; the first call shows whether its server
    has them."""
    if not isinstance(llm, models.ChatModel) or flow not in MODULES:
        return llm
    needed = find_flow(flow).capabilities
    if SCORES in needed:
        return models.CompletionModel(**{field.name: getattr(llm, field.name) for field in fields(Remote)})
    return llm.but(capabilities=llm.capabilities | needed)


def load_flow(name: str, parts: Parts, top_k: int | None = None) -> tuple[Operator[Query, Any], str]:
    """Load a flow by its name or file, and say in one line what was chosen, if there was a choice."""
    if is_file(name):
        flow = override_prompts(load_flow_file(name, parts), parts.prompts)
        # A mistake in a file's wiring shows here, before anything is asked.
        flow.gives(Query)
        return flow, ""
    limits = {} if top_k is None else {"top_k": top_k}
    if name == "default":
        return build_retrieval(name, parts.chunks, parts.embedder, top_k or 10, parts.scorer), _explain_choice(parts)
    options: dict[str, Any] = {"retriever": parts.retriever} if name in MODULES else {}
    if name in MODULES:
        options["scorer"] = parts.scorer
    try:
        if name in MODULES and name != "naive":
            options["web"] = build_second_retriever(parts, top_k or find_flow(name).top_k)
        if name in RETRIEVERS:
            flow = build_retrieval(name, parts.chunks, parts.embedder, top_k or 10, parts.scorer, parts.ranker)
        else:
            flow = find_builder(name)(
                parts.chunks, parts.embedder, add_capabilities(parts.llm, name), **limits, **options
            )
    except WiringError as error:
        if parts.embedder_error:
            error.add_note(parts.embedder_error)
        raise
    flow = override_prompts(restrict_to_first(flow, parts) if name in MODULES else flow, parts.prompts)
    has_choice = parts.retriever == "default" and (name in CHOOSING or (name in MODULES and bool(parts.embedder_error)))
    return flow, _explain_choice(parts) if has_choice else ""


def _explain_choice(parts: Parts) -> str:
    """Explain in one line why the flow `default` searches as it does."""
    return f"bm25: {parts.embedder_error}" if parts.embedder_error else choose(parts.chunks, parts.embedder)[1]


def override_prompts(flow: Operator[Any, Any], folder: Path | None) -> Operator[Any, Any]:
    """Return the flow with the prompts of a folder, if one is named."""
    if folder is None:
        return flow
    changed_flow: Operator[Any, Any] = flow_files.prompts.overridden(flow, folder)
    return changed_flow


def load_flow_file(name: str, parts: Parts) -> Operator[Query, Any]:
    file = Path(name)
    if not file.exists():
        candidates = (str(path) for path in file.parent.glob("*") if path.suffix.lower() in SUFFIXES)
        raise FlowFileError(f"{name} does not exist. {suggest_names(name, candidates)}")
    with reword_load_errors():
        flow = flow_files.load(Path(name), parts.by_name(), parts.known_operators)
    if not is_display_only():
        # A flow file may name servers, so nothing of it runs before the user confirms.
        confirm_builds(name, flow, (*parts.by_name().values(), *parts.trusted))
    return flow


def is_file(name: str) -> bool:
    """Check whether a flow is named by its file; a built-in name goes first."""
    return name not in BUILT_IN and (name.lower().endswith(SUFFIXES) or Path(name).is_file())


def ensure_answer(flow: Operator[Query, Any], parts: Parts) -> Operator[Query, Answer]:
    """Return the flow, with an answering step if it only finds passages."""
    output_type = flow.gives(Query)
    if fits(Answer, output_type, {}):
        return flow
    if not fits(Ranking, output_type, {}):
        raise WiringError(f"The flow gives {name_of(output_type)}; to ask, it must give an Answer or a Ranking.")
    if parts.llm is not None:
        return flow >> override_prompts(generation.Reader(parts.llm), parts.prompts)
    analyzer = parts.chunks.corpus.snapshot().manifest(parts.chunks.name).analyzer
    return flow >> generation.Extract(analyzer=analyzer)
