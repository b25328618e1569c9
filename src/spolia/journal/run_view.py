"""A recorded run as plain data, as far as the asker may see it: for the tree, the comparison, and one page of HTML.

Nothing is decoded into objects here: a journal can be read whatever classes there are today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from json import dumps, loads
from typing import Any

from spolia.core.plurals import several
from spolia.journal.trace import Journal, SpanDetail, TraceSpan
from spolia.journal.values import ValueLost, ValueReader
from spolia.types.outcomes import dollars

NOT_KEPT = "This run kept no values: inputs, operators' fields and prompts are not there."
NO_WORDS = ("hits", "cited", "stop_reason", "finish_reason")
"""What of a summary holds no text of a document."""
OF_OTHERS = "Values are shown to those who may read what the asker could: write --access with the asker's names."


@dataclass(frozen=True)
class RankedPassage:
    """A passage as a step gave it.

    Args:
        rank: counted from 1.
        parts: what its score is made of, by name.
        before: its rank in what the step took; None if it was not there, or if that is not known.
    """

    id: str
    name: str
    score: float
    text: str
    rank: int
    parts: tuple[tuple[str, float], ...] = ()
    before: int | None = None

    @property
    def parts_text(self) -> str:
        return ", ".join(f"{name} {score:.3g}" for name, score in self.parts)


@dataclass
class StepView:
    """A step of a run.

    Args:
        operator: the step with its fields, plain; None where it is not kept.
        before: the passages in what it took; None where that is not kept.
        after: the passages in what it gave.
        exchanges: what models were sent and replied, plain; of an earlier run if the result came from the cache.
        lost: what cannot be shown, and why.
    """

    span: TraceSpan
    operator: Any = None
    given: Any = None
    gave: Any = None
    before: tuple[RankedPassage, ...] | None = None
    after: tuple[RankedPassage, ...] = ()
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    inner: list[StepView] = field(default_factory=list)

    @property
    def result(self) -> Any:
        """The summary of what it gave."""
        return loads(self.span.result) if self.span.result else None

    @property
    def name(self) -> str:
        """The step with those of its fields that are texts and numbers."""
        if not isinstance(self.operator, dict) or len(self.operator) != 1:
            return self.span.step
        ((name, fields),) = self.operator.items()
        if not isinstance(fields, dict):
            return str(name)
        plain = [f"{key}={one!r:.40}" for key, one in fields.items() if isinstance(one, (str, int, float))]
        return f"{name}({', '.join(plain)})" if plain else str(name)

    @property
    def dropped(self) -> tuple[RankedPassage, ...]:
        """The passages that it took and did not give; only of a step that gave passages."""
        left = {one.id for one in self.after}
        return tuple(one for one in self.before or () if one.id not in left) if self.gives_passages else ()

    @property
    def gives_passages(self) -> bool:
        """Whether what it gave is a ranking."""
        return bool(self.after) or (isinstance(self.result, dict) and "hits" in self.result)

    def movement(self, passage: RankedPassage) -> str:
        """How a passage moved among those that the step took; nothing where it took none.

        >>> from spolia.types import Usage
        >>> span = TraceSpan("r", 1, 0, 1, "Cut", 0.0, 0.0, False, Usage(), "", (), "")
        >>> step = StepView(span, before=(RankedPassage("a", "a", 1.0, "", 1), RankedPassage("b", "b", 0.5, "", 2)))
        >>> step.movement(RankedPassage("b", "b", 2.0, "", 1, before=2))
        '↑1'
        """
        if not self.before:
            return ""
        if passage.before is None:
            return "new"
        moved = passage.before - passage.rank
        return f"↑{moved}" if moved > 0 else f"↓{-moved}" if moved < 0 else "="

    @property
    def remarks(self) -> list[str]:
        """What the step cost and gave, in a few words."""
        usage, result = self.span.usage, self.result
        tokens = usage.input_tokens + usage.output_tokens
        counts = [
            (usage.calls, several(usage.calls, "call")),
            (tokens, several(tokens, "token")),
            (usage.embedded, f"{usage.embedded:,} embedded"),
        ]
        found = [said for count, said in counts if count]
        if usage.cost_usd:
            found.append(f"${dollars(usage.cost_usd)}")
        if self.span.cached:  # what it cost when it was computed, and now did not
            found = [f"cached ({', '.join(found)})" if found else "cached"]
        if isinstance(result, dict) and "hits" in result:
            taken = f"{len(self.before)} → " if self.before else ""
            found.append(f"{taken}{several(len(result['hits']), 'hit')}")
        if isinstance(result, dict) and "answer" in result:
            found.append(f"“{' '.join(str(result['answer']).split())[:60]}”")
            found.append(f"ended by {result['stop_reason']!r}" if result.get("stop_reason") else "")
        return [part for part in found if part]

    def plain(self) -> dict[str, Any]:
        span = self.span
        names = ("span", "parent", "lane", "step", "started", "seconds", "cached", "error", "notes")
        found = {name: getattr(span, name) for name in names} | {"usage": asdict(span.usage), "result": self.result}
        return found | {
            "operator": self.operator,
            "input": self.given,
            "output": self.gave,
            "before": None if self.before is None else [asdict(one) for one in self.before],
            "after": [asdict(one) for one in self.after],
            "exchanges": self.exchanges,
            "lost": self.lost,
        }


@dataclass
class RunView:
    """All steps of a run in the order in which they began, and those that have none around them.

    Args:
        questions: by lane, as far as they are kept and may be seen.
    """

    run: str
    steps: list[StepView]
    lost: str = ""
    questions: dict[int, str] = field(default_factory=dict)

    @property
    def roots(self) -> list[StepView]:
        there = {step.span.span for step in self.steps}  # a process that was killed left steps without what was around
        return [step for step in self.steps if step.span.parent not in there]

    def searched(self, lane: int) -> str:
        """The first query that a step of a lane gave or searched for, which may be a rewritten one; else empty."""
        every = (one.result for one in self.steps if one.span.lane == lane)
        return next((str(one["query"]) for one in every if isinstance(one, dict) and "query" in one), "")

    def _repr_html_(self) -> str:
        """The steps, which a notebook shows: those inside others open and close."""
        return fragment(self)

    def heading(self, lane: int) -> str:
        """The question of a lane; if that is not kept, the search text, and a note."""
        return f"“{self.questions[lane]}”" if lane in self.questions else not_kept(self.searched(lane))


def not_kept(searched: str) -> str:
    """
    >>> not_kept("where is Espoo")
    'question not kept; first search: “where is Espoo”'
    """
    return f"question not kept; first search: “{searched}”" if searched else ""


def view_run(journal: Journal, run: str, principals: frozenset[str] = frozenset()) -> RunView:
    """A run as these principals may see it: values only if they act for everybody for whom it was asked."""
    values, details = ValueReader(journal.database), journal.details(run)
    is_open = principals.issuperset(journal.askers(run) or ())
    found = RunView(run, [StepView(span if is_open else _without_words(span)) for span in journal.spans(run)])
    found.questions = journal.questions(run) if is_open else {}
    by_number = {step.span.span: step for step in found.steps}
    found.lost = OF_OTHERS if not is_open else "" if details else NOT_KEPT
    for step in found.steps:
        if (around := by_number.get(step.span.parent)) is not None:
            around.inner.append(step)
        detail = details.get(step.span.span)
        if detail is not None and is_open:
            _fill(step, detail, values, journal, principals)
        if not step.after and isinstance(step.result, dict):
            hits = enumerate(step.result.get("hits", ()), 1)
            step.after = _with_ranks(
                tuple(RankedPassage(id, id, score, "", rank) for rank, (id, score) in hits), step.before
            )
    return found


def _without_words(span: TraceSpan) -> TraceSpan:
    """A span as anybody may see it: what it cost, and ids and scores, but no text of a document, model or asker."""
    result = loads(span.result) if span.result else None
    kept = {name: result[name] for name in NO_WORDS if name in result} if isinstance(result, dict) else None
    return span.but(result=dumps(kept) if kept else "", error=span.error and "It failed.", notes=())


def _fill(
    step: StepView, detail: SpanDetail, values: ValueReader, journal: Journal, principals: frozenset[str]
) -> None:
    step.operator = _read(step, "operator", detail.operator, values)
    step.given = _read(step, "input", detail.input, values)
    step.before = tuple(passages(step.given, values)) if step.given is not None else None
    if detail.output:
        step.gave = _read(step, "output", detail.output, values)
        step.after = _with_ranks(tuple(passages(step.gave, values)), step.before)
    exchanges = detail.exchanges
    if step.span.cached and not exchanges:
        exchanges = journal.exchanges_of(detail.operator, detail.input, principals)
    for one in (_read(step, "prompts", exchanges, values) if exchanges else None) or ():
        step.exchanges.append(one.get("Exchange", one) if isinstance(one, dict) else {"reply": one})


def _read(step: StepView, what: str, hash: str, values: ValueReader) -> Any:
    try:
        return values.plain(hash)
    except ValueLost as lost:
        step.lost.append(f"{what}: {lost}")
        return None


def _with_ranks(after: tuple[RankedPassage, ...], before: Sequence[RankedPassage] | None) -> tuple[RankedPassage, ...]:
    ranks = {one.id: one.rank for one in before or ()}
    return tuple(replace(one, before=ranks.get(one.id)) for one in after)


def passages(plain: Any, values: ValueReader) -> Iterator[RankedPassage]:
    """The passages in a value, of all rankings in it, each once."""
    seen: set[str] = set()
    for node, hit in _hits(plain, values, 0):
        if node.get("id") not in seen:
            seen.add(id := str(node.get("id")))
            name, parts = node.get("uri") or node.get("document") or id, tuple(map(tuple, hit.get("parts", ())))
            yield RankedPassage(id, name, hit.get("score", 0.0), node.get("text", ""), len(seen), parts)


def _hits(plain: Any, values: ValueReader, depth: int) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Nodes with their hits, from all rankings in a value."""
    if depth > 8:
        return
    if isinstance(plain, list):
        for item in plain:
            yield from _hits(item, values, depth + 1)
    elif isinstance(plain, dict):
        if set(plain) == {"use"} and isinstance(plain["use"], str):
            yield from _hits(_resolved(plain, values), values, depth + 1)
        elif isinstance(ranking := plain.get("Ranking"), dict):
            for hit in ranking.get("hits", ()):
                node = _resolved(hit.get("node"), values)
                if isinstance(node, dict):
                    yield node.get("Node", node), hit
        else:
            for item in plain.values():
                yield from _hits(item, values, depth + 1)


