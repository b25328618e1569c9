"""One of several processes that sync one store: `python -m tests.indexing.concurrent_sync FOLDER STORE LOG`.

Its reader notes each file that it reads, before it does, in the log: uri and process.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

from spolia.errors import StoreBusy
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.sync.sync import sync
from spolia.indexing.workers.protocol import WorkerLimits
from spolia.stores.corpus import Corpus
from spolia.types import Value

PAUSE_S = 0.02


@dataclass(frozen=True)
class Noting(Value):
    """Reads plain text slowly, and notes it."""

    log: str
    name = "noting"
    version = 1
    media_type = "text/plain"
    suffixes = (".note",)
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{blob.uri} {os.getppid()}\n".encode())
        os.close(log)
        time.sleep(PAUSE_S)
        return Reading(blob.document(self, blob.data.decode()))


def main(folder: str, store: str, log: str) -> None:
    while True:
        try:
            sync(
                folder, Corpus(store), readers=[Noting(log)], batch=3, workers=2, limits=WorkerLimits(), timeout_s=60.0
            )
            return
        except StoreBusy:
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
