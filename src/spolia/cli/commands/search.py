"""`spolia search`: the passages that a flow finds. It takes 0.3 s of CPU: what it imports is measured."""

from typing import Annotated

from spolia.cli import options
from spolia.cli.destinations import tell_of_models
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import flow_of, parts_of, query_of, refuse_unused_sources, with_sources
from spolia.cli.parameters import option
from spolia.cli.results import FirstUses, ranking_lines, tell_of_degraded
from spolia.cli.runs import recorded
from spolia.cli.screen import Screen
from spolia.server.replies import passages, search_reply


def search(
    given: options.SearchOptions,
    store: options.StorePath,
    top_k: Annotated[int, option("--top-k", "How many passages to show, at most.", min=1, max=10_000)] = 10,
    flow: options.FlowName = "default",
    web: options.Web = None,
) -> Exit:
    """Find passages in a store. If the node group must be built first and a document fails, the exit code is 5."""
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
