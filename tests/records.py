"""Changing the rows of a file of records behind Spolia's back."""

import sqlite3
from pathlib import Path


def tamper(path: Path) -> sqlite3.Connection:
    """Open a file of records; changed rows get a digest that is not theirs."""
    connection = sqlite3.connect(path)
    connection.create_function("row_digest", -1, lambda *values: b"tampered")
    return connection
