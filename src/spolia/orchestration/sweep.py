"""Run many variants on many values together, to find the best of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

from spolia.core.combinators.branch import Branch
from spolia.core.combinators.identity import Identity
from spolia.core.operator import Operator, Then
from spolia.core.run_context import whole
from spolia.core.sweepable import Sweepable, Swept
from spolia.errors import WiringError
from spolia.types import Ranking

Operators = Sequence[Operator[Any, Any]]
Together: TypeAlias = Callable[[Sequence[Any]], list[list[Any]]]
"""What variants give, by value."""


def sweep(values: Iterable[Any], variants: Sequence[Operator[Any, Ranking]]) -> Iterator[list[Swept]]:
    """For each value in turn what each variant makes of it: what the variant itself gives to the last bit, and faster.

    What can be swept: fusions by rank or score; `Cut`, `Threshold`, `Percentile` and the like; `TitleBoost`,
    `TimeDecay`; `top_k` of a retriever, where a smaller one gives the first hits of a larger one; and chains of these.
    What variants have in common is computed once: searches, rankings side by side, scalings, cosines, how titles fit.
    Chains share equal first steps of any kind, and arms of a `Branch`. Hits are made only of what is
    looked at (`Swept.ranking`).

    Args:
        values: what the variants take: queries, rankings, or the rankings of each question.
        variants: of a step with ranges, `[*step.vary(k=range(4, 81)).decided()]`.

    Raises:
        StepFailed: a question without rankings.
        WiringError: a variant that cannot be swept, or a ranking whose source has no weight or minimum.

    >>> from spolia.orchestration.rank_fusion import ConvexCombination, ReciprocalRankFusion
    >>> from spolia.types import Hit, Node, Query
    >>> def found(source, **scores):
    ...     return Ranking(Query("why?"), tuple(Hit(Node(i, i), s) for i, s in scores.items()), source)
    >>> question = (found("bm25", a=9.0, b=3.0), found("dense", b=0.8, c=0.4))
    >>> combination = ConvexCombination(normalisation="min-max")
    >>> words, meaning = (combination.but(weights=(("bm25", w), ("dense", 1 - w))) for w in (1.0, 0.0))
    >>> [[one.ids for one in row] for row in sweep([question], [words, meaning, ReciprocalRankFusion(top_k=1)])]
    [[['a', 'b', 'c'], ['b', 'c', 'a'], ['b']]]
    """
    swept = sweeper(variants)
    for value in values:
        yield from swept([value])


def sweeper(variants: Sequence[Operator[Any, Ranking]]) -> Together:
    """`sweep` for several values together, so that what is run, not swept, is a batch; raises where one fails."""
    if isinstance(variants, Operator):
        raise WiringError(f"{variants!r:.80} is one step. Write a list of variants: [*step.vary(...).decided()].")
    chains = [_steps(variant) for variant in variants]
    for *_, last in chains:
        if not is_swept(last):
            raise WiringError(
                f"{last.short} cannot be swept. Write fusions by rank or score, cuts, thresholds, boosts, retrievers, "
                "or run it by batch(...)."
            )
    return _swept(chains)


def is_swept(flow: Operator[Any, Any]) -> bool:
    """Whether a flow can be swept: its last step that does something is computed together with its variants.

    >>> from spolia.core.combinators import Identity
    >>> from spolia.post_retrieval.selection import Cut
    >>> is_swept(Identity() >> Cut(5)), is_swept(Cut(5) >> Identity())
    (True, True)
    """
    return _sweeps(_steps(flow)[-1])


def _steps(variant: Operator[Any, Any]) -> Operators:
    """The steps that do something."""
    steps = variant.steps if isinstance(variant, Then) else (variant,)
    return [step for step in steps if type(step) is not Identity] or steps[-1:]


def _plain(value: Any) -> Any:
    """What a step takes that is run, not swept."""
    return value.ranking if isinstance(value, Swept) else value


def _swept(chains: Sequence[Operators]) -> Together:
    """A function that tells what each chain gives for values: `Swept`, or what a step gives that is run."""
    branches: dict[bytes, tuple[Operators, list[int]]] = {}
    arms: dict[bytes, Operators] = {}
    for row, (first, *_) in enumerate(chains):
        if _is_split(first):
            branches.setdefault(first.digest, (first.arms, []))[1].append(row)
            arms |= {arm.digest: _steps(arm) for arm in first.arms}
    if not branches:
        return _one_by_one(chains)
    split = {row for _, rows in branches.values() for row in rows}
    others = [row for row in range(len(chains)) if row not in split]
    inner = _swept([*arms.values(), *(chains[row] for row in others)])
    place = {digest: at for at, digest in enumerate(arms)}
    parts = [
        ([place[arm.digest] for arm in own], rows, _swept([chains[row][1:] for row in rows]))
        for own, rows in branches.values()
    ]

    def swept(values: Sequence[Any]) -> list[list[Any]]:
        before = inner(values)
        found = [dict(zip(others, one[len(arms) :], strict=True)) for one in before]
        rankings = [[_plain(arm) for arm in one[: len(arms)]] for one in before]
        for places, rows, rest in parts:
            fused = rest([tuple([own[at] for at in places]) for own in rankings])
            for own, one in zip(found, fused, strict=True):
                own |= zip(rows, one, strict=True)
        return [[own[row] for row in range(len(chains))] for own in found]

    return swept


def _is_split(op: Operator[Any, Any]) -> TypeGuard[Branch[Any, Any]]:
    """Whether the arms are computed with the other steps; not where one may fail."""
    return type(op) is Branch and op.min_arms is None


def _one_by_one(chains: Sequence[Operators]) -> Together:
    """Chains by their first steps: equal steps are computed together."""
    rows: dict[bytes, list[int]] = {}
    for row, steps in enumerate(chains):
        rows.setdefault(steps[0].digest, []).append(row)
    alike: dict[object, list[list[int]]] = {}
    for own in rows.values():
        first = chains[own[0]][0]
        alike.setdefault(_alike(first) if _sweeps(first) else first.digest, []).append(own)
    parts = [_part(chains, several) for several in alike.values()]

    def swept(values: Sequence[Any]) -> list[list[Any]]:
        found: list[list[Any]] = [[None] * len(chains) for _ in values]
        for part in parts:
            part(values, found)
        return found

    return swept


def _alike(op: Sweepable) -> object:
    """What steps give that are computed together."""
    found = op.alike()
    return found if isinstance(found, type) else (type(op), found)


def _sweeps(op: Operator[Any, Any]) -> TypeGuard[Sweepable]:
    """Whether variants of a step are computed together; your own class with its own `apply` is run."""
    written = next(vars(cls) for cls in type(op).__mro__ if not vars(cls).keys().isdisjoint(("apply", "together")))
    return "together" in written and hasattr(op, "alike")


def _part(
    chains: Sequence[Operators], several: Sequence[list[int]]
) -> Callable[[Sequence[Any], list[list[Any]]], None]:
    """The chains whose first steps are computed together; those of each list have the same first step."""
    firsts = [chains[rows[0]][0] for rows in several]
    ended = [[row for row in rows if len(chains[row]) == 1] for rows in several]
    going_on = [[row for row in rows if len(chains[row]) > 1] for rows in several]
    rest = [_swept([chains[row][1:] for row in rows]) if rows else None for rows in going_on]
    together = firsts[0].together(firsts) if _sweeps(firsts[0]) else None

    def swept(values: Sequence[Any], found: list[list[Any]]) -> None:
        if together:
            computed = together(values)
        else:  # one step, which is run
            computed = [[one] for one in whole(firsts[0].batch([_plain(value) for value in values]))]
        for at, go_on in enumerate(rest):
            for own, one in zip(found, computed, strict=True):
                for row in ended[at]:
                    own[row] = one[at]
            if go_on is not None:
                for own, ones in zip(found, go_on([one[at] for one in computed]), strict=True):
                    for row, one in zip(going_on[at], ones, strict=True):
                        own[row] = one

    return swept