def _resolved(plain: Any, values: ValueReader) -> Any:
    if not (isinstance(plain, dict) and set(plain) == {"use"}):
        return plain
    try:
        return values.plain(plain["use"])
    except ValueLost:
        return None


def difference(before: RunView, after: RunView) -> list[dict[str, Any]]:
    """How two runs differ, step by step: steps of one alone, and of both what is not the same.

    Steps are the same if they are at the same place: of one class, below the same steps, the nth of their kind
    there. Times always differ and are not compared.
    """
    old, new = dict(_places(before.roots)), dict(_places(after.roots))
    found: list[dict[str, Any]] = []
    for place in [*new, *(place for place in old if place not in new)]:
        where: dict[str, Any] = {"place": list(place), "before": None, "after": None}
        if place in old:
            where["before"] = old[place].span.span
        if place in new:
            where["after"] = new[place].span.span
        changes = {} if where["before"] is None or where["after"] is None else _changes(old[place], new[place])
        if changes or where["before"] is None or where["after"] is None:
            found.append(where | {"changes": changes})
    return found


def _places(steps: Sequence[StepView], around: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StepView]]:
    numbers: dict[str, int] = {}
    for step in steps:
        number = numbers[step.span.step] = numbers.get(step.span.step, 0) + 1
        place = (*around, f"{step.span.step} {number}" if number > 1 else step.span.step)
        yield place, step
        yield from _places(step.inner, place)


