"""Models as the options name them: the language model, the embedder, the reranker."""

import json
from contextlib import suppress
from pathlib import Path

from spolia import models
from spolia.cli.model_profile import ModelProfile, profile_of
from spolia.cli.options import ModelOptions, RerankOptions
from spolia.cli.user_modules import own_embedder
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


def model_at(url: str, model: str, profile: ModelProfile | None = None, think: int = 0) -> LanguageModel | None:
    """The language model that the options name; None when they name none.

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
        return _local_llm(url)
    if not (url and model):
        raise QueryError(NEEDS_BOTH)
    more = {"thought_tokens": think} if think else {}
    found: LanguageModel = (profile or ModelProfile()).model("llm", url, model, **more)
    return found


def _local_llm(path: str) -> LanguageModel:
    """A model in GGUF for llama.cpp, else one in a folder for torch."""
    if has_gguf(path):
        return models.GgufModel(path)
    return models.LocalModel(path)


def has_gguf(path: str) -> bool:
    """Whether a path names a file in GGUF, or a folder with one and without a model for torch."""
    place = Path(path).expanduser()
    return place.suffix == ".gguf" or (not (place / "config.json").is_file() and any(place.glob("*.gguf")))


def embedding_of(corpus: Corpus, group: str) -> GroupEmbedding | None:
    """How a group of a store was embedded first; None where it was not, or there is no store."""
    manifest = corpus.snapshot().manifests.get(group) if corpus.exists() else None
    return manifest.embeddings[0] if manifest is not None and manifest.embeddings else None


def embedder_for(
    given: ModelOptions, built: GroupEmbedding | None, group: str, threads: int = 1, measures: bool = True
) -> Embedder:
    """The embedder that the options name, else the one that a group was embedded with, else MiniLM.

    A server's dimension is that of the store, or found out by asking it once (`measures`).

    Raises:
        ManifestMismatch: the group was embedded with another one than the options name.
        ModelError: the server was asked, and gave no vector.
        StoreError, GroupError: the store does not say how to make its embedder, or names a key that is not allowed.
    """
    minilm = MiniLM(given.weights, threads)
    if given.embedder:
        found = _named(given, built, measures)
        if built is not None and built.embedder != found.name:
            raise ManifestMismatch(
                f"Group {group!r} was embedded with {built.embedder}, and --embedder and --embed-model name "
                f"{found.name}. Leave them out to search the stored vectors, or embed again: spolia index --rebuild."
            )
        if built is not None:
            refuse_other_embedder(built, group, found)
        return found
    if built is None or built.embedder == minilm.name:
        return minilm
    stored = embedder_of(built, group)
    if not isinstance(stored, Embedder):
        raise WiringError(f"Group {group!r} has sparse vectors only, of {built.embedder}. Search it by a flow file.")
    return stored


def _named(given: ModelOptions, built: GroupEmbedding | None, measures: bool) -> Embedder:
    if ".py:" in given.embedder:
        return own_embedder(given.embedder)
    if "://" not in given.embedder:
        if trained_part(given.embedder) == BI_ENCODER:
            return models.TunedMiniLM(given.weights, tuned=_trained(given.embedder), part=BI_ENCODER)
        if has_gguf(given.embedder):
            return models.GgufEmbedder(given.embedder)
        return models.LocalEmbedder(*_folder_or_commit(given.embedder))
    if not given.embed_model:
        raise QueryError("An embedder on a server needs its name too: --embedder URL --embed-model NAME.")
    profile = profile_of(given.profile_file)
    found: models.EmbeddingModel = profile.model("embedder", given.embedder, given.embed_model)
    said = profile.tables.get("embedder", {})
    if built is None or built.embedder != found.name:
        is_known = "dimension" in said and said["url"] == given.embedder
        return found.measured() if measures and not is_known else found
    stored = _stored(built)
    if (
        isinstance(stored, models.EmbeddingModel)
        and stored.base_url == found.base_url
        and said.get("url") != given.embedder
    ):
        return stored.but(api_key_env=found.api_key_env)
    return found.but(dimension=built.dimension)


def _stored(built: GroupEmbedding) -> object:
    """The embedder as the store has it, to be looked at; None where it cannot be made here."""
    with suppress(SpoliaError):
        return decode(json.loads(built.plain), known=Catalogue()) if built.plain else None
    return None


def scorer_for(given: RerankOptions) -> Scorer | None:
    """The reranker that the options name; None when they name none."""
    if not given.reranker:
        return None
    if "://" not in given.reranker:
        if trained_part(given.reranker) == RERANKER:
            return models.MiniLMScorer(_trained(given.reranker))
        return local.scorers.scorer_of(given.reranker, *_folder_or_commit(given.reranker))
    profile = profile_of(given.profile_file)
    form = given.rerank_form or ("" if given.rerank_model else "tei")  # the only one that needs no name
    more = {"form": form} if given.rerank_form or "form" not in profile.tables.get("reranker", {}) else {}
    found: Scorer = profile.model("reranker", given.reranker, given.rerank_model, **more)
    return found


def trained_part(folder: str) -> str:
    """What `spolia train` wrote into a folder; empty for another folder."""
    try:
        return str(json.loads((Path(folder).expanduser() / CARD).read_bytes())["part"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return ""


def _trained(folder: str) -> TrainedWeights:
    """By its whole path, since the store writes down its embedder."""
    return TrainedWeights(str(Path(folder).expanduser().resolve()))


def _folder_or_commit(named: str) -> tuple[str, str]:
    """A folder with weights, or `acme/model@COMMIT`.

    >>> _folder_or_commit("models/bge"), _folder_or_commit("acme/bge@" + "0" * 40)[0]
    (('models/bge', ''), 'acme/bge')
    """
    name, mark, commit = named.rpartition("@")
    return (name, commit) if mark and len(commit) == 40 else (named, "")
