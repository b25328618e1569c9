"""Sessions of llama.cpp on files of GGUF."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import create_string_buffer
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from glob import escape
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import check_cancelled, record_access
from spolia.deferred import llama_cpp
from spolia.deferred import numpy as np
from spolia.errors import ModelError, ModelRejected, WeightsError, require
from spolia.models.file_hash import hash_of
from spolia.models.local.address import replace_surrogates
from spolia.models.open_sessions import OpenSessions
from spolia.types import Value

if TYPE_CHECKING:
    from spolia.types.arrays import Numbers

BATCH = 512
"""Tokens that are run together; what a model gives depends on it in the last digits, so it is the same for all."""
_PART = re.compile(r"(.*)-\d{5}-of-\d{5}\.gguf")


@dataclass(frozen=True)
class Gguf(Value):
    """Base of the models in a file of GGUF; opened on first use, once per process, for one thread at a time.

    Args:
        model: the file, or a folder with one such file. Of a model in parts (`…-00001-of-00003.gguf`) the first.
        window: longest text in tokens, special ones included.
        threads: CPU threads for one call.
        gpu_layers: layers that run on an accelerator, if llama.cpp was built for one; -1 for all.

    Raises:
        WeightsError: on first use, when the file does not exist, or it holds another kind of model.
        MissingExtra: on first use, when llama-cpp-python is not installed.
    """

    model: str
    window: int = 512
    threads: int = 1
    gpu_layers: int = 0

    indifferent: ClassVar[frozenset[str]] = frozenset(("model", "threads", "gpu_layers"))
    """Fields that make no other results."""
    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.model:
            raise ModelError(f"{type(self).__name__} names no file. Write the path of a file in GGUF.")
        for name in ("window", "threads"):
            if getattr(self, name) < 1:
                raise ModelError(f"{type(self).__name__} got {name}={getattr(self, name)}. Write at least 1.")

    @property
    def name(self) -> str:
        """Return the file's own name, and what tells it apart from others with other weights or settings."""
        fingerprint = self.fingerprint()
        file_name = (file_of(self.model) if fingerprint else Path(self.model)).name.removesuffix(".gguf")
        return f"{file_name}@{blake2b(fingerprint.encode(), digest_size=4).hexdigest()}" if fingerprint else file_name

    def fingerprint(self) -> str | None:
        """Return the identity of its files and settings; None if there are no files."""
        try:
            content = _hash_parts(_part_stats(file_of(self.model)))
        except (WeightsError, OSError):
            return None
        settings = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name not in self.indifferent]
        return f"{type(self).__name__}|{content}|{settings}"

    def open_session(self) -> GgufSession:
        """Return the model in this process."""
        record_access(self)
        return _get_session(self)


def file_of(model: str) -> Path:
    """Return the file at a path, or the only one in a folder; of a model in parts the first.

    Raises:
        WeightsError: the folder has no GGUF file, or more than one.
    """
    path = Path(os.path.expanduser(model))
    if not path.is_dir():
        if not path.is_file():
            raise WeightsError(f"Model file not found: {model}. Write the path of a file in GGUF.")
        return path
    models = {str(_parts(file)[0]): file for file in sorted(path.glob("*.gguf"))}
    if len(models) != 1:
        raise WeightsError(f"{model} has {len(models)} models in GGUF. Write the path of one file.")
    return Path(next(iter(models)))


def _parts(path: Path) -> list[Path]:
    match = _PART.fullmatch(path.name)
    return sorted(path.parent.glob(f"{escape(match[1])}-?????-of-?????.gguf")) if match else [path]


