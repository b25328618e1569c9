"""Base of local models: files, a window, and their share of this machine."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Self

from spolia import deferred
from spolia.core.run_context import check_cancelled, reach
from spolia.errors import ModelError, WeightsError, require
from spolia.models.file_hash import hash_of, hub_cache
from spolia.models.hub import download
from spolia.models.trained_weights import refuse_changed
from spolia.types import Value

DTYPES = ("float32", "bfloat16", "float16")
PROMPTS, MODULES = "config_sentence_transformers.json", "modules.json"
"""Files in which sentence-transformers writes how a model is asked."""
CHECKPOINT = "model.safetensors"
"""The weights of a model in a folder that `spolia train` wrote."""


@dataclass(frozen=True)
class Local(Value):
    """Address of a model in transformers' format; opened on first use, once per process, by any number of threads.

    Only safetensors are read, and no code that comes with a model is ever run. Its weights are a part of its
    fingerprint: the commit, or a hash of the folder's files.

    Args:
        model: folder with `config.json`, `*.safetensors` and the tokenizer's files; with a revision, a repository of
            the model hub.
        revision: the commit in that repository, 40 hexadecimal digits; empty for a folder.
        window: longest text in tokens, special ones included; the rest of a longer one is not read.
        batch_tokens: on an accelerator, texts of about one length are run together up to this number of tokens, padding
            included. On the CPU each text is run alone.
        threads: CPU threads for one call.
        device: as torch names it, `cpu` or `cuda:0`.
        dtype: of the weights while they run, `float32`, `bfloat16` or `float16`.

    Raises:
        WeightsError: on first use, when there are no weights, or they are of another kind of model.
        MissingExtra: on first use, when torch or transformers is not installed.
    """

    model: str
    revision: str = ""
    window: int = 512
    batch_tokens: int = 4096
    threads: int = 1
    device: str = "cpu"
    dtype: str = "float32"

    head: ClassVar[str] = "AutoModel"
    """The class of transformers that opens it."""
    indifferent: ClassVar[frozenset[str]] = frozenset(("model", "revision", "batch_tokens", "threads", "device"))
    """Fields that make no other results."""

    def __post_init__(self) -> None:
        check_revision(self.model, self.revision)
        for name in ("window", "batch_tokens", "threads"):
            if getattr(self, name) < 1:
                raise ModelError(f"{type(self).__name__} got {name}={getattr(self, name)}. Write at least 1.")
        if self.dtype not in DTYPES:
            raise ModelError(f"{type(self).__name__} got dtype={self.dtype!r}. Write one of {', '.join(DTYPES)}.")

    @property
    def name(self) -> str:
        """Return the model's own name, and what tells it apart from others with other weights or settings."""
        fingerprint = self.fingerprint()
        folder_name = Path(self.model).name
        return (
            f"{folder_name}@{blake2b(fingerprint.encode(), digest_size=4).hexdigest()}" if fingerprint else folder_name
        )

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str | None:
        """Return the identity of its files and settings; None if there are no files."""
        content = content_of(self.model, self.revision)
        if not content:
            return None
        resolved = self if self.revision else self.resolved  # a commit stands for what its files say
        settings = [(f.name, getattr(resolved, f.name)) for f in fields(self) if f.name not in self.indifferent]
        return f"{type(self).__name__}|{content}|{settings}"

    @property
    def resolved(self) -> Self:
        """Copy with the folder's own settings in place of missing ones."""
        return self

    def open_session(self) -> ModelSession:
        """Return the model and its tokenizer in this process."""
        reach(self)
        return get_session(self)

    def make_batches(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Yield the numbers of rows that are run together, and the model's inputs; between them the run may be
        cancelled.

        The shape follows from the length of a row alone, since torch adds in another order for another shape: one row
        on the CPU; elsewhere 32, or as many as `batch_tokens` allow, padded to a multiple of 16 tokens. Copies of the
        last row fill up what is missing: only the first rows of a result are those of the batch.
        """
        session = self.open_session()
        step, most_rows = (1, 1) if self._runs_rows_alone else (16, 32)
        widths = [max(len(row), min(-(-len(row) // step) * step, self.window)) for row in rows]
        for width in sorted(set(widths), reverse=True):
            count = max(1, min(most_rows, self.batch_tokens // width))
            same_width = [number for number, row_width in enumerate(widths) if row_width == width]
            for start in range(0, len(same_width), count):
                check_cancelled()
                batch = same_width[start : start + count]
                filled = [*batch, *[batch[-1]] * (count - len(batch))]
                yield batch, session.pad([rows[number] for number in filled], width)

    @property
    def _runs_rows_alone(self) -> bool:
        """Return whether rows run alone: on the CPU, where running many together gains little."""
        return self.device == "cpu"


KINDS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.metadata")
"""What is read of a model; nothing else is fetched. Weights are safetensors alone, which hold no code."""
_ENDINGS = tuple(kind.removeprefix("*") for kind in KINDS)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_revision(model: str, revision: str) -> None:
    """Raise ModelError for a revision that may be another one tomorrow, and for a model of no name."""
    if not model:
        raise ModelError("The local model has no name. Write a folder, or a repository of the hub with its revision.")
    if revision and not _COMMIT.fullmatch(revision):
        raise ModelError(
            f"revision is {revision!r}, which may mean other weights tomorrow. Write the commit, 40 hexadecimal digits."
        )


def config_of(model: str, revision: str) -> dict[str, Any]:
    """Return the content of a model's config.json."""
    path = folder_of(model, revision) / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} cannot be read as JSON ({error}). Fetch the model again.") from error
    if not isinstance(config, dict):
        raise WeightsError(f"{path} holds no JSON object. Fetch the model again.")
    return config


