"""MiniLM with trained weights, on onnxruntime: as a reader of spans, a scorer of texts, or an embedder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from spolia.core.run_context import charge, check_cancelled, record_access
from spolia.deferred import numpy as np
from spolia.errors import ModelError, WeightsError
from spolia.models.onnx import safetensors, weights
from spolia.models.onnx.minilm import MiniLM, batches, open_session
from spolia.models.onnx.tokenizer import Tokens, WordPiece
from spolia.models.open_sessions import OpenSessions
from spolia.models.protocols import FoundSpan, Kind
from spolia.models.trained_weights import BI_ENCODER, EMBEDDER, RERANKER, TrainedWeights
from spolia.types import Usage, Value

if TYPE_CHECKING:
    import numpy.typing as npt

    from spolia.types.arrays import Vectors

    Floats = npt.NDArray[np.float32]

CLS, SEP = 101, 102  # in BERT's vocabulary
PART, HEAD = "reader", "spans"
"""The linear layer's tensors are `spans.weight` (2, 384) and `spans.bias` (2): begins here, ends here."""
HEAD_OF_SCORE, THRESHOLD = "score", "threshold"
"""The linear layer of a score; and a tensor with the score from which on a chain suffices."""
QUESTION_TOKENS, POSITIONS = 64, 512  # of a longer question the rest is left out, so that the text has room


class Window(NamedTuple):
    """Input of the model: [CLS] question [SEP] piece of the text [SEP].

    Fields:
        ids: numbers of the tokens.
        first: where the piece begins among them.
        start: which token of the text its first one is.
    """

    ids: list[int]
    first: int
    start: int


def windows(question: Sequence[int], text: Sequence[int], size: int, overlap: int) -> Iterator[Window]:
    """Yield the windows over a text: each token is in at least one, and neighbours share `overlap` tokens.

    >>> [window.ids for window in windows([7], [1, 2, 3, 4], 6, 1)]
    [[101, 7, 102, 1, 2, 102], [101, 7, 102, 2, 3, 102], [101, 7, 102, 3, 4, 102]]
    """
    beginning = [CLS, *question[:QUESTION_TOKENS], SEP]
    room = max(1, size - len(beginning) - 1)
    for start in range(0, max(1, len(text) - min(overlap, room - 1)), max(1, room - overlap)):
        yield Window([*beginning, *text[start : start + room], SEP], len(beginning), start)


def best_span(logits: Floats, first: int, longest: int) -> tuple[float, int, int] | None:
    """Return score, first and last token of the likeliest span of a window; None without a token to read.

    score(i, j) = start_i + end_j - start_0 - end_0 for i <= j < i + longest. Token 0, [CLS], stands for "no answer".
    """
    starts, ends = logits[first:-1, 0], logits[first:-1, 1]
    candidates = [
        (float(sums.max()), int(sums.argmax()), length)
        for length in range(min(longest, len(starts)))
        for sums in [starts[: len(starts) - length] + ends[length:]]
    ]
    if not candidates:
        return None
    score, index, length = max(candidates, key=lambda candidate: candidate[0])
    return score - float(logits[0].sum()), first + index, first + index + length


def find_spans(
    question: Tokens,
    texts: Sequence[Tokens],
    logits: Callable[[list[list[int]]], list[Floats]],
    size: int,
    overlap: int,
    longest: int,
) -> list[FoundSpan | None]:
    """Find the best span of each text. `logits` gives those of windows, each (tokens, 2)."""
    row_windows = [
        (row, window) for row, text in enumerate(texts) for window in windows(question.ids, text.ids, size, overlap)
    ]
    best: list[FoundSpan | None] = [None] * len(texts)
    for (row, window), window_logits in zip(
        row_windows, logits([window.ids for _, window in row_windows]), strict=True
    ):
        span, previous = best_span(window_logits, window.first, longest), best[row]
        # of equal ones the first window's stays
        if span is None or (previous is not None and previous.score >= span[0]):
            continue
        ends, shift = texts[row].ends, window.start - window.first
        best[row] = FoundSpan(span[0], ends[span[1] + shift][0], ends[span[2] + shift][1])
    return best


