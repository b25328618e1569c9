"""Plain functions as transforms, and the places of their texts in the given text."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import date
from numbers import Number
from typing import Any, ClassVar, get_type_hints, overload

from spolia.core.function import LAMBDA, Function, refuse_non_function
from spolia.core.operator import Operator
from spolia.errors import DocumentError, GroupError, SpoliaError, WiringError
from spolia.stores.definition import Part, Piece, Pieces
from spolia.types import Meta, Node, Scalar, format_time, scalar_of

SEARCHES = 1_000
"""Texts of a part that are searched for in all of it, at most; a text that follows the last one costs nothing."""
GAP = 100
"""Characters at most that are passed over between two texts one after the other."""


class TextPlaces:
    """Finder of texts one after the other. Each place is true: it has that text.

    A text that goes on where the last one ended, but for blanks and punctuation, was cut there. Any other has a place
    where it occurs exactly once; an ambiguous one has no place.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._searches = SEARCHES

    def find_start(self, text: str) -> int | None:
        """Return where a text begins; None if it does not occur, or at several places."""
        start = self._text.find(text, self._end, self._end + GAP + len(text))
        if start < 0 or any(map(str.isalnum, self._text[self._end : start])):
            if self._searches == 0:
                return None
            self._searches -= 1
            start = self._text.find(text)
            if start < 0 or self._text.find(text, start + 1) >= 0:
                return None
        self._end = start + len(text)
        return start


PIECE_FIELDS = tuple(f.name for f in fields(Piece))
ADVICE = "Return a text, a number, a date, a Piece, a Node, a dict with 'text' and 'meta', one list of these, or None."


def pieces_of(returned: object, part: Part) -> Pieces:
    """Return the pieces that a function's result stands for; a WiringError's message continues the function's name."""
    places = TextPlaces(part.node.text)
    pieces = (_make_piece(item, part, places) for item in _list_items(returned))
    return tuple(piece for piece in pieces if (piece.text or piece.search_text).strip())


def _list_items(returned: object) -> Iterator[object]:
    if isinstance(returned, (set, frozenset)):
        raise WiringError("returned a set, which has no order. Return sorted(...).")
    is_single = isinstance(returned, (str, bytes, Mapping)) or not isinstance(returned, Iterable)
    several: Iterable[object] = (returned,) if is_single else returned  # type: ignore[assignment]
    yield from (item for item in several if item is not None)


def _make_piece(item: object, part: Part, places: TextPlaces) -> Piece:
    if isinstance(item, Piece):
        return _check_place(item, part)
    if isinstance(item, Mapping):
        return _check_place(_piece_from_mapping(item, places), part)
    if isinstance(item, Node):
        return _piece_from_node(item, part, places)
    if isinstance(item, (str, Number, date)):
        text = format_time(item) if isinstance(item, date) else str(item)
        return Piece(text, places.find_start(text) if isinstance(item, str) and text.strip() else None)
    raise WiringError(f"returned {item!r:.80} of type {type(item).__name__}, which is not a piece. {ADVICE}")


def _piece_from_mapping(item: Mapping[Any, Any], places: TextPlaces) -> Piece:
    if unknown := [name for name in item if name not in PIECE_FIELDS]:
        raise WiringError(
            f"returned a dict with {unknown[0]!r}. Its names are {', '.join(PIECE_FIELDS)}; "
            "other fields belong in 'meta'."
        )
    values = dict(item)
    text = values["text"] = "" if values.get("text") is None else str(values["text"])
    values.setdefault("start", places.find_start(text) if text.strip() else None)
    values["meta"] = meta_of(values.get("meta", ()))
    return Piece(**values)


