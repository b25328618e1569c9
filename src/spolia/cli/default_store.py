"""Where stores are kept that nobody named."""

from __future__ import annotations

import hashlib
from pathlib import Path

from spolia.evaluation.data.passage_store import cache_folder


def store_for(folder: Path) -> str:
    """The store of a folder that is asked without naming one: in the cache directory, one for each folder."""
    whole = folder.resolve()
    key = hashlib.blake2b(str(whole).encode("utf-8", "surrogateescape"), digest_size=6).hexdigest()
    return str(cache_folder() / "stores" / f"{whole.name[:60] or 'root'}-{key}.spolia")
