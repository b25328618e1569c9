"""Servers that flows and measures send to, printed before anything is sent."""

from collections.abc import Iterable, Sequence
from typing import Any

from spolia.cli.destinations import QUESTIONS_SENT, describe_destination, list_flow_servers
from spolia.cli.screen import Screen
from spolia.core.operator import Operator
from spolia.evaluation.experiment.flows import walk_parts
from spolia.evaluation.measures.measure import SetMeasure
from spolia.models.http.remote import Remote
from spolia.models.protocols import LanguageModel

JUDGED = "To be judged, questions, answers and passages"


def print_measured_servers(
    screen: Screen,
    flows: Iterable[Operator[Any, Any]],
    measures: Sequence[SetMeasure],
    requested_model: LanguageModel | None = None,
    estimate: bool = False,
) -> None:
    """Print for each server that flows and measures ask where it is and which key goes there."""
    flows = tuple(flows)
    judges = dict.fromkeys(
        part for measure in measures for part in walk_parts(measure) if isinstance(part, LanguageModel)
    )
    for content, servers in (
        (QUESTIONS_SENT, dict.fromkeys(server for flow in flows for server in list_flow_servers(flow))),
        (JUDGED, [judge for judge in judges if isinstance(judge, Remote)]),
    ):
        for server in servers:
            screen.say(describe_destination(server, content, is_estimate=estimate))
    asked_names = {part.name for flow in flows for part in flow.resources if isinstance(part, LanguageModel)}
    if requested_model is not None and requested_model.name not in asked_names | {judge.name for judge in judges}:
        screen.say(f"{requested_model.name} is not asked: no flow and no measure uses it.", "yellow")
