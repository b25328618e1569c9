"""`spolia check`: what is wrong with a flow, before anything is spent on it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spolia.cli.destinations import sent_by, sent_lines
from spolia.cli.exit_codes import Exit
from spolia.cli.flow_views import STAND_IN, as_published, described, looked_at
from spolia.cli.options import AllowEnv, AsJson, FlowArgument, Known, MaybeStore, OwnPrompts, ProfileFile, Web
from spolia.cli.screen import Renderable, Screen, text, visible
from spolia.core.check import Checked, Problem
from spolia.core.check import check as look
from spolia.core.plurals import several
from spolia.flows.catalogue import MODULES, PARTS, Published, flow_named
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.groups.definitions import unknown
from spolia.stores.manifest import BUILT_IN
from spolia.types import Query

if TYPE_CHECKING:
    from spolia.core.operator import Operator


def check(
    flow: FlowArgument,
    store: MaybeStore = None,
    known: Known = None,
    allow_env: AllowEnv = None,
    prompts: OwnPrompts = None,
    web: Web = None,
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Find mistakes in a flow before it runs: wiring, arms that never run, loops without end, missing capabilities.

    For a published flow, also what it needs, its maximum number of calls, and its stop reasons.
    """
    screen, parts = Screen(json=json), looked_at(store, known, prompts, web, profile_file)
    looked = described(flow, parts)
    found = look(looked, takes=Query)
    if store:
        found = found.but(problems=(*found.problems, *_unknown_groups(looked, parts.chunks.corpus)))
    sends = sent_by(looked, STAND_IN.given().values(), parts.trusted, opened=parts.chunks.corpus)
    published = _published(flow_named(flow)) if flow in MODULES else {}
    if published:  # as with a model: without one, `naive` quotes and makes no call
        found = found.but(calls=as_published(flow).calls())
        published["max_calls"] = found.calls
    screen.give(
        flow=flow,
        ok=found.ok,
        takes=found.takes,
        gives=found.gives,
        calls=found.calls,
        open=dict(found.open),
        sends=sends,
        problems=[{"place": problem.place, "message": problem.message} for problem in found.problems],
        **published,
    )
    screen.show(_report(found, published, sent_lines(sends)))
    return Exit.DONE if found.ok else Exit.USAGE


def _unknown_groups(flow: "Operator[Any, Any]", corpus: "Corpus") -> "Iterator[Problem]":
    """Yield node groups that the store does not have and that nothing defines. Stores that only the flow names stay
    closed."""
    there = corpus.latest().manifests
    for group in dict.fromkeys(one for one in flow.resources if isinstance(one, NodeGroup)):
        is_defined = group.definition is not None or group.name in BUILT_IN or group.name in there
        if group.corpus == corpus and not is_defined:
            yield Problem("", str(unknown(group.name, corpus.path, there)))


def _published(flow: "Published") -> dict[str, Any]:
    """The parts of a published flow, what its model must be able to do, and why its answers end."""
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


def _report(found: "Checked", published: Mapping[str, Any], sends: Iterable[str]) -> Renderable:
    calls = "without a known bound on calls" if found.calls is None else f"at most {several(found.calls, 'call')}"
    report = text(f"{found.takes} → {found.gives}, {calls} to language models")
    for line in _published_lines(published) if published else ():
        report.append(f"\n{line}")
    for place, size in found.open:
        report.append(f"\nopen     {place}: {size} candidates", "yellow")
    for line in sends:
        report.append("\nsends    ", "yellow").append(visible(line))
    for problem in found.problems:
        report.append("\nproblem  ", "bold red").append(str(problem))
    return report if found.problems else report.append("\nno problem found", "green")