def _part_stats(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    """List the parts of a model, each with its size and times."""
    stats = [(str(part), part.stat()) for part in _parts(path)]
    return tuple((name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for name, stat in stats)


@lru_cache(maxsize=64)
def _hash_parts(states: tuple[tuple[str, int, int, int], ...]) -> list[str]:
    """Hash the parts of a model, once for files of these sizes and times."""
    return [hash_of(Path(path)) for path, *_ in states]


class GgufSession:
    """Model that llama.cpp has opened. It keeps the text that it has read, so `alone` holds other threads off
    meanwhile.

    What it gives for a text does not depend on what it was asked before, since it begins each time with nothing read.
    """

    def __init__(self, address: Gguf, pooling: str | None = None) -> None:
        self.path = file_of(address.model)
        require(llama_cpp, "A model in GGUF")
        self.api: Any = llama_cpp
        options: dict[str, Any] = {}
        if pooling is not None:  # a text is read in one batch, since some of them read from both sides
            pooling_types = {"mean": self.api.LLAMA_POOLING_TYPE_MEAN, "cls": self.api.LLAMA_POOLING_TYPE_CLS}
            pooling_types |= {"last": self.api.LLAMA_POOLING_TYPE_LAST, "": self.api.LLAMA_POOLING_TYPE_UNSPECIFIED}
            options = {"embedding": True, "pooling_type": pooling_types[pooling], "n_ubatch": address.window}
        try:
            self.llama = llama_cpp.Llama(
                str(self.path),
                n_ctx=address.window,
                n_batch=address.window if options else min(BATCH, address.window),
                n_threads=address.threads,
                n_threads_batch=address.threads,
                n_gpu_layers=address.gpu_layers,
                verbose=False,
                **options,
            )
        except (ValueError, RuntimeError) as error:  # what llama.cpp says goes to a log
            raise WeightsError(
                f"{self.path} cannot be opened by llama.cpp: {str(error).strip():.300} Write a whole file in GGUF, of "
                "an architecture that this llama.cpp knows."
            ) from error
        self.facts: dict[str, str] = self.llama.metadata
        self._vocabulary = self.api.llama_model_get_vocab(self.llama.model)
        self._pieces: dict[tuple[int, bool], bytes] = {}
        self._lock, self._position = threading.Lock(), 0
        self._owner: int | None = None
        self._check_model(address, bool(options))

    def _check_model(self, address: Gguf, embeds: bool) -> None:
        """Raise WeightsError for a window beyond the model's positions, and for a model of another kind."""
        family = self.facts.get("general.architecture", "")
        made_for = int(self.facts.get(f"{family}.context_length", address.window))
        if address.window > made_for:
            raise WeightsError(
                f"{address.model} was made for {made_for} tokens, and window is {address.window}. "
                f"Write window={made_for}, or less."
            )
        if embeds and self.api.llama_pooling_type(self.llama.ctx) == self.api.LLAMA_POOLING_TYPE_NONE:
            raise WeightsError(f"{self.path} does not say how it pools. Write pooling='mean', 'cls' or 'last'.")
        reads_both_ways = self.facts.get(f"{family}.attention.causal") == "false"
        if not embeds and (reads_both_ways or self.api.llama_model_has_encoder(self.llama.model)):
            raise WeightsError(f"{self.path} ({family}) does not write from left to right. Write a causal model.")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Give exclusive use of the model, which then reads from the beginning."""
        # The lock is not reentrant: the thread would wait for itself.
        if self._owner == threading.get_ident():
            raise ModelError(f"{self.path} is asked while it writes, by what listens to it. Ask when the reply ended.")
        # A short timeout, so that a cancelled run does not wait for another's reply.
        while not self._lock.acquire(timeout=0.1):
            check_cancelled()
        try:
            self._owner, self._position = threading.get_ident(), 0
            if memory := self.api.llama_get_memory(self.llama.ctx):  # those that read from both sides have none
                self.api.llama_memory_clear(memory, True)
            yield
        finally:
            self._owner = None
            self._lock.release()

    def ids(self, text: str, *, marks: bool = False, begins: bool = True) -> list[int]:
        """Return the tokens of a text; with `begins`, with those that the model puts around texts. With `marks`, what
        looks like a special token is that token."""
        ids: list[int] = self.llama.tokenize(replace_surrogates(text).encode(), add_bos=begins, special=marks)
        return ids

    @cached_property
    def puts_space(self) -> bool:
        """Return whether the tokenizer puts a space before a text."""
        return self.decode(self.ids("a", begins=False)) == " a"

    @cached_property
    def marks(self) -> frozenset[str]:
        """Return the texts of the special tokens."""
        api = self.api
        special = api.LLAMA_TOKEN_ATTR_CONTROL | api.LLAMA_TOKEN_ATTR_USER_DEFINED | api.LLAMA_TOKEN_ATTR_UNKNOWN
        texts = (
            api.llama_vocab_get_text(self._vocabulary, id).decode("utf-8", "replace")
            for id in range(self.llama.n_vocab())
            if api.llama_vocab_get_attr(self._vocabulary, id) & special
        )
        return frozenset(text for text in texts if text.strip())

    def is_end(self, id: int) -> bool:
        """Return whether a token ends a reply."""
        return bool(self.api.llama_vocab_is_eog(self._vocabulary, id))

    def is_unknown(self, id: int) -> bool:
        """Return whether a token stands for an unknown text."""
        return bool(self.api.llama_vocab_get_attr(self._vocabulary, id) & self.api.LLAMA_TOKEN_ATTR_UNKNOWN)

    def piece(self, id: int, *, marks: bool = False) -> bytes:
        """Return the bytes of a token; none of a special one, unless with `marks`."""
        # A reply repeats tokens, and each call of the library allocates a buffer.
        if (id, marks) not in self._pieces:
            buffer = create_string_buffer(1024)
            length = self.api.llama_token_to_piece(self._vocabulary, id, buffer, len(buffer), 0, marks)
            self._pieces[id, marks] = buffer.raw[: max(0, length)]
        return self._pieces[id, marks]

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        """Return the text of tokens; a character that is not complete is U+FFFD."""
        return b"".join(map(self.piece, ids)).decode("utf-8", "replace")

    def predict(self, ids: Sequence[int], places: int = 1) -> Numbers:
        """Read more tokens, and return float64[places, vocabulary]: the log-probabilities of what follows each of the
        last ones."""
        rows, size = [], self.llama.n_vocab()
        for start in range(0, len(ids), BATCH):
            check_cancelled()
            chunk = ids[start : start + BATCH]
            for index in self._run(chunk, first=len(ids) - places - start):
                row = np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.llama.ctx, index), shape=(size,))
                rows.append(row.astype(np.float64))
        logits = np.stack(rows)
        logits -= logits.max(axis=1, keepdims=True)
        logprobs: Numbers = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logprobs

    def vector(self, ids: Sequence[int]) -> Numbers:
        """Return the vector of a text: float64[width]."""
        self._run(ids, first=0)
        pointer = self.api.llama_get_embeddings_seq(self.llama.ctx, 0)
        return np.ctypeslib.as_array(pointer, shape=(self.llama.n_embd(),)).astype(np.float64)

    def _run(self, ids: Sequence[int], first: int) -> range:
        """Read tokens; llama.cpp then gives what follows from each, from the `first` on. Return their places."""
        batch = self.api.llama_batch_init(len(ids), 0, 1)
        try:
            batch.n_tokens = len(ids)
            for index, id in enumerate(ids):
                batch.token[index], batch.pos[index], batch.n_seq_id[index] = id, self._position + index, 1
                batch.seq_id[index][0], batch.logits[index] = 0, index >= first
            code = self.api.llama_decode(self.llama.ctx, batch)
        finally:
            self.api.llama_batch_free(batch)
        if code:
            raise ModelRejected(f"llama.cpp could not read {len(ids)} tokens with {self.path} (code {code}).")
        self._position += len(ids)
        return range(max(0, first), len(ids))


def _get_session(address: Gguf) -> GgufSession:
    """Return the model at an address, opened once per process for all addresses that differ in nothing of it; again if
    its file changed."""
    pooling = getattr(address, "pooling", None)
    path = file_of(address.model)
    stamp, key = _part_stats(path), (str(path.absolute()), address.window, address.threads, address.gpu_layers, pooling)
    return _sessions.get(key, lambda: GgufSession(address, pooling), stamp)


_sessions = OpenSessions[GgufSession]()
