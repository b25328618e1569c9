"""A recorded run as a tree of text, how two runs differ, and a recorded step that is run again."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from json import dumps, loads
from pathlib import Path
from typing import Any, get_type_hints

from rich.tree import Tree

from spolia.cli.destinations import print_flow_servers
from spolia.cli.exit_codes import Exit
from spolia.cli.results import format_ranking
from spolia.cli.screen import Line, Renderable, Screen, one_line, text, visible
from spolia.cli.user_modules import load_user_modules
from spolia.core.codec import IMPORTED, decode, encode
from spolia.core.environment import refuse_env
from spolia.core.function import Function
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import CodecError, QueryError, SpoliaError
from spolia.journal import Journal, ValueLost, ValueReader
from spolia.journal.run_view import RunView, StepView, list_messages
from spolia.run import Run
from spolia.types import Answer, Query, Ranking

_NOTHING = "(not there)"


def build_tree(root: StepView, documents: int) -> Renderable:
    """Build the tree of a step with the steps inside it.

    Args:
        documents: how many passages of each step to show.
    """

    def grow(into: Tree, step: StepView) -> Renderable:
        for inner in step.inner:
            grow(into.add(_format_label(inner, documents)), inner)
        return into

    return grow(Tree(_format_label(root, documents), guide_style="dim"), root)


def _format_label(step: StepView, documents: int) -> Line:
    span = step.span
    label = text(one_line(step.name, 100), "bold")
    label.append(f"  {span.seconds * 1000:.1f} ms", style="not bold cyan")
    label.append(f"  #{span.span}", style="not bold dim")
    for part in step.remarks:
        label.append(f"  {one_line(part)}", style="not bold dim")
    for note in span.notes:
        label.append(f"\n{one_line(note, 200)}", style="not bold yellow")
    if span.error:
        label.append(f"\n{one_line(span.error, 200)}", style="not bold red")
    if documents and step.gives_passages:
        for passage in step.output_passages[:documents]:
            label.append(
                f"\n{passage.rank:>3}  {step.movement(passage):<5}{passage.score:<8.4g} ", style="not bold dim"
            )
            label.append(one_line(passage.name, 100), style="not bold")
            if passage.parts:
                label.append(f"  {one_line(passage.parts_text, 120)}", style="not bold dim")
        if len(step.output_passages) > documents:
            label.append(f"\n     and {len(step.output_passages) - documents} more", style="not bold dim")
        if step.dropped:
            names = ", ".join(
                f"{one_line(passage.name, 60)} (was {passage.rank})" for passage in step.dropped[:documents]
            )
            rest = f" and {len(step.dropped) - documents} more" if len(step.dropped) > documents else ""
            label.append(f"\n     dropped: {names}{rest}", style="not bold dim")
    for exchange in step.exchanges:
        sent_text = "was sent before, and the result kept" if span.cached else "was sent"
        label.append(f"\n{one_line(str(exchange.get('model', 'model')), 80)} {sent_text}:", style="not bold magenta")
        for role, content in list_messages(exchange):
            label.append(f"\n{role}: ", style="not bold dim")
            label.append(visible(content), style="not bold")
    for lost in step.problems:
        label.append(f"\n{one_line(lost, 200)}", style="not bold yellow")
    return label


def format_differences(differences: Sequence[Mapping[str, Any]]) -> list[Renderable]:
    """Format how two runs differ, a paragraph for each step that is not the same."""
    lines: list[Renderable] = []
    for difference in differences:
        head = text(" / ".join(one_line(part, 60) for part in difference["place"]), "bold")
        if difference["before"] is None:
            head.append("  only in the second", style="not bold green")
        elif difference["after"] is None:
            head.append("  only in the first", style="not bold red")
        lines.append(head)
        for name, change in difference["changes"].items():
            lines += _format_change(name, change)
    return lines


def _format_change(name: str, change: Any) -> list[Renderable]:
    if name == "documents":
        lines = [f"   new: {', '.join(map(one_line, change['new']))}"] if change["new"] else []
        lines += [f"  gone: {', '.join(map(one_line, change['gone']))}"] if change["gone"] else []
        moves = (f"{one_line(document)} {was} → {now}" for document, was, now in change["moved"])
        return [text(line) for line in (*lines, *([f" moved: {', '.join(moves)}"] if change["moved"] else []))]
    return [
        line
        for place, old, new in _list_differences(name, *change)
        for line in (text(f"  {place}"), text(f"  - {visible(old)}", "red"), text(f"  + {visible(new)}", "green"))
    ]


def _list_differences(place: str, old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """Yield what differs in two values, each with its place: of mappings and lists of one length, their parts."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() & new.keys():
        pairs = [(name, old.get(name, _NOTHING), new.get(name, _NOTHING)) for name in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(str(index), was, now) for index, (was, now) in enumerate(zip(old, new, strict=True))]
    elif isinstance(old, list) and isinstance(new, list) and (common := [value for value in old if value in new]):
        pairs = [(str(index), value, _NOTHING) for index, value in enumerate(old) if value not in common]
        pairs += [(str(index), _NOTHING, value) for index, value in enumerate(new) if value not in common]
        if not pairs:  # the same in another order
            pairs = [("order", dumps(old, ensure_ascii=False), dumps(new, ensure_ascii=False))]
    else:
        was, now = (value if isinstance(value, str) else dumps(value, ensure_ascii=False) for value in (old, new))
        yield place, was, now
        return
    for name, was, now in pairs:
        if was != now:
            yield from _list_differences(f"{place}.{name}", was, now)