def _changes(old: StepView, new: StepView) -> dict[str, Any]:
    """What differs, each as before and after; of passages which came, went and moved."""
    pairs: dict[str, tuple[Any, Any]] = {
        "operator": (old.operator, new.operator) if old.operator and new.operator else (None, None),
        "question": (_of(old, "query"), _of(new, "query")),
        "answer": (_of(old, "answer"), _of(new, "answer")),
        "text": (_of(old, "text"), _of(new, "text")),
        "result": (old.result, new.result) if not isinstance(new.result, dict) else (None, None),
        "stop_reason": (_of(old, "stop_reason"), _of(new, "stop_reason")),
        "cached": (old.span.cached, new.span.cached),
        "calls": (old.span.usage.calls, new.span.usage.calls),
        "tokens": (_tokens(old), _tokens(new)),
        "cost_usd": (old.span.usage.cost_usd, new.span.usage.cost_usd),
        "error": (old.span.error, new.span.error),
        "prompts": (_sent(old), _sent(new)) if old.exchanges and new.exchanges else (None, None),
    }
    found: dict[str, Any] = {name: list(pair) for name, pair in pairs.items() if pair[0] != pair[1]}
    was, now = {one.id: one for one in old.after}, {one.id: one for one in new.after}
    moved = [[now[id].name, was[id].rank, now[id].rank] for id in now if id in was and was[id].rank != now[id].rank]
    documents = {
        "new": [one.name for id, one in now.items() if id not in was],
        "gone": [one.name for id, one in was.items() if id not in now],
        "moved": moved,
    }
    return found | ({"documents": documents} if any(documents.values()) else {})


def _of(step: StepView, name: str) -> Any:
    return step.result.get(name) if isinstance(step.result, dict) else None


def _tokens(step: StepView) -> int:
    return step.span.usage.input_tokens + step.span.usage.output_tokens


def _sent(step: StepView) -> list[Any]:
    return [one.get("prompt") for one in step.exchanges]


