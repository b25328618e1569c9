"""Changes since a baseline, and why a question scores differently: the first input that is not the same."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal, TypeAlias

from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.experiment.flows import describe_difference
from spolia.evaluation.gate.baseline import Baseline, BaselineQuestion, SearchedGroups, format_steps
from spolia.types import Item, Value


def describe_operator_changes(previous: str, now: str) -> list[str]:
    """Describe which operators of a flow are gone, new, or have other fields.

    >>> describe_operator_changes("BM25(top_k=9)", "Then(BM25(top_k=3))")
    ['BM25: top_k=9 then, top_k=3 now']
    >>> describe_operator_changes("Branch(BM25(top_k=9), Dense(top_k=9)) >> RRF(k=60)", "BM25(top_k=3) >> Reorder()")
    ['Branch is gone', 'BM25: top_k=9 then, top_k=3 now', 'Dense is gone', 'RRF is gone', 'Reorder is new']
    """
    try:
        then, is_ = _list_operators(previous), _list_operators(now)
    except SyntaxError:  # it names a function that has no name
        return [describe_difference(previous, now)]
    texts = list[str]()
    old, new = ([name for name, _ in side] for side in (then, is_))
    # Else difflib ignores the frequent names of a list of 200 or more.
    for kind, start, end, begin, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            pairs = zip(then[start:end], is_[begin:stop], strict=True)
            texts += [
                describe_difference(old_text, new_text)
                for (_, old_text), (_, new_text) in pairs
                if old_text != new_text
            ]
        else:
            texts += [f"{name} is gone" for name in old[start:end]] + [f"{name} is new" for name in new[begin:stop]]
    return texts or [describe_difference(previous, now)]  # the same operators, in other brackets


def _list_operators(text: str) -> list[tuple[str, str]]:
    """List the operators in the order of a flow's text: each by name, and written without those within it."""
    operators = list[tuple[str, str]]()

    def add(node: ast.expr) -> None:
        if isinstance(node, ast.BinOp):
            add(node.left)
            add(node.right)
        elif isinstance(node, ast.Call):
            operands = [argument for argument in node.args if isinstance(argument, (ast.BinOp, ast.Call, ast.Name))]
            values = [argument for argument in node.args if argument not in operands]
            if (name := ast.unparse(node.func)) != "Then":  # it only joins the others
                operators.append((name, ast.unparse(ast.Call(node.func, values, node.keywords))))
            for operand in operands:
                add(operand)
        else:
            operators.append((ast.unparse(node), ast.unparse(node)))

    add(ast.parse(text, mode="eval").body)
    return operators


NAMED_DOCUMENTS = 10
"""Documents that are named."""
Side: TypeAlias = Mapping[str, Any]


def find_changes(baseline: Baseline, now: Baseline) -> tuple[tuple[str, str], ...]:
    """Find what differs: its kind (`documents`, `chunks`, `index`, `flow`, `models`, …), and in words."""
    changes = []
    for kind in dict.fromkeys((*baseline.signature, *now.signature)):
        then, is_ = baseline.signature.get(kind, {}), now.signature.get(kind, {})
        if kind == "documents":
            texts = list(_describe_documents(baseline, now)) if then.get("content") != is_.get("content") else []
        elif kind == "chunks":
            texts = list(_describe_chunks(then, is_, _is_cut_differently(baseline, now)))
        else:
            texts = list(DESCRIBERS.get(kind, _describe_names)(then, is_))
        if texts:
            changes.append((kind, "; ".join(texts)))
    return tuple(changes)


def _is_cut_differently(baseline: Baseline, now: Baseline) -> bool:
    """Return whether unchanged documents are split differently: all, or if any has changed, those of the baseline."""
    if baseline.signature["documents"]["content"] == now.signature["documents"]["content"]:
        return bool(baseline.signature["chunks"]["content"] != now.signature["chunks"]["content"])
    pairs = ((document, now.documents[name]) for name, document in baseline.documents.items() if name in now.documents)
    return any(old.content == new.content and old.cuts != new.cuts for old, new in pairs)


def _describe_documents(baseline: Baseline, now: Baseline) -> Iterator[str]:
    """Describe how many documents there are, and which have changed, by name."""
    then, is_ = (max(side.signature["documents"]["number"].values(), default=0) for side in (baseline, now))
    if then != is_:
        yield f"{is_:,} in place of {then:,}"
    # Of more documents than are written down it is not known which were there.
    new = now.documents if len(baseline.documents) == then else ()
    listed = list(describe_document_changes(dict.fromkeys((*baseline.documents, *new)), baseline, now, "is new"))
    yield from listed[:NAMED_DOCUMENTS] or ["none of the gold or found documents"]
    if len(listed) > NAMED_DOCUMENTS:
        yield f"and {len(listed) - NAMED_DOCUMENTS:,} more"


