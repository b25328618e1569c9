"""What local embedders have in common: how they cut texts into tokens, and what their layers give for these."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spolia.errors import ModelError, WeightsError
from spolia.models.local.address import Local
from spolia.models.local.folder import folder_of
from spolia.models.local.opened import torch
from spolia.models.protocols import Kind

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim")


@dataclass(frozen=True)
class LocalEncoder(Local):
    """Base of the local models that embed texts; its settings are those of every `Local`.

    Args:
        query_prefix, passage_prefix: what the model wants before each: `query: `, or an instruction.
        end: whether the token that ends a text is put after it, for models that want it and whose tokenizer does not.
    """

    query_prefix: str = ""
    passage_prefix: str = ""
    end: bool = False

    @property
    def width(self) -> int:
        """Length of a hidden state, as config.json says; nothing is opened for that."""
        config = json.loads((folder_of(self.model, self.revision) / "config.json").read_bytes())
        found = [config[name] for name in _WIDTHS if isinstance(config.get(name), int)]
        if not found:
            raise WeightsError(f"config.json of {self.model} has none of {', '.join(_WIDTHS)}: it embeds no texts.")
        return int(found[0])

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Length of each text in tokens, with special ones and a passage's prefix; beyond `window` nothing is read."""
        return [len(row) for row in self.rows(texts, "passage", whole=True)]

    def covers(self, text: str) -> float:
        """Share of the characters that are not mapped to the token for what is unknown; 1 for an empty text."""
        if not text:
            return 1.0
        opened = self.opened()
        read = opened.read(text, return_offsets_mapping=True, add_special_tokens=False)
        tokens = zip(read["offset_mapping"], read["input_ids"], strict=True)
        unknown = [range(*ends) for ends, id in tokens if id == opened.tokenizer.unk_token_id]
        return 1.0 - len({at for places in unknown for at in places}) / len(text)

    def rows(self, texts: Sequence[str], kind: Kind, *, whole: bool = False) -> list[list[int]]:
        """The tokens of each text with its prefix; of a long one those that fit, unless it is wanted whole."""
        opened, prefix = self.opened(), self.query_prefix if kind == "query" else self.passage_prefix
        found = [opened.ids(prefix + text, None if whole else self.window) for text in texts]
        ending = opened.tokenizer.eos_token_id if self.end else None
        if ending is None:
            return found
        room = None if whole else self.window - 1
        return [row if row[-1] == ending else [*row[:room], ending] for row in found]

    def hidden_states(self, texts: Sequence[str], *, kind: Kind = "passage", layer: int = -1) -> list[Vectors]:
        """What a layer gives for each token of each text: float32, shape (tokens, width).

        Args:
            layer: 0 for what the first one is given, 1 for what it gives, -1 for what the last gives.

        Raises:
            ModelError: there is no such layer.
        """
        found: dict[int, Vectors] = {}
        for batch, hidden, mask in self.hidden(texts, kind, layer):
            lengths = mask.sum(dim=1).tolist()
            found |= {row: hidden[at, : lengths[at]].float().cpu().numpy() for at, row in enumerate(batch)}
        return [found[row] for row in range(len(texts))]

    def hidden(self, texts: Sequence[str], kind: Kind, layer: int = -1) -> Iterator[tuple[list[int], Any, Any]]:
        """Batches of texts by number, with float[texts, tokens, width] of one layer, and which of these are tokens."""
        if not len(texts):
            return
        opened = self.opened()
        for batch, given in self.in_batches(self.rows(texts, kind)):
            states = opened.run(**given, output_hidden_states=True).hidden_states
            if not -len(states) <= layer < len(states):
                raise ModelError(f"{self.name} has no layer {layer}. Write one from 0 to {len(states) - 1}, or -1.")
            mask = torch().tensor(given["attention_mask"][: len(batch)], device=self.device)
            yield batch, states[layer][: len(batch)], mask
