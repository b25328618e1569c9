"""Drawings of a flow: as a tree of text, as a Mermaid diagram, and as the graph behind pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from spolia.core.combinators import Branch, Choice, Each, Explore, Guard, Loop, Route
from spolia.core.combinators.each import element
from spolia.core.combinators.space import join_path
from spolia.core.operator import Operator, Then, Vary
from spolia.core.type_compatibility import fill_type, name_of
from spolia.errors import WiringError
from spolia.types import Addressed, Value

PASSING = (Then, Branch, Choice, Route, Guard, Vary, Loop, Explore)


def tree(flow: Operator[Any, Any]) -> str:
    """Return the flow as indented text, each step with its input and output types.

    >>> from spolia import Query, Samples, step
    >>> @step
    ... def lowered(query: Query) -> Query:
    ...     return query.rewritten(query.text.lower())
    >>> print(tree(lowered >> Samples(2)))
    Then: Query → tuple[Query, ...]
    ├─ lowered: Query → Query
    └─ Samples(n=2): Query → tuple[Query, ...]
    """
    return "\n".join(_lines(flow, _input_type(flow), "", "", ""))


def _lines(op: Operator[Any, Any], input_type: Any, label: str, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{label}{title(op)}: {_type_name(input_type)} → {_type_name(_output_type(op, input_type))}"
    inner = list(_inner_steps(op, input_type))
    for index, (place, part, inner_type) in enumerate(inner):
        last = index == len(inner) - 1
        inner_label = "" if isinstance(op, Then) else f"{place}: "
        yield from _lines(
            part, inner_type, inner_label, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
        )


def _type_name(kind: Any) -> str:
    """Return a type as it is written, with Any for unbound variables."""
    unbound = getattr(kind, "__parameters__", ()) if not isinstance(kind, TypeVar) else (kind,)
    return name_of(fill_type(kind, dict.fromkeys(unbound, Any)))


def title(op: Operator[Any, Any]) -> str:
    """Return an operator's name and the fields that are not at their defaults, with stores and models as addresses."""
    arguments = []
    for f in fields(op):  # type: ignore[arg-type]
        value = getattr(op, f.name)
        if f.repr and f.name != op.variadic and value != f.default and not _holds_operators(value):
            arguments.append(f"{f.name}={_short(value)}")
    name = getattr(op, "name", "") if not arguments and not fields(op) else ""  # type: ignore[arg-type]
    return (name or type(op).__name__) + (f"({', '.join(arguments)})" if arguments else "")


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
    """Return an address without its defaults: `NodeGroup(Corpus('notes.spolia'), 'chunk')`, `MiniLM()`."""
    if not is_dataclass(value) or isinstance(value, (type, Operator)):
        return repr(value)
    own = [f for f in fields(value) if f.repr and (f.default is MISSING or getattr(value, f.name) != f.default)]
    plain = [f.default is MISSING and f.default_factory is MISSING for f in own]
    arguments = [
        _brief(getattr(value, f.name)) if positional else f"{f.name}={_brief(getattr(value, f.name))}"
        for f, positional in zip(own, plain, strict=True)
    ]
    return f"{type(value).__name__}({', '.join(arguments)})"


def _input_type(op: Operator[Any, Any]) -> Any:
    try:
        return op.takes()
    except WiringError:
        return Any


def _output_type(op: Operator[Any, Any], input_type: Any) -> Any:
    try:
        return op.gives(input_type)
    except WiringError:
        return Any


def _inner_steps(op: Operator[Any, Any], input_type: Any) -> Iterator[tuple[str, Operator[Any, Any], Any]]:
    """Yield inner operators with their places and input types."""
    for place, part in op.inner():
        inner_type = _inner_input_type(op, part, input_type)
        yield place, part, _input_type(part) if inner_type is Any or isinstance(inner_type, TypeVar) else inner_type
        if isinstance(op, Then):
            input_type = _output_type(part, input_type)


def _inner_input_type(op: Operator[Any, Any], part: Operator[Any, Any], input_type: Any) -> Any:
    if isinstance(op, Each):
        return element(input_type, op.short)
    return input_type if isinstance(op, PASSING) else _input_type(part)


@dataclass
class DrawnBlock:
    """Block of nodes (ids) and blocks: in a column, or side by side in a `row`; in a frame if it has a title.

    `aside`: a step and, below it on the right, what it holds, so that the way on is free.
    """

    row: bool = False
    aside: bool = False
    title: str | None = None
    parts: list["DrawnBlock | str"] = field(default_factory=list)