def describe_document_changes(names: Iterable[str], baseline: Baseline, now: Baseline, added: str) -> Iterator[str]:
    for name in names:
        old, new = baseline.documents.get(name), now.documents.get(name)
        if old is None and new is not None:
            yield f"{name} {added}"
        elif old is not None and new is None:
            yield f"{name} is gone"
        elif old is not None and new is not None and old.content != new.content:
            yield f"{name} has another text"


def _describe_chunks(then: Side, now: Side, is_recut: bool) -> Iterator[str]:
    """Describe groups by name: how many nodes they have, and which of their inputs changed."""
    old, new = then.get("number", {}), now.get("number", {})
    yield from _describe_added_and_removed(old, new, "group {} is searched now", "group {} is not searched any more")
    for group in (name for name in old if name in new):
        if is_recut and (old[group] != new[group] or len(old) == 1):
            node_count = several(old[group], "node")
            yield (
                f"group {group}: {node_count} then, {new[group]:,} now"
                if old[group] != new[group]
                else (f"group {group}: {node_count} as then, cut at other places")
            )
        if is_recut:
            yield from (f"group {group}: {text}" for text in _describe_fields(then.get(group, {}), now.get(group, {})))


def _describe_index(then: Side, now: Side) -> Iterator[str]:
    for group in (name for name in then if name in now):
        yield from (f"group {group}: {text}" for text in _describe_fields(then[group], now[group]))


def _describe_fields(then: Side, now: Side) -> Iterator[str]:
    """Describe changed fields by name; of code only that it is another, and where the transform is, nothing of code and
    definition."""
    names = [name for name in dict.fromkeys((*then, *now)) if then.get(name) != now.get(name)]
    for name in names:
        if name in ("code", "definition") and "transform" in names:
            continue
        old, new = then.get(name), now.get(name)
        if name == "code" or old is None or new is None:
            yield f"its {name} is another"
        elif isinstance(old, str) and isinstance(new, str) and old and new:
            yield f"{name}: {describe_difference(old, new)}"
        else:
            yield f"{name} was {old or 'none'}, is {new or 'none'}"


def _describe_flow(then: Side, now: Side) -> Iterator[str]:
    if then.get("written") != now.get("written"):
        yield from describe_operator_changes(str(then.get("written", "")), str(now.get("written", "")))
    old, new = then.get("code", {}), now.get("code", {})
    # What is gone or new shows among the operators.
    if changed_names := [name for name in old if new.get(name, old[name]) != old[name]]:
        yield f"the code of {', '.join(changed_names)} is another"


def _describe_names(then: Side, now: Side) -> Iterator[str]:
    yield from _describe_added_and_removed(then, now, "{} is new", "{} is gone")
    yield from (f"{name} is another than then" for name in then if name in now and then[name] != now[name])


def _describe_added_and_removed(then: Side, now: Side, added_text: str, removed_text: str) -> Iterator[str]:
    yield from (added_text.format(name) for name in now if name not in then)
    yield from (removed_text.format(name) for name in then if name not in now)


DESCRIBERS: Mapping[str, Callable[[Side, Side], Iterator[str]]] = {
    "index": _describe_index,
    "flow": _describe_flow,
    "asked for": _describe_fields,
    "Spolia": _describe_fields,
}
"""The words for each kind; others go by name."""


