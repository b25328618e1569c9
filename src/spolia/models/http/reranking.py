"""Scores from a server with a reranker: Jina, Cohere, Voyage, vLLM and TEI speak about the same protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from spolia.errors import ModelError, ModelRejected
from spolia.models.http.remote import Remote
from spolia.models.http.replies import estimated_tokens, mapping
from spolia.types import Usage


@dataclass(frozen=True)
class RerankModel(Remote):
    """The address of a reranker (a `Scorer`); its settings are those of every `Remote`.

    Args:
        window: longest text in tokens. Of a text that is surely longer, the beginning is sent.
        batch_texts: the most texts in one request; texts are scored one by one, so that batches do not matter.
        usd_per_request: price of one request, for hosts that charge for searches.

    >>> from spolia.testing import OpenAIServer
    >>> with OpenAIServer() as server:
    ...     RerankModel("any", server.url).scores("Who employed Olsen?", ("A river.", "Nokia employed Olsen."))
    (0.0, 0.5)
    """

    window: int = 8192
    batch_texts: int = 100
    usd_per_request: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "batch_texts"):
            if getattr(self, name) < 1:
                raise ModelError(f"RerankModel got {name}={getattr(self, name)}. Write a number of at least 1.")

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}|{self.window}"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """One score for each text, in their order; higher is better.

        Raises:
            ModelUnavailable: the same call may succeed later.
            ModelRejected: it will not: refused, a text without a score, a score that is no number.
            BudgetSpent: refused before it was sent.
        """
        starts = range(0, len(texts), self.batch_texts)
        return tuple(
            score for start in starts for score in self._scored(query, texts[start : start + self.batch_texts])
        )

    def priced(self, usage: Usage) -> Usage:
        found = super().priced(usage)
        return found.but(cost_usd=found.cost_usd + self.usd_per_request)

    def _scored(self, query: str, texts: Sequence[str]) -> list[float]:
        from spolia.models.http.request import Posting, sendable  # urllib3 is only imported when a server is asked

        sent = [sendable(text, self.window) for text in texts]
        asked = sendable(query, self.window)
        body = {"model": self.model, "query": asked, "documents": sent, "top_n": len(sent), "return_documents": False}
        bound = Usage(input_tokens=sum(map(estimated_tokens, sent)) + len(sent) * estimated_tokens(asked))
        return Posting(self, "rerank", body, bound, lambda reply: _read(reply, len(sent))).persist()


def _read(reply: Mapping[str, Any], count: int) -> list[float]:
    results = reply.get("results", reply.get("data"))
    rows = [mapping(row) for row in results] if isinstance(results, list) else []
    found = {row.get("index"): row.get("relevance_score", row.get("score")) for row in rows}
    scores = [found.get(at) for at in range(count)]
    if missing := [at for at, score in enumerate(scores) if score is None]:
        raise ModelRejected(
            f"it gave no score for {len(missing)} of {count} texts. Check that model reranks, and base_url's /v1."
        )
    numbers = [float(score) for score in scores if isinstance(score, (int, float)) and isfinite(score)]
    if len(numbers) < count:
        raise ModelRejected("it gave a score that is no finite number. Check the model's weights.")
    return numbers
