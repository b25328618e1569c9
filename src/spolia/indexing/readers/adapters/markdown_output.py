"""What a library gives as Markdown, as a reading."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from spolia.indexing.readers.markup.markdown import headings_of, regions_of
from spolia.indexing.readers.reader import Blob, FileReader, Reading
from spolia.types import Meta

_BETWEEN = "\n\n"


def reading_of(
    reader: FileReader,
    blob: Blob,
    pages: Sequence[str],
    *,
    title: str = "",
    meta: Meta = (),
    warnings: tuple[str, ...] = (),
    is_paged: bool = True,
) -> Reading:
    """A document of pages of Markdown, with its headings and regions.

    Args:
        pages: at least one.
        is_paged: whether they are pages of the file; else it has none.
    """
    pages = [page.strip() for page in pages]
    text = _BETWEEN.join(pages)
    starts = tuple(accumulate((len(page) + len(_BETWEEN) for page in pages[:-1]), initial=0))
    headings = tuple(headings_of(text))
    document = blob.document(
        reader,
        text,
        title=title or next((heading.text for heading in headings if heading.level == 1), ""),
        pages=starts if is_paged else (),
        headings=headings,
        regions=tuple(regions_of(text)),
        meta=meta,
    )
    empty = tuple(number for number, page in enumerate(pages, 1) if not page) if is_paged else ()
    return Reading(document, empty_pages=empty, warnings=warnings)
