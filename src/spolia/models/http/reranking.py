"""Scores from a server with a reranker: Cohere, Jina, Voyage, vLLM, TEI, which name the same things differently."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from spolia.errors import ModelError, ModelRejected
from spolia.models import http
from spolia.models.http.remote import Remote
from spolia.models.http.replies import estimated_tokens, mapping
from spolia.types import Usage, Value
from spolia.types.value import indifferent

RerankForm: TypeAlias = Literal["", "cohere", "jina", "voyage", "vllm", "tei"]


@dataclass(frozen=True)
class RequestForm(Value):
    """How a reranker wants to be asked.

    Args:
        host: whose API it is; empty for servers of one's own.
        texts: what it calls the texts.
        top: what it calls the number of scores to return; empty where it returns all.
        settings: what is sent beside them.
        most: texts in one request, at most.
        has_model: whether it wants the name of the model.
        is_bare: whether its reply is a bare array.
        has_pictures: whether it takes pictures beside texts.
    """

    host: str = ""
    texts: str = "documents"
    top: str = "top_n"
    settings: tuple[tuple[str, bool], ...] = ()
    most: int = 1_000
    has_model: bool = True
    is_bare: bool = False
    has_pictures: bool = False

    def body(self, model: str, query: str, passages: Sequence[str | bytes]) -> dict[str, Any]:
        found: dict[str, Any] = {"model": model} if self.has_model else {}
        sent: list[Any] = list(passages)
        if any(isinstance(one, bytes) for one in passages):
            sent = [
                {"image": base64.b64encode(one).decode()} if isinstance(one, bytes) else {"text": one}
                for one in passages
            ]
        found |= {"query": query, self.texts: sent} | ({self.top: len(sent)} if self.top else {})
        return found | dict(self.settings)


FORMS: Mapping[RerankForm, RequestForm] = {
    "": RequestForm(settings=(("return_documents", False),)),
    "cohere": RequestForm("api.cohere.com"),  # https://docs.cohere.com/reference/rerank (v2)
    "jina": RequestForm("api.jina.ai", settings=(("return_documents", False),), has_pictures=True),
    # https://jina.ai/reranker; jina-reranker-m0 reads pictures
    "voyage": RequestForm(
        "api.voyageai.com", top="top_k", settings=(("return_documents", False), ("truncation", True))
    ),  # https://docs.voyageai.com/reference/reranker-api
    "vllm": RequestForm(),  # https://docs.vllm.ai, Re-rank API
    "tei": RequestForm(
        texts="texts", top="", settings=(("raw_scores", False), ("return_text", False), ("truncate", True)), most=32,
        has_model=False, is_bare=True,
    ),  # https://huggingface.github.io/text-embeddings-inference, /rerank; 32 is its --max-client-batch-size
}  # fmt: skip
"""By name. What replies have in common is read alike of all of them."""


PICTURE_TOKENS = 768
"""The most that jina-reranker-m0 makes of a picture."""


def form_of(base_url: str, form: RerankForm) -> RequestForm:
    """The form of this name, or without one that of the API at this address.

    >>> form_of("https://api.voyageai.com/v1", "").top
    'top_k'
    """
    host = urlsplit(base_url).hostname
    return FORMS[form] if form else next((one for one in FORMS.values() if one.host == host), FORMS[""])


@dataclass(frozen=True)
class RerankModel(Remote):
    """The address of a reranker (a `Scorer`); its settings are those of every `Remote`.

    With the form of Jina it judges pictures beside texts (an `ImageScorer`), if the model can: `jina-reranker-m0`.

    Args:
        window: longest text in tokens. Spolia sends the beginning of a text that is surely longer.
        batch_texts: the most texts in one request; texts are scored one by one, so that batches do not matter.
        form: whose protocol the server speaks: `cohere`, `jina`, `voyage`, `vllm`, `tei` (whose base_url has no `/v1`,
            and which needs no model's name). Empty: that of the host, else what most servers of your own understand.
        usd_per_request: price of one request, for hosts that charge for searches.

    >>> from spolia.testing import OpenAIServer
    >>> with OpenAIServer() as server:
    ...     RerankModel("any", server.url).scores("Who employed Olsen?", ("A river.", "Nokia employed Olsen."))
    (0.0, 0.5)
    """

    window: int = 8192
    batch_texts: int = indifferent(100)
    usd_per_request: float = 0.0
    form: RerankForm = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "batch_texts"):
            if getattr(self, name) < 1:
                raise ModelError(f"RerankModel got {name}={getattr(self, name)}. Write a number of at least 1.")
        if self.form not in FORMS:
            raise ModelError(f"RerankModel got form={self.form!r}. Write one of: {', '.join(filter(None, FORMS))}.")

    def fingerprint(self) -> str:
        return f"{super().fingerprint()}|{self.window}"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """One score for each text, in their order; higher is better.

        Raises:
            ModelUnavailable: the same call may succeed later.
            ModelRejected: it will not: refused, a text without a score, a score that is no number.
            BudgetSpent: refused before it was sent.
        """
        return self.scores_of(query, texts)

    def scores_of(self, query: str, passages: Sequence[str | bytes]) -> tuple[float, ...]:
        """One score for each text or picture, in their order; higher is better. Errors are those of `scores`.

        Raises:
            ModelError: there is a picture, and the server's form takes none.
        """
        form = form_of(self.base_url, self.form)
        if not form.has_pictures and any(isinstance(one, bytes) for one in passages):
            raise ModelError(
                f"{self.who} is asked in a form without pictures. Write form='jina' for a server that takes them as "
                "Jina's does, or rerank by texts (CrossEncoder)."
            )

        size = min(self.batch_texts, form.most)
        parts = [passages[start : start + size] for start in range(0, len(passages), size)]
        return tuple(
            score
            for part in parts
            for score in http.request.in_requests(self, part, lambda some: self._scored(query, some))
        )

    def priced(self, usage: Usage) -> Usage:
        found = super().priced(usage)
        return found.but(cost_usd=found.cost_usd + self.usd_per_request)

    def _scored(self, query: str, passages: Sequence[str | bytes]) -> list[float]:
        sent = [one if isinstance(one, bytes) else http.request.sendable(one, self.window) for one in passages]
        asked = http.request.sendable(query, self.window)
        form = form_of(self.base_url, self.form)
        body, array = form.body(self.model, asked, sent), "results" if form.is_bare else ""
        tokens = sum(PICTURE_TOKENS if isinstance(one, bytes) else estimated_tokens(one) for one in sent)
        bound = Usage(input_tokens=tokens + len(sent) * estimated_tokens(asked))
        return http.request.Posting(self, "rerank", body, bound, lambda reply: _read(reply, len(sent)), array).persist()


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
        raise ModelRejected("it gave a score that is not a finite number. Check the model's weights.")
    return numbers
