"""Language models on this machine: causal ones and encoder-decoders, token by token."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import check_cancelled, reserve
from spolia.errors import EmptyReply, ModelRejected
from spolia.models.http.completions import written
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


class Stepping:
    """A prompt, and the tokens after it.

    What goes on with the prompt is given prompt and reply as one row; an encoder-decoder (T5, Raffel et al. 2020) reads
    the prompt with its encoder, and replies after a token that begins all replies.
    """

    def __init__(self, opened: ModelSession, prompt: Sequence[int]) -> None:
        self._opened, self._prompt = opened, list(prompt)
        self._apart = bool(opened.config.is_encoder_decoder)
        self._past: Any = None
        self._encoded: Any = None

    def after(self, token: int | None = None) -> Any:
        """float64[vocabulary], log-probabilities of the next token after one more token; at first after the prompt."""
        if self._apart:
            begins = self._opened.config.decoder_start_token_id
            given = {"decoder_input_ids": [[begins if token is None else token]]} | self._source()
        else:
            given = {"input_ids": [self._prompt if token is None else [token]]}
        found = self._opened.run(**given, past_key_values=self._past, use_cache=True)
        self._past = found.past_key_values
        if self._apart:
            self._encoded = (found.encoder_last_hidden_state,)
        return found.logits[0, -1].double().log_softmax(dim=-1)

    def along(self, given: Sequence[int]) -> Any:
        """float64[n, vocabulary], for each of n tokens the log-probabilities of the whole vocabulary in its place."""
        if self._apart:
            row = [self._opened.config.decoder_start_token_id, *given[:-1]]
            logits = self._opened.run(input_ids=[self._prompt], decoder_input_ids=[row]).logits[0]
        else:
            whole = [*self._prompt, *given[:-1]]
            logits = self._opened.run(input_ids=[whole]).logits[0, len(self._prompt) - 1 :]
        return logits.double().log_softmax(dim=-1)

    def _source(self) -> dict[str, Any]:
        """What the encoder is given, or what it gave."""
        return {"input_ids": [self._prompt]} if self._encoded is None else {"encoder_outputs": self._encoded}


UNFINISHED = "\ufffd"
"""What a tokenizer writes for a part of a character."""


class ReplyPieces:
    """Takes tokens, and knows the text of each, up to the first of the texts in `stop`.

    A token that ends within a character has none of it.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, [text for text in stop if text]
        self._ids: list[int] = []
        self.texts: list[str] = []
        self.is_stopped = False
        self._told = 0

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.texts)

    def take(self, token: int) -> str:
        """Add a token; returns the new text that is final, without a possible beginning of a stop text."""
        self._ids.append(token)
        known = self.text
        whole = self._tokenizer.decode(self._ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        self.texts.append(whole[len(known) :] if not whole.endswith(UNFINISHED) else "")
        if ends := [at for text in self._stop if (at := self.text.find(text)) >= 0]:
            self.is_stopped = True
            self._cut(min(ends))
            return self.rest()
        return self._tell(len(self.text) - max(map(len, self._stop), default=1) + 1)

    def rest(self) -> str:
        """The remaining text, at the end."""
        return self._tell(len(self.text))

    def _tell(self, end: int) -> str:
        before, self._told = self._told, max(self._told, end)
        return self.text[before : self._told]

    def _cut(self, end: int) -> None:
        """Leave out what comes after a place, and the tokens of which nothing stays."""
        kept: list[str] = []
        for text in self.texts:
            if end <= 0:
                break
            kept.append(text[:end])
            end -= len(text)
        self.texts = kept


@dataclass(frozen=True)
class LocalReply:
    """What a model wrote: its pieces, with the log-probability of each token, and why it ended."""

    pieces: ReplyPieces
    chances: tuple[float, ...]
    finish_reason: str

    @property
    def made(self) -> int:
        """Tokens that were made, also those that do not stay."""
        return len(self.chances)

    def generation(self, whose: str, logprobs: bool) -> Generation:
        """The reply. EmptyReply if it says nothing."""
        if not self.pieces.text:
            raise EmptyReply(f"{whose} ended its reply before it said anything. Ask otherwise.")
        tokens = tuple(
            Token(*one) for one in zip(self.pieces.texts, self.chances, strict=False)
        )  # a cut text has fewer
        return Generation(self.pieces.text, self.finish_reason, tokens if logprobs else ())


def reply_of(
    tokens: Iterator[tuple[int, float]],
    is_end: Callable[[int], bool],
    pieces: ReplyPieces,
    on_text: Callable[[str], None] | None,
) -> LocalReply:
    """Tokens with their log-probabilities, until one ends the reply or the text that ends it is there."""
    chances, finish_reason = list[float](), "length"
    for token, logprob in tokens:
        if is_end(token):
            finish_reason = "stop"
            break
        chances.append(logprob)
        _tell(on_text, pieces.take(token))
        if pieces.is_stopped:
            finish_reason = "stop"
            break
    _tell(on_text, pieces.rest())
    return LocalReply(pieces, tuple(chances), finish_reason)


@dataclass(frozen=True)
class LocalModel(Local):
    """The address of a language model; its settings are those of every `Local`.

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
        """The reply to a prompt."""
        opened, ids = self.opened(), self._ids(prompt)
        most = min(max_tokens, self.window - len(ids))
        with reserve(Usage(calls=1, input_tokens=len(ids), output_tokens=most)) as held:
            drawn = self._tokens(opened, ids, prompt.sample, temperature, most)
            reply = reply_of(drawn, self._ends(opened).__contains__, ReplyPieces(opened.tokenizer, stop), on_text)
            held.settle(Usage(calls=1, input_tokens=len(ids), output_tokens=reply.made))
        return reply.generation(self.name, logprobs)

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """The tokens of `text`, each with its log-probability after the prompt and those before it; Σ is log P(text).

        The text is cut into tokens by itself, so that none begins in the prompt. It may hold special tokens.
        """
        opened = self.opened()
        read = opened.read(text, marks=True, add_special_tokens=False, return_offsets_mapping=True)
        ids, ends = read["input_ids"], [end for _, end in read["offset_mapping"]]
        if not ids:
            return ()
        before = self._ids(prompt, room=len(ids))
        with self._asked(len(before) + len(ids)):
            chances = Stepping(opened, before).along(ids)
        found = [float(chances[at, id]) for at, id in enumerate(ids)]
        return tuple(
            Token(text[start:end], chance) for start, end, chance in zip([0, *ends[:-1]], ends, found, strict=True)
        )

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> tuple[Token, ...]:
        """The most probable next tokens, best first."""
        chances = self._next(prompt)
        best = chances.topk(min(top, len(chances)))
        texts = [self.opened().tokenizer.decode([id]) for id in best.indices.tolist()]
        return tuple(map(Token, texts, best.values.tolist()))

    def distribution(self, prompt: Prompt) -> "Numbers":
        """The natural log-probability of every token as the next one: float64, shape (vocabulary,)."""
        found: Numbers = self._next(prompt).cpu().numpy()
        return found

    def hidden_states(self, texts: Sequence[str], *, layer: int = -1) -> list["Vectors"]:
        """What a layer gives for each token of each text, read without a template: float32, shape (tokens, width)."""
        opened, found = self.opened(), []
        for text in texts:
            check_cancelled()
            ids = opened.ids(text, self.window)
            with self._asked(len(ids)):
                states = self._states(opened, ids)
            if not -len(states) <= layer < len(states):
                raise ModelRejected(f"{self.name} has no layer {layer}. Write one from 0 to {len(states) - 1}, or -1.")
            found.append(states[layer][0].float().cpu().numpy())
        return found

    def _states(self, opened: ModelSession, ids: list[int]) -> Any:
        return opened.run(input_ids=[ids], output_hidden_states=True).hidden_states

    def _next(self, prompt: Prompt) -> Any:
        ids = self._ids(prompt, room=1)
        with self._asked(len(ids)):
            return Stepping(self.opened(), ids).after()

    def _asked(self, tokens: int) -> Any:
        """A call that reads `tokens` tokens and generates none."""
        return reserve(Usage(calls=1, input_tokens=tokens))

    def _tokens(
        self, opened: ModelSession, ids: list[int], seed: int, temperature: float, most: int
    ) -> Iterator[tuple[int, float]]:
        """Tokens one after the other, each with its log-probability."""
        drawing = torch().Generator().manual_seed(seed)
        stepping, token = Stepping(opened, ids), None
        for _ in range(most):
            check_cancelled()
            chances = stepping.after(token)
            if temperature > 0:
                drawn = torch().multinomial((chances / temperature).softmax(dim=-1).cpu(), 1, generator=drawing)
                token = int(drawn)
            else:
                token = int(chances.argmax())
            yield token, min(0.0, float(chances[token]))

    def _ends(self, opened: ModelSession) -> set[int]:
        """Tokens that end a reply."""
        said = opened.model.generation_config.eos_token_id
        every = [*(said if isinstance(said, list) else [said]), opened.tokenizer.eos_token_id]
        return {id for id in every if id is not None}

    def _ids(self, prompt: Prompt, room: int = 1) -> list[int]:
        """The tokens of a prompt; refused where they leave less room than is wanted."""
        opened = self.opened()
        if self.templated and opened.tokenizer.chat_template:
            found = self._in_template(opened, prompt)
        else:
            found = opened.ids(written(prompt), None)
        if len(found) + room > self.window:
            raise ModelRejected(
                f"The prompt has {len(found)} tokens, and the reply needs {room} more; {self.name} has a window of "
                f"{self.window}. Write a shorter prompt, or the window that the model was made for."
            )
        return found

    def _in_template(self, opened: ModelSession, prompt: Prompt) -> list[int]:
        said = [{"role": one.role, "content": opened.unmarked(one.content)} for one in prompt.messages]
        try:
            goes_on = prompt.messages[-1].role == "assistant"  # what the reply has begun with
            text = opened.tokenizer.apply_chat_template(
                said, tokenize=False, add_generation_prompt=not goes_on, continue_final_message=goes_on
            )
        except Exception as error:  # the template may refuse roles and orders in its own words
            raise ModelRejected(
                f"The chat template of {self.name} refuses the messages: {error}. Write other roles, or "
                "templated=False."
            ) from error
        found: list[int] = opened.read(text, marks=True, add_special_tokens=False)["input_ids"]
        return found


@dataclass(frozen=True)
class LocalSeq2Seq(LocalModel):
    """The address of a language model that reads the prompt with an encoder, as T5; all else is as of `LocalModel`.

    >>> LocalSeq2Seq("models/monot5").head
    'AutoModelForSeq2SeqLM'
    """

    window: int = 512

    head: ClassVar[str] = "AutoModelForSeq2SeqLM"

    def _states(self, opened: ModelSession, ids: list[int]) -> Any:
        return opened.run(input_ids=[ids], decoder_input_ids=[[0]], output_hidden_states=True).encoder_hidden_states


def _tell(on_text: Callable[[str], None] | None, piece: str) -> None:
    if on_text is not None and piece:
        on_text(piece)
