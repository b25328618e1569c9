"""Models in files of GGUF, which llama.cpp runs in this process: a language model and an embedder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from spolia.core.run_context import charge, check_cancelled, reserve
from spolia.deferred import llama_cpp
from spolia.deferred import numpy as np
from spolia.errors import ModelError, ModelRejected
from spolia.models.http.completions import join_messages
from spolia.models.local.address import escape_tokens
from spolia.models.local.gguf_session import Gguf, GgufSession
from spolia.models.local.language_model import UNFINISHED, ReplyPieces, collect_reply
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
    """Address of a language model in a file of GGUF; its settings are those of every `Gguf`.

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
        """Return the reply to a prompt."""
        session, ids = self.open_session(), self._ids(prompt)
        limit = min(max_tokens, self.window - len(ids))
        with reserve(Usage(calls=1, input_tokens=len(ids), output_tokens=limit)) as reservation, session.alone():
            sampled = _tokens(session, ids, prompt.sample, temperature, limit)
            reply = collect_reply(sampled, session.is_end, ReplyPieces(session, stop), on_text)
            reservation.settle(Usage(calls=1, input_tokens=len(ids), output_tokens=reply.token_count))
        return reply.generation(self.name, logprobs)

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """Return the tokens of `text`, each with its log-probability after the prompt and the tokens before it; Σ is
        log P(text).

        The text is cut into tokens by itself, so that none begins in the prompt. It may hold special tokens.
        """
        session = self.open_session()
        # The tokenizer puts a space before a text by itself; two would be another text.
        bare = text.removeprefix(" ") if session.puts_space else text
        ids = session.ids(bare, marks=True, begins=False)
        if not text or not ids:
            return ()
        prompt_ids = self._ids(prompt, room=len(ids))
        with reserve(Usage(calls=1, input_tokens=len(prompt_ids) + len(ids))), session.alone():
            logprobs = session.predict([*prompt_ids, *ids[:-1]], places=len(ids))
        texts = _token_texts(session, ids, text)
        return tuple(
            Token(piece, float(logprobs[index, id])) for index, (piece, id) in enumerate(zip(texts, ids, strict=True))
        )

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """Return the most probable next tokens, best first."""
        session, logprobs = self.open_session(), self.distribution(prompt)
        best = np.argsort(-logprobs, kind="stable")[:top].tolist()  # equal ones in the vocabulary's order, everywhere
        return tuple(Token(session.decode([id]), float(logprobs[id])) for id in best)

    def distribution(self, prompt: Prompt) -> Numbers:
        """Return the natural log-probability of every token as the next one: float64, shape (vocabulary,)."""
        session, ids = self.open_session(), self._ids(prompt)
        with reserve(Usage(calls=1, input_tokens=len(ids))), session.alone():
            logprobs: Numbers = session.predict(ids)[0]
        return logprobs

    def _ids(self, prompt: Prompt, room: int = 1) -> list[int]:
        """Return the tokens of a prompt; ModelRejected if they leave fewer than `room` for the reply."""
        session = self.open_session()
        template = session.facts.get("tokenizer.chat_template", "") if self.templated else ""
        ids = self._render_ids(session, template, prompt) if template else session.ids(join_messages(prompt))
        if len(ids) + room > self.window:
            raise ModelRejected(
                f"The prompt has {len(ids)} tokens, and the reply needs {room} more; {self.name} has a window of "
                f"{self.window}. Write a shorter prompt, or the window that the model was made for."
            )
        return ids

    def _render_ids(self, session: GgufSession, template: str, prompt: Prompt) -> list[int]:
        messages = [
            {"role": message.role, "content": escape_tokens(message.content, session.marks)}
            for message in prompt.messages
        ]
        is_continued = prompt.messages[-1].role == "assistant"  # what the reply has begun with
        api, vocabulary = session.api, session.api.llama_model_get_vocab(session.llama.model)
        bos, eos = (
            (api.llama_vocab_get_text(vocabulary, id) or b"").decode() if id >= 0 else ""
            for id in (session.llama.token_bos(), session.llama.token_eos())
        )
        try:
            formatter = llama_cpp.llama_chat_format.Jinja2ChatFormatter(
                template, eos, bos, add_generation_prompt=not is_continued
            )
            text = str(formatter(messages=messages).prompt)
            if is_continued:
                beginning = messages[-1]["content"].strip()
                # The template closes the last message, which the model has to continue.
                text = text[: text.rindex(beginning) + len(beginning)]
        except Exception as error:  # the template may refuse roles and orders in its own words
            raise ModelRejected(
                f"The chat template of {self.name} refuses the messages: {error}. Write other roles, or "
                "templated=False."
            ) from error
        return session.ids(text, marks=True, begins=not (bos and text.startswith(bos)))


