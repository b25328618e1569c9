"""A flow as a tree of text, as a Mermaid diagram, and as the graph behind pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from spolia.core.combinators import Branch, Choice, Each, Explore, Guard, Loop, Route
from spolia.core.combinators.each import element
from spolia.core.combinators.space import under
from spolia.core.operator import Operator, Then, Vary
from spolia.core.type_compatibility import filled, name_of
from spolia.errors import WiringError
from spolia.types import Addressed, Value

PASSING = (Then, Branch, Choice, Route, Guard, Vary, Loop, Explore)


def tree(flow: Operator[Any, Any]) -> str:
    """The flow as indented text, each step with what it takes and gives.

    >>> from spolia import Query, Samples, step
    >>> @step
    ... def lowered(query: Query) -> Query:
    ...     return query.rewritten(query.text.lower())
    >>> print(tree(lowered >> Samples(2)))
    Then: Query → tuple[Query, ...]
    ├─ lowered: Query → Query
    └─ Samples(n=2): Query → tuple[Query, ...]
    """
    return "\n".join(_lines(flow, _taken(flow), "", "", ""))


def _lines(op: Operator[Any, Any], taken: Any, label: str, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{label}{title(op)}: {_name(taken)} → {_name(_given(op, taken))}"
    inner = list(_inner(op, taken))
    for index, (place, part, inner_taken) in enumerate(inner):
        last = index == len(inner) - 1
        shown = "" if isinstance(op, Then) else f"{place}: "
        yield from _lines(
            part, inner_taken, shown, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
        )


def _name(kind: Any) -> str:
    """A type as it is written; what is not bound yet may be anything."""
    unbound = getattr(kind, "__parameters__", ()) if not isinstance(kind, TypeVar) else (kind,)
    return name_of(filled(kind, dict.fromkeys(unbound, Any)))


def title(op: Operator[Any, Any]) -> str:
    """The operator with the fields that are not at their defaults, stores and models by their addresses."""
    shown = []
    for f in fields(op):  # type: ignore[arg-type]
        value = getattr(op, f.name)
        if f.repr and f.name != op.variadic and value != f.default and not _holds_operators(value):
            shown.append(f"{f.name}={_short(value)}")
    name = getattr(op, "name", "") if not shown and not fields(op) else ""  # type: ignore[arg-type]
    return (name or type(op).__name__) + (f"({', '.join(shown)})" if shown else "")


def _holds_operators(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_holds_operators(item) for item in value)
    return isinstance(value, Operator)


def _short(value: Any) -> str:
    text = _brief(value) if isinstance(value, Addressed) else repr(value)
    if len(text) <= 60:
        return text
    return f"{type(value).__name__}(…)" if isinstance(value, (Value, Addressed)) else text[:57] + "…"


def _brief(value: Any) -> str:
    """An address without what it has by default: `NodeGroup(Corpus('notes.spolia'), 'chunk')`, `MiniLM()`."""
    if not is_dataclass(value) or isinstance(value, (type, Operator)):
        return repr(value)
    own = [f for f in fields(value) if f.repr and (f.default is MISSING or getattr(value, f.name) != f.default)]
    plain = [f.default is MISSING and f.default_factory is MISSING for f in own]
    shown = [
        _brief(getattr(value, f.name)) if positional else f"{f.name}={_brief(getattr(value, f.name))}"
        for f, positional in zip(own, plain, strict=True)
    ]
    return f"{type(value).__name__}({', '.join(shown)})"


def _taken(op: Operator[Any, Any]) -> Any:
    try:
        return op.takes()
    except WiringError:
        return Any


def _given(op: Operator[Any, Any], taken: Any) -> Any:
    try:
        return op.gives(taken)
    except WiringError:
        return Any


def _inner(op: Operator[Any, Any], taken: Any) -> Iterator[tuple[str, Operator[Any, Any], Any]]:
    """Inner operators with their places and what they are given."""
    for place, part in op.inner():
        handed = _handed(op, part, taken)
        yield place, part, _taken(part) if handed is Any or isinstance(handed, TypeVar) else handed
        if isinstance(op, Then):
            taken = _given(part, taken)


def _handed(op: Operator[Any, Any], part: Operator[Any, Any], taken: Any) -> Any:
    if isinstance(op, Each):
        return element(taken, op.short)
    return taken if isinstance(op, PASSING) else _taken(part)


@dataclass
class DrawnBlock:
    """Nodes, by their ids, and blocks: below each other, or beside each other in a `row`; with a title in a frame.

    `aside`: a step and, below it on the right, what it holds, so that the way on is free.
    """

    row: bool = False
    aside: bool = False
    title: str | None = None
    parts: list["DrawnBlock | str"] = field(default_factory=list)


@dataclass
class Drawing:
    """The graph of a flow: as lines of Mermaid, and as nodes, edges and blocks for pictures."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)  # by id: label and shape
    edges: list[tuple[str, str, str, bool]] = field(default_factory=list)  # from, to, label, whether it is dotted
    whole: DrawnBlock = field(default_factory=DrawnBlock)

    def __post_init__(self) -> None:
        self._block = self.whole

    @contextmanager
    def block(self, *, row: bool = False, aside: bool = False, title: str | None = None) -> Iterator[None]:
        """Draws its body in a block of its own."""
        around, self._block = self._block, DrawnBlock(row, aside, title)
        around.parts.append(self._block)
        try:
            yield
        finally:
            self._block = around

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def node(self, place: str, text: str, shape: tuple[str, str] = ("[", "]")) -> str:
        """A node; its id is its place in the flow, so that it stays when other parts change."""
        name = id_of(place)
        self.named(name, text, shape)
        return name

    def named(self, name: str, text: str, shape: tuple[str, str]) -> None:
        self.add(f'{name}{shape[0]}"{escaped(text)}"{shape[1]}')
        self.nodes[name] = text, shape[0]
        self._block.parts.append(name)

    def edge(self, start: str, end: str, label: str = "", dotted: bool = False) -> None:
        self.edges.append((start, end, label, dotted))
        arrow = "-.->" if dotted else "-->"
        self.add(f"{start} {arrow}{f'|{chr(34)}{escaped(label)}{chr(34)}|' if label else ''} {end}")


