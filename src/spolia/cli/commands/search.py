"""`spolia search`: the passages that a flow finds. It takes 0.3 s of CPU: what it imports is measured."""

from typing import Annotated

from spolia.cli import options
from spolia.cli.destinations import print_flow_servers
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import add_second_source, build_parts, build_query, load_flow, refuse_unused_sources
from spolia.cli.parameters import option
from spolia.cli.results import FirstUses, format_ranking, print_degraded
from spolia.cli.runs import record_run
from spolia.cli.screen import Screen
from spolia.server.replies import passages, search_reply


def search(
    search_options: options.SearchOptions,
    store: options.StorePath,
    top_k: Annotated[int, option("--top-k", "How many passages to show, at most.", min=1, max=10_000)] = 10,
    flow: options.FlowName = "default",
    web: options.Web = None,
) -> Exit:
    """Find passages in a store. If the node group must be built first and a document fails, the exit code is 5."""
    refuse_unused_sources(flow, web)
    screen = Screen(json=search_options.json)
    parts = add_second_source(
        build_parts(store, search_options, None, search_options.group, search_options.modules, search_options.prompts),
        web,
        search_options.access or (),
    )
    with record_run(store, screen, search_options.access, values=search_options.keep_values) as run:
        first = FirstUses(parts.chunks.corpus)
        query = build_query(search_options.question, search_options.conditions, parts)
        searching, chosen = load_flow(flow, parts, top_k)
        if chosen:
            screen.say(f"Searching with {chosen}")
        print_flow_servers(screen, searching)
        with run.lane() as lane:
            ranking = passages(searching(query)).cut(top_k)
        first.update()
        reply = search_reply(ranking.hits, run, lane, searching, question=search_options.question, name=flow)
        screen.give(**reply, chosen=chosen, **first.data())
    first.tell(screen)
    print_degraded(screen, lane, searching)
    if not ranking.hits:
        screen.say("Nothing found. Try other words" + (", or other conditions." if search_options.conditions else "."))
        return Exit.NOTHING
    screen.show(*format_ranking(ranking))
    return Exit.PARTLY if first.missing_nodes else Exit.DONE
