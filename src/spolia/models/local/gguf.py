"""Models in files of GGUF, which llama.cpp runs within this process: a language model and an embedder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from spolia.core.run_context import charge, check_cancelled, reserve
from spolia.deferred import llama_chat_format
from spolia.deferred import numpy as np
from spolia.errors import ModelError, ModelRejected
from spolia.models.http.completions import written
from spolia.models.local.address import without_marks
from spolia.models.local.gguf_session import Gguf, GgufSession
from spolia.models.local.language_model import UNFINISHED, ReplyPieces, reply_of
from spolia.models.protocols import (
    CHAT,
    DISTRIBUTIONS,
    LOGPROBS,
    NEXT_TOKENS,
    SCORES,
    STREAM,
    Capabilities,
    Kind,
)
from spolia.types import Generation, Prompt, Token, Usage

if TYPE_CHECKING:
    from numpy.random import Generator

    from spolia.types.arrays import Numbers, Vectors

POOLINGS = ("", "mean", "cls", "last")


@dataclass(frozen=True)
class GgufModel(Gguf):
    """The address of a language model in a file of GGUF; its settings are those of every `Gguf`.

    What is most probable is taken at temperature 0; above, tokens are drawn by a generator that begins with
    `prompt.sample`, so that a sample is the same each time. Log-probabilities are those of the model, at temperature 1.

    Args:
        window: of prompt and reply together, in tokens. A longer prompt raises.
        templated: whether messages are put into the file's chat template, if it has one; else their texts are.

    >>> GgufModel("models/qwen3-4b-q4_k_m.gguf").name
    'qwen3-4b-q4_k_m'
    """

    window: int = 4096
    templated: bool = True

    waits: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[str]] = Capabilities((CHAT, STREAM, LOGPROBS, SCORES, NEXT_TOKENS, DISTRIBUTIONS))

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
        """The reply to a prompt."""
        opened, ids = self.opened(), self._ids(prompt)
        most = min(max_tokens, self.window - len(ids))
        with reserve(Usage(calls=1, input_tokens=len(ids), output_tokens=most)) as held, opened.alone():
            drawn = _tokens(opened, ids, prompt.sample, temperature, most)
            reply = reply_of(drawn, opened.is_end, ReplyPieces(opened, stop), on_text)
            held.settle(Usage(calls=1, input_tokens=len(ids), output_tokens=reply.made))
        return reply.generation(self.name, logprobs)

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """The tokens of `text`, each with its log-probability after the prompt and those before it; Σ is log P(text).

        The text is cut into tokens by itself, so that none begins in the prompt. It may hold special tokens.
        """
        opened = self.opened()
        bare = text.removeprefix(" ") if opened.puts_space else text
        ids = opened.ids(bare, marks=True, begins=False)
        if not text or not ids:
            return ()
        before = self._ids(prompt, room=len(ids))
        with reserve(Usage(calls=1, input_tokens=len(before) + len(ids))), opened.alone():
            chances = opened.after([*before, *ids[:-1]], places=len(ids))
        texts = _texts(opened, ids, text)
        return tuple(Token(one, float(chances[at, id])) for at, (one, id) in enumerate(zip(texts, ids, strict=True)))

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """The most probable next tokens, best first."""
        opened, chances = self.opened(), self.distribution(prompt)
        best = np.argsort(-chances, kind="stable")[:top].tolist()
        return tuple(Token(opened.decode([id]), float(chances[id])) for id in best)

    def distribution(self, prompt: Prompt) -> Numbers:
        """The natural log-probability of every token as the next one: float64, shape (vocabulary,)."""
        opened, ids = self.opened(), self._ids(prompt)
        with reserve(Usage(calls=1, input_tokens=len(ids))), opened.alone():
            found: Numbers = opened.after(ids)[0]
        return found

    def _ids(self, prompt: Prompt, room: int = 1) -> list[int]:
        """The tokens of a prompt; refused where they leave less room than is wanted."""
        opened = self.opened()
        template = opened.facts.get("tokenizer.chat_template", "") if self.templated else ""
        found = self._in_template(opened, template, prompt) if template else opened.ids(written(prompt))
        if len(found) + room > self.window:
            raise ModelRejected(
                f"The prompt has {len(found)} tokens, and the reply needs {room} more; {self.name} has a window of "
                f"{self.window}. Write a shorter prompt, or the window that the model was made for."
            )
        return found

    def _in_template(self, opened: GgufSession, template: str, prompt: Prompt) -> list[int]:
        said = [{"role": one.role, "content": without_marks(one.content, opened.marks)} for one in prompt.messages]
        goes_on = prompt.messages[-1].role == "assistant"  # what the reply has begun with
        api, vocabulary = opened.api, opened.api.llama_model_get_vocab(opened.llama.model)
        bos, eos = (
            (api.llama_vocab_get_text(vocabulary, id) or b"").decode() if id >= 0 else ""
            for id in (opened.llama.token_bos(), opened.llama.token_eos())
        )
        try:
            made = llama_chat_format.Jinja2ChatFormatter(template, eos, bos, add_generation_prompt=not goes_on)
            text = str(made(messages=said).prompt)
            if goes_on:
                begun = said[-1]["content"].strip()
                text = text[: text.rindex(begun) + len(begun)]
        except Exception as error:  # the template may refuse roles and orders in its own words
            raise ModelRejected(
                f"The chat template of {self.name} refuses the messages: {error}. Write other roles, or "
                "templated=False."
            ) from error
        return opened.ids(text, marks=True, begins=not (bos and text.startswith(bos)))


def _tokens(
    opened: GgufSession, ids: Sequence[int], seed: int, temperature: float, most: int
) -> Iterator[tuple[int, float]]:
    """Tokens one after the other, each with its log-probability."""
    drawing, row = np.random.default_rng(seed), list(ids)
    for _ in range(most):
        check_cancelled()
        chances = opened.after(row)[0]
        token = drawn_from(chances, temperature, drawing) if temperature > 0 else int(chances.argmax())
        yield token, min(0.0, float(chances[token]))
        row = [token]


def drawn_from(chances: Numbers, temperature: float, drawing: Generator) -> int:
    """A token with probability ∝ P(token)^(1/temperature)."""
    sums = np.exp((chances - chances.max()) / temperature).cumsum()
    return int(np.searchsorted(sums, drawing.random() * sums[-1], side="right"))


def _texts(opened: GgufSession, ids: Sequence[int], text: str) -> list[str]:
    """What each token has of a text. One that ends within a character has none of it, and the space that a tokenizer
    puts before a text belongs to none."""
    found, held = [], b""
    for id in ids:
        held += opened.piece(id, marks=True)
        whole = held.decode("utf-8", "replace")
        is_whole = not whole.endswith(UNFINISHED)
        found.append(whole if is_whole else "")
        held = b"" if is_whole else held
    found[-1] += held.decode("utf-8", "replace")
    if "".join(found) == f" {text}":
        found[0] = found[0][1:]
    return found


@dataclass(frozen=True)
class GgufEmbedder(Gguf):
    """The address of an embedder in a file of GGUF (an `Embedder`); its settings are those of every `Gguf`.

    Args:
        window: the rest of a longer text is not read.
        query_prefix, passage_prefix: what the model wants before each: `query: `, or an instruction.
        pooling: what of the last hidden states h_1 … h_n becomes the vector: `mean`, their mean; `cls`, h_1; `last`,
            h_n; empty for what the file says.

    >>> GgufEmbedder("models/nomic-embed-text-v1.5.gguf", query_prefix="search_query: ").pooling
    ''
    """

    query_prefix: str = ""
    passage_prefix: str = ""
    pooling: Literal["", "mean", "cls", "last"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in POOLINGS:
            raise ModelError(f"GgufEmbedder got pooling={self.pooling!r}. Write mean, cls or last, or leave it out.")

    @property
    def dimension(self) -> int:
        return int(self.opened().llama.n_embd())

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """One vector of length 1 for each text: float32, shape (texts, dimension); of nothing but zeros the first unit.

        Raises:
            ModelRejected: a vector has NaN or infinity.
        """
        opened = self.opened()
        found = np.zeros((len(texts), self.dimension), np.float32)
        for at, text in enumerate(texts):
            check_cancelled()
            ids = self._cut(opened, self._row(opened, text, kind))
            with opened.alone():
                vector = opened.vector(ids)
            length = float(np.linalg.norm(vector))
            if not np.isfinite(length):
                raise ModelRejected(f"{self.name} gave a vector with NaN or infinity. Check the file.")
            found[at] = vector / length if length else np.eye(1, len(vector))[0]
            charge(Usage(embedded=1))
        return found

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in tokens, with special ones and a passage's prefix; beyond `window` nothing is read."""
        opened = self.opened()
        return [len(self._row(opened, text, "passage")) for text in texts]

    def covers(self, text: str) -> float:
        """Share of the tokens of a text that are not the token for what is unknown; 1 for an empty text."""
        opened = self.opened()
        ids = opened.ids(text, begins=False)
        return 1.0 - sum(map(opened.is_unknown, ids)) / len(ids) if ids else 1.0

    def _row(self, opened: GgufSession, text: str, kind: Kind) -> list[int]:
        prefix = self.query_prefix if kind == "query" else self.passage_prefix
        return opened.ids(prefix + text) or [max(0, opened.llama.token_eos())]

    def _cut(self, opened: GgufSession, ids: list[int]) -> list[int]:
        """Those tokens that fit, and the one that ends all texts of the model, if there is one."""
        if len(ids) <= self.window:
            return ids
        ends = opened.ids("")[-1:]
        ends = [] if ends == ids[:1] else ends
        return ids[: self.window - len(ends)] + ends
