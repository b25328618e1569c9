"""What is measured: flows from a query to a ranking or an answer, each with a name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from spolia.errors import WiringError
from spolia.evaluation.measures.measure import Result
from spolia.operator import Operator
from spolia.stores.corpus import NodeGroup
from spolia.types import Answer, Query, Ranking
from spolia.wiring import fits, name_of

Flow: TypeAlias = Operator[Query, Result]


def named(flows: Flow | Sequence[Flow] | Mapping[str, Flow]) -> tuple[tuple[str, Flow], ...]:
    """Flows with their names.

    Raises:
        WiringError: there is none, or two are called the same.
    """
    if isinstance(flows, Mapping):
        by_name = dict(flows)
    else:
        listed: Any = (flows,) if isinstance(flows, Operator | str) else tuple(flows)
        by_name = {repr(flow): flow for flow in listed}
        if len(by_name) < len(listed):
            raise WiringError(
                "Two of the flows are the same. Leave one out, or give them by name: {'one': ..., 'two': ...}."
            )
    if strange := [flow for flow in by_name.values() if not isinstance(flow, Operator)]:
        raise WiringError(f"{strange[0]!r} is no flow. Give operators, such as BM25(group) >> Reader(llm).")
    return tuple(by_name.items()) or _none()


def _none() -> tuple[tuple[str, Flow], ...]:
    raise WiringError("There is no flow to ask. Give one at least.")


def refuse_other_flows(flow: Operator[Any, Any]) -> None:
    """Only what goes from a query to a ranking or an answer can be measured; else `WiringError`."""
    given = flow.gives(Query)
    if not fits(Ranking | Answer, given, {}):
        raise WiringError(
            f"The flow gives {name_of(given)}; a Ranking or an Answer can be measured. "
            "Add the step that makes one, for example a fusion after Branch(...)."
        )


def opened(flow: Flow) -> float:
    """Open the stores of a flow, and build groups that are not there yet; how long that took, seconds."""
    started = time.perf_counter()
    for resource in flow.resources:
        if isinstance(resource, NodeGroup) and resource.corpus.exists():
            resource.snapshot()
    return time.perf_counter() - started


def groups_of(flow: Flow) -> list[NodeGroup]:
    """The groups that a flow searches."""
    return list(dict.fromkeys(one for one in flow.resources if isinstance(one, NodeGroup)))


def written(flow: Flow) -> str:
    """How a flow is written, wherever its stores are."""
    found = repr(flow)
    for group in groups_of(flow):
        found = found.replace(group.corpus.path, "")
    return found
