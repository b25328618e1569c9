"""One question of a report: its gold, and what each flow found, answered, scored and did."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import TypeAlias

from spolia.evaluation.comparison import number
from spolia.evaluation.pages.tables import seconds
from spolia.evaluation.report import Report
from spolia.evaluation.row import Found, Row
from spolia.evaluation.slices import TYPE, kinds_of
from spolia.journal import Span
from spolia.types import Item

Traces: TypeAlias = Callable[[str, int], Sequence[Span]]
"""The spans of a run and a lane, in order; none where they are not kept any more."""


def question(report: Report, item: Item, traces: Traces | None) -> str:
    """The question, closed; opened it shows everything."""
    rows = [report.rows[flow.flow, item.id] for flow in report.flows]
    differ, failed = len({row.seen for row in rows}) > 1, any(row.failure is not None for row in rows)
    chips = "".join(_chip(row, report) for row in rows)
    return (
        f'<details class="question" data-differ="{int(differ)}" data-failed="{int(failed)}" '
        f'data-kinds="{escape(json.dumps(kinds_of(item, TYPE)))}"><summary>'
        f'<span class="id" title="{escape(item.id)}">{escape(item.id)}</span>'
        f'<span class="asked">{escape(item.question)}</span>{chips}</summary><div class="inside">{_gold(item)}'
        f'<div class="flows">{"".join(_flow(report, item, row, traces) for row in rows)}</div></div></details>'
    )


def _chip(row: Row, report: Report) -> str:
    """The first measure that says anything of the question."""
    for measure, seen in row.seen:
        if seen is not None and measure in report.units:
            kind = "full" if seen[0] >= 1 else "none" if seen[0] <= 0 else "part"
            return (
                f'<span class="chip {kind}" title="{escape(f"{row.flow}: {measure}")}">{number(seen[0], True)}</span>'
            )
    return ""


def _gold(item: Item) -> str:
    answers = f"answers: {escape(' / '.join(item.answers))}" if item.answers else ""
    gold = " and ".join(" or ".join(map(str, group)) for group in item.gold)
    passages = f"gold passages: {escape(gold)}" if gold else ""
    kind = f"type: {escape(item.type)}" if item.type else ""
    return f'<div class="gold soft">{" · ".join(part for part in (answers, passages, kind) if part)}</div>'


def _flow(report: Report, item: Item, row: Row, traces: Traces | None) -> str:
    scores = " · ".join(f"{escape(name)} {_score(seen, name in report.units)}" for name, seen in row.seen)
    calls = "".join(f"<div>{escape(_call(one.source, one.query, len(one.found)))}</div>" for one in row.retrievals)
    placed = report.places.item(item)
    hits = "".join(_hit(hit, placed) for hit in row.found if hit.text)
    failure = f'<div class="error">{escape(f"{row.failure.kind}: {row.failure.message}")}</div>' if row.failure else ""
    answer = f'<div class="answer">{escape(row.answer)} <span class="soft">({escape(row.stop_reason)})</span></div>'
    taken = f"{seconds(row.seconds)}{', from the cache' if row.cached else ''}"
    return (
        f'<div class="flow"><h4>{escape(row.flow)}</h4><div class="numbers">{scores}</div>{failure}'
        f"{answer if row.stop_reason else ''}<ol>{hits}</ol>"
        f'<div class="trace">{taken}{calls}{_steps(row, traces)}</div></div>'
    )


def _score(seen: tuple[float, ...] | None, unit: bool) -> str:
    if seen is None:
        return "undetermined"
    return ", ".join(number(one, unit) for one in seen[:2]) + (" …" if len(seen) > 2 else "")


def _call(source: str, query: str, found: int) -> str:
    return f"{source or 'retriever'} found {found} for “{query}”"


def _hit(hit: Found, item: Item) -> str:
    quoted = any(one.document == hit.document and hit.start < one.end and one.start < hit.end for one in item.quotes)
    named = any(one in (hit.node, hit.document) for group in item.gold for one in group)
    kind = "gold-hit" if quoted or named else ""
    name, text = escape(hit.uri or hit.document or hit.node), escape(hit.text)
    return f'<li class="{kind}"><b>{name}</b> {hit.score:.4g} <span class="soft">{text}</span></li>'


def _steps(row: Row, traces: Traces | None) -> str:
    """The steps of the flow as a tree, or where they can be looked up."""
    spans = traces(row.run, row.lane) if traces is not None and row.lane else ()
    if not spans:
        return f"<div>run {escape(row.run)}, question {row.lane}</div>" if row.lane else ""
    depth: dict[int, int] = {}
    lines = []
    for span in spans:
        depth[span.span] = depth.get(span.parent, -1) + 1
        told = [f"{'  ' * depth[span.span]}{span.step}", seconds(span.seconds), *(["cached"] if span.cached else [])]
        lines.append("  ".join(told) + "".join(f"\n{'  ' * depth[span.span]}  ! {note}" for note in span.notes))
    summary = f"{len(spans)} step{'' if len(spans) == 1 else 's'}, run {escape(row.run)}"
    return f"<details><summary>{summary}</summary><pre>{escape(chr(10).join(lines))}</pre></details>"
