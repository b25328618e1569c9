"""What the flow asks of a model. Adapters are frozen addresses; the connection behind them opens on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

from spolia.core.type_compatibility import lacking, members
from spolia.core.validation import capabilities_of, capable
from spolia.deferred import numpy as np
from spolia.errors import ModelError, ModelRejected, WiringError
from spolia.types import Addressed, Generation, Prompt, Token

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


def unread(text: str) -> None:
    """Take pieces of a reply that nobody reads before it is complete: the reply is streamed, so that a slow server
    does not time out, and a stream that breaks is asked for again."""


class Capabilities(frozenset[str]):
    """What a model can do, as data that a flow can be checked against; written in one order.

    >>> Capabilities((STREAM, CHAT))
    frozenset({'chat', 'stream'})
    """

    def __new__(cls, names: Iterable[str] = ()) -> Capabilities:
        return super().__new__(cls, (names,) if isinstance(names, str) else names)

    def __repr__(self) -> str:
        return f"frozenset({{{', '.join(map(repr, sorted(self)))}}})" if self else "frozenset()"


def able(names: Iterable[str], every: Iterable[str]) -> Capabilities:
    """The declared capabilities of a server: names among `every`, those of this kind of server.

    >>> able(("chat", "strem"), (CHAT, STREAM))
    Traceback (most recent call last):
    spolia.errors.ModelError: No server is asked for 'strem'. Write some of: chat, stream.
    """
    found = Capabilities(names)
    if unknown := sorted(found - set(every)):
        raise ModelError(f"No server is asked for {unknown[0]!r}. Write some of: {', '.join(every)}.")
    return found


class AnyModel(Addressed, Protocol):
    """A model.

    Attributes:
        name: differs for any two models that give different results; it has a hash of local weights.
    """

    @property
    def name(self) -> str: ...


@capable(CHAT)
@runtime_checkable
class LanguageModel(AnyModel, Protocol):
    """Writes a reply to a prompt."""

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
        """The reply to `prompt`; reserves and settles its own usage.

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
        """The tokens of `text`, each with its log-probability after the prompt and those before it.

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
        """The most probable next tokens, best first, each with its log-probability."""
        ...


@capable(DISTRIBUTIONS)
@runtime_checkable
class StatesDistributions(LanguageModel, Protocol):
    """A language model with the capability `distributions`."""

    def distribution(self, prompt: Prompt) -> npt.NDArray[np.float64]:
        """The natural log-probability of every token of the vocabulary as the next one: shape (vocabulary,)."""
        ...


@capable(HIDDEN_STATES)
@runtime_checkable
class StatesHidden(LanguageModel, Protocol):
    """A model with the capability `hidden_states`."""

    def hidden_states(self, texts: Sequence[str], *, layer: int = -1) -> list[Vectors]:
        """What a layer gives for each token of each text: float32, shape (tokens, width).

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
        """The reply to a prompt, which the server holds to a JSON schema."""
        ...


def able_to(model: M, kind: Any) -> M:
    """The model, if it can do what a protocol asks for and states its capabilities; else ModelRejected."""
    needed = capabilities_of(kind)
    if isinstance(model, kind) and needed <= model.capabilities:
        return model
    names = ", ".join(map(repr, sorted(needed)))
    raise ModelRejected(f"{model.name} has no {names}. Write a model that has, as CompletionModel.")


@runtime_checkable
class Scorer(AnyModel, Protocol):
    """Judges how well texts answer a query: a cross-encoder, here or on a server."""

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """One finite score for each text, in their order; higher is better. They compare within one call."""
        ...


@runtime_checkable
class ImageScorer(Scorer, Protocol):
    """Judges how well texts and pictures answer a query, on one scale."""

    def scores_of(self, query: str, passages: Sequence[str | bytes]) -> tuple[float, ...]:
        """One finite score for each text, or picture (a file of PNG, JPEG …), in their order; higher is better."""
        ...


class FoundSpan(NamedTuple):
    """A stretch of a text, by characters. Above 0, it is likelier than that the text has no answer."""

    score: float
    start: int
    end: int


@runtime_checkable
class SpanModel(AnyModel, Protocol):
    """Finds the stretch of a text that answers a question."""

    def spans(self, question: str, texts: Sequence[str]) -> Sequence[FoundSpan | None]:
        """The best span of each text, in their order; None for a text without any."""
        ...


