"""Protocols of models. Adapters are frozen addresses; the connection behind them opens on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from spolia.core.type_compatibility import members, missing_members
from spolia.core.validation import capabilities_of, capable
from spolia.deferred import numpy as np
from spolia.errors import ModelError, ModelRejected, WiringError
from spolia.types import Addressed, Generation, Prompt, Token, Usage

if TYPE_CHECKING:
    import numpy.typing as npt

    from spolia.models.vectors import SparseRows, TokenVectors
    from spolia.types.arrays import Vectors


M = TypeVar("M", bound="LanguageModel")
Kind: TypeAlias = Literal["query", "passage"]

CHAT: Final = "chat"
"""Replies to messages."""
STREAM: Final = "stream"
"""Sends the reply in pieces while it is being written."""
LOGPROBS: Final = "logprobs"
"""States the log-probability of every token that it generated."""

SCORES: Final = "scores"
"""States the log-probability of every token of a text that is given to it."""
NEXT_TOKENS: Final = "next_tokens"
"""States the most probable next tokens."""
DISTRIBUTIONS: Final = "distributions"
"""States the probability of every token that could be next."""
HIDDEN_STATES: Final = "hidden_states"
"""States what its layers give for each token of a text."""
STRUCTURED: Final = "structured"
"""Can be held to a JSON schema."""


def ignore_text(text: str) -> None:
    """Take pieces of a reply that nobody reads before it is complete: the reply is streamed, so that a slow server
    does not time out, and a stream that breaks is asked for again."""


class Capabilities(frozenset[str]):
    """Set of the abilities of a model, as data that a flow can be checked against; written in one order.

    >>> Capabilities((STREAM, CHAT))
    frozenset({'chat', 'stream'})
    """

    def __new__(cls, names: Iterable[str] = ()) -> Capabilities:
        return super().__new__(cls, (names,) if isinstance(names, str) else names)

    def __repr__(self) -> str:
        return f"frozenset({{{', '.join(map(repr, sorted(self)))}}})" if self else "frozenset()"


def check_capabilities(names: Iterable[str], supported: Iterable[str]) -> Capabilities:
    """Return the declared capabilities of a server; ModelError for a name that is not among `every`.

    >>> check_capabilities(("chat", "strem"), (CHAT, STREAM))
    Traceback (most recent call last):
    spolia.errors.ModelError: No server is asked for 'strem'. Write some of: chat, stream.
    """
    capabilities = Capabilities(names)
    if unknown := sorted(capabilities - set(supported)):
        raise ModelError(f"No server is asked for {unknown[0]!r}. Write some of: {', '.join(supported)}.")
    return capabilities


class AnyModel(Addressed, Protocol):
    """Model of any kind.

    Attributes:
        name: differs for any two models that give different results; it has a hash of local weights.
    """

    @property
    def name(self) -> str: ...


@capable(CHAT)
@runtime_checkable
class LanguageModel(AnyModel, Protocol):
    """Model that writes a reply to a prompt."""

    @property
    def capabilities(self) -> frozenset[str]: ...

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        logprobs: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        """Return the reply to `prompt`; reserve and settle its own usage.

        Args:
            max_tokens: the reply is cut there, which `Generation.finish_reason` states as `length`.
            temperature: 0 for the most probable reply; above, `prompt.sample` numbers the draw.
            stop: the reply ends before the first of these.
            logprobs: fill `Generation.tokens`; needs the capability `logprobs`.
            on_text: called with each piece of the reply as it comes; together the pieces are its text.

        Raises:
            ModelUnavailable: the same call may succeed later.
            ModelRejected: it will not.
            BudgetSpent: refused before it was sent.
        """
        ...


@capable(CHAT, LOGPROBS)
@runtime_checkable
class StatesLogprobs(LanguageModel, Protocol):
    """A language model with the capability `logprobs`: `generate(..., logprobs=True)` fills `Generation.tokens`."""


@capable(SCORES)
@runtime_checkable
class ScoresContinuations(LanguageModel, Protocol):
    """A language model with the capability `scores`."""

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """Return the tokens of `text`, each with its log-probability after the prompt and the tokens before it.

        Raises:
            ModelUnavailable: the same call may succeed later.
            ModelRejected: it will not.
        """
        ...


@capable(NEXT_TOKENS)
@runtime_checkable
class ForetellsTokens(LanguageModel, Protocol):
    """A language model with the capability `next_tokens`."""

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """Return the most probable next tokens, best first, each with its log-probability."""
        ...


@capable(DISTRIBUTIONS)
@runtime_checkable
class StatesDistributions(LanguageModel, Protocol):
    """A language model with the capability `distributions`."""

    def distribution(self, prompt: Prompt) -> npt.NDArray[np.float64]:
        """Return the natural log-probability of every token of the vocabulary as the next one: shape (vocabulary,)."""
        ...


@capable(HIDDEN_STATES)
@runtime_checkable
class StatesHidden(LanguageModel, Protocol):
    """A model with the capability `hidden_states`."""

    def hidden_states(self, texts: Sequence[str], *, layer: int = -1) -> list[Vectors]:
        """Return the outputs of a layer for each token of each text: float32, shape (tokens, width).

        Args:
            layer: 0 for what the first one is given, 1 for what it gives, -1 for what the last gives.
        """
        ...


@capable(STRUCTURED)
@runtime_checkable
class KeepsSchemas(LanguageModel, Protocol):
    """A language model with the capability `structured`."""

    def structured(
        self,
        prompt: Prompt,
        schema: Mapping[str, Any],
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        """Return the reply to a prompt, which the server holds to a JSON schema."""
        ...


def require_capabilities(model: M, kind: Any) -> M:
    """Return the model, if it follows a protocol and states its capabilities; else raise ModelRejected."""
    needed = capabilities_of(kind)
    if isinstance(model, kind) and needed <= model.capabilities:
        return model
    names = ", ".join(map(repr, sorted(needed)))
    raise ModelRejected(f"{model.name} has no {names}. Write a model that has, as CompletionModel.")


@runtime_checkable
class Scorer(AnyModel, Protocol):
    """Judge of how well texts answer a query: a cross-encoder, here or on a server."""

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """Return one finite score for each text, in their order; higher is better. They compare within one call."""
        ...


@runtime_checkable
class ImageScorer(Scorer, Protocol):
    """Judge of how well texts and pictures answer a query, on one scale."""

    def scores_of(self, query: str, passages: Sequence[str | bytes]) -> tuple[float, ...]:
        """Return a finite score for each text or picture (a file of PNG, JPEG …), in their order; higher is better."""
        ...


class FoundSpan(NamedTuple):
    """Stretch of a text, by characters. Above 0, it is likelier than that the text has no answer."""

    score: float
    start: int
    end: int


@runtime_checkable
class SpanModel(AnyModel, Protocol):
    """Model that finds the stretch of a text that answers a question."""

    def spans(self, question: str, texts: Sequence[str]) -> Sequence[FoundSpan | None]:
        """Find the best span of each text, in their order; None for a text without any."""
        ...


class ReadsTexts(AnyModel, Protocol):
    """Model that reads texts as tokens.

    Attributes:
        window: longest text in tokens, special ones included; the rest of a longer one is not read.
    """

    @property
    def window(self) -> int: ...

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the length of each text in tokens, special ones included; above `window`, its end is not read."""
        ...

    def covers(self, text: str) -> float:
        """Return the share of the characters that the embedder knows, from 0 to 1; 1 for an empty text."""
        ...


