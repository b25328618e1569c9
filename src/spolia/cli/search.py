"""`spolia search`: the passages that a flow finds."""

from __future__ import annotations

from typing import Annotated

import typer

from spolia.cli.exits import Exit
from spolia.cli.options import Access, AsJson, FlowName, Question, StorePath, Weights
from spolia.cli.screen import Screen


def search(
    question: Question,
    store: StorePath,
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=10_000, help="How many passages to show, at most.")] = 10,
    access: Access = None,
    flow: FlowName = "default",
    weights: Weights = "",
    json: AsJson = False,
) -> Exit:
    """Find passages in a store."""
    from spolia.cli.cited import hit_data, ranking_lines
    from spolia.cli.parts import flow_of, parts_of, ranked
    from spolia.cli.recorded import recorded
    from spolia.cli.sending import tell_of_models
    from spolia.types import Query

    screen = Screen(json=json)
    with recorded(store, screen, access) as run:
        searching, chosen = flow_of(flow, parts_of(store, weights), top_k)
        if chosen:
            screen.say(chosen)
        tell_of_models(screen, searching)
        found = ranked(searching(Query(question))).cut(top_k)
        screen.give(question=question, flow=flow, chosen=chosen, run=run.id, hits=[hit_data(hit) for hit in found.hits])
    if not found.hits:
        screen.say("Nothing found. Try other words.")
        return Exit.NOTHING
    screen.show(*ranking_lines(found))
    return Exit.DONE
