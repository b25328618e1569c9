"""Weights in the safetensors format: a JSON header with types, shapes and offsets, then the numbers."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spolia.deferred import numpy as np
from spolia.errors import WeightsError

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_HEADER_BYTES = 100 * 2**20


def read(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Map the float32 tensors by name into memory (read when used, shared by processes); WeightsError if malformed."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
        # A damaged length would make the reader allocate any amount of memory.
        if length > min(size - 8, MAX_HEADER_BYTES):
            raise WeightsError(
                f"{path} is not a safetensors file: its header would be {length} of {size} bytes. Fetch it again."
            )
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError) as error:
            raise WeightsError(
                f"{path} is not a safetensors file: its header is not JSON ({error}). Fetch it again."
            ) from error
    try:
        numbers = np.memmap(path, np.uint8, "r", offset=8 + length)
        return {
            name: _tensor(numbers, path, name, entry)
            for name, entry in header.items()
            if name != "__metadata__" and entry["dtype"] == "F32"
        }
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise WeightsError(
            f"{path} is damaged: its header does not describe tensors ({error}). Fetch it again."
        ) from error


def _tensor(
    numbers: npt.NDArray[np.uint8], path: Path, name: str, entry: dict[str, list[int]]
) -> npt.NDArray[np.float32]:
    (start, end), shape = entry["data_offsets"], entry["shape"]
    if not 0 <= start <= end <= len(numbers) or end - start != 4 * int(np.prod(shape)):
        raise WeightsError(f"{path} is damaged: tensor {name} of shape {shape} does not fit its bytes. Fetch it again.")
    return numbers[start:end].view(np.float32).reshape(shape)


def write(path: Path, tensors: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Write float32 tensors, in the order of their names: equal tensors give equal bytes."""
    header, offset = {}, 0
    arrays = {name: np.ascontiguousarray(tensors[name], np.float32) for name in sorted(tensors)}
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(array.tobytes())