def mermaid(flow: Operator[Any, Any]) -> str:
    """The flow as a Mermaid flowchart.

    >>> from spolia.core.combinators import Identity, Samples
    >>> print(mermaid(Identity() >> Samples(2)))
    flowchart TD
      taken(["anything"])
      n_steps_0["Identity"]
      taken --> n_steps_0
      n_steps_1["Samples(n=2)"]
      n_steps_0 --> n_steps_1
      given(["tuple[anything, ...]"])
      n_steps_1 --> given
    """
    return "\n".join(drawn(flow).lines)


def drawn(flow: Operator[Any, Any]) -> Drawing:
    """The graph of a flow, from what it takes to what it gives."""
    drawing, taken = Drawing(["flowchart TD"]), _taken(flow)
    drawing.named("taken", _name(taken), ("([", "])"))
    ends = _draw(drawing, flow, "", [("taken", "")])
    drawing.named("given", _name(_given(flow, taken)), ("([", "])"))
    for end, label in ends:
        drawing.edge(end, "given", label)
    return drawing


Ends = list[tuple[str, str]]


def _draw(drawing: Drawing, op: Operator[Any, Any], place: str, starts: Ends) -> Ends:
    """Draw a step after the ends of what is before it, each with the label of the edge, and give back its ends."""
    if isinstance(op, Then):
        for inner_place, step in op.inner():
            starts = _draw(drawing, step, under(place, inner_place), starts)
        return starts
    if isinstance(op, (Branch, Choice)) or (isinstance(op, Guard) and op.fallback is not None):
        return _fork(drawing, op, place, starts)
    if isinstance(op, Route):
        return _route(drawing, op, place, starts)
    if isinstance(op, (Loop, Each, Explore, Guard, Vary)):
        return _box(drawing, op, place, starts)
    with drawing.block(aside=True):
        name = _joined(drawing, drawing.node(place, title(op)), starts)
        with drawing.block(row=True):
            for inner_place, part in op.inner():
                with drawing.block():
                    _draw(drawing, part, under(place, inner_place), [(name, inner_place)])
    return [(name, "")]


def _fork(drawing: Drawing, op: Operator[Any, Any], place: str, starts: Ends) -> Ends:
    """A node from which every inner operator begins."""
    fork = _joined(drawing, drawing.node(place, title(op), ("{{", "}}")), starts)
    ends: Ends = []
    with drawing.block(row=True):
        for inner_place, arm in op.inner():
            label = "" if isinstance(op, Branch) else inner_place
            with drawing.block():
                ends += _draw(drawing, arm, under(place, inner_place), [(fork, label)])
    return ends


def _route(drawing: Drawing, op: Route[Any, Any], place: str, starts: Ends) -> Ends:
    asked = _draw(drawing, op.router, under(place, "router"), starts)
    fork = _joined(drawing, drawing.node(place, "Route", ("{", "}")), asked)
    ends: Ends = []
    with drawing.block(row=True):
        for name, arm in op.arms:
            label = f"{name} (default)" if name == op.default else name
            with drawing.block():
                ends += _draw(drawing, arm, under(place, f"arms.{name}"), [(fork, label)])
    return ends


def _box(drawing: Drawing, op: Operator[Any, Any], place: str, starts: Ends) -> Ends:
    """A frame around inner operators that are run several times or under a limit."""
    drawing.add(f'subgraph {id_of(place)}["{escaped(title(op))}"]')
    drawing.depth += 1
    with drawing.block(title=title(op)):
        entry = drawing.node(under(place, "begin"), " ", ("((", "))"))
        ends: Ends = [(entry, "")]
        for inner_place, part in op.inner():
            ends = _draw(drawing, part, under(place, inner_place), [(end, label or inner_place) for end, label in ends])
    if isinstance(op, (Loop, Explore)):
        for end, _ in ends:
            drawing.edge(end, entry, "again", dotted=True)
    drawing.depth -= 1
    drawing.add("end")
    _joined(drawing, entry, starts)
    return ends


def _joined(drawing: Drawing, name: str, starts: Ends) -> str:
    for start, label in starts:
        drawing.edge(start, name, label)
    return name


def id_of(place: str) -> str:
    """An id that any Mermaid parser takes, different for different places: `n_steps_0_arms_en`."""
    parts = (c if c.isascii() and c.isalnum() else "_" if c == "." else f"__{ord(c):x}__" for c in place)
    return "_".join(filter(None, ("n", "".join(parts))))


def escaped(text: str) -> str:
    """Text, escaped for a quoted label."""
    return "".join(f"#{ord(c)};" if c in '"<>#&`\\|' else c if c.isprintable() else " " for c in text)
