"""The text of tokens as they come: whole characters only, cut before what ends a reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"
"""What a tokenizer writes for a part of a character."""


class Pieces:
    """Takes tokens, and knows the text up to each.

    Args:
        tokenizer: of transformers.
        stop: texts before which the reply ends.

    Attributes:
        texts: of each token; together they are the text. A token that ends within a character has none of it.
        is_stopped: whether one of the texts in `stop` has come.
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
        """One token more: what can be told of the text by now, without the beginning of what may end it."""
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
        """What has not been told yet, at the end."""
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
