"""A recorded run as plain data, as far as the asker may see it: for the tree, the comparison, and a page of HTML.

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
from spolia.types.outcomes import format_dollars

NOT_KEPT = "This run kept no values: inputs, operators' fields and prompts are not there."
TEXTLESS_FIELDS = ("hits", "cited", "stop_reason", "finish_reason")
"""What of a summary holds no text of a document."""
NOT_PERMITTED = "Values are shown to those who may read what the asker could: write --access with the asker's names."


@dataclass(frozen=True)
class RankedPassage:
    """Passage as a step gave it.

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
    """Step of a run.

    Args:
        operator: the step with its fields, plain; None where it is not kept.
        input_passages: the passages in what it took; None where that is not kept.
        output_passages: the passages in what it gave.
        exchanges: what models were sent and replied, plain; of an earlier run if the result came from the cache.
        problems: what cannot be shown, and why.
    """

    span: TraceSpan
    operator: Any = None
    input_value: Any = None
    output_value: Any = None
    input_passages: tuple[RankedPassage, ...] | None = None
    output_passages: tuple[RankedPassage, ...] = ()
    exchanges: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    inner: list[StepView] = field(default_factory=list)

    @property
    def result(self) -> Any:
        """Return the summary of what it gave."""
        return loads(self.span.result) if self.span.result else None

    @property
    def name(self) -> str:
        """Return the step with those of its fields that are texts and numbers."""
        if not isinstance(self.operator, dict) or len(self.operator) != 1:
            return self.span.step
        ((name, fields),) = self.operator.items()
        if not isinstance(fields, dict):
            return str(name)
        plain = [f"{key}={value!r:.40}" for key, value in fields.items() if isinstance(value, (str, int, float))]
        return f"{name}({', '.join(plain)})" if plain else str(name)

    @property
    def dropped(self) -> tuple[RankedPassage, ...]:
        """Return the passages that it took and did not give; only of a step that gave passages."""
        if not self.gives_passages:
            return ()
        kept_ids = {passage.id for passage in self.output_passages}
        return tuple(passage for passage in self.input_passages or () if passage.id not in kept_ids)

    @property
    def gives_passages(self) -> bool:
        """Return whether what it gave is a ranking."""
        return bool(self.output_passages) or (isinstance(self.result, dict) and "hits" in self.result)

    def movement(self, passage: RankedPassage) -> str:
        """Describe how a passage moved among those that the step took; empty if it took none.

        >>> from spolia.types import Usage
        >>> span = TraceSpan("r", 1, 0, 1, "Cut", 0.0, 0.0, False, Usage(), "", (), "")
        >>> first, second = RankedPassage("a", "a", 1.0, "", 1), RankedPassage("b", "b", 0.5, "", 2)
        >>> step = StepView(span, input_passages=(first, second))
        >>> step.movement(RankedPassage("b", "b", 2.0, "", 1, before=2))
        '↑1'
        """
        if not self.input_passages:
            return ""
        if passage.before is None:
            return "new"
        rise = passage.before - passage.rank
        return f"↑{rise}" if rise > 0 else f"↓{-rise}" if rise < 0 else "="

    @property
    def remarks(self) -> list[str]:
        """Describe in a few words what the step cost and gave."""
        usage, result = self.span.usage, self.result
        tokens = usage.input_tokens + usage.output_tokens
        counts = [
            (usage.calls, several(usage.calls, "call")),
            (tokens, several(tokens, "token")),
            (usage.embedded, f"{usage.embedded:,} embedded"),
        ]
        words = [text for count, text in counts if count]
        if usage.cost_usd:
            words.append(f"${format_dollars(usage.cost_usd)}")
        if self.span.cached:  # what it cost when it was computed, and now did not
            words = [f"cached ({', '.join(words)})" if words else "cached"]
        if isinstance(result, dict) and "hits" in result:
            input_count = f"{len(self.input_passages)} → " if self.input_passages else ""
            words.append(f"{input_count}{several(len(result['hits']), 'hit')}")
        if isinstance(result, dict) and "answer" in result:
            words.append(f"“{' '.join(str(result['answer']).split())[:60]}”")
            words.append(f"ended by {result['stop_reason']!r}" if result.get("stop_reason") else "")
        return [part for part in words if part]

    def to_plain(self) -> dict[str, Any]:
        span = self.span
        names = ("span", "parent", "lane", "step", "started", "seconds", "cached", "error", "notes")
        data = {name: getattr(span, name) for name in names} | {"usage": asdict(span.usage), "result": self.result}
        return data | {
            "operator": self.operator,
            "input": self.input_value,
            "output": self.output_value,
            "before": None if self.input_passages is None else [asdict(passage) for passage in self.input_passages],
            "after": [asdict(passage) for passage in self.output_passages],
            "exchanges": self.exchanges,
            "lost": self.problems,
        }


