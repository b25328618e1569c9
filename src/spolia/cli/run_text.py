"""A recorded run as a tree of text, how two runs differ, and a recorded step that is run again."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from json import dumps, loads
from pathlib import Path
from typing import Any, get_type_hints

from rich.tree import Tree

from spolia.cli.destinations import tell_of_models
from spolia.cli.exit_codes import Exit
from spolia.cli.results import ranking_lines
from spolia.cli.screen import Line, Renderable, Screen, one_line, text, visible
from spolia.cli.user_modules import own
from spolia.core.codec import IMPORTED, decode, encode
from spolia.core.environment import refuse_env
from spolia.core.function import Function
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.errors import CodecError, QueryError, SpoliaError
from spolia.journal import Journal, ValueLost, ValueReader
from spolia.journal.run_view import RunView, StepView, messages
from spolia.run import Run
from spolia.types import Answer, Query, Ranking

_NOTHING = "(not there)"


def tree(root: StepView, documents: int) -> Renderable:
    """A step with the steps inside it.

    Args:
        documents: how many passages of each step to show.
    """

    def grow(into: Tree, step: StepView) -> Renderable:
        for inner in step.inner:
            grow(into.add(_label(inner, documents)), inner)
        return into

    return grow(Tree(_label(root, documents), guide_style="dim"), root)


def _label(step: StepView, documents: int) -> Line:
    span = step.span
    found = text(one_line(step.name, 100), "bold")
    found.append(f"  {span.seconds * 1000:.1f} ms", style="not bold cyan")
    found.append(f"  #{span.span}", style="not bold dim")
    for part in step.remarks:
        found.append(f"  {one_line(part)}", style="not bold dim")
    for note in span.notes:
        found.append(f"\n{one_line(note, 200)}", style="not bold yellow")
    if span.error:
        found.append(f"\n{one_line(span.error, 200)}", style="not bold red")
    if documents and step.gives_passages:
        for one in step.after[:documents]:
            found.append(f"\n{one.rank:>3}  {step.movement(one):<5}{one.score:<8.4g} ", style="not bold dim")
            found.append(one_line(one.name, 100), style="not bold")
            if one.parts:
                found.append(f"  {one_line(one.parts_text, 120)}", style="not bold dim")
        if len(step.after) > documents:
            found.append(f"\n     and {len(step.after) - documents} more", style="not bold dim")
        if step.dropped:
            names = ", ".join(f"{one_line(one.name, 60)} (was {one.rank})" for one in step.dropped[:documents])
            more = f" and {len(step.dropped) - documents} more" if len(step.dropped) > documents else ""
            found.append(f"\n     dropped: {names}{more}", style="not bold dim")
    for exchange in step.exchanges:
        asked = "was sent before, and the result kept" if span.cached else "was sent"
        found.append(f"\n{one_line(str(exchange.get('model', 'model')), 80)} {asked}:", style="not bold magenta")
        for role, said in messages(exchange):
            found.append(f"\n{role}: ", style="not bold dim")
            found.append(visible(said), style="not bold")
    for lost in step.lost:
        found.append(f"\n{one_line(lost, 200)}", style="not bold yellow")
    return found


def difference_lines(found: Sequence[Mapping[str, Any]]) -> list[Renderable]:
    """How two runs differ, a paragraph for each step that is not the same."""
    lines: list[Renderable] = []
    for one in found:
        head = text(" / ".join(one_line(part, 60) for part in one["place"]), "bold")
        if one["before"] is None:
            head.append("  only in the second", style="not bold green")
        elif one["after"] is None:
            head.append("  only in the first", style="not bold red")
        lines.append(head)
        for name, change in one["changes"].items():
            lines += _change(name, change)
    return lines


def _change(name: str, change: Any) -> list[Renderable]:
    if name == "documents":
        told = [f"   new: {', '.join(map(one_line, change['new']))}"] if change["new"] else []
        told += [f"  gone: {', '.join(map(one_line, change['gone']))}"] if change["gone"] else []
        moves = (f"{one_line(which)} {was} → {now}" for which, was, now in change["moved"])
        return [text(line) for line in (*told, *([f" moved: {', '.join(moves)}"] if change["moved"] else []))]
    return [
        line
        for place, old, new in _differing(name, *change)
        for line in (text(f"  {place}"), text(f"  - {visible(old)}", "red"), text(f"  + {visible(new)}", "green"))
    ]


def _differing(place: str, old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    """What differs in two values, each with its place: of mappings and lists of one length, their parts."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() & new.keys():
        pairs = [(name, old.get(name, _NOTHING), new.get(name, _NOTHING)) for name in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = [(str(at), was, now) for at, (was, now) in enumerate(zip(old, new, strict=True))]
    elif isinstance(old, list) and isinstance(new, list) and (some := [one for one in old if one in new]):
        pairs = [(str(at), one, _NOTHING) for at, one in enumerate(old) if one not in some]
        pairs += [(str(at), _NOTHING, one) for at, one in enumerate(new) if one not in some]
        if not pairs:  # the same in another order
            pairs = [("order", dumps(old, ensure_ascii=False), dumps(new, ensure_ascii=False))]
    else:
        was, now = (one if isinstance(one, str) else dumps(one, ensure_ascii=False) for one in (old, new))
        yield place, was, now
        return
    for name, was, now in pairs:
        if was != now:
            yield from _differing(f"{place}.{name}", was, now)


def replayed(
    screen: Screen,
    journal: Journal,
    view: RunView,
    number: int,
    given: str,
    changed: Sequence[str],
    access: Sequence[str],
    known: Sequence[str] | None,
) -> Exit:
    """Run a step of a run again, with the rights of who asks now and without a cache: models are asked."""
    detail = journal.details(view.run).get(number)
    if not any(step.span.span == number for step in view.steps):
        raise QueryError(
            f"Run {view.run} has no step {number}; it has {len(view.steps)}. `spolia trace` shows them as #1."
        )
    if detail is None or view.lost:
        raise QueryError(f"Step {number} cannot be run again. {view.lost}")
    catalogue: Any = ChainMap({}, Catalogue(own(known).operators), IMPORTED)  # type: ignore[arg-type]
    values = ValueReader(journal.database, catalogue, refuse_env)
    try:
        step = values[detail.operator]
        value = values[detail.input] if not given else _given(given, values, detail.input)
    except ValueLost as lost:
        raise QueryError(
            f"Step {number} cannot be run again: {lost} Your own operators: write --known FILE.py."
        ) from lost
    if not isinstance(step, Operator):
        raise QueryError(f"Step {number} cannot be run again: {step!r:.80} is not an operator.")
    step = _changed(step, changed, values)
    tell_of_models(screen, step)
    with Run(groups=tuple(access)) as run:
        found = step(value)
    same = None if given or changed else _is_same(found, values, detail.output)
    screen.give(run=view.run, step=number, operator=repr(step), output=_plain(found), same=same, calls=run.spent.calls)
    screen.show(*_lines(found))
    if same is not None:
        screen.say("The result is the recorded one." if same else "The result differs from the recorded one.")
    return Exit.DONE


def _changed(step: Operator[Any, Any], changed: Sequence[str], values: ValueReader) -> Operator[Any, Any]:
    """The step with other values of its fields, each written `field=value`: in JSON, or as a text."""
    for one in changed:
        name, equals, said = one.partition("=")
        if not equals:
            raise QueryError(f"--set {one!r:.80} names no value. Write --set top_k=3.")
        try:
            step = step.but(**{name: _field(step, name, said, values)})
        except (SpoliaError, ValueError, TypeError) as error:
            raise QueryError(f"--set {one!r:.80} does not fit {step.short}: {error}") from error
    return step


def _field(step: Operator[Any, Any], name: str, said: str, values: ValueReader) -> Any:
    """What is written for a field, as the field is declared; plain text is taken as it is where it is not JSON of that
    type."""
    kind = (step.keywords if isinstance(step, Function) else get_type_hints(type(step))).get(name, Any)
    try:
        plain = loads(said)
    except ValueError:
        return decode(said, kind, known=values.known, given=values)
    try:
        return decode(plain, kind, known=values.known, given=values)
    except CodecError:
        if kind is str:
            return said
        raise


def _given(text: str, values: ValueReader, hash: str) -> Any:
    """Another input: JSON, or the text of a question where the step took one."""
    try:
        if text.lower().endswith(".json"):
            return decode(loads(Path(text).read_text("utf-8")), Any, known=values.known, given=values)
        before = values[hash]
        if isinstance(before, Query):
            return Query(text) if not text.lstrip().startswith("{") else decode(loads(text), Any, known=values.known)
        return text if isinstance(before, str) else decode(loads(text), Any, known=values.known, given=values)
    except (ValueError, CodecError) as error:
        raise QueryError(
            f"--input {text!r:.80} cannot be read: {error}. Write JSON like the `input` of `spolia trace --json`."
        ) from error


def _is_same(found: Any, values: ValueReader, hash: str) -> bool | None:
    try:
        return bool(found == values[hash])
    except ValueLost:
        return None


def _plain(value: Any) -> Any:
    try:
        return encode(value)
    except CodecError:
        return repr(value)


def _lines(value: Any) -> list[Any]:
    if isinstance(value, Ranking):
        return list(ranking_lines(value))
    if isinstance(value, (tuple, list)) and value:
        heads = [getattr(one, "source", "") or type(one).__name__ for one in value]
        return [line for head, one in zip(heads, value, strict=True) for line in (visible(head), *_lines(one))]
    return [visible(value.text if isinstance(value, (Answer, Query)) else repr(value))]