def refuse_other_corpus(baseline: Baseline, searched_groups: SearchedGroups) -> None:
    if not baseline.documents or not searched_groups.groups:  # a flow that searches no store, so far as is known
        return
    if searched_groups.documents.keys().isdisjoint(baseline.documents):
        raise DataError(
            f"The baseline is of another corpus: none of its {len(baseline.documents)} documents, "
            f"{next(iter(baseline.documents))!r} for one, is among the {len(searched_groups.documents)} that the flow "
            "searches. Search the corpus that it is of, or write a new one: --write"
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
SHOWN_PASSAGES = 5
"""Passages that are named."""


@dataclass(frozen=True)
class ChangedQuestion(Value):
    """Question that scores differently: by measure what it was and what it is, the cause, and the evidence."""

    item: str
    question: str
    cause: Cause
    scores: tuple[tuple[str, float, float], ...]
    evidence: tuple[str, ...]

    @property
    def worse(self) -> bool:
        return any(now < was for _, was, now in self.scores)

    @property
    def gain(self) -> float:
        """Return how much better the question scores, all measures together."""
        return sum(now - was for _, was, now in self.scores)

    def json(self) -> dict[str, Any]:
        scores = {measure: {"before": was, "now": now} for measure, was, now in self.scores}
        names = ("item", "question", "cause", "worse")
        return {name: getattr(self, name) for name in names} | {"scores": scores, "evidence": list(self.evidence)}


def find_changed_questions(
    items: Sequence[Item], measures: Sequence[str], baseline: Baseline, now: Baseline
) -> tuple[ChangedQuestion, ...]:
    """Find the questions that score differently on any of these measures, those that lost most first."""
    was, is_ = baseline.by_item, now.by_item
    questions = []
    for item in items:
        old, new = was[item.id], is_[item.id]
        if scores := tuple(_changed_scores(measures, old, new)):
            cause = find_cause(old, new, baseline, now)
            evidence = tuple(_list_evidence(cause, old, new, baseline, now))
            questions.append(ChangedQuestion(item.id, item.question, cause, scores, evidence))
    return tuple(sorted(questions, key=lambda question: (not question.worse, question.gain)))


def find_cause(old: BaselineQuestion, new: BaselineQuestion, baseline: Baseline, now: Baseline) -> Cause:
    """Return the first input that differs, of those on which the result depends."""
    # The order is that of `CAUSES`: an earlier difference explains the later ones.
    if new.failure or old.failure:
        return "failed"
    if new.degraded != old.degraded:
        return "degraded"
    if _describe_related_changes(_related_documents(old, new), baseline, now):
        return "documents"
    if _describe_recut(_related_documents(old, new), baseline, now):
        return "chunks or flow" if _changed_rank_inputs(baseline, now) else "chunks"
    if _searched_groups(baseline) != _searched_groups(now) and new.order != old.order:
        return "groups"
    if new.order != old.order:
        return "ranking"
    return "answer" if new.answered != old.answered else "score"


def _changed_scores(
    measures: Sequence[str], old: BaselineQuestion, new: BaselineQuestion
) -> Iterator[tuple[str, float, float]]:
    for measure in measures:
        was, now = old.seen.get(measure), new.seen.get(measure)
        if was is not None and now is not None and was[0] != now[0]:
            yield measure, was[0], now[0]


def _related_documents(old: BaselineQuestion, new: BaselineQuestion) -> list[str]:
    """Return the documents that the question is about, and the ones found for it."""
    return list(dict.fromkeys([*old.about, *new.about, *old.documents, *new.documents]))


def _describe_related_changes(names: Sequence[str], baseline: Baseline, now: Baseline) -> list[str]:
    """Describe documents that are not the same. One that the baseline lacks is new only if the corpus as a whole is
    another one."""
    if baseline.signature.get("documents") == now.signature.get("documents"):
        return []
    return list(describe_document_changes(names, baseline, now, "is not in the baseline"))


def _describe_recut(names: Sequence[str], baseline: Baseline, now: Baseline) -> list[str]:
    texts = []
    for name in names:
        old, new = baseline.documents.get(name), now.documents.get(name)
        if old is not None and new is not None and old.content == new.content:
            for group, was, is_ in old.find_recut(new):
                label = f"{name} in {group}" if len(old.cuts) > 1 else name
                texts.append(f"{label}: {several(was, 'node')} then, {several(is_, 'node')} now")
    return texts


def _changed_rank_inputs(baseline: Baseline, now: Baseline) -> list[str]:
    return [kind for kind in RANKS if baseline.signature.get(kind) != now.signature.get(kind)]


def _searched_groups(side: Baseline) -> set[str]:
    return set(side.signature["chunks"].get("number", ()))


def _list_evidence(
    cause: Cause, old: BaselineQuestion, new: BaselineQuestion, baseline: Baseline, now: Baseline
) -> Iterator[str]:
    if cause == "failed":
        yield f"then {old.failure or 'no failure'}; now {new.failure or 'no failure'}"
        return
    if cause == "degraded":
        yield f"degraded then: {', '.join(old.degraded) or 'nothing'}; now: {', '.join(new.degraded) or 'nothing'}"
    if cause == "documents":
        yield "; ".join(_describe_related_changes(_related_documents(old, new), baseline, now)[:SHOWN_PASSAGES])
    if cause in ("chunks", "chunks or flow"):
        yield "; ".join(_describe_recut(_related_documents(old, new), baseline, now)[:SHOWN_PASSAGES])
    if cause == "chunks or flow":
        yield f"not the same either: {', '.join(_changed_rank_inputs(baseline, now))}"
    if cause == "groups":
        then_names, now_names = sorted(_searched_groups(baseline)), sorted(_searched_groups(now))
        yield f"searched then: {', '.join(then_names)}; now: {', '.join(now_names)}"
    for gold, is_ in new.gold.items():
        if (then := old.gold.get(gold, ())) != is_:
            yield f"gold {gold}: {format_steps(then)} then, {format_steps(is_)} now"
    if old.order != new.order:
        for when, side in (("then", old), ("now", new)):
            passages = side.found[:SHOWN_PASSAGES]
            places = [name if start < 0 else f"{name}[{start}:{end}]" for name, start, end in passages]
            yield f"found {when}: {', '.join(places) or 'nothing'}"
    if old.answered != new.answered:
        yield f"answered then: {old.answer or 'nothing'}"
        yield f"answered now: {new.answer or 'nothing'}"
