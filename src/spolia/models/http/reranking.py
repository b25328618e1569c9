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
from spolia.models.http.replies import as_mapping, estimate_tokens
from spolia.types import Usage, Value
from spolia.types.value import neutral_field

RerankForm: TypeAlias = Literal["", "cohere", "jina", "voyage", "vllm", "tei"]


@dataclass(frozen=True)
class RequestForm(Value):
    """Form of a reranker's request.

    Args:
        host: whose API it is; empty for servers of one's own.
        texts: what it calls the texts.
        top: what it calls the number of scores to return; empty where it returns all.
        settings: what is sent beside them.
        max_texts: texts in one request, at most.
        has_model: whether it wants the name of the model.
        is_bare: whether its reply is a bare array.
        has_pictures: whether it takes pictures beside texts.
    """

    host: str = ""
    texts: str = "documents"
    top: str = "top_n"
    settings: tuple[tuple[str, bool], ...] = ()
    max_texts: int = 1_000
    has_model: bool = True
    is_bare: bool = False
    has_pictures: bool = False

    def body(self, model: str, query: str, passages: Sequence[str | bytes]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model} if self.has_model else {}
        documents: list[Any] = list(passages)
        if any(isinstance(passage, bytes) for passage in passages):
            documents = [
                {"image": base64.b64encode(passage).decode()} if isinstance(passage, bytes) else {"text": passage}
                for passage in passages
            ]
        body |= {"query": query, self.texts: documents} | ({self.top: len(documents)} if self.top else {})
        return body | dict(self.settings)


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
        texts="texts", top="", settings=(("raw_scores", False), ("return_text", False), ("truncate", True)),
        max_texts=32, has_model=False, is_bare=True,
    ),  # https://huggingface.github.io/text-embeddings-inference, /rerank; 32 is its --max-client-batch-size
}  # fmt: skip
"""By name. What replies have in common is read alike of all of them."""


PICTURE_TOKENS = 768
"""The most that jina-reranker-m0 makes of a picture."""


def choose_form(base_url: str, form: RerankForm) -> RequestForm:
    """Return the form of this name, or without one that of the API at this address.

    >>> choose_form("https://api.voyageai.com/v1", "").top
    'top_k'
    """
    host = urlsplit(base_url).hostname
    return (
        FORMS[form] if form else next((candidate for candidate in FORMS.values() if candidate.host == host), FORMS[""])
    )


@dataclass(frozen=True)
class RerankModel(Remote):
    """Address of a reranker (a `Scorer`); its settings are those of every `Remote`.

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
    batch_texts: int = neutral_field(100)
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
        """Return one score for each text, in their order; higher is better.

        Raises:
            ModelUnavailable: the same call may succeed later.
            ModelRejected: it will not: refused, a text without a score, a score that is no number.
            BudgetSpent: refused before it was sent.
        """
        return self.scores_of(query, texts)

    def scores_of(self, query: str, passages: Sequence[str | bytes]) -> tuple[float, ...]:
        """Return one score for each text or picture, in their order; higher is better. Errors are those of `scores`.

        Raises:
            ModelError: there is a picture, and the server's form takes none.
        """
        form = choose_form(self.base_url, self.form)
        if not form.has_pictures and any(isinstance(passage, bytes) for passage in passages):
            raise ModelError(
                f"{self.label} is asked in a form without pictures. Write form='jina' for a server that takes them as "
                "Jina's does, or rerank by texts (CrossEncoder)."
            )
        size = min(self.batch_texts, form.max_texts)
        parts = [passages[start : start + size] for start in range(0, len(passages), size)]
        return tuple(
            score
            for part in parts
            for score in http.request.send_batches(self, part, lambda batch: self._score_batch(query, batch))
        )

    def add_price(self, usage: Usage) -> Usage:
        priced = super().add_price(usage)
        return priced.but(cost_usd=priced.cost_usd + self.usd_per_request)

    def _score_batch(self, query: str, passages: Sequence[str | bytes]) -> list[float]:
        documents = [
            passage if isinstance(passage, bytes) else http.request.clean_text(passage, self.window)
            for passage in passages
        ]
        question = http.request.clean_text(query, self.window)
        form = choose_form(self.base_url, self.form)
        body, array = form.body(self.model, question, documents), "results" if form.is_bare else ""
        tokens = sum(
            PICTURE_TOKENS if isinstance(document, bytes) else estimate_tokens(document) for document in documents
        )
        # The question is read again with each text.
        bound = Usage(input_tokens=tokens + len(documents) * estimate_tokens(question))
        return http.request.JsonCall(
            self, "rerank", body, bound, lambda reply: _read_scores(reply, len(documents)), array
        ).persist()


def _read_scores(reply: Mapping[str, Any], count: int) -> list[float]:
    results = reply.get("results", reply.get("data"))
    rows = [as_mapping(row) for row in results] if isinstance(results, list) else []
    # Servers sort by score: the index alone tells whose it is.
    scores_by_index = {row.get("index"): row.get("relevance_score", row.get("score")) for row in rows}
    scores = [scores_by_index.get(index) for index in range(count)]
    if missing := [index for index, score in enumerate(scores) if score is None]:
        raise ModelRejected(
            f"it gave no score for {len(missing)} of {count} texts. Check that model reranks, and base_url's /v1."
        )
    numbers = [float(score) for score in scores if isinstance(score, (int, float)) and isfinite(score)]
    if len(numbers) < count:
        raise ModelRejected("it gave a score that is not a finite number. Check the model's weights.")
    return numbers
