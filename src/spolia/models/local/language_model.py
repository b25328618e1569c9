"""Language models on this machine: causal ones and encoder-decoders, token by token."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import check_cancelled, reserve
from spolia.errors import EmptyReply, ModelRejected
from spolia.models.http.completions import join_messages
from spolia.models.local.address import Local, ModelSession, torch
from spolia.models.protocols import (
    CHAT,
    DISTRIBUTIONS,
    HIDDEN_STATES,
    LOGPROBS,
    NEXT_TOKENS,
    SCORES,
    STREAM,
    Capabilities,
)
from spolia.types import Generation, Prompt, Token, Usage

if TYPE_CHECKING:
    from spolia.types.arrays import Numbers, Vectors


class TokenStepper:
    """Prompt, and the tokens after it, one step at a time.

    What goes on with the prompt is given prompt and reply as one row; an encoder-decoder (T5, Raffel et al. 2020) reads
    the prompt with its encoder, and replies after a token that begins all replies.
    """

    def __init__(self, session: ModelSession, prompt: Sequence[int]) -> None:
        self._session, self._prompt = session, list(prompt)
        self._has_encoder = bool(session.config.is_encoder_decoder)
        self._past: Any = None
        self._encoded: Any = None

    def predict(self, token: int | None = None) -> Any:
        """Return float64[vocabulary], log-probabilities of the next token after one more token; at first after the
        prompt."""
        if self._has_encoder:
            start_token = self._session.config.decoder_start_token_id
            inputs = {"decoder_input_ids": [[start_token if token is None else token]]} | self._encoder_inputs()
        else:
            inputs = {"input_ids": [self._prompt if token is None else [token]]}
        # The model keeps its states of the tokens so far, so each step computes one token.
        outputs = self._session.run(**inputs, past_key_values=self._past, use_cache=True)
        self._past = outputs.past_key_values
        if self._has_encoder:
            self._encoded = (outputs.encoder_last_hidden_state,)
        return outputs.logits[0, -1].double().log_softmax(dim=-1)

    def score_tokens(self, tokens: Sequence[int]) -> Any:
        """Return float64[n, vocabulary], for each of n tokens the log-probabilities of the whole vocabulary in its
        place."""
        if self._has_encoder:
            row = [self._session.config.decoder_start_token_id, *tokens[:-1]]
            logits = self._session.run(input_ids=[self._prompt], decoder_input_ids=[row]).logits[0]
        else:
            full_row = [*self._prompt, *tokens[:-1]]
            logits = self._session.run(input_ids=[full_row]).logits[0, len(self._prompt) - 1 :]
        return logits.double().log_softmax(dim=-1)

    def _encoder_inputs(self) -> dict[str, Any]:
        """Return the encoder's inputs, or its outputs once it has run."""
        return {"input_ids": [self._prompt]} if self._encoded is None else {"encoder_outputs": self._encoded}


UNFINISHED = "\ufffd"
"""What a tokenizer writes for a part of a character."""


