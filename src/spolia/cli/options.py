"""Arguments and options that several commands share."""

from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import click

from spolia.cli.model_profile import load_profile, usual_key
from spolia.cli.parameters import argument, option
from spolia.core.environment import allow_env
from spolia.errors import QueryError, VariableRefused

FLOWS = (
    "A built-in flow (bm25, dense, hybrid, multi-hop, default, naive, or one that `spolia flows` lists), or a YAML "
    "file with one."
)
MAIN = "chunk"
"""The group that every store has."""
STORES = "The store: a folder that `spolia index` makes, or postgresql://USER@HOST/DATABASE?schema=NAME."


def _allow_store(context: click.Context, param: click.Parameter, store: str) -> str:
    """Refuse a store of a profile whose address reads a variable that is not allowed."""
    source = context.get_parameter_source(param.name or "")
    if source is not None and source.name == "DEFAULT_MAP":
        try:
            return load_profile(context.params.get("profile_file")).store
        except VariableRefused as error:
            raise click.UsageError(error.reason, context) from error
    return store


StorePath: TypeAlias = Annotated[str, option("--store STORE", STORES, callback=_allow_store)]
MaybeStore: TypeAlias = Annotated[str | None, option("--store STORE", STORES)]
Access: TypeAlias = Annotated[
    list[str] | None,
    option("--access PRINCIPAL", "The user or group who asks; repeatable. Without it you find public documents only."),
]
SeenBy: TypeAlias = Annotated[
    list[str] | None, option("--access PRINCIPAL", "Show only what this user or group may read; repeatable.")
]
Readers: TypeAlias = Annotated[
    Path | None, option("--readers FILE", "Access lists: a text file with lines `PATTERN = PRINCIPAL, …`.")
]
Vectors: TypeAlias = Annotated[
    bool | None, option("--vectors/--no-vectors", "Embed the passages; default: if the model knows their language.")
]
Known: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--known MODULE", "Python file, module or MODULE:NAME with operators, groups, measures, READERS; repeatable."
    ),
]


Redact: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--redact KIND",
        "Hide email, phone, iban, card, ip or secret, or what FILE.py:NAME finds: an object with find_sensitive(text); "
        "repeatable.",
    ),
]


