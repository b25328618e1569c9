"""Hits judged by a model that reads pictures and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.core.run_context import access
from spolia.models.protocols import ImageScorer
from spolia.post_retrieval.rerankers import Judging
from spolia.stores.backends.rows import picture_of
from spolia.stores.corpus import Corpus, refuse_no_corpus
from spolia.types import Node

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class PictureReranker(Judging):
    """Score each hit by what it is: a picture for a node that shows one, its text for any other, tables included.

    score(q, d) = scorer(q, picture of d), else scorer(q, text of d). All are given to the model in one call, so that
    their scores compare. A node shows a picture if its group was cut by `Regions("image")` and the store holds the
    picture. The asker is sent only what the asker may read.

    Args:
        corpus: the store that holds the pictures.
        scorer: the model, as `RerankModel("jina-reranker-m0", "https://api.jina.ai/v1")`.
        top_k, judged, strict: as for every `Judging`.

    Source: Jina AI, "jina-reranker-m0", 2025.

    >>> from spolia import Corpus, RerankModel
    >>> PictureReranker(Corpus("notes.spolia"), RerankModel("jina-reranker-m0", "https://api.jina.ai/v1")).judged
    20
    """

    corpus: Corpus
    scorer: ImageScorer
    top_k: int = 10
    judged: int = 20
    strict: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_corpus(self.corpus, "PictureReranker(corpus)")

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        return self.scorer.scores(question, texts)

    def scores_of(self, question: str, nodes: Sequence[Node], /) -> Sequence[float]:
        snapshot, who = self.corpus.snapshot(), access()
        return self.scorer.scores_of(question, [_picture(snapshot, node, who) or node.shown_text for node in nodes])


def _picture(snapshot: Snapshot, node: Node, who: frozenset[str]) -> bytes:
    """The picture that a node shows; empty where it shows none."""
    document = snapshot.find_document(node.document, who) if "image" in dict(node.meta) else None
    image = picture_of(node, document) if document is not None else ""
    return snapshot.image(node.document, image, who) if image else b""
