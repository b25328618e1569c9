"""What a plain function returned, as pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import date
from numbers import Number
from typing import Any

from spolia.errors import WiringError
from spolia.indexing.transforms.places import Places
from spolia.stores.definition import Part, Piece, Pieces
from spolia.types import Meta, Node, Scalar, scalar_of, time_text

NAMES = tuple(f.name for f in fields(Piece))
ADVICE = "Return a text, a number, a date, a Piece, a Node, a dict with 'text' and 'meta', one list of these, or None."


def pieces_of(returned: object, part: Part) -> Pieces:
    """The pieces that a function's result stands for: every value is one, but None and blank texts.

    Raises:
        WiringError: what it has returned stands for none; the message goes on where the function has been named.

    >>> from spolia.types import Document
    >>> part = Part(Node("n", "One. Two."), Document("d", "One. Two."))
    >>> [(piece.text, piece.start) for piece in pieces_of(["One.", 0, None, {"text": "Two.", "meta": {"n": 2}}], part)]
    [('One.', 0), ('0', None), ('Two.', 5)]
    """
    places = Places(part.node.text)
    found = (_piece(item, part, places) for item in _each(returned))
    return tuple(piece for piece in found if (piece.text or piece.search_text).strip())


def _each(returned: object) -> Iterator[object]:
    """The values that are there, none of them None."""
    if isinstance(returned, (set, frozenset)):
        raise WiringError("returned a set, which has no order. Return sorted(...).")
    alone = isinstance(returned, (str, bytes, Mapping)) or not isinstance(returned, Iterable)
    several: Iterable[object] = (returned,) if alone else returned  # type: ignore[assignment]
    yield from (item for item in several if item is not None)


def _piece(item: object, part: Part, places: Places) -> Piece:
    if isinstance(item, Piece):
        return _true(item, part)
    if isinstance(item, Mapping):
        return _true(_described(item, places), part)
    if isinstance(item, Node):
        return _of_node(item, part, places)
    if isinstance(item, (str, Number, date)):
        text = time_text(item) if isinstance(item, date) else str(item)
        return Piece(text, places.of(text) if isinstance(item, str) and text.strip() else None)
    raise WiringError(f"returned {item!r:.80} of type {type(item).__name__}, which is no piece. {ADVICE}")


def _described(item: Mapping[Any, Any], places: Places) -> Piece:
    if unknown := [name for name in item if name not in NAMES]:
        raise WiringError(
            f"returned a dict with {unknown[0]!r}. Its names are {', '.join(NAMES)}; other fields belong in 'meta'."
        )
    values = dict(item)
    text = values["text"] = "" if values.get("text") is None else str(values["text"])
    values.setdefault("start", places.of(text) if text.strip() else None)
    values["meta"] = meta_of(values.get("meta", ()))
    return Piece(**values)


def _of_node(node: Node, part: Part, places: Places) -> Piece:
    """What a node has of its own: what it shares with the part it inherits again."""
    if node.readers not in ((), part.node.readers):
        raise WiringError(
            f"returned a node with the readers {node.readers!r:.80} of its own; a transform says what is found, not by "
            "whom. Set who may read the document: sync(..., access=lambda uri: [...]), or writer.set_readers."
        )
    inherited = {*part.node.meta, *part.document.meta}
    own = tuple(pair for pair in node.meta if pair not in inherited)
    context = "" if node.context == part.node.context else node.context
    return Piece(node.text, places.of(node.text) if node.text.strip() else None, context, node.search_text, own)


def _true(piece: Piece, part: Part) -> Piece:
    """The piece, if it stands where it says."""
    if piece.start is not None and (piece.start < 0 or not part.node.text.startswith(piece.text, piece.start)):
        there = part.node.text[max(0, piece.start) :][: len(piece.text)]
        raise WiringError(
            f"returned the text {piece.text!r:.60} with start={piece.start}, where {there!r:.60} stands. "
            "Count characters of the text that was given, or leave start out."
        )
    return piece


def meta_of(found: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Meta:
    """Fields by name as they are kept; a list is several values of its field.

    >>> meta_of({"year": 1999, "tag": ["a", "b"]})
    (('year', 1999), ('tag', 'a'), ('tag', 'b'))
    """
    pairs: tuple[Any, ...] = ()
    if is_listed := isinstance(found, Iterable) and not isinstance(found, str):
        pairs = tuple(found.items() if isinstance(found, Mapping) else found)
    if not is_listed or not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise WiringError(f"returned the metadata {found!r:.80}. Give names with values: {{'year': 2020}}.")
    return tuple((_name(name), _scalar(name, one)) for name, value in pairs for one in _values(value))


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise WiringError(f"returned metadata with the name {name!r:.80}. Give names that are texts.")
    return name


def _values(value: object) -> Iterable[object]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _scalar(name: str, value: object) -> Scalar:
    try:
        return scalar_of(value)
    except ValueError as error:
        raise WiringError(f"returned metadata whose {name!r} is no value: {error}, or a list of these.") from error
