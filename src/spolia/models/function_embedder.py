"""A function of your own as an embedder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.fingerprint.digest import source_of
from spolia.core.function import hidden_dependency
from spolia.core.run_context import charge, check_cancelled, record_access
from spolia.deferred import numpy as np
from spolia.errors import ModelError
from spolia.models.http.replies import estimate_tokens
from spolia.models.protocols import Kind
from spolia.types import Usage, Value, digest_of, lazy_property

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors


@dataclass(frozen=True)
class FunctionEmbedder(Value):
    """Embedder made of a function that takes a list of texts and returns a vector for each.

    Vectors are scaled to length 1. A function with a parameter `kind` gets `"query"` or `"passage"`.

    Args:
        function: gets texts, returns rows of numbers: a list or an array.
        name: in stores and traces; else the function's own. Change it when other weights give other vectors.
        window: longest text in tokens, if the model cuts longer ones.

    >>> def letters(texts):
    ...     return [[text.count(letter) for letter in "aeiou"] for text in texts]
    >>> own = FunctionEmbedder(letters)
    >>> own.name, own.dimension, own.embed(["sea", "tea", "tree"], kind="passage").shape
    ('letters', 5, (3, 5))
    """

    function: Callable[..., Any] = field(repr=False, compare=False)
    name: str = ""
    window: int = 8191
    code: str = field(init=False, repr=False)

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False
    counts_tokens: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", getattr(self.function, "__name__", type(self.function).__name__))
        if "<" in self.name:  # `<lambda>`, which all lambdas are called
            raise ModelError(f"{self.name} is not a name that a store could know the vectors by. Write name='...'.")
        # A function whose code does not tell what it does equals itself only.
        code = str(id(self.function)) if hidden_dependency(self.function) else source_of(self.function)
        object.__setattr__(self, "code", code)

    @lazy_property
    def dimension(self) -> int:
        """Length of its vectors, from embedding one text."""
        return int(self.embed(["dimension"], kind="passage").shape[1])

    def fingerprint(self) -> str | None:
        """Return name and code; None for a function whose code does not tell what it does, such as a closure."""
        return None if hidden_dependency(self.function) else f"{self.name}/{self.window}/{digest_of(self.code).hex()}"

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1; ModelError for another number of rows, zeros, NaN or infinity."""
        check_cancelled()
        record_access(self)
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        rows = np.asarray(self._bind_kind(kind)(list(texts)), np.float64)  # squares of float32 numbers may overflow
        lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
        if rows.ndim != 2 or len(rows) != len(texts) or not (np.isfinite(lengths).all() and lengths.all()):
            raise ModelError(
                f"{self.name} gave an array of shape {rows.shape} for {len(texts)} texts. Return one row of finite "
                "numbers for each text, and no row of zeros."
            )
        charge(Usage(embedded=len(texts)))
        scaled: Vectors = (rows / lengths).astype(np.float32)
        return scaled

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Estimate the length of each text: only the model could count."""
        return [estimate_tokens(text) + 2 for text in texts]  # models put a token before and after a text

    def covers(self, text: str) -> float:
        """Return 1: from here nobody can see what the model does not know."""
        return 1.0

    def _bind_kind(self, kind: Kind) -> Callable[..., Any]:
        return partial(self.function, kind=kind) if "kind" in _parameters(self.function) else self.function


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    try:
        return tuple(signature(function).parameters)
    except ValueError:  # some functions of C do not say
        return ()