def json_of(path: Path, kind: type[Any] = dict) -> Any:
    """Return the content of a JSON file; empty if it does not exist."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return kind()
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}. Check its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not JSON: {error}. Fetch the checkpoint again.") from error
    if not isinstance(value, kind):
        raise WeightsError(f"{path} holds no {kind.__name__} of JSON. Fetch the checkpoint again.")
    return value


def modules_of(folder: Path) -> list[tuple[str, Path]]:
    """Return the modules that sentence-transformers puts together for a model: the kind of each, and its folder.

    Raises:
        WeightsError: a folder is outside of the model's.
    """
    modules = []
    for module in json_of(folder / MODULES, list):
        path = str(module.get("path")) if isinstance(module, dict) else ".."
        # The list of modules comes with the model, and must not lead out of its folder.
        if "/" in path or path.startswith("."):
            raise WeightsError(
                f"{folder / MODULES} names a folder outside. Write a checkpoint that holds its own files."
            )
        modules.append((str(module.get("type")).rpartition(".")[2], folder / path))
    return modules


def folder_of(model: str, revision: str) -> Path:
    """Return the folder with a model's files; with a revision, those of a repository of the hub."""
    if not revision:
        folder = Path(model).expanduser()
        if not (folder / "config.json").is_file():
            raise WeightsError(
                f"{model!r} is not a folder with a config.json. Write the path of a model that was saved by "
                "transformers, or a repository of the hub with revision=COMMIT."
            )
        return folder
    # A commit never changes, so files in the cache need no question to the hub.
    cached = hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots" / revision
    if any(cached.glob("*.safetensors")) and (cached / "config.json").is_file():
        return cached
    fetched = download(model, KINDS, revision)
    if isinstance(fetched, Path):
        return fetched
    raise WeightsError(
        f"{model} at {revision} is not in the hub's cache {hub_cache()}, and the hub was {fetched}. Put its files into "
        "a folder, and write that as model."
    )


def content_of(model: str, revision: str) -> str | None:
    """Return the identity of the files: the revision, or a hash of all of them; None without files."""
    if revision:
        return revision
    folder = Path(model).expanduser()
    try:
        files = sorted((file.name, file.stat()) for file in os.scandir(folder) if file.name.endswith(_ENDINGS))
    except OSError:
        return None
    if not any(name.endswith(".safetensors") for name, _ in files):
        return None
    return _hash_files(folder, tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in files))


@lru_cache(maxsize=64)
def _hash_files(folder: Path, files: tuple[tuple[str, int, int, int], ...]) -> str:
    """Hash the files in a folder, once for files of these sizes and times."""
    digest = blake2b(digest_size=16)
    for name, *_ in files:
        digest.update(f"{name}:{hash_of(folder / name)}\n".encode())
    return digest.hexdigest()


def torch() -> Any:
    """Import the package torch."""
    require(deferred.torch, "A local model")
    return deferred.torch


def transformers() -> Any:
    """Import the package transformers, and silence its messages about what is checked here."""
    torch()
    require(deferred.transformers, "A local model")
    deferred.transformers.logging.set_verbosity_error()
    deferred.transformers.logging.disable_progress_bar()
    return deferred.transformers


