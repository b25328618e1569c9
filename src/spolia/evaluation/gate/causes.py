"""Why a question scores otherwise than it did: what is the same then and now, and what is the first that is not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from spolia.evaluation.gate.baseline import Baseline, BaselineQuestion, in_words
from spolia.evaluation.gate.changes import document_changes
from spolia.evaluation.plurals import several
from spolia.types import Item, Value

Cause: TypeAlias = Literal[
    "failed", "degraded", "documents", "chunks", "chunks or flow", "groups", "ranking", "answer", "score"
]
CAUSES: Mapping[Cause, str] = {
    "failed": "the flow failed",
    "degraded": "a step of the flow failed or was cut short, now or then",
    "documents": "the documents changed",
    "chunks": "the corpus was re-chunked",
    "chunks or flow": "the corpus was re-chunked and the flow is another one, which cannot be told apart",
    "groups": "the flow searches other node groups",
    "ranking": "the ranker orders the same nodes otherwise",
    "answer": "the same passages are answered from otherwise: another model, prompt or reader",
    "score": "the same passages and answer are scored otherwise",
}
"""From what a result depends on first to what it depends on last."""
RANKS = ("flow", "index", "embedders", "models", "prompts", "asked for")
"""Of what the results depend on, that which decides how the same nodes are ordered."""
SHOWN = 5
"""Passages that are named."""


@dataclass(frozen=True)
class Moved(Value):
    """A question that scores otherwise.

    Args:
        scores: by measure that differs, what it was and what it is.
        evidence: what shows that, a line each.
    """

    item: str
    question: str
    cause: Cause
    scores: tuple[tuple[str, float, float], ...]
    evidence: tuple[str, ...]

    @property
    def worse(self) -> bool:
        """Whether it scores less on any measure."""
        return any(now < was for _, was, now in self.scores)

    @property
    def by(self) -> float:
        """How much better it is, all measures together."""
        return sum(now - was for _, was, now in self.scores)

    def json(self) -> dict[str, Any]:
        scores = {measure: {"before": was, "now": now} for measure, was, now in self.scores}
        named = ("item", "question", "cause", "worse")
        return {name: getattr(self, name) for name in named} | {"scores": scores, "evidence": list(self.evidence)}


def moved(items: Sequence[Item], measures: Sequence[str], before: Baseline, now: Baseline) -> tuple[Moved, ...]:
    """The questions that score otherwise on any of these measures, those that lost most first."""
    was, is_ = before.by_item, now.by_item
    found = []
    for item in items:
        old, new = was[item.id], is_[item.id]
        if scores := tuple(_scores(measures, old, new)):
            cause = cause_of(old, new, before, now)
            evidence = tuple(_evidence(cause, old, new, before, now))
            found.append(Moved(item.id, item.question, cause, scores, evidence))
    return tuple(sorted(found, key=lambda one: (not one.worse, one.by)))


def cause_of(old: BaselineQuestion, new: BaselineQuestion, before: Baseline, now: Baseline) -> Cause:
    """The first thing that differs, of those on which the result depends."""
    if new.failure or old.failure:
        return "failed"
    if new.degraded != old.degraded:
        return "degraded"
    if _other_documents(_looked_at(old, new), before, now):
        return "documents"
    if _cut_otherwise(_looked_at(old, new), before, now):
        return "chunks or flow" if _other_ranks(before, now) else "chunks"
    if _searched(before) != _searched(now) and new.order != old.order:
        return "groups"
    if new.order != old.order:
        return "ranking"
    return "answer" if new.answered != old.answered else "score"


def _scores(
    measures: Sequence[str], old: BaselineQuestion, new: BaselineQuestion
) -> Iterator[tuple[str, float, float]]:
    for measure in measures:
        was, now = old.seen.get(measure), new.seen.get(measure)
        if was is not None and now is not None and was[0] != now[0]:
            yield measure, was[0], now[0]


def _looked_at(old: BaselineQuestion, new: BaselineQuestion) -> list[str]:
    """The documents that the question is about, and those that were found for it."""
    return list(dict.fromkeys([*old.about, *new.about, *old.documents, *new.documents]))


def _other_documents(names: Sequence[str], before: Baseline, now: Baseline) -> list[str]:
    """What became of those that are not the same. A document that the baseline does not know may be new or not: it is
    taken for new only where the corpus as a whole is another one."""
    if before.signature.get("documents") == now.signature.get("documents"):
        return []
    return list(document_changes(names, before, now, "is not in the baseline"))


def _cut_otherwise(names: Sequence[str], before: Baseline, now: Baseline) -> list[str]:
    told = []
    for name in names:
        old, new = before.documents.get(name), now.documents.get(name)
        if old is not None and new is not None and old.content == new.content:
            for group, was, is_ in old.recut(new):
                where = f"{name} in {group}" if len(old.cuts) > 1 else name
                told.append(f"{where}: {several(was, 'node')} then, {several(is_, 'node')} now")
    return told


def _other_ranks(before: Baseline, now: Baseline) -> list[str]:
    return [kind for kind in RANKS if before.signature.get(kind) != now.signature.get(kind)]


def _searched(side: Baseline) -> set[str]:
    return set(side.signature["chunks"].get("number", ()))


def _evidence(
    cause: Cause, old: BaselineQuestion, new: BaselineQuestion, before: Baseline, now: Baseline
) -> Iterator[str]:
    if cause == "failed":
        yield f"then {old.failure or 'no failure'}; now {new.failure or 'no failure'}"
        return
    if cause == "degraded":
        yield f"degraded then: {', '.join(old.degraded) or 'nothing'}; now: {', '.join(new.degraded) or 'nothing'}"
    if cause == "documents":
        yield "; ".join(_other_documents(_looked_at(old, new), before, now)[:SHOWN])
    if cause in ("chunks", "chunks or flow"):
        yield "; ".join(_cut_otherwise(_looked_at(old, new), before, now)[:SHOWN])
    if cause == "chunks or flow":
        yield f"not the same either: {', '.join(_other_ranks(before, now))}"
    if cause == "groups":
        yield f"searched then: {', '.join(sorted(_searched(before)))}; now: {', '.join(sorted(_searched(now)))}"
    for gold, is_ in new.gold.items():
        if (then := old.gold.get(gold, ())) != is_:
            yield f"gold {gold}: {in_words(then)} then, {in_words(is_)} now"
    if old.order != new.order:
        for when, side in (("then", old), ("now", new)):
            found = side.found[:SHOWN]
            places = [name if start < 0 else f"{name}[{start}:{end}]" for name, start, end in found]
            yield f"found {when}: {', '.join(places) or 'nothing'}"
    if old.answered != new.answered:
        yield f"answered then: {old.answer or 'nothing'}"
        yield f"answered now: {new.answer or 'nothing'}"
