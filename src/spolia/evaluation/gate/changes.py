"""What has changed since a baseline, and why a question scores otherwise: the first thing that is not the same."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias

from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.experiment.flows import part_that_differs
from spolia.evaluation.gate.baseline import Baseline, BaselineQuestion, SearchedGroups, in_words
from spolia.types import Item, Value


def operators_that_differ(before: str, now: str) -> list[str]:
    """Which operators of a flow are gone, new, or have other fields.

    >>> operators_that_differ("BM25(top_k=9)", "Then(BM25(top_k=3))")
    ['BM25: top_k=9 then, top_k=3 now']
    >>> operators_that_differ("Branch(BM25(top_k=9), Dense(top_k=9)) >> RRF(k=60)", "BM25(top_k=3) >> Reorder()")
    ['Branch is gone', 'BM25: top_k=9 then, top_k=3 now', 'Dense is gone', 'RRF is gone', 'Reorder is new']
    """
    try:
        then, is_ = _operators(before), _operators(now)
    except SyntaxError:  # it names a function that has no name
        return [part_that_differs(before, now)]
    found = list[str]()
    old, new = ([name for name, _ in side] for side in (then, is_))
    for kind, start, end, begin, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            pairs = zip(then[start:end], is_[begin:stop], strict=True)
            found += [part_that_differs(one, other) for (_, one), (_, other) in pairs if one != other]
        else:
            found += [f"{name} is gone" for name in old[start:end]] + [f"{name} is new" for name in new[begin:stop]]
    return found or [part_that_differs(before, now)]  # the same operators, in other brackets


def _operators(text: str) -> list[tuple[str, str]]:
    """The operators in the order of a flow's text: each by name, and written without those within it."""
    found = list[tuple[str, str]]()

    def add(node: ast.expr) -> None:
        if isinstance(node, ast.BinOp):
            add(node.left)
            add(node.right)
        elif isinstance(node, ast.Call):
            within = [one for one in node.args if isinstance(one, (ast.BinOp, ast.Call, ast.Name))]
            values = [one for one in node.args if one not in within]
            if (name := ast.unparse(node.func)) != "Then":  # it only joins the others
                found.append((name, ast.unparse(ast.Call(node.func, values, node.keywords))))
            for one in within:
                add(one)
        else:
            found.append((ast.unparse(node), ast.unparse(node)))

    add(ast.parse(text, mode="eval").body)
    return found


NAMED = 10
"""Documents that are named."""
Side: TypeAlias = Mapping[str, Any]


def changed(before: Baseline, now: Baseline) -> tuple[tuple[str, str], ...]:
    """What differs: its kind (`documents`, `chunks`, `index`, `flow`, `models`, …), and in words."""
    found = []
    for kind in dict.fromkeys((*before.signature, *now.signature)):
        then, is_ = before.signature.get(kind, {}), now.signature.get(kind, {})
        if kind == "documents":
            told = list(_documents(before, now)) if then.get("content") != is_.get("content") else []
        elif kind == "chunks":
            told = list(_chunks(then, is_, _is_cut_otherwise(before, now)))
        else:
            told = list(TOLD.get(kind, _named)(then, is_))
        if told:
            found.append((kind, "; ".join(told)))
    return tuple(found)


def _is_cut_otherwise(before: Baseline, now: Baseline) -> bool:
    """Whether unchanged documents are split differently: all, or if any has changed, those of the baseline."""
    if before.signature["documents"]["content"] == now.signature["documents"]["content"]:
        return bool(before.signature["chunks"]["content"] != now.signature["chunks"]["content"])
    both = ((one, now.documents[name]) for name, one in before.documents.items() if name in now.documents)
    return any(old.content == new.content and old.cuts != new.cuts for old, new in both)


def _documents(before: Baseline, now: Baseline) -> Iterator[str]:
    """How many there are, and which have changed, by name."""
    then, is_ = (max(side.signature["documents"]["number"].values(), default=0) for side in (before, now))
    if then != is_:
        yield f"{is_:,} in place of {then:,}"
    # Of more documents than are written down it is not known which were there.
    new = now.documents if len(before.documents) == then else ()
    listed = list(document_changes(dict.fromkeys((*before.documents, *new)), before, now, "is new"))
    yield from listed[:NAMED] or ["none of the gold or found documents"]
    if len(listed) > NAMED:
        yield f"and {len(listed) - NAMED:,} more"


def document_changes(names: Iterable[str], before: Baseline, now: Baseline, added: str) -> Iterator[str]:
    for name in names:
        old, new = before.documents.get(name), now.documents.get(name)
        if old is None and new is not None:
            yield f"{name} {added}"
        elif old is not None and new is None:
            yield f"{name} is gone"
        elif old is not None and new is not None and old.content != new.content:
            yield f"{name} has another text"


