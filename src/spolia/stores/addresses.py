"""Which truth is at an address: the one place that knows all of them."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from spolia.errors import MissingExtra, StoreError
from spolia.stores.truth import Truth

POSTGRES = ("postgresql://", "postgres://")
"""How the addresses of databases begin; what has no scheme is the path of a folder."""
_OTHER = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def truth_of(address: str) -> Truth:
    """The truth at an address: the path of a folder, or `postgresql://user@host/database?schema=name`.

    Raises:
        StoreError: it begins like the address of something else.

    >>> str(truth_of("/srv/notes.spolia"))
    '/srv/notes.spolia'
    """
    if address.startswith(POSTGRES):
        if find_spec("psycopg") is None:
            raise MissingExtra("postgres", "psycopg", "A store in PostgreSQL")
        from spolia.stores.backends.postgres.server import postgres

        return postgres(address)
    if found := _OTHER.match(address):
        raise StoreError(
            f"No store can be kept at {found[0]}…: write the path of a folder, or the address of a database that "
            "begins with postgresql:// or postgres://, as postgresql://USER@HOST/DATABASE?schema=NAME."
        )
    return _folder(address if os.path.isabs(address) else os.path.join(os.getcwd(), address))


@lru_cache(maxsize=64)  # each question asks for it, and making a path is slow
def _folder(path: str) -> Truth:
    from spolia.stores.backends.sqlite.folder import FolderBackend

    return FolderBackend(Path(path))
