"""Sweeps: many variants run on many values together, to find the best of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard

from spolia.core.combinators.branch import Branch
from spolia.core.combinators.identity import Identity
from spolia.core.operator import Operator, Then
from spolia.core.run_context import raise_first_failure
from spolia.core.sweepable import Sweepable, VariantRanking
from spolia.errors import WiringError
from spolia.types import Ranking

Operators = Sequence[Operator[Any, Any]]
VariantRunner: TypeAlias = Callable[[Sequence[Any]], list[list[Any]]]
"""What variants give, by value."""


def sweep(values: Iterable[Any], variants: Sequence[Operator[Any, Ranking]]) -> Iterator[list[VariantRanking]]:
    """Yield for each value what each variant makes of it: the variant's own result to the last bit, computed faster.

    What can be swept: fusions by rank or score; `Cut`, `Threshold`, `Percentile` and the like; `TitleBoost`,
    `TimeDecay`; `top_k` of a retriever, where a smaller one gives the first hits of a larger one; and chains of these.
    What variants have in common is computed once: searches, rankings side by side, scalings, cosines, how titles fit.
    Chains share equal first steps of any kind, and arms of a `Branch`. Hits are made only of what is
    looked at (`VariantRanking.ranking`).

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
    >>> [[ranking.ids for ranking in row] for row in sweep([question], [words, meaning, ReciprocalRankFusion(top_k=1)])]
    [[['a', 'b', 'c'], ['b', 'c', 'a'], ['b']]]
    """
    run = build_variant_runner(variants)
    for value in values:
        yield from run([value])


def build_variant_runner(variants: Sequence[Operator[Any, Ranking]]) -> VariantRunner:
    """Build a `sweep` of several values together: steps that cannot be swept run as a batch; raise if one fails."""
    if isinstance(variants, Operator):
        raise WiringError(f"{variants!r:.80} is one step. Write a list of variants: [*step.vary(...).decided()].")
    chains = [_effective_steps(variant) for variant in variants]
    for *_, last in chains:
        if not is_sweepable(last):
            raise WiringError(
                f"{last.short} cannot be swept. Write fusions by rank or score, cuts, thresholds, boosts, retrievers, "
                "or run it by batch(...)."
            )
    return _build_runner(chains)


def is_sweepable(flow: Operator[Any, Any]) -> bool:
    """Return whether a flow can be swept: its last effective step is computed together with its variants.

    >>> from spolia.core.combinators import Identity
    >>> from spolia.post_retrieval.selection import Cut
    >>> is_sweepable(Identity() >> Cut(5)), is_sweepable(Cut(5) >> Identity())
    (True, True)
    """
    return _is_sweepable_step(_effective_steps(flow)[-1])


def _effective_steps(variant: Operator[Any, Any]) -> Operators:
    """Return the steps of a variant without identities."""
    steps = variant.steps if isinstance(variant, Then) else (variant,)
    # a chain of identities keeps one to run
    return [step for step in steps if type(step) is not Identity] or steps[-1:]


def _unwrap(value: Any) -> Any:
    """Return the value for a step that is run, not swept."""
    return value.ranking if isinstance(value, VariantRanking) else value


def _build_runner(chains: Sequence[Operators]) -> VariantRunner:
    """Build a function from values to the result of each chain: `VariantRanking`, or what a run step gives."""
    branches: dict[bytes, tuple[Operators, list[int]]] = {}
    arms: dict[bytes, Operators] = {}
    for row, (first, *_) in enumerate(chains):
        if _is_split(first):
            branches.setdefault(first.digest, (first.arms, []))[1].append(row)
            # by digest: an arm of several branches is computed once
            arms |= {arm.digest: _effective_steps(arm) for arm in first.arms}
    if not branches:
        return _group_by_first_step(chains)
    split = {row for _, rows in branches.values() for row in rows}
    other_rows = [row for row in range(len(chains)) if row not in split]
    inner = _build_runner([*arms.values(), *(chains[row] for row in other_rows)])
    place = {digest: index for index, digest in enumerate(arms)}
    parts = [
        ([place[arm.digest] for arm in own], rows, _build_runner([chains[row][1:] for row in rows]))
        for own, rows in branches.values()
    ]

    def run(values: Sequence[Any]) -> list[list[Any]]:
        inner_results = inner(values)
        results = [dict(zip(other_rows, outputs[len(arms) :], strict=True)) for outputs in inner_results]
        rankings = [[_unwrap(arm) for arm in outputs[: len(arms)]] for outputs in inner_results]
        for places, rows, rest in parts:
            fused = rest([tuple([own[index] for index in places]) for own in rankings])
            for own, outputs in zip(results, fused, strict=True):
                own |= zip(rows, outputs, strict=True)
        return [[own[row] for row in range(len(chains))] for own in results]

    return run


def _is_split(op: Operator[Any, Any]) -> TypeGuard[Branch[Any, Any]]:
    """Return whether the arms of a branch are computed with the other steps; not if one may fail."""
    return type(op) is Branch and op.min_arms is None


def _group_by_first_step(chains: Sequence[Operators]) -> VariantRunner:
    """Run chains by their first steps: equal steps are computed together."""
    rows: dict[bytes, list[int]] = {}
    for row, steps in enumerate(chains):
        rows.setdefault(steps[0].digest, []).append(row)
    by_key: dict[object, list[list[int]]] = {}
    for own in rows.values():
        first = chains[own[0]][0]
        by_key.setdefault(_group_key(first) if _is_sweepable_step(first) else first.digest, []).append(own)
    parts = [_build_part(chains, several) for several in by_key.values()]

    def run(values: Sequence[Any]) -> list[list[Any]]:
        results: list[list[Any]] = [[None] * len(chains) for _ in values]
        for part in parts:
            part(values, results)
        return results

    return run


def _group_key(op: Sweepable) -> object:
    """Return the key of the steps that are computed together."""
    key = op.variant_key()
    return key if isinstance(key, type) else (type(op), key)


def _is_sweepable_step(op: Operator[Any, Any]) -> TypeGuard[Sweepable]:
    """Return whether variants of a step are computed together; your own class with its own `apply` is run."""
    members = next(vars(cls) for cls in type(op).__mro__ if not vars(cls).keys().isdisjoint(("apply", "run_variants")))
    return "run_variants" in members and hasattr(op, "variant_key")


def _build_part(
    chains: Sequence[Operators], several: Sequence[list[int]]
) -> Callable[[Sequence[Any], list[list[Any]]], None]:
    """Build the runner of chains whose first steps are computed together; those of each list share the step."""
    firsts = [chains[rows[0]][0] for rows in several]
    final_rows = [[row for row in rows if len(chains[row]) == 1] for rows in several]
    open_rows = [[row for row in rows if len(chains[row]) > 1] for rows in several]
    rest = [_build_runner([chains[row][1:] for row in rows]) if rows else None for rows in open_rows]
    run_variants = firsts[0].run_variants(firsts) if _is_sweepable_step(firsts[0]) else None

    def run(values: Sequence[Any], results: list[list[Any]]) -> None:
        if run_variants:
            computed = run_variants(values)
        else:  # one step, which is run
            computed = [
                [output] for output in raise_first_failure(firsts[0].batch([_unwrap(value) for value in values]))
            ]
        for index, go_on in enumerate(rest):
            for own, output in zip(results, computed, strict=True):
                for row in final_rows[index]:
                    own[row] = output[index]
            if go_on is not None:
                for own, rest_outputs in zip(results, go_on([output[index] for output in computed]), strict=True):
                    for row, output in zip(open_rows[index], rest_outputs, strict=True):
                        own[row] = output

    return run