def replay_step(
    screen: Screen,
    journal: Journal,
    view: RunView,
    number: int,
    input_text: str,
    assignments: Sequence[str],
    access: Sequence[str],
    modules: Sequence[str] | None,
) -> Exit:
    """Run a step of a run again, with the rights of who asks now and without a cache: models are asked."""
    detail = journal.details(view.run).get(number)
    if not any(step.span.span == number for step in view.steps):
        raise QueryError(
            f"Run {view.run} has no step {number}; it has {len(view.steps)}. `spolia trace` shows them as #1."
        )
    if detail is None or view.lost:
        raise QueryError(f"Step {number} cannot be run again. {view.lost}")
    catalogue: Any = ChainMap({}, Catalogue(load_user_modules(modules).operators), IMPORTED)  # type: ignore[arg-type]
    # The record may be somebody else's: it may read no variable that the user has not allowed.
    values = ValueReader(journal.database, catalogue, refuse_env)
    try:
        step = values[detail.operator]
        value = values[detail.input] if not input_text else _read_input(input_text, values, detail.input)
    except ValueLost as lost:
        raise QueryError(
            f"Step {number} cannot be run again: {lost} Your own operators: write --known FILE.py."
        ) from lost
    if not isinstance(step, Operator):
        raise QueryError(f"Step {number} cannot be run again: {step!r:.80} is not an operator.")
    step = _change_fields(step, assignments, values)
    print_flow_servers(screen, step)
    with Run(groups=tuple(access)) as run:
        output = step(value)
    same = None if input_text or assignments else _is_same(output, values, detail.output)
    screen.give(
        run=view.run, step=number, operator=repr(step), output=_plain(output), same=same, calls=run.actual_usage.calls
    )
    screen.show(*_format_value(output))
    if same is not None:
        screen.say("The result is the recorded one." if same else "The result differs from the recorded one.")
    return Exit.DONE


def _change_fields(step: Operator[Any, Any], assignments: Sequence[str], values: ValueReader) -> Operator[Any, Any]:
    """Return the step with other values of its fields, each written `field=value`: in JSON, or as a text."""
    for assignment in assignments:
        name, equals, value_text = assignment.partition("=")
        if not equals:
            raise QueryError(f"--set {assignment!r:.80} names no value. Write --set top_k=3.")
        try:
            step = step.but(**{name: _parse_field(step, name, value_text, values)})
        except (SpoliaError, ValueError, TypeError) as error:
            raise QueryError(f"--set {assignment!r:.80} does not fit {step.short}: {error}") from error
    return step


def _parse_field(step: Operator[Any, Any], name: str, value_text: str, values: ValueReader) -> Any:
    """Read a field's value by the type that the field declares; text that is not JSON of that type stays as it is."""
    kind = (step.keywords if isinstance(step, Function) else get_type_hints(type(step))).get(name, Any)
    try:
        plain = loads(value_text)
    except ValueError:
        return decode(value_text, kind, classes=values.classes, objects=values)
    try:
        return decode(plain, kind, classes=values.classes, objects=values)
    except CodecError:
        if kind is str:
            return value_text
        raise


def _read_input(text: str, values: ValueReader, hash: str) -> Any:
    """Read another input: JSON, or the text of a question if the step took one."""
    try:
        if text.lower().endswith(".json"):
            return decode(loads(Path(text).read_text("utf-8")), Any, classes=values.classes, objects=values)
        recorded_input = values[hash]
        if isinstance(recorded_input, Query):
            return (
                Query(text) if not text.lstrip().startswith("{") else decode(loads(text), Any, classes=values.classes)
            )
        return (
            text
            if isinstance(recorded_input, str)
            else decode(loads(text), Any, classes=values.classes, objects=values)
        )
    except (ValueError, CodecError) as error:
        raise QueryError(
            f"--input {text!r:.80} cannot be read: {error}. Write JSON like the `input` of `spolia trace --json`."
        ) from error


def _is_same(output: Any, values: ValueReader, hash: str) -> bool | None:
    try:
        return bool(output == values[hash])
    except ValueLost:
        return None


def _plain(value: Any) -> Any:
    try:
        return encode(value)
    except CodecError:
        return repr(value)


def _format_value(value: Any) -> list[Any]:
    if isinstance(value, Ranking):
        return list(format_ranking(value))
    if isinstance(value, (tuple, list)) and value:
        heads = [getattr(item, "source", "") or type(item).__name__ for item in value]
        return [line for head, item in zip(heads, value, strict=True) for line in (visible(head), *_format_value(item))]
    return [visible(value.text if isinstance(value, (Answer, Query)) else repr(value))]
