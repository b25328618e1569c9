"""Options of the commands that ask the questions of a data set."""

from dataclasses import dataclass
from typing import Annotated

from spolia.cli.options import (
    AllowEnv,
    AsJson,
    BudgetCalls,
    BudgetTokens,
    BudgetUsd,
    BuildGroups,
    KeepValues,
    Known,
    ModelName,
    OwnPrompts,
    RerankOptions,
    Think,
    Web,
    allow_usual_key,
)
from spolia.cli.parameters import option


@dataclass(frozen=True)
class QuestionOptions(RerankOptions):
    """What all commands take alike that ask the questions of a data set."""

    store: Annotated[
        str | None,
        option(
            "--store STORE",
            "The store to ask, whose documents the gold names; by default the data's own passages, else the store of "
            "the profile.",
        ),
    ] = None
    llm: Annotated[
        str,
        option(
            "--llm URL",
            "Base URL of an OpenAI-compatible API; its key is read from OPENAI_API_KEY. `simulated`: a reader that "
            "answers from the gold as far as its prompts hold it, to measure retrieval and orchestration; needs "
            "data with `corpus.jsonl`.",
            callback=allow_usual_key,
        ),
    ] = ""
    model: ModelName = ""
    think: Think = 0
    profile: Annotated[
        str, option("--profile NAME", "How often the simulated reader errs: `ideal` (never) or `noisy`.")
    ] = ""
    retriever: Annotated[
        str, option("--retriever FLOW", "Retriever of published flows: bm25, dense, hybrid, multi-hop or default.")
    ] = ""
    seed: Annotated[int, option("--seed", "Seed of all random draws.", min=0)] = 0
    known: Known = None
    allow_env: AllowEnv = None
    build_groups: BuildGroups = False
    budget_calls: BudgetCalls = None
    budget_tokens: BudgetTokens = None
    budget_usd: BudgetUsd = None
    json: AsJson = False


@dataclass(frozen=True)
class MeasuringOptions(QuestionOptions):
    """What `spolia eval` and `spolia gate` take alike."""

    split: Annotated[
        str, option("--split PART", "Only this part: tune (later commands reject it), select, or report.")
    ] = ""
    limit: Annotated[int | None, option("--limit", "Limit on questions, drawn by the seed.", min=1)] = None
    web: Web = None
    prompts: OwnPrompts = None
    degraded: Annotated[
        str,
        option(
            "--degraded NAME",
            "If a step of a flow fails on every call: `stop` with exit code 5, or `ok` to measure the flow as it is.",
        ),
    ] = "stop"
    keep_values: KeepValues = False
