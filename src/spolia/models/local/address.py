"""What all local models have in common: files, a window, and what they may take of this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import check_cancelled, reach
from spolia.errors import ModelError
from spolia.models.local.session import checked_revision, content_of, opened
from spolia.types import Value

if TYPE_CHECKING:
    from spolia.models.local.session import ModelSession

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Local(Value):
    """The address of a model in transformers' format; opened on first use, once per process, by any number of threads.

    Only safetensors are read, and no code that comes with a model is ever run. Its weights are a part of its
    fingerprint: the commit, or a hash of the folder's files.

    Args:
        model: folder with `config.json`, `*.safetensors` and the tokenizer's files; with a revision, a repository of
            the model hub.
        revision: the commit in that repository, 40 hexadecimal digits; empty for a folder.
        window: longest text in tokens, special ones included; the rest of a longer one is not read.
        batch_tokens: on an accelerator, texts of about one length are run together up to so many tokens, padding
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
        checked_revision(self.model, self.revision)
        for name in ("window", "batch_tokens", "threads"):
            if getattr(self, name) < 1:
                raise ModelError(f"{type(self).__name__} got {name}={getattr(self, name)}. Write at least 1.")
        if self.dtype not in DTYPES:
            raise ModelError(f"{type(self).__name__} got dtype={self.dtype!r}. Write one of {', '.join(DTYPES)}.")

    @property
    def name(self) -> str:
        """The model's own name, and what tells it apart from others with other weights or settings."""
        known = self.fingerprint()
        own = Path(self.model).name
        return f"{own}@{blake2b(known.encode(), digest_size=4).hexdigest()}" if known else own

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str | None:
        """Of its files and settings; None where there are no files."""
        content = content_of(self.model, self.revision)
        said = [(f.name, getattr(self, f.name)) for f in fields(self) if f.name not in self.indifferent]
        return f"{type(self).__name__}|{content}|{said}" if content else None

    def opened(self) -> "ModelSession":
        """The model and its tokenizer in this process."""
        reach(self)
        return opened(self)

    def in_batches(self, rows: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Numbers of rows that are run together, and what the model is given; between them the run may be cancelled.

        The shape follows from the length of a row alone, since torch adds in another order for another shape: one row
        on the CPU; elsewhere 32, or as many as `batch_tokens` allow, padded to a multiple of 16 tokens. Copies of the
        last row fill up what is missing: only the first rows of a result are those of the batch.
        """
        opened = self.opened()
        step, most = (1, 1) if self._one_by_one else (16, 32)
        widths = [max(len(row), min(-(-len(row) // step) * step, self.window)) for row in rows]
        for width in sorted(set(widths), reverse=True):
            count = max(1, min(most, self.batch_tokens // width))
            alike = [number for number, found in enumerate(widths) if found == width]
            for start in range(0, len(alike), count):
                check_cancelled()
                batch = alike[start : start + count]
                filled = [*batch, *[batch[-1]] * (count - len(batch))]
                yield batch, opened.padded([rows[number] for number in filled], width)

    @property
    def _one_by_one(self) -> bool:
        """On the CPU, where running many together gains little."""
        return self.device == "cpu"
