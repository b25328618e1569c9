"""Vectors from servers with OpenAI's protocol (https://platform.openai.com/docs/api-reference/embeddings)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from spolia.deferred import numpy as np
from spolia.errors import ModelError, ModelRejected, OtherDimension
from spolia.models import http
from spolia.models.http.remote import Remote
from spolia.models.http.replies import as_mapping, estimate_tokens
from spolia.models.protocols import Kind
from spolia.types import Usage
from spolia.types.value import neutral_field

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors

BYTES_PER_NUMBER = 32
"""Most that a server sends of a number of a vector."""


@dataclass(frozen=True)
class EmbeddingModel(Remote):
    """Address of a model that embeds; its settings are those of every `Remote`.

    Args:
        dimension: length of its vectors; a server that gives others raises.
        window: longest text in tokens. Spolia sends the beginning of a text that is surely longer.
        query_prefix, passage_prefix: what the model wants before each, for example `query: `.
        batch_texts, batch_tokens: the most texts, and tokens as they are estimated, in one request.
        shortened: ask the server for vectors of this dimension (Matryoshka models).

    >>> from spolia.testing import OpenAIServer
    >>> with OpenAIServer() as server:
    ...     EmbeddingModel("any", server.url, dimension=8).embed(["A cat sat."], kind="passage").shape
    (1, 8)
    """

    dimension: int = 1536
    window: int = 8191
    query_prefix: str = ""
    passage_prefix: str = ""
    batch_texts: int = neutral_field(128)
    batch_tokens: int = neutral_field(100_000)
    shortened: bool = False

    counts_tokens: ClassVar[bool] = False
    """`tokens` estimates."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dimension", "window", "batch_texts", "batch_tokens"):
            if getattr(self, name) < 1:
                raise ModelError(f"EmbeddingModel got {name}={getattr(self, name)}. Write a number of at least 1.")

    def fingerprint(self) -> str:
        settings = (self.dimension, self.window, self.query_prefix, self.passage_prefix, self.shortened)
        return f"{super().fingerprint()}|{settings}"

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1: float32, shape (texts, dimension).

        Raises:
            ModelUnavailable: the same call may succeed later.
            ModelRejected: it will not: refused, another dimension, a vector that is none.
            BudgetSpent: refused before it was sent.
        """
        vectors = np.empty((len(texts), self.dimension), np.float32)
        row = 0
        for batch in self._batches(texts, kind):
            for vector in http.request.send_batches(self, batch, self._embed_batch):
                vectors[row] = vector
                row += 1
        return vectors

    def measured(self) -> Self:
        """Return the same address, with the dimension of the vector that its server gives for one text.

        >>> from spolia.testing import OpenAIServer
        >>> with OpenAIServer() as server:
        ...     EmbeddingModel("any", server.url).measured().dimension
        8
        """
        body = {"model": self.model, "input": ["dimension"], "encoding_format": "float"}
        return self.but(
            dimension=http.request.JsonCall(
                self, "embeddings", body, Usage(embedded=1, input_tokens=3), _read_dimension
            ).persist()
        )

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Estimate the length of each text in tokens, rather too high, since only the server could count."""
        return [estimate_tokens(text) + 2 for text in texts]

    def covers(self, text: str) -> float:
        """Return 1: from here nobody can see what such models do not know."""
        return 1.0

    def _batches(self, texts: Sequence[str], kind: Kind) -> Iterator[list[str]]:
        prefix = self.query_prefix if kind == "query" else self.passage_prefix
        batch: list[str] = []
        size = 0
        for text in texts:
            cut_text = http.request.clean_text(prefix + text, self.window)
            tokens = estimate_tokens(cut_text)
            if batch and (len(batch) == self.batch_texts or size + tokens > self.batch_tokens):
                yield batch
                batch, size = [], 0
            batch.append(cut_text)
            size += tokens
        if batch:
            yield batch

    def _embed_batch(self, batch: Sequence[str]) -> Vectors:
        body: dict[str, Any] = {"model": self.model, "input": list(batch), "encoding_format": "float"}
        if self.shortened:
            body["dimensions"] = self.dimension
        bound = Usage(embedded=len(batch), input_tokens=sum(map(estimate_tokens, batch)))
        call = http.request.JsonCall(self, "embeddings", body, bound, lambda reply: self._read(reply, len(batch)))
        # `largest_reply` counts tokens, and knows of no vectors
        call.largest += BYTES_PER_NUMBER * len(batch) * self.dimension
        return call.persist()

    def _read(self, reply: Mapping[str, Any], count: int) -> Vectors:
        data = reply.get("data")
        rows = [as_mapping(row) for row in data] if isinstance(data, list) else []
        # a server may change the order
        by_index = {row.get("index", index): row.get("embedding") for index, row in enumerate(rows)}
        if set(by_index) != set(range(count)):
            raise ModelRejected(f"it gave {len(rows)} vectors for {count} texts. Check that model embeds.")
        vectors = np.stack([_decode_vector(by_index[index], self.dimension) for index in range(count)])
        # In float64, since squares of float32 numbers may overflow.
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        if not (np.isfinite(lengths).all() and lengths.all()):
            raise ModelRejected("it gave a vector with NaN, infinity or nothing but zeros. Check the model's weights.")
        scaled: Vectors = (vectors / lengths).astype(np.float32)
        return scaled


def _read_dimension(reply: Mapping[str, Any]) -> int:
    """Return the dimension of the one vector of a reply."""
    data = reply.get("data")
    vector = as_mapping(data[0]).get("embedding") if isinstance(data, list) and data else None
    # Base64 makes 4 characters of 3 bytes, and a number has 4 bytes.
    size = len(vector) * 3 // 16 if isinstance(vector, str) else len(vector) if isinstance(vector, list) else 0
    if not size:
        raise ModelRejected("it gave no vector. Check that model embeds, and that base_url is where its API begins.")
    return size


def _decode_vector(value: object, dimension: int) -> Vectors:
    """Decode a vector from a list of numbers, or base64 of little-endian float32, which some servers send unasked."""
    try:
        if isinstance(value, str):
            vector = np.frombuffer(base64.b64decode(value, validate=True), "<f4")
        else:
            vector = np.asarray(value, np.float32)
    except (ValueError, TypeError, binascii.Error, OverflowError) as error:
        raise ModelRejected(f"it gave a vector that is none ({error}). Check that model embeds.") from error
    if vector.shape != (dimension,):
        raise OtherDimension(
            f"it gave vectors of shape {vector.shape}, not ({dimension},). Write dimension={vector.size}, or name the "
            "right model."
        )
    return vector
