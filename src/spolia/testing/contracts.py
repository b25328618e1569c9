"""Contracts of model adapters, as checks that raise `AssertionError`; for the tests of plug-ins."""

from spolia.deferred import numpy as np
from spolia.models.protocols import CHAT, LOGPROBS, STREAM, Embedder, LanguageModel
from spolia.types import Message, Prompt, digest_of

TEXTS = ("A cat sat on the mat.", "", "ขอบคุณ 감사합니다 谢谢", "word " * 2000, "\x00‮ \ud800", "A cat sat on the mat.")


def check_embedder(embedder: Embedder) -> None:
    """Check shape, type, length 1, finiteness and order, and that a vector does not depend on the batch.

    >>> from spolia.testing import HashingEmbedder
    >>> check_embedder(HashingEmbedder())
    """
    assert isinstance(embedder, Embedder), f"{embedder!r} lacks members of the protocol Embedder"
    _check_address(embedder)
    vectors = embedder.embed(TEXTS, kind="passage")
    assert vectors.shape == (len(TEXTS), embedder.dimension), f"shape {vectors.shape}, not (texts, dimension)"
    assert vectors.dtype == np.float32, f"{vectors.dtype}, not float32"
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4), "vectors are not of length 1"
    single_vectors = np.concatenate([embedder.embed([text], kind="passage") for text in TEXTS])
    # Rounding differs with the size of a batch.
    assert (vectors * single_vectors).sum(axis=1).min() > 0.9999, "a text's vector depends on the texts beside it"
    assert embedder.embed([], kind="query").shape == (0, embedder.dimension), "no texts must give no rows"
    counts = embedder.tokens(TEXTS)
    assert len(counts) == len(TEXTS), "tokens gives one number for each text"
    assert counts[3] > embedder.window or embedder.window > 2000, "tokens must not stop at the window"
    assert all(0.0 <= embedder.covers(text) <= 1.0 for text in TEXTS), "covers is a share from 0 to 1"


def check_language_model(model: LanguageModel, prompt: Prompt | None = None) -> None:
    """Check that replies have text, pieces make up the text, log-probabilities are valid, and a reply can be cut.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> check_language_model(ScriptedModel(("One, two, three.",)))
    """
    assert isinstance(model, LanguageModel), f"{model!r} lacks members of the protocol LanguageModel"
    _check_address(model)
    prompt = prompt or Prompt((Message("user", "Count from one to three."),))
    assert CHAT in model.capabilities, "every language model can chat"
    assert model.generate(prompt).text, "an empty reply must be an error"
    pieces: list[str] = []
    streamed = model.generate(prompt, on_text=pieces.append)
    assert "".join(pieces) == streamed.text, "the pieces do not make up the text"
    assert STREAM in model.capabilities or len(pieces) == 1, "without 'stream' the reply comes in one piece"
    if LOGPROBS in model.capabilities:
        tokens = model.generate(prompt, logprobs=True).tokens
        assert tokens, "no tokens though they were asked for"
        assert all(token.logprob <= 0.0 for token in tokens), "a log-probability is at most 0"
    assert model.generate(prompt, max_tokens=1).finish_reason in ("length", "stop")


def _check_address(model: Embedder | LanguageModel) -> None:
    assert model.name, "the name is empty"
    digest_of(model)
    assert model.fingerprint() == model.fingerprint(), "the fingerprint changes"