@dataclass
class RunView:
    """All steps of a run in the order in which they began, and the steps without one around them.

    Args:
        questions: by lane, as far as they are kept and may be seen.
    """

    run: str
    steps: list[StepView]
    lost: str = ""
    questions: dict[int, str] = field(default_factory=dict)

    @property
    def roots(self) -> list[StepView]:
        numbers = {step.span.span for step in self.steps}  # a killed process left steps without those around them
        return [step for step in self.steps if step.span.parent not in numbers]

    def first_search(self, lane: int) -> str:
        """Return the first query that a step of a lane gave or searched for, perhaps a rewritten one; else empty."""
        results = (entry.result for entry in self.steps if entry.span.lane == lane)
        return next((str(entry["query"]) for entry in results if isinstance(entry, dict) and "query" in entry), "")

    def _repr_html_(self) -> str:
        """Return the steps for a notebook, in which those inside others open and close."""
        return render_fragment(self)

    def heading(self, lane: int) -> str:
        """Return the question of a lane; if that is not kept, the search text, and a note."""
        return f"“{self.questions[lane]}”" if lane in self.questions else format_unkept(self.first_search(lane))


def format_unkept(search_text: str) -> str:
    """Write a heading for a question that is not kept.

    >>> format_unkept("where is Espoo")
    'question not kept; first search: “where is Espoo”'
    """
    return f"question not kept; first search: “{search_text}”" if search_text else ""


def view_run(journal: Journal, run: str, principals: frozenset[str] = frozenset()) -> RunView:
    """Return a run as these principals may see it: values only if they act for everybody for whom it was asked."""
    values, details = ValueReader(journal.database), journal.details(run)
    is_open = principals.issuperset(journal.askers(run) or ())
    view = RunView(run, [StepView(span if is_open else _strip_texts(span)) for span in journal.spans(run)])
    view.questions = journal.questions(run) if is_open else {}
    by_number = {step.span.span: step for step in view.steps}
    view.lost = NOT_PERMITTED if not is_open else "" if details else NOT_KEPT
    for step in view.steps:
        if (parent := by_number.get(step.span.parent)) is not None:
            parent.inner.append(step)
        detail = details.get(step.span.span)
        if detail is not None and is_open:
            _add_detail(step, detail, values, journal, principals)
        if not step.output_passages and isinstance(step.result, dict):
            hits = enumerate(step.result.get("hits", ()), 1)
            step.output_passages = _add_input_ranks(
                tuple(RankedPassage(id, id, score, "", rank) for rank, (id, score) in hits), step.input_passages
            )
    return view


def _strip_texts(span: TraceSpan) -> TraceSpan:
    """Return a span as anybody may see it: costs, ids and scores, but no text of a document, model or asker."""
    result = loads(span.result) if span.result else None
    public_fields = (
        {name: result[name] for name in TEXTLESS_FIELDS if name in result} if isinstance(result, dict) else None
    )
    return span.but(result=dumps(public_fields) if public_fields else "", error=span.error and "It failed.", notes=())


def _add_detail(
    step: StepView, detail: SpanDetail, values: ValueReader, journal: Journal, principals: frozenset[str]
) -> None:
    step.operator = _read_value(step, "operator", detail.operator, values)
    step.input_value = _read_value(step, "input", detail.input, values)
    step.input_passages = tuple(find_passages(step.input_value, values)) if step.input_value is not None else None
    if detail.output:
        step.output_value = _read_value(step, "output", detail.output, values)
        step.output_passages = _add_input_ranks(tuple(find_passages(step.output_value, values)), step.input_passages)
    exchanges = detail.exchanges
    if step.span.cached and not exchanges:
        exchanges = journal.find_exchanges(detail.operator, detail.input, principals)
    for exchange in (_read_value(step, "prompts", exchanges, values) if exchanges else None) or ():
        step.exchanges.append(exchange.get("Exchange", exchange) if isinstance(exchange, dict) else {"reply": exchange})


def _read_value(step: StepView, label: str, hash: str, values: ValueReader) -> Any:
    try:
        return values.read_plain(hash)
    except ValueLost as lost:
        step.problems.append(f"{label}: {lost}")
        return None


def _add_input_ranks(
    output_passages: tuple[RankedPassage, ...], input_passages: Sequence[RankedPassage] | None
) -> tuple[RankedPassage, ...]:
    ranks = {passage.id: passage.rank for passage in input_passages or ()}
    return tuple(replace(passage, before=ranks.get(passage.id)) for passage in output_passages)