@runtime_checkable
class Embedder(ReadsTexts, Protocol):
    """Model that maps texts to vectors whose cosine is their likeness; `dimension` is the length of one."""

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1: float32, shape (texts, dimension). Charge what it embedded."""
        ...


@runtime_checkable
class ImageEmbedder(Embedder, Protocol):
    """Embedder that maps pictures to vectors in the space of its texts, so that words find pictures.

    In a group that is embedded by one, the vector of a node that shows a picture is that of the picture (as of CLIP,
    Radford et al. 2021); the other nodes are embedded by their text. Questions are texts.
    """

    def embed_images(self, images: Sequence[bytes]) -> Vectors:
        """Embed each picture, a file of PNG, JPEG …, as a vector of length 1: float32, shape (images, dimension).

        Charges what it embedded. Whatever it raises of a picture that it cannot read concerns that picture only.

        Raises:
            ModelUnavailable: the same call may succeed later.
        """
        ...


@runtime_checkable
class SparseEmbedder(ReadsTexts, Protocol):
    """Model that maps texts to weights of the terms of a vocabulary; the product of two of them is their likeness."""

    def embed_sparse(self, texts: Sequence[str], *, kind: Kind) -> SparseRows:
        """Return one row of weights for each text. Charge what it embedded."""
        ...


@runtime_checkable
class TokenEmbedder(AnyModel, Protocol):
    """Model that maps texts to a vector for each of their tokens, for late interaction (ColBERT, Khattab and Zaharia
    2020).

    Attributes:
        dimension: length of a token's vector.
        window: longest text in tokens, special ones included; the rest of a longer one is not read.
    """

    @property
    def dimension(self) -> int: ...

    @property
    def window(self) -> int: ...

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        """Return vectors of length 1 for the tokens of each text, without any for padding. Charge what it embedded."""
        ...


def pricing_of(model: object) -> Callable[[Usage], Usage] | None:
    """Return the function of a model that adds its price to a usage; None for a model without prices.

    `priced` is what `add_price` was called; models of users may still have it.
    """
    add_price: Callable[[Usage], Usage] | None = getattr(model, "add_price", None) or getattr(model, "priced", None)
    return add_price


def refuse_no_embedder(candidate: object, owner: str, *kinds: type) -> None:
    """Raise WiringError for an embedder that follows none of the protocols `kinds`. Nothing of it is computed, so that
    no weights are looked for.

    >>> refuse_no_embedder(8, "It", Embedder, SparseEmbedder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    spolia.errors.WiringError: It wants an embedder, and was given 8 (int). Write MiniLM(); docs/...
    """
    if not isinstance(candidate, (type, str)) and any(not missing_members(candidate, kind) for kind in kinds):
        return
    kind = max(kinds, key=lambda kind: len(members(kind)) - len(missing_members(candidate, kind)))
    missing = missing_members(candidate, kind)
    message = f"{owner} wants an embedder, and was given {candidate!r:.80} ({type(candidate).__name__})."
    if isinstance(candidate, type):
        raise WiringError(f"{message} Write {candidate.__name__}(...).")
    if len(missing) == len(members(kind)):
        raise WiringError(f"{message} Write MiniLM(); docs/how-to/models.md shows one.")
    signatures = ", ".join(name + _signature_text(getattr(kind, name)) for name in missing)
    raise WiringError(f"{message} It lacks {signatures}: docs/how-to/models.md shows one.")


def _signature_text(member: object) -> str:
    """Return the parameters of a method as text, `(texts, *, kind)`; empty for what is no method."""
    if not callable(member):
        return ""
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for name, parameter in signature(member).parameters.items()
        if name != "self"
    ]
    return str(signature(member).replace(parameters=parameters, return_annotation=signature(member).empty))


def embed_checked(embedder: Embedder, texts: Sequence[str], kind: Kind) -> Vectors:
    """Embed texts as float32[n, d]; ModelError if their number or length is wrong, or one has NaN or infinity.

    >>> from spolia.testing import HashingEmbedder
    >>> embed_checked(HashingEmbedder(16), ["red stones", "blue sea"], "passage").shape
    (2, 16)
    """
    if not texts:
        return np.zeros((0, embedder.dimension), np.float32)
    vectors = np.asarray(embedder.embed(texts, kind=kind), dtype=np.float32)
    if vectors.shape != (len(texts), embedder.dimension):
        raise ModelError(
            f"{embedder.name} gave vectors of shape {vectors.shape} for {len(texts)} texts, where each has "
            f"{embedder.dimension} numbers. Correct the embedder."
        )
    if not (finite := np.isfinite(vectors).all(axis=1)).all():
        raise ModelError(
            f"{embedder.name} gave NaN or infinity for {texts[int(finite.argmin())]!r:.80}. Correct the embedder."
        )
    return vectors
