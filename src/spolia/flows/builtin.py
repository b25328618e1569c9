"""The flows that have a name: what can be asked for beside a flow file.

Each is a function of a corpus (or one of its node groups), an embedder and a language model, either of which may be
None, and the number of hits; it returns a plain operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from spolia.errors import WiringError
from spolia.flows.default import choose, suits
from spolia.flows.retrievers import bm25, dense, group_of, hybrid
from spolia.generation.extract import Extract
from spolia.generation.reader import Reader
from spolia.models.protocols import Embedder, LanguageModel
from spolia.operator import Operator
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.types import Answer, Query, Ranking

__all__ = ["BUILT_IN", "Builder", "bm25", "default", "dense", "hybrid", "naive", "named"]


class Builder(Protocol):
    """Makes a flow."""

    def __call__(
        self,
        corpus: Corpus | NodeGroup,
        embedder: Embedder | None = None,
        llm: LanguageModel | None = None,
        top_k: int = 10,
    ) -> Operator[Query, Any]: ...


def default(
    corpus: Corpus | NodeGroup, embedder: Embedder | None = None, llm: LanguageModel | None = None, top_k: int = 10
) -> Operator[Query, Ranking]:
    """`hybrid` where that is known to help, else `bm25`; `spolia.flows.default.choose` also says why."""
    return choose(corpus, embedder, top_k)[0]


def naive(
    corpus: Corpus | NodeGroup, embedder: Embedder | None = None, llm: LanguageModel | None = None, top_k: int = 5
) -> Operator[Query, Answer]:
    """Retrieve, then answer: by the language model, or by quoting where there is none.

    Args:
        corpus: what to search.
        embedder: for the retrieval by `default`, and to choose what to quote where that is hybrid.
        llm: writes the answer; None quotes sentences.
        top_k: passages to answer from.
    """
    found, _ = choose(corpus, embedder, top_k)
    if llm is not None:
        return found >> Reader(llm, max_passages=top_k)
    group = group_of(corpus)
    judge = None if suits(group, embedder) else embedder
    analyzer = group.corpus.snapshot().manifest(group.name).analyzer
    return found >> Extract(judge, passages=top_k, analyzer=analyzer)


BUILT_IN: Mapping[str, Builder] = {
    "bm25": bm25,
    "dense": dense,
    "hybrid": hybrid,
    "default": default,
    "naive": naive,
}


def named(name: str) -> Builder:
    """The function that makes the flow of this name.

    >>> named("bm25") is bm25
    True
    """
    if name not in BUILT_IN:
        raise WiringError(f"There is no flow {name!r}. Write one of {', '.join(BUILT_IN)}, or the path of a flow file.")
    return BUILT_IN[name]
