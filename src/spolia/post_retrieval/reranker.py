"""Plain functions as rerankers: `@reranker`."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, overload

from spolia.core.function import LAMBDA, Function
from spolia.errors import WiringError
from spolia.types import Hit, Node, Ranking

QUERY = "query"


@dataclass(frozen=True, repr=False)
class Reranker(Function[Ranking, Ranking]):
    """A plain function that judges hits; made by the decorator `reranker`.

    Class attributes:
        at_once: whether it takes all nodes in one call.
        asks: whether it takes the query too.
        takes_by: name of the parameter that the node or the nodes are given to; empty where it can have none.
    """

    at_once: ClassVar[bool] = False
    asks: ClassVar[bool] = False
    takes_by: ClassVar[str] = ""

    def apply(self, value: Ranking, /) -> Ranking:
        if not value.hits:
            return value
        query_argument = {QUERY: value.query.text} if self.asks else {}
        if self.at_once:
            returned = self._call_function([hit.node for hit in value.hits], query_argument)
            # a text would be a list of letters
            if isinstance(returned, (str, Node)) or not isinstance(returned, Iterable):
                raise self._refuse_result(returned, "a list of nodes, or of one score for each")
            return value.but(hits=self._apply_all(value.hits, list(returned)))
        return value.but(
            hits=self._apply_each(value.hits, [self._call_function(hit.node, query_argument) for hit in value.hits])
        )

    def _call_function(self, argument: object, query_argument: dict[str, str]) -> Any:
        """Call the function, by keyword where possible, so that its parameters may have any order."""
        return (
            self.call_function(**{self.takes_by: argument}, **query_argument)
            if self.takes_by
            else self.call_function(argument, **query_argument)
        )

    def _apply_each(self, hits: Sequence[Hit], returned: Sequence[object]) -> tuple[Hit, ...]:
        pairs = [(hit, result) for hit, result in zip(hits, returned, strict=True) if result is not None]
        if all(isinstance(result, Node) for _, result in pairs):
            return tuple(self._keep_hit(hit, result) for hit, result in pairs)
        return self._score_hits([hit for hit, _ in pairs], [result for _, result in pairs])

    def _apply_all(self, hits: Sequence[Hit], returned: Sequence[object]) -> tuple[Hit, ...]:
        if not all(isinstance(result, Node) for result in returned):
            if len(returned) != len(hits):  # `zip` could not tell which hit a missing score belongs to
                raise self._refuse_result(returned, f"one score for each of the {len(hits)} nodes")
            return self._score_hits(hits, returned)
        by_id = {hit.node.id: hit for hit in reversed(hits)}  # backwards: of two hits of a node the first stays
        nodes = {result.id: result for result in reversed(returned) if isinstance(result, Node)}
        order = dict.fromkeys(result.id for result in returned if isinstance(result, Node))
        reranked = [self._keep_hit(by_id.get(id), nodes[id]) for id in order]
        if all(first.score >= second.score for first, second in pairwise(reranked)):
            return tuple(reranked)
        # The order is the function's. Scores that contradict it would undo it in the next fusion or cut.
        return tuple(hit.but(score=1 / rank) for rank, hit in enumerate(reranked, 1))

    def _keep_hit(self, hit: Hit | None, node: object) -> Hit:
        """Return the hit with the node that was returned for it, which may have another text but the same id."""
        if hit is None or not isinstance(node, Node) or node.id != hit.node.id:
            raise self._refuse_result(node, "nodes that it was given")
        return hit.but(node=node)

    def _score_hits(self, hits: Sequence[Hit], scores: Sequence[object]) -> tuple[Hit, ...]:
        for score in scores:
            # True is a number to Python, and here a mistake: who means "keep it" returns the node.
            if isinstance(score, bool) or not isinstance(score, Real) or score != score:
                raise self._refuse_result(score, "a number for every node, or the node itself, or None to drop it")
        pairs = zip(hits, map(float, scores), strict=True)  # type: ignore[arg-type]
        rescored = (hit.but(score=score) for hit, score in pairs)
        return tuple(sorted(rescored, key=lambda hit: -hit.score))

    def _refuse_result(self, returned: object, expected: str) -> WiringError:
        return WiringError(f"The reranker {self.name} returned {returned!r:.80}. Return {expected}.")


@overload
def reranker(function: Callable[..., Any], /) -> Reranker: ...
@overload
def reranker(
    *, batch: bool = False, version: int = 1, cached: bool = False, waits: bool = False
) -> Callable[[Callable[..., Any]], Reranker]: ...
def reranker(
    function: Callable[..., Any] | None = None,
    /,
    *,
    batch: bool = False,
    version: int = 1,
    cached: bool = False,
    waits: bool = False,
) -> Any:
    """Make a plain function of nodes a step from a ranking to a better one.

    It takes one node and returns the node (it stays, with its score), None (it is dropped), or a number (its new
    score). With `batch` it takes a list of nodes and returns some of them, in the order that they are to have, or one
    number for each. New scores are put in order, best first; equal ones stay as they were. Nodes that come back
    in another order get 1 / rank as scores, so that order and scores agree. An empty ranking stays empty.

    A parameter `query`, before or after the other one, gets the text of the query. Parameters with defaults are
    hyper-parameters: `recent.but(days=7)` is the same with another one.

    Args:
        batch: all nodes in one call.
        version: count it up when the result changes; it is part of the cache key.
        cached: keep its results.
        waits: it waits for a server or a disk.

    Raises:
        WiringError: for parameters of another kind; when it runs, for a result of another kind.

    >>> from spolia.types import Query
    >>> @reranker
    ... def long_enough(node, *, characters=5):
    ...     return node if len(node.text) >= characters else None
    >>> found = Ranking(Query("?"), (Hit(Node("a", "tide"), 2.0), Hit(Node("b", "tidal"), 1.0)))
    >>> [hit.node.id for hit in long_enough(found)], [hit.node.id for hit in long_enough.but(characters=3)(found)]
    (['b'], ['a', 'b'])
    """

    def decorate(function: Callable[..., Any]) -> Reranker:
        name = getattr(function, "__name__", LAMBDA)
        parameters = inspect.signature(function).parameters.values()
        required = [
            p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if len([parameter for parameter in required if parameter != QUERY]) != 1:
            argument = "nodes" if batch else "node"
            raise WiringError(
                f"{name} takes {', '.join(required) or 'nothing'}; a reranker takes {argument}, and {QUERY} if it "
                f"wants it. Write def {name}({argument}): ..., or def {name}({argument}, {QUERY}): ..., "
                "and give others a default."
            )
        (node_parameter,) = (p for p in parameters if p.name in required and p.name != QUERY)
        keyword = "" if node_parameter.kind is node_parameter.POSITIONAL_ONLY else node_parameter.name
        own = {"at_once": batch, "asks": any(p.name == QUERY for p in parameters), "takes_by": keyword}
        return Reranker.from_function(function, (Ranking, Ranking), version=version, cached=cached, waits=waits, **own)

    return decorate if function is None else decorate(function)
