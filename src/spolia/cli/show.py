"""`spolia show`: a flow as a tree or a diagram."""

from __future__ import annotations

from typing import Annotated

import typer

from spolia.cli.exits import Exit
from spolia.cli.options import AsJson, FlowArgument, MaybeStore
from spolia.cli.screen import Screen


def show(
    flow: FlowArgument,
    store: MaybeStore = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart, for Markdown pages.")] = False,
    yaml: Annotated[bool, typer.Option("--yaml", help="As a flow file, to be changed and given to --flow.")] = False,
    json: AsJson = False,
) -> Exit:
    """Draw a flow: its steps, what each takes and gives."""
    from spolia.cli.described import described, looked_at
    from spolia.flows.files import dump
    from spolia.show import mermaid as flowchart
    from spolia.show import tree

    screen, parts = Screen(json=json), looked_at(store)
    found = described(flow, parts)
    if json:
        screen.give(flow=flow, tree=tree(found), mermaid=flowchart(found), yaml=dump(found, parts.given()))
    elif mermaid:
        screen.show(flowchart(found))
    else:
        screen.show(dump(found, parts.given()).rstrip() if yaml else tree(found))
    return Exit.DONE
