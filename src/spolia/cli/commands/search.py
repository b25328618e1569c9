"""`spolia search`: the passages that a flow finds."""

from typing import Annotated

import typer

from spolia.cli.exit_codes import Exit
from spolia.cli.options import FlowName, SearchOptions, StorePath, Web
from spolia.cli.screen import Screen


def search(
    given: SearchOptions,
    store: StorePath,
    top_k: Annotated[int, typer.Option("--top-k", min=1, max=10_000, help="How many passages to show, at most.")] = 10,
    flow: FlowName = "default",
    web: Web = None,
) -> Exit:
    """Find passages in a store. With what could not be made of a document in a group that is built first, code 5."""
    from spolia.cli.destinations import tell_of_models
    from spolia.cli.flow_parts import flow_of, parts_of, query_of, refuse_unused_sources, with_sources
    from spolia.cli.results import FirstUses, ranking_lines, tell_of_degraded
    from spolia.cli.runs import recorded
    from spolia.server.replies import passages, search_reply

    refuse_unused_sources(flow, web)
    screen = Screen(json=given.json)
    parts = with_sources(parts_of(store, given, None, given.group, given.known, given.prompts), web, given.access or ())
    with recorded(store, screen, given.access, values=given.keep_values) as run:
        first = FirstUses(parts.chunks.corpus)
        query = query_of(given.question, given.where, parts)
        searching, chosen = flow_of(flow, parts, top_k)
        if chosen:
            screen.say(f"Searching with {chosen}")
        tell_of_models(screen, searching)
        with run.lane() as lane:
            found = passages(searching(query)).cut(top_k)
        first.look()
        reply = search_reply(found.hits, run, lane, searching, question=given.question, name=flow)
        screen.give(**reply, chosen=chosen, **first.data())
    first.tell(screen)
    tell_of_degraded(screen, lane, searching)
    if not found.hits:
        screen.say("Nothing found. Try other words" + (", or other conditions." if given.where else "."))
        return Exit.NOTHING
    screen.show(*ranking_lines(found))
    return Exit.PARTLY if first.unmade else Exit.DONE