@dataclass(frozen=True)
class MiniLMSpans(Value):
    """Address of a trained reader of spans (`spolia train reader`); opened on first use, once per process.

    It runs on onnxruntime, without torch: the encoder is the graph of `MiniLM` with the weights that were trained in
    place of its own, the head one more linear layer. The result for a text does not depend on the texts beside it.

    Args:
        weights: those of the trained reader; its embeddings of words are those of `MiniLM`.
        base: folder with the weights of `MiniLM`; empty to look them up.
        window: tokens of question and text together, as many as in the training: later positions have learned nothing.
            A longer text is read in several windows.
        overlap: tokens that neighbouring windows share.
        longest: tokens of the longest span.
        threads: CPU threads for one call.
        batch_tokens: most tokens of windows of one length that run together, which changes no score.

    Raises:
        WeightsError: on first use, when there are no weights, or those of another part.
        MissingExtra: on first use, when onnxruntime or tokenizers is not installed.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.3.

    >>> MiniLMSpans(TrainedWeights("trained/reader")).window
    128
    """

    weights: TrainedWeights
    base: str = ""
    window: int = 128
    overlap: int = 32
    longest: int = 16
    threads: int = 1
    batch_tokens: int = 512

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("window", "longest", "threads", "batch_tokens"):
            if getattr(self, name) < 1:
                raise ModelError(f"MiniLMSpans got {name}={getattr(self, name)}. Write a number of at least 1.")
        if not 0 <= self.overlap < self.window <= POSITIONS:
            raise ModelError(
                f"MiniLMSpans got window={self.window} and overlap={self.overlap}. Write a window of at most "
                f"{POSITIONS} tokens, and a smaller overlap."
            )

    @property
    def name(self) -> str:
        return f"spans@{(self.weights.fingerprint() or 'none')[:8]}"

    def fingerprint(self) -> str | None:
        """Return the identity of its weights and settings; None if there are no weights."""
        weights_hash = self.weights.fingerprint()
        return weights_hash and f"{weights_hash}|{self.window}|{self.overlap}|{self.longest}"

    def spans(self, question: str, texts: Sequence[str]) -> list[FoundSpan | None]:
        """Find the best span of each text, in their order; None for a text without a token."""
        if not len(texts):
            return []
        record_access(self)
        loaded, tokenizer = self._get_loaded(), WordPiece(self.base)

        def logits(rows: list[list[int]]) -> list[Floats]:
            return loaded.logits(rows, self.batch_tokens)

        tokens = [tokenizer.read(text) for text in (question, *texts)]
        return find_spans(tokens[0], tokens[1:], logits, self.window, self.overlap, self.longest)

    def _get_loaded(self) -> _LoadedModel:
        return load_tuned(self.weights, PART, self.base, self.threads, HEAD, 2)


@dataclass(frozen=True)
class MiniLMScorer(Value):
    """Address of MiniLM with a score of a question and a text, trained by `spolia train`; a `Scorer`.

        p = 1 / (1 + exp(-w · x - b)), x the vector of [CLS] in: [CLS] question [SEP] text [SEP]

    It runs on onnxruntime, without torch. A score does not depend on the texts beside it.

    Args:
        weights: those that `spolia train reranker` wrote, or `context`, or `sufficiency --base minilm`.
        part: which of these three.
        base: folder with the weights of `MiniLM`; empty to look them up.
        window: tokens of question and text together; the rest of the text is not read.
        threads: CPU threads for one call.
        batch_tokens: most tokens of pairs of one length that run together, which changes no score.

    Raises:
        WeightsError: on first use, when there are no weights, or those of another part.
        MissingExtra: on first use, when onnxruntime or tokenizers is not installed.

    Source: Nogueira and Cho, "Passage re-ranking with BERT", 2019.

    >>> MiniLMScorer(TrainedWeights("trained/reranker")).window
    256
    """

    weights: TrainedWeights
    part: str = RERANKER
    base: str = ""
    window: int = 256
    threads: int = 1
    batch_tokens: int = 512

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not QUESTION_TOKENS + 4 <= self.window <= POSITIONS:
            raise ModelError(
                f"MiniLMScorer got window={self.window}. Write a number from {QUESTION_TOKENS + 4} to {POSITIONS}."
            )

    @property
    def name(self) -> str:
        return f"{self.part}@{(self.weights.fingerprint() or 'none')[:8]}"

    def fingerprint(self) -> str | None:
        """Return the identity of its weights and window; None if there are no weights."""
        weights_hash = self.weights.fingerprint()
        return weights_hash and f"{weights_hash}|{self.window}"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """Return for each text the probability that it answers the question, or that the chain suffices."""
        if not len(texts):
            return ()
        record_access(self)
        tokenizer = WordPiece(self.base)
        question_ids = tokenizer.read(query).ids
        rows = [join_pair(question_ids, tokenizer.read(text).ids, self.window) for text in texts]
        model = load_tuned(self.weights, self.part, self.base, self.threads, HEAD_OF_SCORE, 1)
        logits = model.logits(rows, self.batch_tokens)
        # exp overflows beyond about 700.
        return tuple(1 / (1 + exp(-min(max(float(row_logits[0, 0]), -500.0), 500.0))) for row_logits in logits)