def find_passages(plain: Any, values: ValueReader) -> Iterator[RankedPassage]:
    """Yield the passages of all rankings in a value, each once."""
    ids: set[str] = set()
    for node, hit in _find_hits(plain, values, 0):
        if node.get("id") not in ids:
            ids.add(id := str(node.get("id")))
            name, parts = node.get("uri") or node.get("document") or id, tuple(map(tuple, hit.get("parts", ())))
            yield RankedPassage(id, name, hit.get("score", 0.0), node.get("text", ""), len(ids), parts)


def _find_hits(plain: Any, values: ValueReader, depth: int) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield nodes with their hits, from all rankings in a value."""
    if depth > 8:
        return
    if isinstance(plain, list):
        for item in plain:
            yield from _find_hits(item, values, depth + 1)
    elif isinstance(plain, dict):
        if set(plain) == {"use"} and isinstance(plain["use"], str):
            yield from _find_hits(_resolve(plain, values), values, depth + 1)
        elif isinstance(ranking := plain.get("Ranking"), dict):
            for hit in ranking.get("hits", ()):
                node = _resolve(hit.get("node"), values)
                if isinstance(node, dict):
                    yield node.get("Node", node), hit
        else:
            for item in plain.values():
                yield from _find_hits(item, values, depth + 1)


def _resolve(plain: Any, values: ValueReader) -> Any:
    if not (isinstance(plain, dict) and set(plain) == {"use"}):
        return plain
    try:
        return values.read_plain(plain["use"])
    except ValueLost:
        return None


def compare_runs(old_view: RunView, new_view: RunView) -> list[dict[str, Any]]:
    """Compare two runs step by step: list steps of one alone, and what differs in steps of both.

    Steps are the same if they are at the same place: of one class, below the same steps, the nth of their kind
    there. Times always differ and are not compared.
    """
    old, new = dict(_place_steps(old_view.roots)), dict(_place_steps(new_view.roots))
    differences: list[dict[str, Any]] = []
    for place in [*new, *(place for place in old if place not in new)]:
        entry: dict[str, Any] = {"place": list(place), "before": None, "after": None}
        if place in old:
            entry["before"] = old[place].span.span
        if place in new:
            entry["after"] = new[place].span.span
        changes = {} if entry["before"] is None or entry["after"] is None else _find_changes(old[place], new[place])
        if changes or entry["before"] is None or entry["after"] is None:
            differences.append(entry | {"changes": changes})
    return differences


def _place_steps(steps: Sequence[StepView], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], StepView]]:
    numbers: dict[str, int] = {}
    for step in steps:
        number = numbers[step.span.step] = numbers.get(step.span.step, 0) + 1
        place = (*path, f"{step.span.step} {number}" if number > 1 else step.span.step)
        yield place, step
        yield from _place_steps(step.inner, place)


def _find_changes(old: StepView, new: StepView) -> dict[str, Any]:
    """Return what differs, each as before and after; and which passages came, went and moved."""
    pairs: dict[str, tuple[Any, Any]] = {
        "operator": (old.operator, new.operator) if old.operator and new.operator else (None, None),
        "question": (_result_field(old, "query"), _result_field(new, "query")),
        "answer": (_result_field(old, "answer"), _result_field(new, "answer")),
        "text": (_result_field(old, "text"), _result_field(new, "text")),
        "result": (old.result, new.result) if not isinstance(new.result, dict) else (None, None),
        "stop_reason": (_result_field(old, "stop_reason"), _result_field(new, "stop_reason")),
        "cached": (old.span.cached, new.span.cached),
        "calls": (old.span.usage.calls, new.span.usage.calls),
        "tokens": (_count_tokens(old), _count_tokens(new)),
        "cost_usd": (old.span.usage.cost_usd, new.span.usage.cost_usd),
        "error": (old.span.error, new.span.error),
        "prompts": (_prompts(old), _prompts(new)) if old.exchanges and new.exchanges else (None, None),
    }
    changes: dict[str, Any] = {name: list(pair) for name, pair in pairs.items() if pair[0] != pair[1]}
    old_passages = {passage.id: passage for passage in old.output_passages}
    new_passages = {passage.id: passage for passage in new.output_passages}
    moves = [
        [new_passages[id].name, old_passages[id].rank, new_passages[id].rank]
        for id in new_passages
        if id in old_passages and old_passages[id].rank != new_passages[id].rank
    ]
    documents = {
        "new": [passage.name for id, passage in new_passages.items() if id not in old_passages],
        "gone": [passage.name for id, passage in old_passages.items() if id not in new_passages],
        "moved": moves,
    }
    return changes | ({"documents": documents} if any(documents.values()) else {})


def _result_field(step: StepView, name: str) -> Any:
    return step.result.get(name) if isinstance(step.result, dict) else None


def _count_tokens(step: StepView) -> int:
    return step.span.usage.input_tokens + step.span.usage.output_tokens


def _prompts(step: StepView) -> list[Any]:
    return [exchange.get("prompt") for exchange in step.exchanges]


def list_messages(exchange: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the messages that a model was sent, each with its role, and last its reply."""
    prompt = exchange.get("prompt")
    for message in prompt.get("messages", ()) if isinstance(prompt, dict) else ():
        yield str(message.get("role", "")), str(message.get("content", ""))
    reply = exchange.get("reply")
    if isinstance(reply, dict) and isinstance(reply.get("Generation"), dict):
        yield "reply", str(reply["Generation"].get("text", ""))
    else:
        yield "reply", _format_tokens(reply)


