"""A data set indexed by a process that waits at a passage to be killed: `python -m … DATA FOLDER LOG [AT]`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from spolia.evaluation.data import passage_store
from spolia.evaluation.data.dataset import DataSet
from tests.evaluation.test_corpus import Letters

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class Logged(Letters):
    """Writes down what it embeds, and stops at a text."""

    log: str = ""
    at: str = ""

    def embed(self, texts: Sequence[str], *, kind: Literal["query", "passage"]) -> npt.NDArray[np.float32]:
        if self.at in texts:
            time.sleep(600)
        with open(self.log, "a") as log:
            log.writelines(f"{text}\n" for text in texts)
        return super().embed(texts, kind=kind)


if __name__ == "__main__":
    passage_store.PUBLISH_INTERVAL_S = passage_store.PAUSE_FACTOR = 0
    data, folder, log, *at = sys.argv[1:]
    passage_store.index_passages(DataSet(data), Logged(log=log, at=at[0] if at else ""), folder=Path(folder))
