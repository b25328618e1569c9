"""A recorded run as a tree of text, and how two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import TYPE_CHECKING, Any

from spolia.cli.screen import Renderable, one_line, text, visible
from spolia.journal.run_view import StepView, messages

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree


_NOTHING = "(not there)"


def tree(root: StepView, documents: int) -> Renderable:
    """A step with the steps inside it.

    Args:
        documents: how many passages of each step to show.
    """
    from rich.tree import Tree

    def grow(into: Tree, step: StepView) -> Renderable:
        for inner in step.inner:
            grow(into.add(_label(inner, documents)), inner)
        return into

    return grow(Tree(_label(root, documents), guide_style="dim"), root)


def _label(step: StepView, documents: int) -> Text:
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