def _format_tokens(reply: Any) -> str:
    """Write tokens with their log-probabilities as text."""
    if not isinstance(reply, list):
        return str(reply)
    tokens = [token.get("Token", token) if isinstance(token, dict) else {"text": token} for token in reply]
    return ", ".join(f"{token.get('text', '')!r} {token.get('logprob', 0):.3g}" for token in tokens)


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


def render_page(view: RunView) -> str:
    """Render the page: every question with its steps, their passages before and after, and what models were sent."""
    return "".join((
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Texts of documents and models are shown: no script runs, and nothing is loaded.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Run {escape(view.run)}</title><style>{STYLE}</style></head><body>",
        render_fragment(view),
        "</body></html>\n",
    ))  # fmt: skip


def render_fragment(view: RunView) -> str:
    """Render the part of the page that a notebook shows."""
    parts = [f"<h1>Run {escape(view.run)}</h1>"]
    if view.lost:
        parts.append(f'<p class="note">{escape(view.lost)}</p>')
    for root in view.roots:
        parts.append(f"<h2>{escape(view.heading(root.span.lane))}</h2>{_render_step(root, True)}")
    return "".join(parts)


def _render_step(step: StepView, is_open: bool = False) -> str:
    span = step.span
    facts = " · ".join([f"{span.seconds * 1000:.1f} ms", f"#{span.span}", *step.remarks])
    parts = [
        f"<details{' open' if is_open or step.inner else ''}><summary><b>{escape(step.name)}</b> ",
        f'<span class="soft">{escape(facts)}</span></summary>',
    ]
    parts += [f'<div class="note">{escape(remark)}</div>' for remark in (*span.notes, *step.problems)]
    parts += [f'<div class="error">{escape(span.error)}</div>'] if span.error else []
    if step.gives_passages:
        parts.append(_render_passages(step))
    elif isinstance(step.result, dict) and "answer" in step.result:
        parts.append(f"<p>{escape(str(step.result['answer']))}</p>")
    elif step.span.result:
        parts.append(f"<pre>{escape(dumps(step.result, ensure_ascii=False, indent=1))}</pre>")
    for exchange in step.exchanges:
        cache_note = ", before; the result was kept" if span.cached else ""
        parts.append(f'<div class="soft">Sent to {escape(str(exchange.get("model", "a model")))}{cache_note}:</div>')
        parts += [
            f'<div class="soft">{escape(role)}</div><pre>{escape(content)}</pre>'
            for role, content in list_messages(exchange)
        ]
    if step.operator is not None:
        fields_json = escape(dumps(step.operator, ensure_ascii=False, indent=1))
        parts.append(f'<details><summary class="soft">fields</summary><pre>{fields_json}</pre></details>')
    parts += [_render_step(inner) for inner in step.inner]
    return "".join((*parts, "</details>"))


def _render_passages(step: StepView) -> str:
    head = "<tr><th>rank</th><th>before</th><th>score</th><th>passage</th></tr>"
    rows = [_render_row(passage, str(passage.rank), step.movement(passage)) for passage in step.output_passages]
    return f"<table>{head}{''.join((*rows, *_render_dropped(step.dropped)))}</table>"


def _render_row(passage: RankedPassage, rank: str, movement: str, kind: str = "") -> str:
    movement_cell = f"{passage.before} {movement}" if passage.before is not None else movement
    excerpt = escape(passage.text[:300]) + ("…" if len(passage.text) > 300 else "")
    text = f'<div class="soft">{excerpt}</div>' if passage.text else ""
    text = f'<div class="soft">{escape(passage.parts_text)}</div>{text}' if passage.parts else text
    return (
        f"<tr{kind}><td>{rank}</td><td>{escape(movement_cell)}</td><td>{passage.score:.4g}</td>"
        f"<td>{escape(passage.name)}{text}</td></tr>"
    )


def _render_dropped(dropped: Sequence[RankedPassage]) -> list[str]:
    return [
        f'<tr class="gone"><td></td><td>{passage.rank}</td><td>{passage.score:.4g}</td>'
        f"<td>{escape(passage.name)}</td></tr>"
        for passage in dropped
    ]
