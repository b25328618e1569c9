"""The parts that can be trained, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from spolia.errors import DataError
from spolia.models.protocols import Embedder
from spolia.stores.corpus import NodeGroup
from spolia.training.ranker import RankerTrainer
from spolia.training.trainer import Trainer

TrainerBuilder: TypeAlias = Callable[[NodeGroup, Embedder | None], Trainer]


def _reader(group: NodeGroup, embedder: Embedder | None) -> Trainer:
    from spolia.training.span_reader import SpanReaderTrainer  # needs torch

    return SpanReaderTrainer(group, embedder)


PARTS: Mapping[str, TrainerBuilder] = {"ranker": RankerTrainer, "reader": _reader}


def trainer_of(name: str, group: NodeGroup, embedder: Embedder | None) -> Trainer:
    """The part of this name over a group; DataError for an unknown name.

    >>> from spolia import Corpus
    >>> trainer_of("ranker", Corpus("notes.spolia").group(), None).measure
    'R@5'
    """
    if name not in PARTS:
        near = get_close_matches(name, PARTS, 1)
        nearest = f" Did you mean {near[0]}?" if near else ""
        raise DataError(f"There is no part {name!r} to train.{nearest} Write one of: {', '.join(PARTS)}.")
    return PARTS[name](group, embedder)