def messages(exchange: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The messages that a model was sent, each with its role, and last its reply."""
    for one in (exchange.get("prompt") or {}).get("messages", ()) if isinstance(exchange.get("prompt"), dict) else ():
        yield str(one.get("role", "")), str(one.get("content", ""))
    reply = exchange.get("reply")
    if isinstance(reply, dict) and isinstance(reply.get("Generation"), dict):
        yield "reply", str(reply["Generation"].get("text", ""))
    else:
        yield "reply", _tokens_in(reply)


def _tokens_in(reply: Any) -> str:
    """Tokens with their log-probabilities, as text."""
    if not isinstance(reply, list):
        return str(reply)
    every = [one.get("Token", one) if isinstance(one, dict) else {"text": one} for one in reply]
    return ", ".join(f"{one.get('text', '')!r} {one.get('logprob', 0):.3g}" for one in every)


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin-top: 2rem; }
details { border-left: 2px solid #ddd; margin: .3rem 0 .3rem .2rem; padding-left: .8rem; }
summary { cursor: pointer; } .soft { color: #666; } .note { color: #8a5a00; } .error { color: #b03a48; }
table { border-collapse: collapse; margin: .4rem 0; } td, th { padding: .1rem .8rem .1rem 0; text-align: left;
vertical-align: top; } th { font-weight: 600; color: #666; } .gone td { color: #999; text-decoration: line-through; }
pre { white-space: pre-wrap; background: #f6f6f4; padding: .5rem .7rem; margin: .3rem 0; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1a; color: #ddd; } pre { background: #262624; } }
"""


def page(view: RunView) -> str:
    """The page: every question with its steps, their passages before and after, and what models were sent."""
    return "".join((
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Run {escape(view.run)}</title><style>{STYLE}</style></head><body>",
        fragment(view),
        "</body></html>\n",
    ))  # fmt: skip


def fragment(view: RunView) -> str:
    """The part of the page that a notebook shows."""
    parts = [f"<h1>Run {escape(view.run)}</h1>"]
    if view.lost:
        parts.append(f'<p class="note">{escape(view.lost)}</p>')
    for root in view.roots:
        parts.append(f"<h2>{escape(view.heading(root.span.lane))}</h2>{_step(root, True)}")
    return "".join(parts)


def _step(step: StepView, is_open: bool = False) -> str:
    span = step.span
    told = " · ".join([f"{span.seconds * 1000:.1f} ms", f"#{span.span}", *step.remarks])
    parts = [
        f"<details{' open' if is_open or step.inner else ''}><summary><b>{escape(step.name)}</b> ",
        f'<span class="soft">{escape(told)}</span></summary>',
    ]
    parts += [f'<div class="note">{escape(one)}</div>' for one in (*span.notes, *step.lost)]
    parts += [f'<div class="error">{escape(span.error)}</div>'] if span.error else []
    if step.gives_passages:
        parts.append(_passages(step))
    elif isinstance(step.result, dict) and "answer" in step.result:
        parts.append(f"<p>{escape(str(step.result['answer']))}</p>")
    elif step.span.result:
        parts.append(f"<pre>{escape(dumps(step.result, ensure_ascii=False, indent=1))}</pre>")
    for exchange in step.exchanges:
        again = ", before; the result was kept" if span.cached else ""
        parts.append(f'<div class="soft">Sent to {escape(str(exchange.get("model", "a model")))}{again}:</div>')
        parts += [
            f'<div class="soft">{escape(role)}</div><pre>{escape(said)}</pre>' for role, said in messages(exchange)
        ]
    if step.operator is not None:
        whole = escape(dumps(step.operator, ensure_ascii=False, indent=1))
        parts.append(f'<details><summary class="soft">fields</summary><pre>{whole}</pre></details>')
    parts += [_step(inner) for inner in step.inner]
    return "".join((*parts, "</details>"))


def _passages(step: StepView) -> str:
    head = "<tr><th>rank</th><th>before</th><th>score</th><th>passage</th></tr>"
    rows = [_row(one, str(one.rank), step.movement(one)) for one in step.after]
    return f"<table>{head}{''.join((*rows, *_gone(step.dropped)))}</table>"


def _row(one: RankedPassage, rank: str, moved: str, kind: str = "") -> str:
    before = f"{one.before} {moved}" if one.before is not None else moved
    text = f'<div class="soft">{escape(one.text[:300])}{"…" if len(one.text) > 300 else ""}</div>' if one.text else ""
    text = f'<div class="soft">{escape(one.parts_text)}</div>{text}' if one.parts else text
    return (
        f"<tr{kind}><td>{rank}</td><td>{escape(before)}</td><td>{one.score:.4g}</td>"
        f"<td>{escape(one.name)}{text}</td></tr>"
    )


def _gone(dropped: Sequence[RankedPassage]) -> list[str]:
    return [
        f'<tr class="gone"><td></td><td>{one.rank}</td><td>{one.score:.4g}</td><td>{escape(one.name)}</td></tr>'
        for one in dropped
    ]
