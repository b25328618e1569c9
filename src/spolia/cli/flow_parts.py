"""What a command gives to a flow: node group, embedder, language model; flows by name, to run or to look at."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from spolia import flow_files, generation, models
from spolia.cli.destinations import confirm_builds
from spolia.cli.load_errors import in_words_of_the_command_line
from spolia.cli.metadata import refuse_empty_source
from spolia.cli.models import embedder_for, embedding_of, scorer_for
from spolia.cli.node_groups import refuse_unknown
from spolia.cli.options import MAIN, RerankOptions
from spolia.cli.user_modules import own
from spolia.core.environment import is_looking
from spolia.core.operator import Operator, Retriever
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import FlowFileError, GroupError, ManifestMismatch, ModelError, QueryError, StoreError, WiringError
from spolia.filters import Condition, Field, Not, Schema
from spolia.filters.text import condition_of, named_fields
from spolia.flow_files.built_in_flows import (
    BUILT_IN,
    RETRIEVERS,
    advice,
    choose,
    found_by,
    hybrid,
    named,
    within,
)
from spolia.flows.catalogue import MODULES, flow_named
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
    """What a flow file may use by name: `{use: chunks}`, `{use: corpus}`, `{use: embedder}`, `{use: llm}`, and where
    they are given `{use: web}`, a second retriever, and `{use: scorer}`.
    """

    chunks: NodeGroup
    embedder: Embedder | None = None
    llm: LanguageModel | None = None
    web: Retriever | None = None
    scorer: Scorer | None = None
    retriever: str = "default"
    ranker: str = ""
    known: tuple[Operator[Any, Any] | type, ...] = ()
    prompts: Path | None = None
    without: str = ""
    second: Condition | None = None
    trusted: tuple[object, ...] = ()

    def given(self) -> dict[str, Any]:
        """By name, as far as they are there."""
        every: dict[str, Any] = {
            "chunks": self.chunks,
            "corpus": self.chunks.corpus,
            "embedder": self.embedder,
            "llm": self.llm,
        }
        every |= {"web": self.web, "scorer": self.scorer}
        return {name: part for name, part in every.items() if part is not None}


def parts_of(
    store: str,
    models: RerankOptions = NO_MODELS,
    llm: LanguageModel | None = None,
    group: str = MAIN,
    known: Sequence[str] | None = None,
    prompts: Path | None = None,
    measures: bool = True,
) -> Parts:
    """The parts for searching a group of a store, with the user's own modules and prompts.

    Of an embedder that cannot be made or asked, `without` says why: flows that need none run without it.

    Args:
        measures: a server may be asked for the dimension of its embedder, where the store does not know it.
    """
    corpus, mine = Corpus(str(store)), own(known)
    if group != MAIN:
        refuse_unknown(corpus, [group], mine)
    searched = corpus.group(group, mine.groups.get(group))
    parts = Parts(searched, None, llm, scorer=scorer_for(models), known=mine.operators, prompts=prompts)
    parts = parts.but(ranker=models.ranker)
    built = embedding_of(corpus, group) or (None if group == MAIN else embedding_of(corpus, MAIN))
    try:
        return parts.but(embedder=embedder_for(models, built, group, measures=measures))
    except ManifestMismatch:
        raise
    except (StoreError, GroupError, ModelError, WiringError) as error:
        return parts.but(without=str(error))


def with_sources(parts: Parts, web: Sequence[str] | None, access: Sequence[str] | None = None) -> Parts:
    """The parts with a condition on the documents that are the second source; the others are the first one.

    Without a store nothing is known of its fields: they are taken for texts.

    Args:
        access: who asks; None for a flow that is only looked at.

    Raises:
        FilterError: the asker may read no document of one of the two sources.
    """
    if not web:
        return parts
    is_known = parts.chunks != UNNAMED
    schema = parts.chunks.snapshot().schema if is_known else Schema(map(Field, named_fields(web)))
    condition = condition_of(web, schema)
    assert condition is not None
    if is_known:
        refuse_empty_source(web, condition, parts.chunks, None if access is None else frozenset(access))
    return parts.but(second=condition, web=second_of(parts.but(second=condition)))


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


def second_of(parts: Parts, top_k: int = 5) -> Retriever | None:
    """What searches the second source; it stands beside the store where no condition says which documents it is."""
    if parts.second is None:
        return parts.web
    if parts.chunks == UNNAMED:
        return within(hybrid(parts.chunks, parts.embedder, top_k=top_k), parts.second)
    return within(found_by(parts.retriever, parts.chunks, parts.embedder, top_k), parts.second)


def first_of(flow: Operator[Query, Any], parts: Parts) -> Operator[Query, Any]:
    """The flow whose other searches find the first source alone, where there are two."""
    return flow if parts.second is None else within(flow, Not(parts.second))


def query_of(question: str, where: Sequence[str] | None, parts: Parts) -> Query:
    """A question with its conditions; a group that the store lacks is built first."""
    searched = parts.chunks if parts.chunks.name != MAIN else parts.chunks.corpus
    return Query(question, filter=condition_of(where or (), searched.snapshot().schema))


def judging(llm: LanguageModel | None) -> LanguageModel | None:
    """The model as a judge, of whom a measure may ask probabilities of tokens; whether its server states them is seen
    when it is asked."""
    return llm.but(capabilities=llm.capabilities | {NEXT_TOKENS}) if isinstance(llm, models.ChatModel) else llm


def able(llm: LanguageModel | None, flow: str) -> LanguageModel | None:
    """The model with what a published flow needs of it, by the protocol that has it; whether its server can do it is
    seen when it is asked."""
    if not isinstance(llm, models.ChatModel) or flow not in MODULES:
        return llm
    needed = flow_named(flow).capabilities
    if SCORES in needed:
        return models.CompletionModel(**{one.name: getattr(llm, one.name) for one in fields(Remote)})
    return llm.but(capabilities=llm.capabilities | needed)


def flow_of(name: str, parts: Parts, top_k: int | None = None) -> tuple[Operator[Query, Any], str]:
    """A flow by its name or file, and in one line what was chosen, where there was a choice."""
    if is_file(name):
        flow = with_prompts(from_file(name, parts), parts.prompts)
        flow.gives(Query)
        return flow, ""
    how_many = {} if top_k is None else {"top_k": top_k}
    if name == "default":
        return found_by(name, parts.chunks, parts.embedder, top_k or 10, parts.scorer), _chosen(parts)
    more: dict[str, Any] = {"retriever": parts.retriever} if name in MODULES else {}
    if name in MODULES:
        more["scorer"] = parts.scorer
    try:
        if name in MODULES and name != "naive":
            more["web"] = second_of(parts, top_k or flow_named(name).top_k)
        if name in RETRIEVERS:
            flow = found_by(name, parts.chunks, parts.embedder, top_k or 10, parts.scorer, parts.ranker)
        else:
            flow = named(name)(parts.chunks, parts.embedder, able(parts.llm, name), **how_many, **more)
    except WiringError as error:
        if parts.without:
            error.add_note(parts.without)
        raise
    flow = with_prompts(first_of(flow, parts) if name in MODULES else flow, parts.prompts)
    has_choice = parts.retriever == "default" and (name in CHOOSING or (name in MODULES and bool(parts.without)))
    return flow, _chosen(parts) if has_choice else ""


def _chosen(parts: Parts) -> str:
    """In one line, why the flow `default` searches as it does."""
    return f"bm25: {parts.without}" if parts.without else choose(parts.chunks, parts.embedder)[1]


def with_prompts(flow: Operator[Any, Any], folder: Path | None) -> Operator[Any, Any]:
    """The flow, asked with the prompts of a folder, if one is named."""
    if folder is None:
        return flow
    found: Operator[Any, Any] = flow_files.prompts.overridden(flow, folder)
    return found


def from_file(name: str, parts: Parts) -> Operator[Query, Any]:
    file = Path(name)
    if not file.exists():
        beside = (str(one) for one in file.parent.glob("*") if one.suffix.lower() in SUFFIXES)
        raise FlowFileError(f"{name} does not exist. {advice(name, beside)}")
    with in_words_of_the_command_line():
        flow = flow_files.load(Path(name), parts.given(), parts.known)
    if not is_looking():
        confirm_builds(name, flow, (*parts.given().values(), *parts.trusted))
    return flow


def is_file(name: str) -> bool:
    """Whether a flow is named by its file; a built-in name goes first."""
    return name not in BUILT_IN and (name.lower().endswith(SUFFIXES) or Path(name).is_file())


def answering(flow: Operator[Query, Any], parts: Parts) -> Operator[Query, Answer]:
    """The flow, with a step that answers where it only finds passages."""
    given = flow.gives(Query)
    if fits(Answer, given, {}):
        return flow
    if not fits(Ranking, given, {}):
        raise WiringError(f"The flow gives {name_of(given)}; to ask, it must give an Answer or a Ranking.")
    if parts.llm is not None:
        return flow >> with_prompts(generation.Reader(parts.llm), parts.prompts)
    analyzer = parts.chunks.corpus.snapshot().manifest(parts.chunks.name).analyzer
    return flow >> generation.Extract(analyzer=analyzer)
