"""Models as the options name them: the language model, the embedder, the reranker."""

import json
from contextlib import suppress
from pathlib import Path

from spolia import models
from spolia.cli.model_profile import ModelProfile, load_profile
from spolia.cli.options import ModelOptions, RerankOptions
from spolia.cli.user_modules import load_user_embedder
from spolia.core.codec import decode
from spolia.core.registry import Catalogue
from spolia.errors import ManifestMismatch, QueryError, SpoliaError, WiringError
from spolia.models import local
from spolia.models.onnx.minilm import MiniLM
from spolia.models.protocols import Embedder, LanguageModel, Scorer
from spolia.models.trained_weights import BI_ENCODER, CARD, RERANKER, TrainedWeights
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import GroupEmbedding, embedder_of, refuse_other_embedder

NEEDS_BOTH = (
    "A language model needs both --llm URL and --model NAME, for example "
    "--llm http://127.0.0.1:8000/v1 --model qwen3. Its key is read from OPENAI_API_KEY. A model on this machine needs "
    "--llm alone, with a file in GGUF or a folder."
)


def load_language_model(
    url: str, model: str, profile: ModelProfile | None = None, think: int = 0
) -> LanguageModel | None:
    """Load the language model that the options name; None when they name none.

    Args:
        think: tokens for its thoughts; 0 for those of the profile, or what is learnt from its first cut reply.
    """
    if not url and not model:
        return None
    if "://" not in url and not model and (url.endswith(".gguf") or Path(url).expanduser().exists()):
        if think:
            raise QueryError(
                "--think is for a model on a server; one in a file gets tokens to think when it needs them."
            )
        return _load_local_model(url)
    if not (url and model):
        raise QueryError(NEEDS_BOTH)
    settings = {"thought_tokens": think} if think else {}
    loaded_model: LanguageModel = (profile or ModelProfile()).model("llm", url, model, **settings)
    return loaded_model


def _load_local_model(path: str) -> LanguageModel:
    """Load a model in GGUF with llama.cpp, or one in a folder with torch."""
    if has_gguf(path):
        return models.GgufModel(path)
    return models.LocalModel(path)


def has_gguf(path: str) -> bool:
    """Check whether a path names a file in GGUF, or a folder with one and without a model for torch."""
    place = Path(path).expanduser()
    return place.suffix == ".gguf" or (not (place / "config.json").is_file() and any(place.glob("*.gguf")))


def first_embedding(corpus: Corpus, group: str) -> GroupEmbedding | None:
    """Return how a group of a store was embedded first; None if it was not, or there is no store."""
    manifest = corpus.snapshot().manifests.get(group) if corpus.exists() else None
    return manifest.embeddings[0] if manifest is not None and manifest.embeddings else None


def load_embedder(
    options: ModelOptions, built: GroupEmbedding | None, group: str, threads: int = 1, measures: bool = True
) -> Embedder:
    """Load the embedder that the options name, else the one that a group was embedded with, else MiniLM.

    A server's dimension is that of the store, or found out by asking it once (`measures`).

    Raises:
        ManifestMismatch: the group was embedded with another one than the options name.
        ModelError: the server was asked, and gave no vector.
        StoreError, GroupError: the store does not say how to make its embedder, or names a key that is not allowed.
    """
    minilm = MiniLM(options.weights, threads)
    if options.embedder:
        embedder = _load_named_embedder(options, built, measures)
        if built is not None and built.embedder != embedder.name:
            raise ManifestMismatch(
                f"Group {group!r} was embedded with {built.embedder}, and --embedder and --embed-model name "
                f"{embedder.name}. Leave them out to search the stored vectors, or embed again: spolia index --rebuild."
            )
        if built is not None:
            refuse_other_embedder(built, group, embedder)
        return embedder
    if built is None or built.embedder == minilm.name:
        return minilm
    stored = embedder_of(built, group)
    if not isinstance(stored, Embedder):
        raise WiringError(f"Group {group!r} has sparse vectors only, of {built.embedder}. Search it by a flow file.")
    return stored


def _load_named_embedder(options: ModelOptions, built: GroupEmbedding | None, measures: bool) -> Embedder:
    if ".py:" in options.embedder:
        return load_user_embedder(options.embedder)
    if "://" not in options.embedder:
        if trained_part(options.embedder) == BI_ENCODER:
            return models.TunedMiniLM(options.weights, tuned=_trained_weights(options.embedder), part=BI_ENCODER)
        if has_gguf(options.embedder):
            return models.GgufEmbedder(options.embedder)
        return models.LocalEmbedder(*_split_commit(options.embedder))
    if not options.embed_model:
        raise QueryError("An embedder on a server needs its name too: --embedder URL --embed-model NAME.")
    profile = load_profile(options.profile_file)
    embedding_model: models.EmbeddingModel = profile.model("embedder", options.embedder, options.embed_model)
    settings = profile.tables.get("embedder", {})
    if built is None or built.embedder != embedding_model.name:
        is_known = "dimension" in settings and settings["url"] == options.embedder
        return embedding_model.measured() if measures and not is_known else embedding_model
    stored = _load_stored_embedder(built)
    if (
        isinstance(stored, models.EmbeddingModel)
        and stored.base_url == embedding_model.base_url
        and settings.get("url") != options.embedder
    ):
        return stored.but(api_key_env=embedding_model.api_key_env)
    return embedding_model.but(dimension=built.dimension)


def _load_stored_embedder(built: GroupEmbedding) -> object:
    """Load the embedder as the store has it, only to look at it; None if it cannot be made here."""
    with suppress(SpoliaError):
        return decode(json.loads(built.plain), classes=Catalogue()) if built.plain else None
    return None


def load_scorer(options: RerankOptions) -> Scorer | None:
    """Load the reranker that the options name; None when they name none."""
    if not options.reranker:
        return None
    if "://" not in options.reranker:
        if trained_part(options.reranker) == RERANKER:
            return models.MiniLMScorer(_trained_weights(options.reranker))
        return local.scorers.scorer_of(options.reranker, *_split_commit(options.reranker))
    profile = load_profile(options.profile_file)
    form = options.rerank_form or ("" if options.rerank_model else "tei")  # the only one that needs no name
    settings = {"form": form} if options.rerank_form or "form" not in profile.tables.get("reranker", {}) else {}
    scorer: Scorer = profile.model("reranker", options.reranker, options.rerank_model, **settings)
    return scorer


def trained_part(folder: str) -> str:
    """Return the part that `spolia train` wrote into a folder; empty for another folder."""
    try:
        return str(json.loads((Path(folder).expanduser() / CARD).read_bytes())["part"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""


def _trained_weights(folder: str) -> TrainedWeights:
    """Return trained weights by their whole path, since the store writes down its embedder."""
    return TrainedWeights(str(Path(folder).expanduser().resolve()))


def _split_commit(address: str) -> tuple[str, str]:
    """Split an address into a folder or repository and, for `acme/model@COMMIT`, the commit.

    >>> _split_commit("models/bge"), _split_commit("acme/bge@" + "0" * 40)[0]
    (('models/bge', ''), 'acme/bge')
    """
    name, mark, commit = address.rpartition("@")
    # Git's commits have 40 digits; a shorter one can name several.
    return (name, commit) if mark and len(commit) == 40 else (address, "")