class ReplyPieces:
    """Text of each token of a reply, up to the first of the texts in `stop`.

    A token that ends within a character has none of it.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, [text for text in stop if text]
        self._ids: list[int] = []
        self.texts: list[str] = []
        self.is_stopped = False
        self._released = 0

    @property
    def text(self) -> str:
        """Return the whole text so far."""
        return "".join(self.texts)

    def take(self, token: int) -> str:
        """Add a token; return the new text that is final, without a possible beginning of a stop text."""
        self._ids.append(token)
        previous = self.text
        # All tokens are decoded together: a character may consist of several, and some tokenizers drop the
        # first blank.
        decoded = self._tokenizer.decode(self._ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        self.texts.append(decoded[len(previous) :] if not decoded.endswith(UNFINISHED) else "")
        if ends := [position for text in self._stop if (position := self.text.find(text)) >= 0]:
            self.is_stopped = True
            self._truncate(min(ends))
            return self.rest()
        # The last characters are held back, since they may begin a stop text.
        return self._release(len(self.text) - max(map(len, self._stop), default=1) + 1)

    def rest(self) -> str:
        """Return the remaining text, at the end."""
        return self._release(len(self.text))

    def _release(self, end: int) -> str:
        start, self._released = self._released, max(self._released, end)
        return self.text[start : self._released]

    def _truncate(self, end: int) -> None:
        """Drop the text after a place, and the tokens of which nothing stays."""
        texts: list[str] = []
        for text in self.texts:
            if end <= 0:
                break
            texts.append(text[:end])
            end -= len(text)
        self.texts = texts


@dataclass(frozen=True)
class LocalReply:
    """Reply of a model: its pieces, the log-probability of each token, and why it ended."""

    pieces: ReplyPieces
    token_logprobs: tuple[float, ...]
    finish_reason: str

    @property
    def token_count(self) -> int:
        """Return the number of generated tokens, including tokens that were cut off."""
        return len(self.token_logprobs)

    def generation(self, model_name: str, logprobs: bool) -> Generation:
        """Return the reply; EmptyReply if it has no text."""
        if not self.pieces.text:
            raise EmptyReply(f"{model_name} ended its reply before it said anything. Ask otherwise.")
        tokens = tuple(
            Token(*piece) for piece in zip(self.pieces.texts, self.token_logprobs, strict=False)
        )  # a cut text has fewer
        return Generation(self.pieces.text, self.finish_reason, tokens if logprobs else ())


def collect_reply(
    tokens: Iterator[tuple[int, float]],
    is_end: Callable[[int], bool],
    pieces: ReplyPieces,
    on_text: Callable[[str], None] | None,
) -> LocalReply:
    """Collect tokens with their log-probabilities, until one ends the reply or completes a stop text."""
    logprobs, finish_reason = list[float](), "length"
    for token, logprob in tokens:
        if is_end(token):
            finish_reason = "stop"
            break
        logprobs.append(logprob)
        _send_piece(on_text, pieces.take(token))
        if pieces.is_stopped:
            finish_reason = "stop"
            break
    _send_piece(on_text, pieces.rest())
    return LocalReply(pieces, tuple(logprobs), finish_reason)


@dataclass(frozen=True)
class LocalModel(Local):
    """Address of a language model; its settings are those of every `Local`.

    What is most probable is taken at temperature 0; above, tokens are drawn by a generator that begins with
    `prompt.sample`, so that a sample is the same each time. Log-probabilities are those of the model, at temperature 1.

    Args:
        window: of prompt and reply together, in tokens. A longer prompt raises.
        templated: whether messages are put into the model's own chat template, if it has one; else their texts are.

    >>> sorted(LocalModel("models/qwen").capabilities)[:3]
    ['chat', 'distributions', 'hidden_states']
    """

    window: int = 4096
    templated: bool = True

    waits: ClassVar[bool] = True
    """A reply takes long, and other steps may go on meanwhile."""
    head: ClassVar[str] = "AutoModelForCausalLM"
    capabilities: ClassVar[frozenset[str]] = Capabilities(
        (CHAT, STREAM, LOGPROBS, SCORES, NEXT_TOKENS, DISTRIBUTIONS, HIDDEN_STATES)
    )

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
        with reserve(Usage(calls=1, input_tokens=len(ids), output_tokens=limit)) as reservation:
            sampled = self._tokens(session, ids, prompt.sample, temperature, limit)
            reply = collect_reply(
                sampled, self._end_tokens(session).__contains__, ReplyPieces(session.tokenizer, stop), on_text
            )
            reservation.settle(Usage(calls=1, input_tokens=len(ids), output_tokens=reply.token_count))
        return reply.generation(self.name, logprobs)

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """Return the tokens of `text`, each with its log-probability after the prompt and the tokens before it; Σ is
        log P(text).

        The text is cut into tokens by itself, so that none begins in the prompt. It may hold special tokens.
        """
        session = self.open_session()
        encoding = session.read(text, marks=True, add_special_tokens=False, return_offsets_mapping=True)
        ids, ends = encoding["input_ids"], [end for _, end in encoding["offset_mapping"]]
        if not ids:
            return ()
        prompt_ids = self._ids(prompt, room=len(ids))
        with self._reserve(len(prompt_ids) + len(ids)):
            logprobs = TokenStepper(session, prompt_ids).score_tokens(ids)
        token_logprobs = [float(logprobs[index, id]) for index, id in enumerate(ids)]
        return tuple(
            Token(text[start:end], chance)
            for start, end, chance in zip([0, *ends[:-1]], ends, token_logprobs, strict=True)
        )

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """Return the most probable next tokens, best first."""
        logprobs = self._next_logprobs(prompt)
        best = logprobs.topk(min(top, len(logprobs)))
        texts = [self.open_session().tokenizer.decode([id]) for id in best.indices.tolist()]
        return tuple(map(Token, texts, best.values.tolist()))

    def distribution(self, prompt: Prompt) -> "Numbers":
        """Return the natural log-probability of every token as the next one: float64, shape (vocabulary,)."""
        logprobs: Numbers = self._next_logprobs(prompt).cpu().numpy()
        return logprobs

    def hidden_states(self, texts: Sequence[str], *, layer: int = -1) -> list["Vectors"]:
        """Return the outputs of a layer for each token of each text, read without a template: float32, shape (tokens,
        width)."""
        session, vectors = self.open_session(), []
        for text in texts:
            check_cancelled()
            ids = session.ids(text, self.window)
            with self._reserve(len(ids)):
                states = self._layer_states(session, ids)
            if not -len(states) <= layer < len(states):
                raise ModelRejected(f"{self.name} has no layer {layer}. Write one from 0 to {len(states) - 1}, or -1.")
            vectors.append(states[layer][0].float().cpu().numpy())
        return vectors

    def _layer_states(self, session: ModelSession, ids: list[int]) -> Any:
        return session.run(input_ids=[ids], output_hidden_states=True).hidden_states

    def _next_logprobs(self, prompt: Prompt) -> Any:
        ids = self._ids(prompt, room=1)
        with self._reserve(len(ids)):
            return TokenStepper(self.open_session(), ids).predict()

    def _reserve(self, tokens: int) -> Any:
        """Reserve a call that reads `tokens` tokens and generates none."""
        return reserve(Usage(calls=1, input_tokens=tokens))

    def _tokens(
        self, session: ModelSession, ids: list[int], seed: int, temperature: float, limit: int
    ) -> Iterator[tuple[int, float]]:
        """Yield tokens one after the other, each with its log-probability."""
        generator = torch().Generator().manual_seed(seed)
        stepper, token = TokenStepper(session, ids), None
        for _ in range(limit):
            check_cancelled()
            logprobs = stepper.predict(token)
            if temperature > 0:
                # The generator lives on the CPU, so the probabilities have to be there too.
                sample = torch().multinomial((logprobs / temperature).softmax(dim=-1).cpu(), 1, generator=generator)
                token = int(sample)
            else:
                token = int(logprobs.argmax())
            # Rounding may give a log-probability just above 0.
            yield token, min(0.0, float(logprobs[token]))

    def _end_tokens(self, session: ModelSession) -> set[int]:
        """Return the tokens that end a reply."""
        stated = session.model.generation_config.eos_token_id
        # A chat model ends its turns with another token than a text.
        candidates = [*(stated if isinstance(stated, list) else [stated]), session.tokenizer.eos_token_id]
        return {id for id in candidates if id is not None}

    def _ids(self, prompt: Prompt, room: int = 1) -> list[int]:
        """Return the tokens of a prompt; ModelRejected if they leave fewer than `room` for the reply."""
        session = self.open_session()
        if self.templated and session.tokenizer.chat_template:
            ids = self._render_ids(session, prompt)
        else:
            ids = session.ids(join_messages(prompt), None)
        if len(ids) + room > self.window:
            raise ModelRejected(
                f"The prompt has {len(ids)} tokens, and the reply needs {room} more; {self.name} has a window of "
                f"{self.window}. Write a shorter prompt, or the window that the model was made for."
            )
        return ids

    def _render_ids(self, session: ModelSession, prompt: Prompt) -> list[int]:
        messages = [
            {"role": message.role, "content": session.escape_special_tokens(message.content)}
            for message in prompt.messages
        ]
        try:
            is_continued = prompt.messages[-1].role == "assistant"  # what the reply has begun with
            text = session.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=not is_continued, continue_final_message=is_continued
            )
        except Exception as error:  # the template may refuse roles and orders in its own words
            raise ModelRejected(
                f"The chat template of {self.name} refuses the messages: {error}. Write other roles, or "
                "templated=False."
            ) from error
        ids: list[int] = session.read(text, marks=True, add_special_tokens=False)["input_ids"]
        return ids


@dataclass(frozen=True)
class LocalSeq2Seq(LocalModel):
    """Address of a language model that reads the prompt with an encoder, as T5; all else is as in `LocalModel`.

    >>> LocalSeq2Seq("models/monot5").head
    'AutoModelForSeq2SeqLM'
    """

    window: int = 512

    head: ClassVar[str] = "AutoModelForSeq2SeqLM"

    def _layer_states(self, session: ModelSession, ids: list[int]) -> Any:
        return session.run(input_ids=[ids], decoder_input_ids=[[0]], output_hidden_states=True).encoder_hidden_states


def _send_piece(on_text: Callable[[str], None] | None, piece: str) -> None:
    if on_text is not None and piece:
        on_text(piece)
