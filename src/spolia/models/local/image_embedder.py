"""Pictures and texts in one space, on this machine: CLIP and models made like it (Radford et al. 2021)."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import charge, check_cancelled
from spolia.errors import MissingExtra, WeightsError
from spolia.models.local.embedders import LocalEncoder, unit
from spolia.models.local.session import ModelSession, folder_of, transformers
from spolia.models.protocols import Kind
from spolia.types import Usage

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors


@dataclass(frozen=True)
class LocalImageEmbedder(LocalEncoder):
    """The address of a model that embeds pictures and texts (an `ImageEmbedder`).

    Its settings are those of every `LocalEncoder`. Its folder has a `preprocessor_config.json` too, which says how
    pictures are scaled and cut.

    Args:
        window: longest text in tokens; CLIP reads 77.
        images_at_once: pictures that an accelerator runs together, always: fewer are filled up. On the CPU each is run
            alone.

    >>> LocalImageEmbedder("models/clip").window
    77
    """

    window: int = 77
    images_at_once: int = 16

    indifferent: ClassVar[frozenset[str]] = LocalEncoder.indifferent | {"images_at_once"}

    @property
    def dimension(self) -> int:
        config = json.loads((folder_of(self.model, self.revision) / "config.json").read_bytes())
        if not isinstance(found := config.get("projection_dim"), int):
            raise WeightsError(f"config.json of {self.model} has no projection_dim: it embeds no pictures.")
        return found

    def embed(self, texts: Sequence[str], *, kind: Kind) -> "Vectors":
        """One vector of length 1 for each text: float32, shape (texts, dimension)."""
        import numpy as np

        found = np.empty((len(texts), self.dimension), np.float32)
        if not len(texts):
            return found
        opened = self.opened()
        for batch, given in self.in_batches(self.rows(texts, kind)):
            found[batch] = self._of(opened, "get_text_features", **given)[: len(batch)]
            charge(Usage(embedded=len(batch)))
        return found

    def embed_images(self, images: Sequence[bytes]) -> "Vectors":
        """One vector of length 1 for each picture, a file of PNG, JPEG …: float32, shape (images, dimension)."""
        import numpy as np

        found = np.empty((len(images), self.dimension), np.float32)
        if not len(images):
            return found
        opened, scaled = self.opened(), self._scaling()
        count = 1 if self._one_by_one else self.images_at_once
        for start in range(0, len(images), count):
            check_cancelled()
            some = images[start : start + count]
            pixels = scaled(images=[_picture(one) for one in some], return_tensors="pt")["pixel_values"]
            filled = pixels[[*range(len(some)), *[0] * (count - len(some))]].to(self.device, opened.model.dtype)
            found[start : start + len(some)] = self._of(opened, "get_image_features", pixel_values=filled)[: len(some)]
            charge(Usage(embedded=len(some)))
        return found

    def _of(self, opened: ModelSession, method: str, **inputs: Any) -> "Vectors":
        given = opened.run(getattr(opened.model, method), **inputs)
        return unit(getattr(given, "pooler_output", given), self.name)

    def _scaling(self) -> Any:
        """What scales and cuts pictures, as the model's own file says, with Pillow."""
        folder = folder_of(self.model, self.revision)
        try:
            return transformers().AutoImageProcessor.from_pretrained(
                folder, backend="pil", trust_remote_code=False, local_files_only=True
            )
        except Exception as error:
            raise WeightsError(
                f"{folder} does not say how pictures are scaled: {str(error).strip().splitlines()[0]:.300} "
                "Write a folder with a preprocessor_config.json."
            ) from error


def _picture(data: bytes) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("local", "pillow", "Embedding pictures") from error
    return Image.open(io.BytesIO(data)).convert("RGB")