def _piece_from_node(node: Node, part: Part, places: TextPlaces) -> Piece:
    """Return what a node has of its own; what it shares with the part it inherits again."""
    if node.readers not in ((), part.node.readers):
        raise WiringError(
            f"returned a node with the readers {node.readers!r:.80} of its own; a transform does not "
            "set readers. Set who may read the document: sync(..., access=lambda uri: [...]), or writer.set_readers."
        )
    inherited = {*part.node.meta, *part.document.meta}
    own = tuple(pair for pair in node.meta if pair not in inherited)
    context = "" if node.context == part.node.context else node.context
    return Piece(node.text, places.find_start(node.text) if node.text.strip() else None, context, node.search_text, own)


def _check_place(piece: Piece, part: Part) -> Piece:
    """Return the piece, if it stands where it says."""
    if piece.start is not None and (piece.start < 0 or not part.node.text.startswith(piece.text, piece.start)):
        actual_text = part.node.text[max(0, piece.start) :][: len(piece.text)]
        raise WiringError(
            f"returned the text {piece.text!r:.60} with start={piece.start}, where {actual_text!r:.60} stands. "
            "Count characters of the text that was given, or leave start out."
        )
    return piece


def meta_of(metadata: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Meta:
    """Return fields by name as they are kept; a list is several values of its field."""
    pairs: tuple[Any, ...] = ()
    if is_listed := isinstance(metadata, Iterable) and not isinstance(metadata, str):
        pairs = tuple(metadata.items() if isinstance(metadata, Mapping) else metadata)
    if not is_listed or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise WiringError(f"returned the metadata {metadata!r:.80}. Give names with values: {{'year': 2020}}.")
    several = ((name, value if isinstance(value, (list, tuple)) else (value,)) for name, value in pairs)
    return tuple(_field(name, item) for name, values in several for item in values)


def _field(name: object, value: object) -> tuple[str, Scalar]:
    if not isinstance(name, str):
        raise WiringError(f"returned metadata with the name {name!r:.80}. Give names that are texts.")
    try:
        return name, scalar_of(value)
    except ValueError as error:
        raise WiringError(f"returned metadata whose {name!r} is not a value: {error}, or a list of these.") from error


ARGUMENT_TYPES: dict[str, type] = {"str": str, "Node": Node, "Part": Part}
REFS = "refs"


@dataclass(frozen=True, repr=False)
class FunctionTransform(Function[Part, Pieces]):
    """Plain function as a transform; made by the decorator `transform`."""

    argument_type: ClassVar[type] = str
    """What the function takes: the text, the node or the part."""
    refs: ClassVar[type | None] = None
    """Of what its `refs` are a list: texts or nodes; None when it takes none."""
    wants_refs: ClassVar[bool] = False
    """Whether they have no default, so that a group of it needs a `ref`."""

    def apply(self, value: Part, /) -> Pieces:
        place = f"node {value.node.id!r} of {value.document.uri or value.document.id!r}"
        try:
            return self._pieces(value, place)
        except SpoliaError as error:  # keeps its type, by which a run knows what to do
            if place not in str(error):  # an error of a function inside may say it already
                error.add_note(f"In the transform {self.name}, for {place}.")
            raise
        except Exception as error:
            raise DocumentError(
                f"The transform {self.name} failed on {place}: {type(error).__name__}: {error}. Correct the function."
            ) from error

    def _pieces(self, part: Part, place: str) -> Pieces:
        returned = self._call_function(part)
        if isinstance(returned, Iterator):
            returned = list(returned)  # what goes wrong from here on is not the function's running, but its result
        try:
            return pieces_of(returned, part)
        except WiringError as error:
            raise WiringError(f"The transform {self.name}, for {place}, {error}") from error

    def reads(self, value: Part, /) -> object:
        if self.argument_type is str and self.refs is not Node:
            return (value.node.text, tuple(node.text for node in value.refs) if self.refs else ())
        return value

    def _call_function(self, part: Part) -> object:
        first = part.node.text if self.argument_type is str else part.node if self.argument_type is Node else part
        if self.refs is not None:
            return self.call_function(first, refs=[node.text if self.refs is str else node for node in part.refs])
        if part.refs and self.argument_type is not Part:
            raise GroupError(f"{self.name} takes no refs. Write def {self.name}(text, refs): ..., or define no ref.")
        return self.call_function(first)


@overload
def transform(function: Callable[..., object], /) -> Operator[Part, Pieces]: ...
@overload
def transform(
    *, version: int = 1, cached: bool = False, waits: bool = False
) -> Callable[[Callable[..., object]], Operator[Part, Pieces]]: ...
def transform(
    function: Callable[..., object] | None = None, /, *, version: int = 1, cached: bool = False, waits: bool = False
) -> Any:
    """Make a plain function the transform of a node group.

    The function takes the text of a node, or the node or part itself if its first parameter is annotated with `Node`
    or `Part`. A second parameter `refs` gets a list of the texts of the nodes of the group's `ref`, or of the nodes
    (`refs: list[Node]`, and by default when the first is not a text).

    What it returns becomes nodes: a text, a number (0 and False too), a `Piece`, a `Node`, a dict with `text` and
    `meta`, or any number of these. None and blank texts make none. A text that goes on where the last one ended, or
    that occurs once in the given text, is known to be cut from there, so that a citation of it has lines.

    The signature of a group changes with the function's name, version, default values and code, and with what that
    refers to in the same code base: functions, classes, constants, not comments (`spolia.core.fingerprint` says what
    else is not looked at: count `version` up when that changes).

    Args:
        version: count it up when the result changes for a reason that its code does not show.
        cached: keep its results.
        waits: it waits for a server or a disk.

    Raises:
        WiringError: for parameters of another kind; when it runs, for a result that stands for no pieces.
        DocumentError: when it runs, for any other exception of the function, with node and document.

    >>> from spolia.types import Document
    >>> @transform
    ... def lines(text):
    ...     return text.split("\\n")
    >>> document = Document("d", "One\\nTwo")
    >>> [(piece.text, piece.start) for piece in lines(Part(Node("d", document.text), document))]
    [('One', 0), ('Two', 4)]
    """

    def decorate(function: Callable[..., object]) -> Operator[Part, Pieces]:
        refuse_non_function(function, "transform")
        argument_type, refs = _read_parameters(function)
        wants = refs is not None and inspect.signature(function).parameters[REFS].default is inspect.Parameter.empty
        attributes = {"argument_type": argument_type, "refs": refs, "wants_refs": wants}
        types = (Part, tuple[Piece, ...])
        return FunctionTransform.from_function(
            function, types, version=version, cached=cached, waits=waits, **attributes
        )

    return decorate if function is None else decorate(function)


def _read_parameters(function: Callable[..., object]) -> tuple[type, type | None]:
    """Return the type of the first parameter, and that of the items of `refs`; None without `refs`."""
    name = getattr(function, "__name__", LAMBDA)
    hints: dict[str, Any] = dict(getattr(function, "__annotations__", {}))
    with suppress(NameError, TypeError):  # a name that only the type checker sees stays as it is written
        hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    values = [parameter for parameter in required if parameter != REFS]
    if len(values) != 1:
        raise WiringError(
            f"{name} takes {', '.join(values) or 'nothing'}; a transform takes one value, and {REFS} if it wants them. "
            f"Write def {name}(text): ..., or def {name}(text, {REFS}): ..."
        )
    first = _argument_type(name, values[0], hints.get(values[0], str))
    if not any(p.name == REFS for p in parameters):
        return first, None
    refs_hint = str(hints.get(REFS, "Node" if first is not str else "str"))
    return first, Node if "Node" in refs_hint else str


def _argument_type(name: str, parameter: str, hint: Any) -> type:
    type_name = str(getattr(hint, "__name__", hint)).rpartition(".")[2]
    if type_name not in ("Any", "object", *ARGUMENT_TYPES):
        raise WiringError(
            f"{name} takes {parameter}: {type_name}; a transform is given the text, the node or the part. "
            f"Write {parameter}: str, {parameter}: Node or {parameter}: Part."
        )
    return ARGUMENT_TYPES.get(type_name, str)
