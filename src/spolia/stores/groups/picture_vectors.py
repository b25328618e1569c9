"""Embedding the pictures that nodes show."""

from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from spolia.core.run_context import check_cancelled
from spolia.errors import DocumentError, ModelRejected, SpoliaError
from spolia.models.protocols import ImageEmbedder
from spolia.stores.backends.rows import Unmade
from spolia.stores.staging import AnyWriter

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors

PICTURES_AT_ONCE = 16
"""In one call of an embedder, and in memory."""
BLANK = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAACAAAAAgCAIAAAD8GO2jAAAAJklEQVR42u3NMQ0AAAwDoPo33arYsQQMkB6LQCAQCAQCgUAg+BIMi1X0ptsIcT0AAAAASUVORK5CYII="
)
"""A white PNG of 32 × 32 dots: an embedder that cannot read it is out of order, whatever it says of others."""


def embed_pictures(
    writer: AnyWriter, group: str, embedder: ImageEmbedder, tell: Callable[[int], None]
) -> Iterator[Unmade]:
    """Embed the pictures of a group that have no vector yet; gives those that the embedder could not read.

    These get the vector of length 0, that of what the embedder does not know at all: nodes with it are found by words.
    """
    lacking = writer.unembedded_pictures(group, embedder.name)
    while some := list(islice(lacking, PICTURES_AT_ONCE)):
        check_cancelled()
        vectors, failures = seen(embedder, [picture for _, picture in some])
        writer.add_vectors(embedder.name, [one.hash for one, _ in some], vectors)
        for at, error in failures.items():
            node = some[at][0]
            yield Unmade(
                node.document,
                writer.document(node.document).uri,
                group,
                f"The picture of {node.node!r} could not be embedded by {embedder.name!r}, so that only words find "
                f"this node; the others are there. {type(error).__name__}: {error}",
            )
        tell(len(some))


def seen(embedder: ImageEmbedder, pictures: Sequence[bytes]) -> "tuple[Vectors, dict[int, Exception]]":
    """The vectors of pictures, and by position why one could not be read.

    What is raised of several is looked for in each alone, and lies at the picture where the embedder can read another.
    """
    try:
        return embedder.embed_images(pictures), {}
    except Exception as error:  # whatever an embedder, or what decodes for it, makes of bytes that are no picture
        _refuse_others(error)
    import numpy as np

    rows, failures = [], dict[int, Exception]()
    for at, picture in enumerate(pictures):
        try:
            rows.append(embedder.embed_images([picture]))
        except Exception as error:  # as above
            _refuse_others(error)
            if not _reads(embedder, BLANK):
                raise
            rows.append(np.zeros((1, embedder.dimension), np.float32))
            failures[at] = error
    return np.concatenate(rows), failures


def _reads(embedder: ImageEmbedder, picture: bytes) -> bool:
    try:
        return len(embedder.embed_images([picture])) == 1
    except Exception:  # it cannot; why, was said of the picture that this is asked for
        return False


def _refuse_others(error: Exception) -> None:
    """Raise what does not lie at a picture."""
    if isinstance(error, SpoliaError) and not isinstance(error, (ModelRejected, DocumentError)):
        raise error
