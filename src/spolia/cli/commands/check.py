"""`spolia check`: mistakes in a flow, found before it runs."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spolia.cli.destinations import format_destinations, list_destinations
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_views import STAND_IN, build_published_view, load_flow_view, load_view_parts
from spolia.cli.options import AllowEnv, AsJson, FlowArgument, Known, MaybeStore, OwnPrompts, ProfileFile, Web
from spolia.cli.screen import Renderable, Screen, text, visible
from spolia.core.check import CheckResult, Problem
from spolia.core.check import check as look
from spolia.core.plurals import several
from spolia.flows.catalogue import MODULES, PARTS, PublishedMethod, find_flow
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.groups.definitions import unknown_group
from spolia.stores.manifest import BUILT_IN
from spolia.types import Query

if TYPE_CHECKING:
    from spolia.core.operator import Operator


def check(
    flow: FlowArgument,
    store: MaybeStore = None,
    modules: Known = None,
    allow_env: AllowEnv = None,
    prompts: OwnPrompts = None,
    web: Web = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Find mistakes in a flow before it runs: wiring, arms that never run, loops without end, missing capabilities.

    For a published flow, also what it needs, its maximum number of calls, and its stop reasons.
    """
    screen, parts = Screen(json=json), load_view_parts(store, modules, prompts, web, profile_file)
    previewed_flow = load_flow_view(flow, parts)
    checked = look(previewed_flow, takes=Query)
    if store:
        checked = checked.but(problems=(*checked.problems, *_unknown_groups(previewed_flow, parts.chunks.corpus)))
    sends = list_destinations(
        previewed_flow, STAND_IN.by_name().values(), parts.trusted, allowed_store=parts.chunks.corpus
    )
    published = _published_data(find_flow(flow)) if flow in MODULES else {}
    if published:  # as with a model: without one, `naive` quotes and makes no call
        checked = checked.but(calls=build_published_view(flow).calls())
        published["max_calls"] = checked.calls
    screen.give(
        flow=flow,
        ok=checked.ok,
        takes=checked.takes,
        gives=checked.gives,
        calls=checked.calls,
        open=dict(checked.open),
        sends=sends,
        problems=[{"place": problem.place, "message": problem.message} for problem in checked.problems],
        **published,
    )
    screen.show(_format_report(checked, published, format_destinations(sends)))
    return Exit.DONE if checked.ok else Exit.USAGE


def _unknown_groups(flow: "Operator[Any, Any]", corpus: "Corpus") -> "Iterator[Problem]":
    """Yield node groups that the store does not have and that nothing defines. Stores that only the flow names stay
    closed."""
    manifests = corpus.latest().manifests
    for group in dict.fromkeys(resource for resource in flow.resources if isinstance(resource, NodeGroup)):
        is_defined = group.definition is not None or group.name in BUILT_IN or group.name in manifests
        if group.corpus == corpus and not is_defined:
            yield Problem("", str(unknown_group(group.name, corpus.path, manifests)))


def _published_data(flow: "PublishedMethod") -> dict[str, Any]:
    """Describe a published flow: its parts, what its model must be able to do, and its stop reasons."""
    quotes = flow.name == "naive"  # without a model
    needs = [name for name in flow.needs if not (quotes and name == "llm")]
    return {
        "source": flow.source,
        "needs": needs,
        "may_have": [*flow.may_have, *(["llm"] if quotes else [])],
        "capabilities": sorted(flow.capabilities),
        "stop_reasons": list(flow.stop_reasons),
    }


def _published_lines(published: Mapping[str, Any]) -> Iterator[str]:
    for label in ("needs", "may_have"):
        for name in published[label]:
            able = f" It must be able to: {', '.join(published['capabilities'])}." if name == "llm" else ""
            yield f"{'needs' if label == 'needs' else 'may have':<9}{PARTS[name]}{able}"
    yield f"ends     {', '.join(published['stop_reasons'])}; budget, where one is set"
    yield f"source   {published['source']}"


def _format_report(checked: "CheckResult", published: Mapping[str, Any], sends: Iterable[str]) -> Renderable:
    calls = "without a known bound on calls" if checked.calls is None else f"at most {several(checked.calls, 'call')}"
    report = text(f"{checked.takes} → {checked.gives}, {calls} to language models")
    for line in _published_lines(published) if published else ():
        report.append(f"\n{line}")
    for place, size in checked.open:
        report.append(f"\nopen     {place}: {size} candidates", "yellow")
    for line in sends:
        report.append("\nsends    ", "yellow").append(visible(line))
    for problem in checked.problems:
        report.append("\nproblem  ", "bold red").append(str(problem))
    return report if checked.problems else report.append("\nno problem found", "green")
