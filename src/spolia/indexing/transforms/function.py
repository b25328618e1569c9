"""Plain functions as transforms: `@transform`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, get_type_hints, overload

from spolia.errors import DocumentError, GroupError, SpoliaError, WiringError
from spolia.function import LAMBDA, Function, refuse_unstorable
from spolia.indexing.transforms.returned import pieces_of
from spolia.operator import Operator
from spolia.stores.definition import Part, Piece, Pieces
from spolia.types import Node

GIVEN: dict[str, type] = {"str": str, "Node": Node, "Part": Part}
REFS = "refs"


@dataclass(frozen=True, repr=False)
class FunctionTransform(Function[Part, Pieces]):
    """A plain function as a transform; made by the decorator `transform`.

    Class attributes:
        given: what the function takes: the text, the node or the part.
        refs: of what its `refs` are a list: texts or nodes; None when it takes none.
        wants_refs: they have no default, so that a group of it needs a `ref`.
    """

    given: ClassVar[type] = str
    refs: ClassVar[type | None] = None
    wants_refs: ClassVar[bool] = False

    def apply(self, value: Part, /) -> Pieces:
        place = f"node {value.node.id!r} of {value.document.uri or value.document.id!r}"
        try:
            return self._pieces(value, place)
        except SpoliaError as error:  # keeps its type, by which a run knows what to do
            if place not in str(error):
                error.add_note(f"In the transform {self.name}, for {place}.")
            raise
        except Exception as error:
            raise DocumentError(
                f"The transform {self.name} failed on {place}: {type(error).__name__}: {error}. Correct the function."
            ) from error

    def _pieces(self, part: Part, place: str) -> Pieces:
        returned = self._returned(part)
        if isinstance(returned, Iterator):
            returned = list(returned)  # what goes wrong from here on is not the function's running, but its result
        try:
            return pieces_of(returned, part)
        except WiringError as error:
            raise WiringError(f"The transform {self.name}, for {place}, {error}") from error

    def reads(self, value: Part, /) -> object:
        if self.given is str and self.refs is not Node:
            return (value.node.text, tuple(node.text for node in value.refs) if self.refs else ())
        return value

    def _returned(self, part: Part) -> object:
        first = part.node.text if self.given is str else part.node if self.given is Node else part
        if self.refs is not None:
            return self.called(first, refs=[node.text if self.refs is str else node for node in part.refs])
        if part.refs and self.given is not Part:
            raise GroupError(f"{self.name} takes no refs. Write def {self.name}(text, refs): ..., or define no ref.")
        return self.called(first)


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
    (`refs: list[Node]`, and by default when the first is no text).

    What it returns becomes nodes: a text, a number (0 and False too), a `Piece`, a `Node`, a dict with `text` and
    `meta`, or any number of these. None and blank texts make none. A text that goes on where the last one ended, or
    that occurs once in what was given, is known to be cut from there, so that a citation of it has lines.

    The signature of a group changes with the function's name, version, default values and code, and with what that
    refers to in the same code base: functions, classes, constants, not comments (`spolia.code` says what else is not
    looked at: count `version` up when that changes).

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

    def made(function: Callable[..., object]) -> Operator[Part, Pieces]:
        given, refs = _parameters(function)
        wants = refs is not None and inspect.signature(function).parameters[REFS].default is inspect.Parameter.empty
        own = {"given": given, "refs": refs, "wants_refs": wants}
        types = (Part, tuple[Piece, ...])
        return FunctionTransform.of(function, types, version=version, cached=cached, waits=waits, **own)

    return made if function is None else made(function)


def _parameters(function: Callable[..., object]) -> tuple[type, type | None]:
    """Of which kind the first parameter is, and the items of `refs`, if it has them."""
    name = getattr(function, "__name__", LAMBDA)
    hints: dict[str, Any] = dict(getattr(function, "__annotations__", {}))
    with suppress(NameError, TypeError):  # a name that only the type checker sees stays as it is written
        hints = get_type_hints(function)
    found = inspect.signature(function).parameters.values()
    wanted = [p.name for p in found if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    values = [parameter for parameter in wanted if parameter != REFS]
    if len(values) != 1:
        raise WiringError(
            f"{name} takes {', '.join(values) or 'nothing'}; a transform takes one value, and {REFS} if it wants them. "
            f"Write def {name}(text): ..., or def {name}(text, {REFS}): ..."
        )
    first = _kind(name, values[0], hints.get(values[0], str))
    if not any(p.name == REFS for p in found):
        return first, None
    told = str(hints.get(REFS, "Node" if first is not str else "str"))
    return first, Node if "Node" in told else str


def _kind(name: str, parameter: str, hint: Any) -> type:
    written = str(getattr(hint, "__name__", hint)).rpartition(".")[2]
    if written not in ("Any", "object", *GIVEN):
        raise WiringError(
            f"{name} takes {parameter}: {written}; a transform is given the text, the node or the part. "
            f"Write {parameter}: str, {parameter}: Node or {parameter}: Part."
        )
    return GIVEN.get(written, str)


__all__ = ["FunctionTransform", "refuse_unstorable", "transform"]
