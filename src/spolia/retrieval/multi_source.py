"""Several sources, the preferred one first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from spolia.core.call_bounds import total
from spolia.core.operator import Operator, Retriever, checked_operator
from spolia.core.run_context import attempt, degrade
from spolia.core.type_compatibility import fits, refuse_counts
from spolia.errors import BudgetSpent, QueryError, UndecidedError, WiringError
from spolia.types import Failure, Hit, Query, Ranking

Sources = tuple[tuple[str, Retriever], ...]
"""Retrievers by name, the preferred one first."""
_MEANT = (BudgetSpent, QueryError, UndecidedError, WiringError)
"""What is wrong with the question or the flow, and not with a source."""


def search_sources(
    query: Query, sources: Sequence[tuple[str, Retriever]], *, needed: bool = True
) -> Iterator[tuple[str, Ranking]]:
    """Search one source after the other, and yield each name with what it finds, until the caller stops.

    A source that fails is skipped and recorded.

    Args:
        needed: raise what the first source raised, where all of them have failed.
    """
    failures: list[Failure] = []
    for name, source in sources:
        result = attempt(partial(source, query))
        if not isinstance(result, Failure):
            yield name, result
            continue
        # Another source would fail for the same reason, so these are not skipped.
        if isinstance(result.error, _MEANT):
            raise result.error
        degrade(f"{name} failed and is skipped: {result.message}", error=result.error, partly=True)
        failures.append(result)
    if needed and failures and len(failures) == len(sources):
        raise failures[0].raised()


@dataclass(frozen=True)
class MultiSource(Operator[Query, Ranking]):
    """Ordered sources, asked one after the other until there are enough hits.

    Hits of a source come before those of the next one, each in its own order, with score = 1 / rank over all; each says
    which source gave it, and with what score (`Hit.parts`). A node that two sources have found stays with the first. A
    source that fails is skipped and recorded.

    How often each source is asked, and how much of what it gave is shown, is counted by its name (`Ranking.source`):
    see the measures `Calls`, `UsedCalls` and `DocsShown`. To ask all of them and weigh what they find, write
    `Branch(...) >> ReciprocalRankFusion()`.

    Args:
        sources: retrievers, each with a `source` of its own, the preferred one first.
        enough: hits from which on no further source is asked; None to ask all.
        top_k: hits to return, at most.

    Raises:
        WiringError: no source, or one that is not a retriever.
        SpoliaError: what the first source raised, where all of them have failed.

    Source: Zhao et al., "PrefRAG: preference-driven multi-source retrieval augmented generation", 2025.

    >>> from spolia.core.function import step
    >>> @step
    ... def local(query: Query) -> Ranking:
    ...     return Ranking(query, (), "local")
    >>> @step
    ... def web(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("w", "From the web."), 0.7),), "web")
    >>> from spolia.types import Node
    >>> [(hit.score, hit.parts) for hit in MultiSource((local, web))(Query("?"))]
    [(1.0, (('web', 0.7),))]
    """

    sources: tuple[Operator[Query, Ranking], ...]
    enough: int | None = 1
    top_k: int = 10

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")
        refuse_counts(self, "enough", optional=True)
        if not self.sources:
            raise WiringError(
                "MultiSource needs at least one source. Write MultiSource((BM25(notes), WebSearch(engine)))."
            )
        for index, source in enumerate(self.sources):
            if not fits(Ranking, checked_operator(source, f"source {index} of MultiSource").gives(Query), {}):
                raise WiringError(
                    f"Source {index} of MultiSource, {source.short}, gives no Ranking. Write a retriever."
                )

    def apply(self, value: Query, /) -> Ranking:
        hits_by_id: dict[str, Hit] = {}
        for _, result in search_sources(value, [(source.short, source) for source in self.sources]):
            for hit in result.hits:
                # A node that two sources found stays with the preferred one.
                hits_by_id.setdefault(hit.node.id, hit.but(parts=((result.source, hit.score),)))
            if self.enough is not None and len(hits_by_id) >= self.enough:
                break
        ranked_hits = tuple(hit.but(score=1 / rank) for rank, hit in enumerate(hits_by_id.values(), 1))
        return Ranking(value, ranked_hits[: self.top_k], "several")

    def calls(self, rows: int | None = None, /) -> int | None:
        return total(source.calls(rows) for source in self.sources)
