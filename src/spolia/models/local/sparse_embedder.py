"""Learned sparse vectors from the masked-language-model head: SPLADE (Formal et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.models.local.encoder import LocalEncoder
from spolia.models.local.opened import torch
from spolia.models.protocols import Kind
from spolia.surrounding import charge
from spolia.types import Usage

if TYPE_CHECKING:
    from spolia.models.sparse import SparseRows


@dataclass(frozen=True)
class LocalSparseEmbedder(LocalEncoder):
    """The address of a model that weighs the terms of its vocabulary (a `SparseEmbedder`).

    w_v = max_t log(1 + relu(logit_tv)) over the tokens t of the text, special ones included. Terms of weight 0 are left
    out. Its settings are those of every `LocalEncoder`.

    Args:
        batch_tokens: every token of a batch has a logit for every term: 1,024 tokens of 30,000 terms take 125 MB.

    >>> LocalSparseEmbedder("models/splade").batch_tokens
    1024
    """

    batch_tokens: int = 1024

    head: ClassVar[str] = "AutoModelForMaskedLM"

    def embed_sparse(self, texts: Sequence[str], *, kind: Kind) -> SparseRows:
        """One row of weights for each text."""
        from spolia.models.sparse import SparseRows

        if not len(texts):
            return SparseRows.of(())
        found: dict[int, dict[int, float]] = {}
        opened = self.opened()
        for batch, given in self.in_batches(self.rows(texts, kind)):
            logits = opened.run(**given).logits.float()
            logits[torch().tensor(given["attention_mask"], device=self.device) == 0] = 0.0
            largest = logits.amax(dim=1)  # first, since relu and log keep the order
            for number, row in zip(batch, largest[: len(batch)].relu().log1p().cpu(), strict=True):
                terms = row.nonzero().flatten()
                found[number] = dict(zip(terms.tolist(), row[terms].tolist(), strict=True))
            charge(Usage(embedded=len(batch)))
        return SparseRows.of(found[number] for number in range(len(texts)))
