"""Forty lighthouses, each a document of three paragraphs, and a question about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.flows import Flow
from spolia.evaluation.measures.registry import parse_measures
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.sync.texts import add_texts
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.types import Item

TEXTS = {
    f"{n}": "\n\n".join(
        (
            f"Lighthouse {n} stands on rock {n}. It was built by the county in the reign of the old king.",
            f"The keeper of it had {n} goats and {n} hens. He wrote a diary every night by the lamp.",
            f"In winter {1800 + n} ice broke its lantern. A ship brought another one from the port in spring.",
        )
    )
    for n in range(40)
}
MEASURES = "R@5,MRR"


def store_texts(path: Path, texts: Mapping[str, str] = TEXTS, *, size: int = 200) -> NodeGroup:
    """The texts in a store, cut into windows of so many tokens."""
    corpus = Corpus(str(path))
    add_texts(corpus, texts, splitter=SlidingWindow(size=size, overlap=0))
    return corpus.group()


def items(chunks: NodeGroup) -> list[Item]:
    document_ids = {document.uri: document.id for document in chunks.snapshot().documents()}
    return [
        Item(
            f"q{n}",
            f"What broke the lantern in winter {1800 + n}?",
            answers=("ice",),
            gold=((document_ids[f"text:{n}"],),),
        )
        for n in range(40)
    ]


def experiment_of(flow: Flow, questions: Sequence[Item], measures: str = MEASURES) -> Experiment:
    return Experiment({"flow": flow}, questions, parse_measures(measures), data="lighthouses")
