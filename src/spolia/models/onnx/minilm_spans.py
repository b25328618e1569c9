"""A reader of spans: MiniLM and a linear layer over its tokens, on onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from spolia.core.run_context import charge, check_cancelled, reach
from spolia.errors import ModelError, WeightsError
from spolia.models.onnx import safetensors, weights
from spolia.models.onnx.minilm import MiniLM, batches, opened
from spolia.models.onnx.tokenizer import Tokens, WordPiece
from spolia.models.open_sessions import OpenSessions
from spolia.models.protocols import FoundSpan
from spolia.models.trained_weights import TrainedWeights
from spolia.types import Usage, Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

CLS, SEP = 101, 102
PART, HEAD = "reader", "spans"
"""The linear layer's tensors are `spans.weight` (2, 384) and `spans.bias` (2): begins here, ends here."""
QUESTION_TOKENS, POSITIONS = 64, 512


class Window(NamedTuple):
    """What the model reads: [CLS] question [SEP] piece of the text [SEP].

    Fields:
        ids: numbers of the tokens.
        first: where the piece begins among them.
        start: which token of the text its first one is.
    """

    ids: list[int]
    first: int
    start: int


def windows(question: Sequence[int], text: Sequence[int], size: int, overlap: int) -> Iterator[Window]:
    """The windows over a text of which each token is in at least one, and neighbours share `overlap` tokens.

    >>> [window.ids for window in windows([7], [1, 2, 3, 4], 6, 1)]
    [[101, 7, 102, 1, 2, 102], [101, 7, 102, 2, 3, 102], [101, 7, 102, 3, 4, 102]]
    """
    asked = [CLS, *question[:QUESTION_TOKENS], SEP]
    room = max(1, size - len(asked) - 1)
    for start in range(0, max(1, len(text) - min(overlap, room - 1)), max(1, room - overlap)):
        yield Window([*asked, *text[start : start + room], SEP], len(asked), start)


def best_span(logits: Floats, first: int, longest: int) -> tuple[float, int, int] | None:
    """Score, first and last token of the likeliest span of a window; None without a token to read.

    score(i, j) = start_i + end_j - start_0 - end_0 for i <= j < i + longest. Token 0, [CLS], stands for "no answer".
    """
    starts, ends = logits[first:-1, 0], logits[first:-1, 1]
    found = [
        (float(both.max()), int(both.argmax()), length)
        for length in range(min(longest, len(starts)))
        for both in [starts[: len(starts) - length] + ends[length:]]
    ]
    if not found:
        return None
    score, at, length = max(found, key=lambda one: one[0])
    return score - float(logits[0].sum()), first + at, first + at + length


def find_spans(
    question: Tokens,
    texts: Sequence[Tokens],
    logits: Callable[[list[list[int]]], list[Floats]],
    size: int,
    overlap: int,
    longest: int,
) -> list[FoundSpan | None]:
    """The best span of each text. `logits` gives those of windows, each (tokens, 2)."""
    read = [
        (row, window) for row, text in enumerate(texts) for window in windows(question.ids, text.ids, size, overlap)
    ]
    best: list[FoundSpan | None] = [None] * len(texts)
    for (row, window), scored in zip(read, logits([window.ids for _, window in read]), strict=True):
        span, known = best_span(scored, window.first, longest), best[row]
        if span is None or (known is not None and known.score >= span[0]):
            continue
        ends, shift = texts[row].ends, window.start - window.first
        best[row] = FoundSpan(span[0], ends[span[1] + shift][0], ends[span[2] + shift][1])
    return best


@dataclass(frozen=True)
class MiniLMSpans(Value):
    """The address of a trained reader of spans (`spolia train reader`); opened on first use, once per process.

    It runs on onnxruntime, without torch: the encoder is the graph of `MiniLM` with the weights that were trained in
    place of its own, the head one more linear layer. The result for a text does not depend on the texts beside it.

    Args:
        weights: those of the trained reader; its embeddings of words are those of `MiniLM`.
        base: folder with the weights of `MiniLM`; empty to look them up.
        window: tokens of question and text together; a longer text is read in several windows.
        overlap: tokens that neighbouring windows share.
        longest: tokens of the longest span.
        threads: CPU threads for one call.
        batch_tokens: most tokens of windows of one length that run together, which changes no score.

    Raises:
        WeightsError: on first use, when there are no weights, or those of another part.
        MissingExtra: on first use, when onnxruntime or tokenizers is not installed.

    Source: Devlin et al., "BERT", NAACL 2019, section 4.3.

    >>> MiniLMSpans(TrainedWeights("trained/reader")).window
    256
    """

    weights: TrainedWeights
    base: str = ""
    window: int = 256
    overlap: int = 96
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
        """Of its weights and settings; None where there are no weights."""
        known = self.weights.fingerprint()
        return known and f"{known}|{self.window}|{self.overlap}|{self.longest}"

    def spans(self, question: str, texts: Sequence[str]) -> list[FoundSpan | None]:
        """The best span of each text, in their order; None for a text without a token."""
        if not len(texts):
            return []
        reach(self)
        opened, words = self._opened(), WordPiece(self.base)

        def logits(rows: list[list[int]]) -> list[Floats]:
            return opened.logits(rows, self.batch_tokens)

        read = [words.read(text) for text in (question, *texts)]
        return find_spans(read[0], read[1:], logits, self.window, self.overlap, self.longest)

    def _opened(self) -> _Opened:
        return _sessions.get((self.weights, self.base, self.threads), self._open)

    def _open(self) -> _Opened:
        import numpy as np

        trained = dict(self.weights.tensors(PART))
        head = [trained.pop(f"{HEAD}.{part}", None) for part in ("weight", "bias")]
        base = safetensors.read(weights.find(self.base).tensors)
        if [None if one is None else one.shape for one in head] != [(2, MiniLM.dimension), (2,)]:
            raise WeightsError(f"{self.weights.place} has no {HEAD}.weight (2, 384) and {HEAD}.bias (2).")
        for name, tensor in trained.items():
            if name not in base or tensor.shape != base[name].shape or not np.isfinite(tensor).all():
                raise WeightsError(
                    f"{self.weights.place}: MiniLM has no finite tensor {name} of this shape. Train it again."
                )
        return _Opened(opened({**base, **trained}, self.threads), *head)


class _Opened(NamedTuple):
    """A session with the weights that it reads, and the head."""

    session: tuple[Any, list[Any]]
    weight: Any
    bias: Any

    def logits(self, rows: list[list[int]], batch_tokens: int) -> list[Floats]:
        """One (tokens, 2) for each window: how likely its answer begins, and ends, at each token."""
        import numpy as np

        found: dict[int, Floats] = {}
        for batch in batches([len(row) for row in rows], batch_tokens):
            check_cancelled()
            ids = np.array([rows[number] for number in batch], np.int64)
            given = {"input_ids": ids, "attention_mask": np.ones(ids.shape, np.int32)}
            vectors = self.session[0].run(["tokens"], given)[0]
            found.update(zip(batch, (each @ self.weight.T + self.bias for each in vectors), strict=True))
            charge(Usage(embedded=len(batch)))
        return [found[number] for number in range(len(rows))]


_sessions = OpenSessions[_Opened]()