def _chunks(then: Side, now: Side, cut_otherwise: bool) -> Iterator[str]:
    """Groups by name: how many nodes they have, and what they are made of otherwise."""
    old, new = then.get("number", {}), now.get("number", {})
    yield from _come_and_gone(old, new, "group {} is searched now", "group {} is not searched any more")
    for group in (one for one in old if one in new):
        if cut_otherwise and (old[group] != new[group] or len(old) == 1):
            counted = several(old[group], "node")
            yield (
                f"group {group}: {counted} then, {new[group]:,} now"
                if old[group] != new[group]
                else (f"group {group}: {counted} as then, cut at other places")
            )
        if cut_otherwise:
            yield from (f"group {group}: {one}" for one in _fields(then.get(group, {}), now.get(group, {})))


def _index(then: Side, now: Side) -> Iterator[str]:
    for group in (one for one in then if one in now):
        yield from (f"group {group}: {one}" for one in _fields(then[group], now[group]))


def _fields(then: Side, now: Side) -> Iterator[str]:
    """Fields by name; of code only that it is another, and where the transform is, nothing of code and definition."""
    names = [name for name in dict.fromkeys((*then, *now)) if then.get(name) != now.get(name)]
    for name in names:
        if name in ("code", "definition") and "transform" in names:
            continue
        old, new = then.get(name), now.get(name)
        if name == "code" or old is None or new is None:
            yield f"its {name} is another"
        elif isinstance(old, str) and isinstance(new, str) and old and new:
            yield f"{name}: {part_that_differs(old, new)}"
        else:
            yield f"{name} was {old or 'none'}, is {new or 'none'}"


def _flow(then: Side, now: Side) -> Iterator[str]:
    if then.get("written") != now.get("written"):
        yield from operators_that_differ(str(then.get("written", "")), str(now.get("written", "")))
    old, new = then.get("code", {}), now.get("code", {})
    if others := [name for name in old if new.get(name, old[name]) != old[name]]:
        yield f"the code of {', '.join(others)} is another"


def _named(then: Side, now: Side) -> Iterator[str]:
    yield from _come_and_gone(then, now, "{} is new", "{} is gone")
    yield from (f"{name} is another than then" for name in then if name in now and then[name] != now[name])


def _come_and_gone(then: Side, now: Side, come: str, gone: str) -> Iterator[str]:
    yield from (come.format(name) for name in now if name not in then)
    yield from (gone.format(name) for name in then if name not in now)


TOLD: Mapping[str, Callable[[Side, Side], Iterator[str]]] = {
    "index": _index,
    "flow": _flow,
    "asked for": _fields,
    "Spolia": _fields,
}
"""The words for each kind; others go by name."""


def refuse_other_corpus(before: Baseline, held: SearchedGroups) -> None:
    if not before.documents or not held.groups:  # a flow that searches no store, so far as is known
        return
    if held.documents.keys().isdisjoint(before.documents):
        raise DataError(
            f"The baseline is of another corpus: none of its {len(before.documents)} documents, "
            f"{next(iter(before.documents))!r} for one, is among the {len(held.documents)} that the flow searches. "
            "Search the corpus that it is of, or write a new one: --write"
        )


Cause: TypeAlias = Literal[
    "failed", "degraded", "documents", "chunks", "chunks or flow", "groups", "ranking", "answer", "score"
]
CAUSES: Mapping[Cause, str] = {
    "failed": "the flow failed",
    "degraded": "a step of the flow failed or was cut short, now or then",
    "documents": "the documents changed",
    "chunks": "the corpus was re-chunked",
    "chunks or flow": "the corpus was re-chunked and the flow is another one; their effects cannot be separated",
    "groups": "the flow searches other node groups",
    "ranking": "the flow finds other passages, or the same in another order",
    "answer": "the same passages are answered from otherwise: another model, prompt or reader",
    "score": "the same passages and answer are scored otherwise",
}
"""From what a result depends on first to what it depends on last."""
RANKS = ("flow", "index", "embedders", "models", "prompts", "asked for")
"""The inputs that decide how the same nodes are ordered."""
SHOWN = 5
"""Passages that are named."""


@dataclass(frozen=True)
class Moved(Value):
    """A question that scores otherwise: by measure what it was and what it is, why, and what shows that."""

    item: str
    question: str
    cause: Cause
    scores: tuple[tuple[str, float, float], ...]
    evidence: tuple[str, ...]

    @property
    def worse(self) -> bool:
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
    """The documents that the question is about, and the ones found for it."""
    return list(dict.fromkeys([*old.about, *new.about, *old.documents, *new.documents]))


def _other_documents(names: Sequence[str], before: Baseline, now: Baseline) -> list[str]:
    """What became of documents that are not the same. One that the baseline lacks is new only if the corpus as a whole
    is another one."""
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
