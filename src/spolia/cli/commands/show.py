"""`spolia show`: a flow as a tree or a diagram; `spolia flows`: the published ones."""

from json import dumps
from typing import Annotated

from spolia.cli.destinations import format_destinations, list_destinations
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_parts import Parts
from spolia.cli.flow_views import STAND_IN, build_published_view, load_flow_view, load_view_parts
from spolia.cli.options import FLOWS, AllowEnv, AsJson, Known, MaybeStore, OwnPrompts, ProfileFile, Web
from spolia.cli.parameters import argument, option
from spolia.cli.screen import Screen, table
from spolia.core.draw import mermaid as flowchart
from spolia.core.draw import tree
from spolia.core.draw_svg import svg as picture
from spolia.errors import QueryError
from spolia.flow_files.files import dump
from spolia.flow_files.schema import schema
from spolia.flows.catalogue import list_flows


def show(
    flow: Annotated[str, argument("FLOW", FLOWS)] = "",
    store: MaybeStore = None,
    modules: Known = None,
    allow_env: AllowEnv = None,
    prompts: OwnPrompts = None,
    web: Web = None,
    mermaid: Annotated[bool, option("--mermaid", "As a Mermaid flowchart, for Markdown pages.")] = False,
    svg: Annotated[bool, option("--svg", "As an SVG picture, for a browser or a page.")] = False,
    yaml: Annotated[bool, option("--yaml", "As a flow file, to be changed and given to --flow.")] = False,
    schema: Annotated[bool, option("--schema", "Instead, the JSON schema of flow files, for editors.")] = False,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Draw a flow: its steps with their input and output types."""
    screen = Screen(json=json)
    if schema:
        return _show_schema(screen)
    if not flow:
        raise QueryError("No flow to show. Write for example: spolia show hybrid; or: spolia show --schema.")

    return _show_flow(screen, flow, load_view_parts(store, modules, prompts, web, profile_file), mermaid, svg, yaml)


def _show_flow(screen: Screen, flow: str, parts: "Parts", mermaid: bool, svg: bool, yaml: bool) -> Exit:
    loaded_flow = load_flow_view(flow, parts)
    sends = list_destinations(
        loaded_flow, STAND_IN.by_name().values(), parts.trusted, allowed_store=parts.chunks.corpus
    )
    if screen.json:
        drawings = {"tree": tree(loaded_flow), "mermaid": flowchart(loaded_flow), "svg": picture(loaded_flow)}
        screen.give(flow=flow, **drawings, yaml=dump(loaded_flow, parts.by_name()), sends=sends)
    for line in format_destinations(sends):
        screen.say(line)
    if svg:
        screen.write(picture(loaded_flow))
        return Exit.DONE
    screen.write(
        flowchart(loaded_flow) if mermaid else dump(loaded_flow, parts.by_name()) if yaml else tree(loaded_flow)
    )
    return Exit.DONE


def _show_schema(screen: Screen) -> Exit:
    flow_schema = schema()
    screen.give(**flow_schema)
    screen.write(dumps(flow_schema, indent=1, ensure_ascii=False))
    return Exit.DONE


def flows(json: AsJson = False) -> Exit:
    """List the published flows: source, maximum number of calls to language models, stop reasons."""
    screen, published = Screen(json=json), list(list_flows())
    calls = {flow.name: build_published_view(flow.name).calls() for flow in published}
    screen.give_rows(
        {"name": flow.name, "source": flow.source, "max_calls": calls[flow.name], "stop_reasons": flow.stop_reasons}
        for flow in published
    )
    rows = ((flow.name, f"{calls[flow.name]}", ", ".join(flow.stop_reasons), flow.source) for flow in published)
    screen.show(table(rows, "flow", "calls", "stop reasons", "source"))
    return Exit.DONE
