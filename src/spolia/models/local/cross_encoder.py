"""Cross-encoders on this machine: query and text are read together (Nogueira and Cho 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

from spolia.core.run_context import charge
from spolia.errors import ModelError, ModelRejected
from spolia.models.local.address import Local
from spolia.models.local.session import ModelSession
from spolia.types import Usage


@dataclass(frozen=True)
class LocalCrossEncoder(Local):
    """The address of a cross-encoder (a `Scorer`); its settings are those of every `Local`.

    Args:
        label: which of the model's classes says that the text answers. Its score is the logit where there is one class,
            else the natural log-probability of this one.
        query_prefix, text_prefix: what the model wants before each, as an instruction.

    >>> LocalCrossEncoder("models/ms-marco").label
    -1
    """

    label: int = -1
    query_prefix: str = ""
    text_prefix: str = ""

    head: ClassVar[str] = "AutoModelForSequenceClassification"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """One score for each text, in their order; higher is better. Of what is too long together, the longer is cut.

        Raises:
            ModelError: there is no such label.
            ModelRejected: a score is no finite number.
        """
        if not len(texts):
            return ()
        opened = self.opened()
        pairs = [self._pair(opened, query, text) for text in texts]
        found: dict[int, float] = {}
        for batch, given in self.in_batches([pair["input_ids"] for pair in pairs]):
            if "token_type_ids" in pairs[0]:
                width, last = len(given["input_ids"][0]), batch[-1:] * (len(given["input_ids"]) - len(batch))
                kinds = [pairs[number]["token_type_ids"] for number in (*batch, *last)]
                given["token_type_ids"] = [[*row, *[0] * (width - len(row))] for row in kinds]
            found |= zip(batch, self._scored(opened.run(**given).logits[: len(batch)]), strict=True)
            charge(Usage(embedded=len(batch)))
        if not all(map(isfinite, found.values())):
            raise ModelRejected(f"{self.name} gave a score that is no finite number. Check the weights, or the dtype.")
        return tuple(found[number] for number in range(len(texts)))

    def _pair(self, opened: ModelSession, query: str, text: str) -> dict[str, list[int]]:
        return opened.read(self.query_prefix + query, self.text_prefix + text, window=self.window)

    def _scored(self, logits: Any) -> list[float]:
        classes = logits.shape[-1]
        if not -classes <= self.label < classes:
            raise ModelError(f"{self.name} has {classes} classes, none of them {self.label}. Write a smaller label.")
        exact = logits.double()
        found: list[float] = (exact if classes == 1 else exact.log_softmax(dim=-1))[:, self.label].tolist()
        return found