class ReadsTexts(AnyModel, Protocol):
    """Reads texts as tokens.

    Attributes:
        window: longest text in tokens, special ones included; the rest of a longer one is not read.
    """

    @property
    def window(self) -> int: ...

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in tokens, special ones included; above `window`, its end is not read."""
        ...

    def covers(self, text: str) -> float:
        """Share of the characters that the embedder knows, from 0 to 1; 1 for an empty text."""
        ...


@runtime_checkable
class Embedder(ReadsTexts, Protocol):
    """Maps texts to vectors whose cosine is their likeness; `dimension` is the length of one."""

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """One vector of length 1 for each text: float32, shape (texts, dimension). Charges what it embedded."""
        ...


@runtime_checkable
class ImageEmbedder(Embedder, Protocol):
    """An embedder that maps pictures to vectors in the space of its texts, so that words find pictures.

    In a group that is embedded by one, the vector of a node that shows a picture is that of the picture (as of CLIP,
    Radford et al. 2021); the other nodes are embedded by their text. Questions are texts.
    """

    def embed_images(self, images: Sequence[bytes]) -> Vectors:
        """One vector of length 1 for each picture, a file of PNG, JPEG …: float32, shape (images, dimension).

        Charges what it embedded. Whatever it raises of a picture that it cannot read concerns that picture only.

        Raises:
            ModelUnavailable: the same call may succeed later.
        """
        ...


@runtime_checkable
class SparseEmbedder(ReadsTexts, Protocol):
    """Maps texts to weights of the terms of a vocabulary; the product of two such vectors is their likeness."""

    def embed_sparse(self, texts: Sequence[str], *, kind: Kind) -> SparseRows:
        """One row of weights for each text. Charges what it embedded."""
        ...


@runtime_checkable
class TokenEmbedder(AnyModel, Protocol):
    """Maps texts to a vector for each of their tokens, for late interaction (ColBERT, Khattab and Zaharia 2020).

    Attributes:
        dimension: length of a token's vector.
        window: longest text in tokens, special ones included; the rest of a longer one is not read.
    """

    @property
    def dimension(self) -> int: ...

    @property
    def window(self) -> int: ...

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        """Vectors of length 1 for the tokens of each text, without any for padding. Charges what it embedded."""
        ...


def refuse_no_embedder(given: object, whose: str, *kinds: type) -> None:
    """Refuse what stands for an embedder and follows none of the protocols `kinds`. Nothing of it is computed, so that
    no weights are looked for.

    >>> refuse_no_embedder(8, "It", Embedder, SparseEmbedder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    spolia.errors.WiringError: It wants an embedder, and was given 8 (int). Write MiniLM(); docs/...
    """
    if not isinstance(given, (type, str)) and any(not lacking(given, kind) for kind in kinds):
        return
    kind = max(kinds, key=lambda kind: len(members(kind)) - len(lacking(given, kind)))
    lacks = lacking(given, kind)
    said = f"{whose} wants an embedder, and was given {given!r:.80} ({type(given).__name__})."
    if isinstance(given, type):
        raise WiringError(f"{said} Write {given.__name__}(...).")
    if len(lacks) == len(members(kind)):
        raise WiringError(f"{said} Write MiniLM(); docs/how-to/models.md shows one.")
    written = ", ".join(name + _written(getattr(kind, name)) for name in lacks)
    raise WiringError(f"{said} It lacks {written}: docs/how-to/models.md shows one.")


def _written(member: object) -> str:
    """The parameters of a method: `(texts, *, kind)`; nothing for what is none."""
    if not callable(member):
        return ""
    bare = [
        each.replace(annotation=each.empty) for name, each in signature(member).parameters.items() if name != "self"
    ]
    return str(signature(member).replace(parameters=bare, return_annotation=signature(member).empty))


def embedded(embedder: Embedder, texts: Sequence[str], kind: Kind) -> Vectors:
    """float32[n, d], a vector for each text; ModelError if their number or length is wrong, or one has NaN or infinity.

    >>> from spolia.testing import HashingEmbedder
    >>> embedded(HashingEmbedder(16), ["red stones", "blue sea"], "passage").shape
    (2, 16)
    """
    if not texts:
        return np.zeros((0, embedder.dimension), np.float32)
    found = np.asarray(embedder.embed(texts, kind=kind), dtype=np.float32)
    if found.shape != (len(texts), embedder.dimension):
        raise ModelError(
            f"{embedder.name} gave vectors of shape {found.shape} for {len(texts)} texts, where each has "
            f"{embedder.dimension} numbers. Correct the embedder."
        )
    if not (finite := np.isfinite(found).all(axis=1)).all():
        raise ModelError(
            f"{embedder.name} gave NaN or infinity for {texts[int(finite.argmin())]!r:.80}. Correct the embedder."
        )
    return found
