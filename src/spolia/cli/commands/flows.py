"""`spolia flows`: the flows that are published."""

from spolia.cli.exit_codes import Exit
from spolia.cli.options import AsJson
from spolia.cli.screen import Screen, table


def flows(json: AsJson = False) -> Exit:
    """List the published flows: source, calls to language models at most, why an answer may end."""
    from spolia.cli.flow_parts import as_published
    from spolia.flows.catalogue import every_flow

    screen, published = Screen(json=json), list(every_flow())
    calls = {flow.name: as_published(flow.name).calls() for flow in published}
    screen.give_rows(
        {"name": flow.name, "source": flow.source, "max_calls": calls[flow.name], "stop_reasons": flow.stop_reasons}
        for flow in published
    )
    rows = ((flow.name, f"{calls[flow.name]}", ", ".join(flow.stop_reasons), flow.source) for flow in published)
    screen.show(table(rows, "flow", "calls", "stop reasons", "source"))
    return Exit.DONE