def _tokens(
    session: GgufSession, ids: Sequence[int], seed: int, temperature: float, limit: int
) -> Iterator[tuple[int, float]]:
    """Yield tokens one after the other, each with its log-probability."""
    generator, row = np.random.default_rng(seed), list(ids)
    for _ in range(limit):
        check_cancelled()
        logprobs = session.predict(row)[0]
        token = sample_token(logprobs, temperature, generator) if temperature > 0 else int(logprobs.argmax())
        # Rounding may give a log-probability just above 0.
        yield token, min(0.0, float(logprobs[token]))
        row = [token]


def sample_token(logprobs: Numbers, temperature: float, generator: Generator) -> int:
    """Draw a token with probability ∝ P(token)^(1/temperature)."""
    # The highest is subtracted so that exp cannot overflow at a low temperature.
    sums = np.exp((logprobs - logprobs.max()) / temperature).cumsum()
    return int(np.searchsorted(sums, generator.random() * sums[-1], side="right"))


def _token_texts(session: GgufSession, ids: Sequence[int], text: str) -> list[str]:
    """Return the part of a text that each token stands for. A token that ends within a character has none, and the
    space that a tokenizer puts before a text belongs to none."""
    texts, pending = [], b""
    for id in ids:
        pending += session.piece(id, marks=True)
        decoded = pending.decode("utf-8", "replace")
        is_complete = not decoded.endswith(UNFINISHED)
        texts.append(decoded if is_complete else "")
        pending = b"" if is_complete else pending
    texts[-1] += pending.decode("utf-8", "replace")
    if "".join(texts) == f" {text}":
        texts[0] = texts[0][1:]
    return texts


@dataclass(frozen=True)
class GgufEmbedder(Gguf):
    """Address of an embedder in a file of GGUF (an `Embedder`); its settings are those of every `Gguf`.

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
        return int(self.open_session().llama.n_embd())

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1: float32, shape (texts, dimension); of nothing but zeros the first
        unit.

        Raises:
            ModelRejected: a vector has NaN or infinity.
        """
        session = self.open_session()
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for index, text in enumerate(texts):
            check_cancelled()
            ids = self._cut_to_window(session, self._row(session, text, kind))
            with session.alone():
                vector = session.vector(ids)
            length = float(np.linalg.norm(vector))
            if not np.isfinite(length):
                raise ModelRejected(f"{self.name} gave a vector with NaN or infinity. Check the file.")
            vectors[index] = vector / length if length else np.eye(1, len(vector))[0]
            charge(Usage(embedded=1))
        return vectors

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the length of each text in tokens, with special ones and a passage's prefix; beyond `window` nothing
        is read."""
        session = self.open_session()
        return [len(self._row(session, text, "passage")) for text in texts]

    def covers(self, text: str) -> float:
        """Return the share of the tokens of a text that are not the token for what is unknown; 1 for an empty text."""
        session = self.open_session()
        ids = session.ids(text, begins=False)
        return 1.0 - sum(map(session.is_unknown, ids)) / len(ids) if ids else 1.0

    def _row(self, session: GgufSession, text: str, kind: Kind) -> list[int]:
        prefix = self.query_prefix if kind == "query" else self.passage_prefix
        # llama.cpp runs no empty batch; -1 is no token
        return session.ids(prefix + text) or [max(0, session.llama.token_eos())]

    def _cut_to_window(self, session: GgufSession, ids: list[int]) -> list[int]:
        """Return the tokens that fit, with the one that ends all texts of the model, if there is one."""
        if len(ids) <= self.window:
            return ids
        ends = session.ids("")[-1:]
        # For an empty text some tokenizers give only the token that begins one.
        ends = [] if ends == ids[:1] else ends
        return ids[: self.window - len(ends)] + ends