@dataclass
class Drawing:
    """Graph of a flow: as lines of Mermaid, and as nodes, edges and blocks for pictures."""

    lines: list[str] = field(default_factory=list)
    depth: int = 1
    nodes: dict[str, tuple[str, str]] = field(default_factory=dict)  # by id: label and shape
    edges: list[tuple[str, str, str, bool]] = field(default_factory=list)  # from, to, label, whether it is dotted
    root: DrawnBlock = field(default_factory=DrawnBlock)

    def __post_init__(self) -> None:
        self._block = self.root

    @contextmanager
    def block(self, *, row: bool = False, aside: bool = False, title: str | None = None) -> Iterator[None]:
        """Draw the body of the `with` in a block of its own."""
        outer, self._block = self._block, DrawnBlock(row, aside, title)
        outer.parts.append(self._block)
        try:
            yield
        finally:
            self._block = outer

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def node(self, place: str, text: str, shape: tuple[str, str] = ("[", "]")) -> str:
        """Add a node; its id is its place in the flow, so that it stays when other parts change."""
        name = id_of(place)
        self.add_node(name, text, shape)
        return name

    def add_node(self, name: str, text: str, shape: tuple[str, str]) -> None:
        self.add(f'{name}{shape[0]}"{escaped(text)}"{shape[1]}')
        self.nodes[name] = text, shape[0]
        self._block.parts.append(name)

    def edge(self, start: str, end: str, label: str = "", dotted: bool = False) -> None:
        self.edges.append((start, end, label, dotted))
        arrow = "-.->" if dotted else "-->"
        self.add(f"{start} {arrow}{f'|{chr(34)}{escaped(label)}{chr(34)}|' if label else ''} {end}")


def mermaid(flow: Operator[Any, Any]) -> str:
    """Return the flow as a Mermaid flowchart.

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
    return "\n".join(draw_graph(flow).lines)


def draw_graph(flow: Operator[Any, Any]) -> Drawing:
    """Draw the graph of a flow, from its input type to its output type."""
    drawing, input_type = Drawing(["flowchart TD"]), _input_type(flow)
    drawing.add_node("taken", _type_name(input_type), ("([", "])"))
    ends = _draw(drawing, flow, "", [("taken", "")])
    drawing.add_node("given", _type_name(_output_type(flow, input_type)), ("([", "])"))
    for end, label in ends:
        drawing.edge(end, "given", label)
    return drawing


Ends = list[tuple[str, str]]


def _draw(drawing: Drawing, op: Operator[Any, Any], place: str, starts: Ends) -> Ends:
    """Draw a step after `starts`, each with the label of its edge, and return the step's own ends."""
    if isinstance(op, Then):
        for inner_place, step in op.inner():
            starts = _draw(drawing, step, join_path(place, inner_place), starts)
        return starts
    if isinstance(op, (Branch, Choice)) or (isinstance(op, Guard) and op.fallback is not None):
        return _draw_fork(drawing, op, place, starts)
    if isinstance(op, Route):
        return _draw_route(drawing, op, place, starts)
    if isinstance(op, (Loop, Each, Explore, Guard, Vary)):
        return _draw_box(drawing, op, place, starts)
    with drawing.block(aside=True):
        name = _connect(drawing, drawing.node(place, title(op)), starts)
        with drawing.block(row=True):
            for inner_place, part in op.inner():
                with drawing.block():
                    _draw(drawing, part, join_path(place, inner_place), [(name, inner_place)])
    return [(name, "")]


def _draw_fork(drawing: Drawing, op: Operator[Any, Any], place: str, starts: Ends) -> Ends:
    """Draw a node from which every inner operator begins."""
    fork = _connect(drawing, drawing.node(place, title(op), ("{{", "}}")), starts)
    ends: Ends = []
    with drawing.block(row=True):
        for inner_place, arm in op.inner():
            label = "" if isinstance(op, Branch) else inner_place
            with drawing.block():
                ends += _draw(drawing, arm, join_path(place, inner_place), [(fork, label)])
    return ends


def _draw_route(drawing: Drawing, op: Route[Any, Any], place: str, starts: Ends) -> Ends:
    router_ends = _draw(drawing, op.router, join_path(place, "router"), starts)
    fork = _connect(drawing, drawing.node(place, "Route", ("{", "}")), router_ends)
    ends: Ends = []
    with drawing.block(row=True):
        for name, arm in op.arms:
            label = f"{name} (default)" if name == op.default else name
            with drawing.block():
                ends += _draw(drawing, arm, join_path(place, f"arms.{name}"), [(fork, label)])
    return ends


def _draw_box(drawing: Drawing, op: Operator[Any, Any], place: str, starts: Ends) -> Ends:
    """Draw a frame around inner operators that run several times or under a limit."""
    drawing.add(f'subgraph {id_of(place)}["{escaped(title(op))}"]')
    drawing.depth += 1
    with drawing.block(title=title(op)):
        entry = drawing.node(join_path(place, "begin"), " ", ("((", "))"))
        ends: Ends = [(entry, "")]
        for inner_place, part in op.inner():
            ends = _draw(
                drawing, part, join_path(place, inner_place), [(end, label or inner_place) for end, label in ends]
            )
    if isinstance(op, (Loop, Explore)):
        for end, _ in ends:
            drawing.edge(end, entry, "again", dotted=True)
    drawing.depth -= 1
    drawing.add("end")
    _connect(drawing, entry, starts)
    return ends


def _connect(drawing: Drawing, name: str, starts: Ends) -> str:
    for start, label in starts:
        drawing.edge(start, name, label)
    return name


def id_of(place: str) -> str:
    """Return an id that any Mermaid parser takes, different for different places: `n_steps_0_arms_en`."""
    parts = (c if c.isascii() and c.isalnum() else "_" if c == "." else f"__{ord(c):x}__" for c in place)
    return "_".join(filter(None, ("n", "".join(parts))))


def escaped(text: str) -> str:
    """Escape text for a quoted label."""
    return "".join(f"#{ord(c)};" if c in '"<>#&`\\|' else c if c.isprintable() else " " for c in text)
