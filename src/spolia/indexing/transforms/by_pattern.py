"""Another transform for another kind of file."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from spolia.core.call_bounds import largest
from spolia.core.operator import Operator, checked_operator
from spolia.errors import WiringError
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.stores.definition import Part, Pieces, Transform, TransformChooser


@dataclass(frozen=True)
class ByPattern(TransformChooser):
    """Choice of a document's transform: the first one whose pattern its address matches.

    Each transform works as it would alone: a splitter streams, one that asks a model gets the parts of many documents
    together, and its replies are kept. No document is lost: one that matches nothing is for `otherwise`. Small and
    capital letters are the same, on every system, and `*` stands for any characters, `/` too, so that `*.py` matches in
    every folder.

    Args:
        transforms: patterns (`*`, `?`, `[abc]`) with their transforms, tried in order.
        otherwise: for documents that match no pattern.

    Raises:
        WiringError: for a pattern that is never reached, since it follows `*` or is repeated; for a value that is not a
            transform.

    >>> from spolia.types import Document, Node
    >>> from spolia.indexing.splitters.text_units import Sentences
    >>> chosen = ByPattern((("*.txt", Sentences()),))
    >>> def cut(uri, text="One. Two."):
    ...     return [piece.text for piece in chosen(Part(Node("d", text), Document("d", text, uri)))]
    >>> cut("notes/A.TXT"), cut("a.md")
    (['One.', 'Two.'], ['One. Two.'])
    """

    transforms: tuple[tuple[str, Operator[Part, Pieces]], ...]
    otherwise: Operator[Part, Pieces] = field(default_factory=SlidingWindow)

    def __post_init__(self) -> None:
        for arm in self._arms:
            checked_operator(arm, "a transform of ByPattern").gives(Part)
        patterns: set[str] = set()
        for pattern, _ in self.transforms:
            if pattern in patterns or "*" in patterns:
                raise WiringError(
                    f"ByPattern never reaches the pattern {pattern!r}: one before it matches all that it does. "
                    "Write each pattern once, and '*' last."
                )
            patterns.add(pattern)

    def transform_for(self, uri: str, /) -> Transform:
        name = uri.casefold()  # `fnmatch` would heed case on some systems only
        matches = (transform for pattern, transform in self.transforms if fnmatchcase(name, pattern.casefold()))
        return next(matches, self.otherwise)

    def calls(self, rows: int | None = None, /) -> int | None:
        return largest(arm.calls(rows) for arm in self._arms)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return largest(arm.fanout(rows) for arm in self._arms)

    @property
    def _arms(self) -> tuple[Transform, ...]:
        return (*(transform for _, transform in self.transforms), self.otherwise)
