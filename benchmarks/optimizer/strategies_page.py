"""The page of the strategies, and the plot of their curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log10
from typing import Any

from spolia.evaluation.report.plots import COLOURS

HEAD = """# Strategies of tuning over a stored grid of scores

Every flow was asked every question once; strategies were then played over these scores by the classes that `spolia
tune` runs. Of each seed, {tuning} tuning questions are drawn with replacement from the {pool} of the grid, so that the
true means are known: those over all of them. Regret is the true mean of the best of the {flows} flows minus that of
the chosen one, in points of nDCG@10 (0 to 100); ± is a standard error. Budgets are shares of the
rows of the grid (flows × questions). Spend is a share of what the grid costs by measured CPU time, where a step that
flows share is taken once a question, whatever the strategy. Calls are those that a reader of the five best passages
would be asked, a context that was read never again, as a share of those of the grid.

No flow searches by vectors. Strategies see places and scores, not what a search is made of, and embedding both cuts of
the pooled passages would take some 300 CPU-s (1.5 million tokens, [5,000 a CPU-s](../embedding.json)), where the whole
grid takes [72](../grid.json). Spaces with `Dense` are tuned by [AutoRAG's
trial](../autorag_trial.json) and [ARAGOG's study](../aragog.json).
"""
TRIED = """Tried, on 20 to 700 other seeds of both matrices, and left out, as they spend as much for the same regret or
more: more questions in the first round (4, 6), other shares for neighbours (0.2, 0.6), neighbours of two or three
leaders, 4 or 16 flows left by the first halving, finalists that share the leader's searches, rounds that keep the
flows of the better searches, rounds that keep what a Gaussian process over places and pairs of places expects to be
best, means drawn towards an additive model, searches compared by the mean of their best flows, and more questions that
the default flow fails. What is left is chance of the questions, which all flows share: on the real ones, the best of
all flows on 250 questions still has a regret of 0.6."""
WIDTH, HEIGHT, LEFT, BELOW, NAMES = 620, 330, 44, 40, 130
AXES = "share of what the grid costs; regret in points"
TICKS = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
MOST = 3.0
"""Points of regret up to which the plot goes."""


def page(result: Mapping[str, Any], plot: str) -> str:
    """The page of a result, as the JSON file has it; `plot` is the name of the file of the curves."""
    about = {"tuning": result["tuning questions"], "pool": result["questions of the grid"]}
    lines = [HEAD.format(flows=result["flows"], **about)]
    if cold := result.get("cold"):
        lines += ["## Cold", "", f"![Regret by spend]({plot})", "", *_cold(result, cold)]
    if warm := result.get("warm"):
        seeds = result["seeds"]["warm"]
        lines += ["", "## Warm: the 16 best flows of the other sets come first", "", *_warm(warm, seeds)]
    if answers := result.get("answers"):
        lines += ["", "## Simulated answers", "", *_answers(answers, result["seeds"]["answers"])]
    if small := result.get("small"):
        lines += ["", "## Small sets", "", *_small(small, result["seeds"]["small"])]
    if pair := result.get("pair"):
        lines += ["", "## A planted pair", "", *_pair(pair)]
    if prove := result.get("prove"):
        lines += ["", "## `prove`", "", *_prove(prove)]
    if message := result.get("intervals"):
        lines += ["", "## Reported intervals", "", *_intervals(message)]
    return "\n".join([*lines, ""])


def _cold(result: Mapping[str, Any], cold: Mapping[str, Any]) -> Iterable[str]:
    seeds = result["seeds"]["cold"]
    budgets = [row["budget"] for row in next(iter(cold["curves"].values()))]
    fewer = [f"{name} of {n}" for name, n in cold.get("seeds", {}).items() if n < seeds]
    few = f" ({' and '.join(fewer)})" if fewer else ""
    yield f"Means of {seeds} seeds{few}."
    yield f"The flow that is best on all tuning questions has a regret of {cold['floor']:.2f}: the floor. The default"
    yield f"flow, with which `neighbours` and `greedy` begin, has {result['regret of the default']:.2f}."
    yield ""
    for column, form in (("regret", "{regret:.2f} ± {standard error:.2f}"), ("spent", "{spent:.1%}")):
        yield f"{column.capitalize()} by budget:"
        yield ""
        yield from _by_budget(cold["curves"], budgets, form)
        yield ""
    ours = [f"{row['calls']:.1%} at {100 * row['budget']:g}%" for row in cold["curves"]["neighbours"] if row["calls"]]
    if ours:
        yield f"`neighbours` takes of the grid's reader calls: {', '.join(ours)}."
        yield ""
    yield "Spend of `neighbours` for equal regret, as a share of the rival's, with a 95 % interval over seeds:"
    yield ""
    spends = cold["spend for equal regret"]
    rows = [[name, *(_ratio(spend[name]) for spend in spends.values())] for name in next(iter(spends.values()))]
    yield from _table(["rival", *(f"regret ≤ {regret}" for regret in spends)], rows)
    yield ""
    yield TRIED


def _by_budget(curves: Mapping[str, Any], budgets: Sequence[float], form: str) -> Iterable[str]:
    rows = []
    for name, curve in curves.items():
        texts_by_budget = {row["budget"]: form.format(**row) for row in curve}
        rows.append([name, *(texts_by_budget.get(budget, "") for budget in budgets)])
    yield from _table(["", *(f"{budget:.2%}".replace(".00", "") for budget in budgets)], rows)


def _ratio(row: Mapping[str, float | None]) -> str:
    if row["ours"] is None:
        return "not reached"
    if row["rival"] is None:
        return f"{row['ours']:.1%}; the rival never"
    if row["ratio"] is None:
        return f"{row['ours']:.1%}; the rival's least budget, {row['rival']:.1%}, is below"
    ends = f"{row['low']:.2f}, {'∞' if row['high'] is None else format(row['high'], '.2f')}"
    tie = ", a tie" if (row["low"] or 0) <= 1 <= (row["high"] or float("inf")) else ""
    sign = "≤ " if row.get("is a bound") else ""
    return f"{sign}{row['ratio']:.2f} [{ends}]{tie}: {row['ours']:.1%} / {row['rival']:.1%}"


def _warm(warm: Mapping[str, Any], seeds: int) -> Iterable[str]:
    yield f"Each set alone, {seeds} seeds; the true means are those over its questions. Spend where the mean regret is"
    yield "1 point, and in brackets the share of the rows. The curves begin with the least budget of each strategy:"
    yield ""
    first = next(iter(warm.values()))
    rows = []
    for name, part in warm.items():
        spends, row_counts = part["spend at a regret of 1"], part["rows at a regret of 1"]
        cells = [
            ("never" if spend is None else f"{spend:.2%} ({row_counts[strategy]:.2%})")
            for strategy, spend in spends.items()
        ]
        rows.append([name, str(part["questions"]), *cells, _ratio(part["warm against the best cold rival"])])
    yield from _table(["set", "questions", *first["spend at a regret of 1"], "warm / best cold rival"], rows)
    for name, part in warm.items():
        yield ""
        yield f"{name}, regret by budget:"
        yield ""
        budgets = [row["budget"] for row in part["curves"]["warm"]]
        yield from _by_budget(part["curves"], budgets, "{regret:.2f} ± {standard error:.2f}")


def _answers(answers: Mapping[str, Any], seeds: int) -> Iterable[str]:
    yield f"The same with F1 of a simulated reader, which knows the gold and errs: {seeds} seeds. The floor is"
    yield f"{answers['floor']:.2f}, the regret of the default {answers['regret of the default']:.2f}. In brackets the"
    yield "share of the grid's reader calls:"
    yield ""
    budgets = [row["budget"] for row in answers["curves"]["neighbours"]]
    yield from _by_budget(answers["curves"], budgets, "{regret:.2f} ± {standard error:.2f} ({calls:.1%})")


def _small(small: Mapping[str, Any], seeds: int) -> Iterable[str]:
    yield f"Of each set alone as many tuning questions are drawn as it has: {seeds} seeds. They are reported, without a"
    yield "limit. ARAGOG has papers as gold."
    yield ""
    shares = [row["budget"] for row in next(iter(small.values()))["curves"]["neighbours"]]
    rows = []
    for name, part in small.items():
        about = [name, str(part["questions"]), f"{part['regret of the default']:.2f}", f"{part['floor']:.2f}"]
        for strategy, curve in part["curves"].items():
            texts_by_budget = {row["budget"]: "{regret:.2f} ± {standard error:.2f}".format(**row) for row in curve}
            rows.append([*about, strategy, *(texts_by_budget.get(share, "") for share in shares)])
            about = [""] * len(about)
    yield from _table(["set", "questions", "default", "floor", "strategy", *(f"{part:.0%}" for part in shares)], rows)


def _pair(pair: Mapping[str, Any]) -> Iterable[str]:
    yield (
        f"Two candidates that are bad alone are the best together, by 4 points; {pair['share of flows']:.1%} of the "
        f"flows have both. So many of {pair['seeds']} studies with {pair['budget']:.0%} of the rows choose one of them:"
    )
    yield ""
    names = [name for name in pair if name not in ("share of flows", "budget", "seeds")]
    yield from _table(["strategy", "found"], [[name, str(pair[name])] for name in names])


def _prove(prove: Mapping[str, Any]) -> Iterable[str]:
    yield "A race over all flows until the questions end:"
    yield ""
    rows = [
        [questions, str(row["simulations"]), f"{row['true best dropped']:.1%}", f"{row['share of the grid']:.0%}"]
        for questions, row in prove.items()
    ]
    yield from _table(["questions", "studies", "true best dropped", "share of the grid"], rows)


def _intervals(message: Mapping[str, Any]) -> Iterable[str]:
    yield "How often the 95 % interval of the report holds the true mean of the chosen flow:"
    yield ""
    rows = []
    for name, row in message.items():
        bound = "" if row["regret bound holds"] is None else f"{row['regret bound holds']:.1%}"
        numbers = f"{row['covers']:.1%}", f"{row['bias, points']:+.2f}", f"{row['width, points']:.1f}"
        rows.append([name, str(row["draws"]), *numbers, bound])
    heads = ["questions", "draws", "holds", "bias, points", "width, points", "bound on the regret to finalists holds"]
    yield from _table(heads, rows)


def plot(cold: Mapping[str, Any]) -> str:
    """Regret by spend, the spend by its logarithm, as SVG."""
    low, high = log10(TICKS[0]), log10(TICKS[-1])

    def place_point(spent: float, regret: float) -> tuple[float, float]:
        x = LEFT + (log10(spent) - low) / (high - low) * (WIDTH - LEFT - NAMES)
        return round(x, 1), round((1 - min(regret, MOST) / MOST) * (HEIGHT - BELOW), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -10 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        '<rect x="0" y="-10" width="100%" height="100%" fill="white"/>',
    ]
    for tick in TICKS:
        x, y = place_point(tick, 0)
        parts.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{y + 15}" text-anchor="middle">{100 * tick:g} %</text>')
    for tenths in range(0, int(10 * MOST) + 1, 5):
        x, y = place_point(TICKS[0], tenths / 10)
        parts.append(f'<line x1="{x}" x2="{WIDTH - NAMES}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{tenths / 10:g}</text>')
    x, y = place_point(TICKS[0], cold["floor"])
    parts.append(f'<line x1="{x}" x2="{WIDTH - NAMES}" y1="{y}" y2="{y}" stroke="#888" stroke-dasharray="4"/>')
    parts.append(f'<text x="{WIDTH - NAMES + 8}" y="{y + 4}" fill="#888">floor</text>')
    for number, (name, curve) in enumerate(cold["curves"].items()):
        colour = COLOURS[number % len(COLOURS)]
        rows = [row for row in curve if row["spent"] >= TICKS[0] and row["regret"] <= MOST]
        points = " ".join("{},{}".format(*place_point(row["spent"], row["regret"])) for row in rows)
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{3 if not number else 1.5}"/>'
        )
        parts.append(f'<text x="{WIDTH - NAMES + 8}" y="{14 + 16 * number}" fill="{colour}">{name}</text>')
    middle = (LEFT + WIDTH - NAMES) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{AXES}</text>')
    return "".join([*parts, "</svg>\n"])


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