def join_pair(question: Sequence[int], text: Sequence[int], window: int) -> list[int]:
    """Return a question and a text as the model reads them: [CLS] question [SEP] text [SEP].

    >>> join_pair([7], [1, 2, 3, 4], 6)
    [101, 7, 102, 1, 2, 102]
    """
    return next(windows(question, text, window, 0)).ids


@dataclass(frozen=True)
class TunedMiniLM(MiniLM):
    """Address of MiniLM as an embedder, with the layers that `spolia train` has trained.

    With those of `spolia train embedder`, questions alone are read by them: passages have the vectors of `MiniLM`, so a
    store needs no new ones. With those of `spolia train bi-encoder`, passages are too: it has another name, and a store
    is indexed with it (`spolia index FOLDER --embedder DIR`).

    Args:
        weights, threads, batch_tokens: as for `MiniLM`.
        tuned: the trained weights.
        part: `embedder` or `bi-encoder`.

    Raises:
        ModelError: for another part.
        WeightsError: on first use, when there are no weights, or those of another part.

    Source: Karpukhin et al., "Dense passage retrieval for open-domain question answering", EMNLP 2020; the query
    encoder alone learns as in Lin et al., "RA-DIT", ICLR 2024.

    >>> TunedMiniLM(tuned=TrainedWeights("trained/embedder")).dimension
    384
    """

    tuned: TrainedWeights = field(kw_only=True)
    part: str = field(default=EMBEDDER, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.part not in (EMBEDDER, BI_ENCODER):
            raise ModelError(f"TunedMiniLM got part={self.part!r}. Write {EMBEDDER!r} or {BI_ENCODER!r}.")

    @property
    def name(self) -> str:
        """Return the name of `MiniLM` if passages have its vectors, else one of its own."""
        weights_hash = (self.tuned.fingerprint() or "none")[:8]
        return super().name if self.part == EMBEDDER else f"{super().name}+{weights_hash}"

    def fingerprint(self) -> str:
        return f"{self.name}|{self.tuned.fingerprint() or 'none'}"

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1: float32, shape (texts, 384)."""
        if kind == "passage" and self.part == EMBEDDER:
            return MiniLM(self.weights, self.threads, self.batch_tokens).embed(texts, kind=kind)
        return super().embed(texts, kind=kind)

    def _get_session(self) -> tuple[Any, list[Any]]:
        return load_tuned(self.tuned, self.part, self.weights, self.threads).session


def load_tuned(
    trained: TrainedWeights, part: str, base: str, threads: int, head: str = "", outputs: int = 0
) -> _LoadedModel:
    """Load MiniLM with the trained tensors of a part in place of its own, once per process; the linear layer `head`
    too."""
    return _sessions.get((trained, part, base, threads), lambda: _load(trained, part, base, threads, head, outputs))


def _load(trained: TrainedWeights, part: str, base: str, threads: int, head: str, outputs: int) -> _LoadedModel:
    trained_tensors, base_tensors = dict(trained.tensors(part)), safetensors.read(weights.find(base).tensors)
    trained_tensors.pop(THRESHOLD, None)  # it lies with the weights, and is none
    layer = [trained_tensors.pop(f"{head}.{name}", None) for name in ("weight", "bias")]
    expected_shapes = [(outputs, MiniLM.dimension), (outputs,)] if head else [None, None]
    if [None if tensor is None else tensor.shape for tensor in layer] != expected_shapes:
        raise WeightsError(f"{trained.place} has no {head}.weight ({outputs}, 384) and {head}.bias ({outputs}).")
    for name, tensor in trained_tensors.items():
        if name not in base_tensors or tensor.shape != base_tensors[name].shape or not np.isfinite(tensor).all():
            raise WeightsError(f"{trained.place}: MiniLM has no finite tensor {name} of this shape. Train it again.")
    return _LoadedModel(open_session({**base_tensors, **trained_tensors}, threads), *layer)


class _LoadedModel(NamedTuple):
    """Session with the weights that it reads, and the head."""

    session: tuple[Any, list[Any]]
    weight: Any
    bias: Any

    def logits(self, rows: list[list[int]], batch_tokens: int) -> list[Floats]:
        """Return the head's outputs for each token of each row: (tokens, outputs)."""
        logits: dict[int, Floats] = {}
        for batch in batches([len(row) for row in rows], batch_tokens):
            check_cancelled()
            ids = np.array([rows[number] for number in batch], np.int64)
            inputs = {"input_ids": ids, "attention_mask": np.ones(ids.shape, np.int32)}
            vectors = self.session[0].run(["tokens"], inputs)[0]
            logits.update(zip(batch, (vector @ self.weight.T + self.bias for vector in vectors), strict=True))
            charge(Usage(embedded=len(batch)))
        return [logits[number] for number in range(len(rows))]


_sessions = OpenSessions[_LoadedModel]()