def _allow(context: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Allow the variables until the command ends."""
    try:
        context.with_resource(allow_env(*names))
    except VariableRefused as error:
        raise click.BadParameter(error.reason) from error
    return names


AllowEnv: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--allow-env NAME",
        "An environment variable that files and the store may name; repeatable.",
        callback=_allow,
    ),
]


def allow_usual_key(context: click.Context, param: click.Parameter, url: str) -> str:
    """Allow files that name the same server as the command line its usual key, until the command ends."""
    source = context.get_parameter_source(param.name or "")
    # A profile may be somebody else's: what it names is allowed nothing.
    if source is not None and source.name == "COMMANDLINE" and "://" in url:
        context.with_resource(allow_env(usual_key(url), address=url))
    return url


BUILDS: ContextVar[bool] = ContextVar("builds", default=False)
"""Whether groups of flow files may be built by the servers that the files name."""


def _allow_builds(context: click.Context, param: click.Parameter, allowed: bool) -> bool:
    """Allow builds until the command ends."""
    token = BUILDS.set(allowed)
    context.call_on_close(lambda: BUILDS.reset(token))
    return allowed


BuildGroups: TypeAlias = Annotated[
    bool,
    option(
        "--build-groups",
        "Build groups that a flow file defines, although all texts of the store then go to servers that it names.",
        callback=_allow_builds,
    ),
]
OwnPrompts: TypeAlias = Annotated[
    Path | None, option("--prompts DIR", "Folder with your own prompts; `spolia prompts override` makes one.")
]
Where: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--where CONDITION", "A filter: year=2020, 'tag in a,b', 'year>=2020', kind!=draft, 'file_modified>2026-01-31'."
    ),
]
Web: TypeAlias = Annotated[
    list[str] | None,
    option(
        "--web CONDITION",
        "The documents that are the second source of a published flow, as source=web; repeatable. The others are its "
        "first source.",
    ),
]
FlowName: TypeAlias = Annotated[str, option("--flow FLOW", FLOWS)]
KeepValues: TypeAlias = Annotated[
    bool,
    option(
        "--keep-values/--no-keep-values",
        "Record inputs and outputs of each step, and the prompts, for `spolia trace`; off by default.",
    ),
]
AsJson: TypeAlias = Annotated[bool, option("--json", "One JSON object on stdout, messages on stderr.")]
WeightsFolder: TypeAlias = Annotated[str, option("--weights DIR", "Folder with the embedder's weights.")]
ModelUrl: TypeAlias = Annotated[
    str,
    option(
        "--llm URL",
        "Base URL of an OpenAI-compatible API, whose key is read from OPENAI_API_KEY; or a GGUF file or folder.",
        callback=allow_usual_key,
    ),
]
ModelName: TypeAlias = Annotated[str, option("--model NAME", "The model's name on that server.")]
Think: TypeAlias = Annotated[
    int,
    option("--think N", "Tokens for what the model thinks before each reply; learnt from its first cut one.", min=0),
]
LiveMarkdown: TypeAlias = Annotated[
    bool, option("--live-markdown", "Leave images, HTML and scripts of answers as they are; else they are made inert.")
]
BudgetCalls: TypeAlias = Annotated[int | None, option("--budget-calls", "Limit on calls to language models.", min=0)]
BudgetTokens: TypeAlias = Annotated[
    int | None, option("--budget-tokens", "Limit on tokens, sent and generated together.", min=0)
]
BudgetUsd: TypeAlias = Annotated[
    float | None, option("--budget-usd", "Limit in US dollars, for models with a known price.", min=0)
]
Estimated: TypeAlias = Annotated[bool, option("--estimate", "Print the cost estimate; nothing is sent to a server.")]
FlowArgument: TypeAlias = Annotated[str, argument("FLOW", FLOWS)]
WAIT_S = 10.0


def _read_profile(context: click.Context, param: click.Parameter, file: Path | None) -> Path | None:
    """Take what the profile says for the options that are not written."""
    if file is not None or Path("spolia.toml").is_file():
        try:
            profile = load_profile(file)
        except QueryError as error:
            if file is None:  # nobody wrote the option
                raise click.UsageError(
                    f"{error} It is read because it lies in the working directory.", context
                ) from error
            raise click.BadParameter(str(error)) from error
        context.default_map = {**(context.default_map or {}), **profile.options()}
        needs_store = any(parameter.name == "store" and parameter.required for parameter in context.command.params)
        if profile.address and needs_store:
            context.default_map["store"] = profile.address
    return file


ProfileFile: TypeAlias = Annotated[
    Path | None,
    option(
        "--profile-file FILE",
        "TOML file with models, store and principals; by default spolia.toml in the working directory.",
        callback=_read_profile,
        is_eager=True,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of all commands that embed."""

    embedder: Annotated[
        str,
        option(
            "--embedder URL",
            "URL of a server that embeds, a folder with a model, or FILE.py:FUNCTION; by default the store's own.",
            callback=allow_usual_key,
        ),
    ] = ""
    embed_model: Annotated[str, option("--embed-model NAME", "The embedder's name on that server.")] = ""
    profile_file: ProfileFile = None
    weights: WeightsFolder = ""


@dataclass(frozen=True, kw_only=True)
class RerankOptions(ModelOptions):
    """Options of all commands that search."""

    reranker: Annotated[
        str,
        option(
            "--reranker URL",
            "Base URL of a server that reranks, or a folder with a model.",
            callback=allow_usual_key,
        ),
    ] = ""
    rerank_model: Annotated[str, option("--rerank-model NAME", "The reranker's name on that server.")] = ""
    rerank_form: Annotated[
        str,
        option("--rerank-form NAME", "Its API: cohere, jina, voyage, vllm, tei; by default from the address."),
    ] = ""
    ranker: Annotated[
        str,
        option("--ranker DIR", "Folder of `spolia train ranker`, for the flow multi-hop; by default a shipped ranker."),
    ] = ""


Wait = Annotated[float, option("--wait SECONDS", "How long to wait for another writer.", min=0)]


@dataclass(frozen=True)
class SearchOptions(RerankOptions):
    """Options of `spolia search` and `spolia ask`."""

    question: Annotated[str, argument("QUESTION", "The question, in quotes.")]
    conditions: Where = None
    access: Access = None
    group: Annotated[str, option("--group NAME", "The node group to search; built if it does not exist.")] = "chunk"
    modules: Known = None
    allow_env: AllowEnv = None
    build_groups: BuildGroups = False
    prompts: OwnPrompts = None
    keep_values: Annotated[
        bool,
        option(
            "--keep-values/--no-keep-values",
            "Record inputs and outputs of each step, and the prompts, for `spolia trace`; on by default.",
        ),
    ] = True
    json: AsJson = False
