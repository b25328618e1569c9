"""A recorded run as one page of HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from json import dumps

from spolia.journal.run_view import RankedPassage, RunView, StepView, messages

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
