"""Which servers flows and measures send to, said before anything is sent."""

from collections.abc import Iterable, Sequence
from typing import Any

from spolia.cli.destinations import QUESTIONS_SENT, describe_destination, servers_of
from spolia.cli.screen import Screen
from spolia.core.operator import Operator
from spolia.evaluation.experiment.flows import walk_parts
from spolia.evaluation.measures.measure import SetMeasure
from spolia.models.http.remote import Remote
from spolia.models.protocols import LanguageModel

JUDGED = "To be judged, questions, answers and passages"


def tell_of_measured(
    screen: Screen,
    flows: Iterable[Operator[Any, Any]],
    measures: Sequence[SetMeasure],
    given: LanguageModel | None = None,
    estimate: bool = False,
) -> None:
    """Say of each server that flows and measures ask where it is and which key goes there."""
    flows = tuple(flows)
    judges = dict.fromkeys(one for measure in measures for one in walk_parts(measure) if isinstance(one, LanguageModel))
    for what, servers in (
        (QUESTIONS_SENT, dict.fromkeys(server for flow in flows for server in servers_of(flow))),
        (JUDGED, [judge for judge in judges if isinstance(judge, Remote)]),
    ):
        for server in servers:
            screen.say(describe_destination(server, what, is_estimate=estimate))
    asked = {one.name for flow in flows for one in flow.resources if isinstance(one, LanguageModel)}
    if given is not None and given.name not in asked | {judge.name for judge in judges}:
        screen.say(f"{given.name} is not asked: no flow and no measure uses it.", "yellow")