class ModelSession:
    """Model with its tokenizer, both of transformers, for any number of threads.

    `max_positions` is its longest text in tokens, where its positions are counted; `padding` the token that fills rows.
    """

    def __init__(self, address: Local) -> None:
        self.folder = folder_of(address.model, address.revision)
        self.device, self.threads = address.device, address.threads
        refuse_changed(self.folder, CHECKPOINT)
        self.model = load_model(self.folder, address)
        self.max_positions = getattr(self.config.get_text_config(), "max_position_embeddings", None)
        self.tokenizer = load_tokenizer(self.folder)
        self._tokenizer_lock = threading.Lock()
        self.padding = int(self.tokenizer.pad_token_id or 0)
        added = self.tokenizer.added_tokens_decoder.values()
        self._marks = {str(token) for token in added if str(token).strip()}

    def refuse_wider(self, address: Local) -> None:
        """Refuse a window beyond the model's positions, where it reads nothing or fails."""
        if self.max_positions is not None and address.window > self.max_positions:
            raise WeightsError(
                f"{address.model} was made for {self.max_positions} tokens, and window is {address.window}. "
                f"Write window={self.max_positions}, or less."
            )

    @property
    def config(self) -> Any:
        """Return the model's own configuration."""
        return self.model.config

    def read(self, *texts: str, window: int | None = None, marks: bool = False, **options: Any) -> dict[str, Any]:
        """Return a text, or a pair, as tokens: those that fit into `window`, with the tokenizer's further `options`.

        With `marks`, what looks like a special token is that token; else it is what is written there.
        """
        cut = {} if window is None else {"truncation": "longest_first", "max_length": window}
        with self._tokenizer_lock:  # a tokenizer keeps its settings for cutting and marks until the next call
            return dict(
                self.tokenizer(*map(replace_surrogates, texts), split_special_tokens=not marks, **cut, **options)
            )

    def ids(self, text: str, window: int | None) -> list[int]:
        """Return the numbers of a text's tokens, special ones included; of a longer one those that fit, and its special
        ones."""
        ids: list[int] = self.read(text, window=window)["input_ids"]
        return ids or [self.padding]  # an empty text of a tokenizer without special tokens

    def escape_special_tokens(self, text: str) -> str:
        """Return the text without the model's special tokens: of `<|end|>` stays `‹|end|>`."""
        return escape_tokens(text, self._marks)

    def run(self, part: Any = None, /, **inputs: Any) -> Any:
        """Return the outputs of the model, or of a part of it; `inputs` are tensors, or lists that become tensors."""
        torch_package = torch()
        torch_package.set_num_threads(self.threads)
        tensors = {
            name: torch_package.tensor(value, device=self.device) if isinstance(value, list) else value
            for name, value in inputs.items()
        }
        with torch_package.no_grad():
            return (part or self.model)(**tensors)

    def pad(self, rows: Sequence[Sequence[int]], width: int) -> dict[str, Any]:
        """Return rows of tokens as one rectangle, padded at their ends, and which of it are tokens."""
        ids = [[*row, *[self.padding] * (width - len(row))] for row in rows]
        mask = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
        return {"input_ids": ids, "attention_mask": mask}


def escape_tokens(text: str, marks: Iterable[str]) -> str:
    """Return a text in which none of the marks is left.

    >>> escape_tokens("a<|end|>b", ["<|end|>"])
    'a‹|end|>b'
    """
    # The longest first: a mark may hold a shorter one.
    for mark in sorted(marks, key=len, reverse=True):
        text = text.replace(mark, f"‹{mark[1:]}" if mark[0] == "<" else f"{mark[0]}\u200b{mark[1:]}")
    return text


def replace_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which are no Unicode and which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()


def get_session(address: Local) -> ModelSession:
    """Return the model at an address, opened once per process for all addresses that differ in nothing of it.

    Changed files are opened again, so that results are those of the weights that the fingerprint names.
    """
    key = (address.model, address.revision, address.head, address.device, address.dtype, address.threads)
    content = content_of(address.model, address.revision)
    # Two threads that need the same model must not both load its weights.
    with _open_lock:
        entry = _sessions.get(key)
        if entry is None or entry[0] != content:
            entry = _sessions[key] = (content, ModelSession(address))
    entry[1].refuse_wider(address)
    return entry[1]


def load_model(folder: Path, address: Local) -> Any:
    """Load the model in a folder, of the class and with the weights that an address names."""
    kind = getattr(transformers(), address.head)
    try:
        model, loading_info = kind.from_pretrained(
            folder,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            dtype=getattr(torch(), address.dtype),
        )
    except Exception as error:  # it raises its own, torch's, safetensors' and the system's
        raise WeightsError(
            f"{folder} cannot be opened as {address.head}: {str(error).strip().splitlines()[0]:.300} "
            "Write a folder with config.json and *.safetensors of such a model."
        ) from error
    missing = sorted(
        name for name in loading_info["missing_keys"] if "pooler" not in name and "position_ids" not in name
    )
    if missing:  # transformers would make them up
        raise WeightsError(
            f"{folder} has no tensor {missing[0]}: it was not made for {address.head}. Write a model that was."
        )
    return model.eval().to(address.device)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer in a folder."""
    try:
        return transformers().AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:
        raise WeightsError(
            f"The tokenizer in {folder} cannot be opened: {str(error).strip().splitlines()[0]:.300} "
            "Write a folder with a tokenizer.json."
        ) from error


_sessions: dict[tuple[object, ...], tuple[str | None, ModelSession]] = {}
_open_lock = threading.RLock()


_parent_sessions: list[object] = []


def _reset_after_fork() -> None:
    """Forget the models in a forked child, which lacks torch's threads; they are never freed, since that would wait for
    the threads."""
    global _sessions, _open_lock
    _parent_sessions.append(_sessions)
    _sessions, _open_lock = {}, threading.RLock()


os.register_at_fork(after_in_child=_reset_after_fork)
