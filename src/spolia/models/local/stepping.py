"""How a language model goes from token to token: one that goes on with the prompt, or one that reads it apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spolia.models.local.opened import Opened


class Stepping:
    """A prompt, and the tokens after it.

    What goes on with the prompt is given prompt and reply as one row; an encoder-decoder (T5, Raffel et al. 2020) reads
    the prompt with its encoder, and replies after a token that begins all replies.
    """

    def __init__(self, opened: Opened, prompt: Sequence[int]) -> None:
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
        """float64[n, vocabulary], for each of n tokens the log-probabilities of all that could stand in its place."""
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
