"""The pictures of the site that are made from code and measurements: `python docs/pictures.py` writes docs/images."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Sequence
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "benchmarks" / "results"
IMAGES = HERE / "images"
STYLE = """
.drawing { background: #fff; } .drawing text { font: 13px system-ui, sans-serif; fill: #222; text-anchor: middle; }
.drawing .small { font-size: 11px; fill: #666; } .drawing .line { fill: none; stroke: #666; stroke-width: 1.4; }
.drawing .value { fill: #f7f1e6; stroke: #a8892c; } .drawing .step { fill: #eef3f7; stroke: #2f6690; }
.drawing .kept { fill: #eaf3ec; stroke: #2f7d4f; } .drawing .frame { fill: none; stroke: #999; stroke-dasharray: 3 3; }
"""
Box = tuple[str, float, float, str, str]
"""Name, column, row, kind (value, step, kept), text with line breaks."""
Arrow = tuple[str, str, str]
"""From, to, label."""
WIDE, HIGH, ACROSS, DOWN = 150, 54, 210, 100
"""Pixels: of a box, and from one column or row to the next."""


def drawing(title: str, boxes: Sequence[Box], arrows: Sequence[Arrow], wide: int = WIDE) -> str:
    """Boxes in a grid with arrows between them, as SVG."""
    across = wide + ACROSS - WIDE
    at = {name: (20 + column * across, 20 + row * DOWN) for name, column, row, _, _ in boxes}
    width = max(x for x, _ in at.values()) + wide + 20
    height = max(y for _, y in at.values()) + HIGH + 20
    parts = [
        f'<svg class="drawing" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width * 0.8:.0f}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>',
    ]
    parts += [_arrow(at[start], at[end], label, wide) for start, end, label in arrows]
    for name, _, _, kind, text in boxes:
        x, y = at[name]
        parts.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{wide}" height="{HIGH}" rx="6"/>')
        lines = text.split("\n")
        for number, line in enumerate(lines):
            below = y + HIGH / 2 + 5 + 16 * (number - (len(lines) - 1) / 2)
            small = ' class="small"' if number else ""
            parts.append(f'<text{small} x="{x + wide / 2:g}" y="{below:.1f}">{escape(line)}</text>')
    return "\n".join((*parts, "</svg>\n"))


def _arrow(start: tuple[float, float], end: tuple[float, float], label: str, wide: int) -> str:
    """From the nearer side of one box to that of another."""
    (x1, y1), (x2, y2) = start, end
    if abs(x2 - x1) >= abs(y2 - y1):
        x1, x2 = (x1 + wide, x2) if x2 > x1 else (x1, x2 + wide)
        y1, y2 = y1 + HIGH / 2, y2 + HIGH / 2
    else:
        x1, x2 = x1 + wide / 2, x2 + wide / 2
        y1, y2 = (y1 + HIGH, y2) if y2 > y1 else (y1, y2 + HIGH)
    line = f'<path class="line" d="M{x1:g} {y1:g} L{x2:g} {y2:g}" marker-end="url(#tip)"/>'
    beside = 0 if abs(x2 - x1) >= abs(y2 - y1) else 6
    anchor = ' style="text-anchor: start"' if beside else ""
    where = f'x="{(x1 + x2) / 2 + beside:.1f}" y="{(y1 + y2) / 2 - 6 + beside:.1f}"'
    return line + (f'<text class="small"{anchor} {where}>{escape(label)}</text>' if label else "")


def concepts() -> dict[str, str]:
    """The drawings of `drawings.toml`, by name."""
    found = {}
    for name, said in tomllib.loads((HERE / "drawings.toml").read_text("utf-8")).items():
        rows = (line.split(" ", 4) for line in said["boxes"].strip().splitlines())
        boxes = [(box, float(x), float(y), kind, text.replace(" / ", "\n")) for box, x, y, kind, text in rows]
        ends = (line.partition(" > ")[::2] for line in said["arrows"].strip().splitlines())
        arrows = [(start, *end.partition(" ")[::2]) for start, end in ends]
        found[name] = drawing(said["title"], boxes, arrows, said.get("wide", WIDE))
    return found


def is_other(name: str) -> bool:
    """Whether a row is about another library."""
    return name.lower() in ("haystack", "langchain", "llamaindex", "bm25s", "rank_bm25")


def bars(title: str, unit: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars on a logarithmic scale."""
    from math import log10

    low = min(value for _, value, _ in rows)
    most = max(log10(value / low) for _, value, _ in rows) or 1
    parts = [
        f'<svg class="drawing" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 {44 + 26 * len(rows)}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}.drawing .l {{ text-anchor: end; }} "
        ".drawing .r { text-anchor: start; }</style>",
        f'<text class="r" x="10" y="20">{escape(title)} ({escape(unit)}, logarithmic)</text>',
    ]
    for at, (name, value, told) in enumerate(rows):
        y, width = 34 + 26 * at, 12 + 330 * log10(value / low) / most
        kind = "value" if is_other(name) else "step"
        parts.append(f'<text class="l" x="170" y="{y + 14}">{escape(name)}</text>')
        parts.append(f'<rect class="{kind}" x="180" y="{y}" width="{width:.1f}" height="18" rx="3"/>')
        parts.append(f'<text class="r" x="{190 + width:.1f}" y="{y + 14}">{escape(told)}</text>')
    return "\n".join((*parts, "</svg>\n"))


def main() -> None:
    sys.path.insert(0, str(HERE.parent / "src"))
    IMAGES.mkdir(exist_ok=True)
    for name, picture in {**concepts(), **growth(), **peers()}.items():
        (IMAGES / f"{name}.svg").write_text(picture, "utf-8")
    from spolia import BM25, Corpus, MiniLM, ScriptedModel
    from spolia.core.draw_svg import svg
    from spolia.flow_files.built_in_flows import from_paper, hybrid

    chunks, model = Corpus("notes.spolia").group(), ScriptedModel(("",))
    (IMAGES / "flow-hybrid.svg").write_text(svg(hybrid(chunks, MiniLM())), "utf-8")
    for name in ("corag", "prefrag", "ircot"):
        flow = from_paper(name, chunks, None, model, web=BM25(chunks, source="web"))
        (IMAGES / f"flow-{name}.svg").write_text(svg(flow), "utf-8")


TRACED = "run, journal on, flush included"


def growth() -> dict[str, str]:
    """What a question costs in stores of 100,000 and of 1,000,000 nodes."""
    found = json.loads((RESULTS / "million.json").read_text())
    rows = [
        (f"{way}, {int(nodes):,}", cost, f"{cost:.1f} ms")
        for way in ("BM25", "Dense", "hybrid")
        for nodes in filter(str.isdigit, found)
        for cost in [found[nodes][way]["cpu_ms"]["p50"]]
    ]
    return {"growth": bars("A question by number of nodes", "CPU, median", rows)}


def peers() -> dict[str, str]:
    """A trivial step, and a search by words, beside those of other libraries."""
    steps, words = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("steps", "bm25"))
    ours = {"Spolia": steps["spolia"]["run, journal off"], "Spolia, traced": steps["spolia"][TRACED]}
    trivial = ours | {name.capitalize(): cost for name, cost in steps["peers"].items()}
    searched = {"Spolia": words["median_cpu_ms"]["spolia"]} | words["peers_median_cpu_ms"]
    passages = f"{words['passages']:,} passages"
    return {
        "peers-step": bars("A trivial step", "CPU µs", [(n, cost, f"{cost:.3g} µs") for n, cost in trivial.items()]),
        "peers-words": bars(
            f"A question by words, {passages}", "CPU ms", [(n, cost, f"{cost:.2g} ms") for n, cost in searched.items()]
        ),
    }


if __name__ == "__main__":
    main()
