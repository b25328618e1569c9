"""A reader that needs a program to read all of a file, which is there when a test says so."""

from __future__ import annotations

import os
from dataclasses import dataclass

from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value

PROGRAM = "SPOLIA_TEST_LETTERS"


@dataclass(frozen=True)
class LetteredReader(Value):
    """Reads a file in reverse where its program is there, and nothing of it where it is not."""

    name = "lettered"
    version = 1
    media_type = "text/plain"
    suffixes = (".rev",)

    def read(self, blob: Blob, /) -> Reading:
        text = "" if self.lacking() else blob.data.decode()[::-1]
        return Reading(blob.document(self, text), lacks=self.lacking())

    def lacking(self) -> str:
        return "" if os.environ.get(PROGRAM) else "The program is not there."
