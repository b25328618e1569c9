"""A study as one page of HTML that needs nothing else."""

from html import escape
from itertools import groupby
from math import isfinite

from spolia.evaluation.experiment.comparison import amount, number
from spolia.evaluation.report.html import page, plots, section, table
from spolia.evaluation.report.plots import Bar, Dot, curves_plot, dots_plot, plot
from spolia.evaluation.report.tables import UNDER, Table
from spolia.optimizer.tuned_flow import Finalist, TunedFlow

TIES = (
    "Tied: the 95 % interval of the paired difference to the chosen flow holds 0. Of the flows that none is shown to "
    "be better than, the cheapest is chosen."
)
FRONT = "The large point is the chosen flow; grey: another finalist is better in one measure and as good in the others."
EFFECTS = (
    "By how much a candidate is better than the mean candidate of its place, over all flows that were asked, on the "
    "questions that chose. It describes these flows, without an interval, and leaves out what candidates do only "
    "together."
)
CURVE = (
    "How far the flow that led then was behind the flow that the search chose, on the questions that both were asked."
)


def html(found: TunedFlow) -> str:
    """The page: finalists with their ties, effects of the candidates, and how the leader came closer as it was asked
    more."""
    title = f"{found.objective}: {', '.join('='.join(one) for one in found.finalists[0].choices)}"
    about = (
        f"{found.flows:,} flows, {found.asked:,} asked, on {found.questions:,} questions that chose; the score is on "
        f"{found.fresh or found.questions:,} {found.scored_on}. {found.strategy}"
    )
    notes = [*found.notes, *(f"Left out: {notation}: {why}" for notation, why in found.excluded)]
    return page(
        title,
        f"<h1>{escape(title)}</h1><p>{escape(about)}</p>",
        *(f'<div class="warning">{escape(note)}</div>' for note in notes),
        section("Finalists", table(_leaderboard(found)), *_under(found), _ahead(found), _front(found)),
        section("Effects", plots(_effects(found)), f"<p>{EFFECTS}</p>") if found.effects else "",
        section("Spend", plots(_curve(found)), f"<p>{CURVE}</p>") if found.curve else "",
        section("Chosen flow", f"<code>{escape(repr(found.flow))}</code>"),
    )


def _leaderboard(found: TunedFlow) -> Table:
    rows = [
        (
            ", ".join(map("=".join, one.choices)),
            "chosen" if not at else _standing(one),
            amount(one.score, found.is_share) if one.score else "",
            amount(one.ahead, found.is_share) if at and one.ahead else "",
            *(f"{mean:.4g}" for _, mean in one.means if found.has_means),
            *("front" if one.on_front else "" for _ in range(found.has_means)),
            f"{one.usd:.3g}",
            f"{one.calls:.3g}",
        )
        for at, one in enumerate(found.finalists)
    ]
    means = (*(name for name, _ in found.finalists[0].means), "Pareto") if found.has_means else ()
    head = ("flow", "", found.objective, "ahead of the chosen", *means, "USD a question", "calls a question")
    return Table(head, tuple(rows))


def _standing(one: Finalist) -> str:
    if one.ahead is None:
        return ""
    return "worse" if one.ahead.high < 0 else "better" if one.ahead.low > 0 else "tied"


def _under(found: TunedFlow) -> list[str]:
    if found.regret_bound is None:
        return []
    bound = number(found.regret_bound, found.is_share)
    return [f"<p>{escape(UNDER)} {TIES} No finalist is better by more than {bound} (95 % confidence).</p>"]


def _ahead(found: TunedFlow) -> str:
    times = 100 if found.is_share else 1
    bars = [
        Bar(f"{at + 1}", times * i.low, times * i.mean, times * i.high, number(i.mean, found.is_share), faint=tied)
        for at, one in enumerate(found.finalists)
        if at and (i := one.ahead) is not None
        for tied in [_standing(one) == "tied"]
    ]
    return plots([("Ahead of the chosen flow, by line of the table", plot(bars, zero=True))]) if bars else ""


def _front(found: TunedFlow) -> str:
    """A plot for each other measure: finalists by that and the first one."""
    if not found.has_means:
        return ""
    (first, _), *others = found.finalists[0].means
    made = []
    for at, (measure, _) in enumerate(others, 1):
        dots = [
            Dot(one.means[at][1], one.means[0][1], ", ".join(map("=".join, one.choices)), not one.on_front)
            for one in found.finalists
            if isfinite(one.means[0][1]) and isfinite(one.means[at][1])
        ]
        if dots:
            made.append((f"{first} by {measure}", dots_plot(f"{first} by {measure}", dots, measure)))
    return f"{plots(made)}<p>{FRONT}</p>"


def _effects(found: TunedFlow) -> list[tuple[str, str]]:
    """A plot for each place."""
    times, made = 100 if found.is_share else 1, []
    for place, group in groupby(found.effects, lambda one: one.place):
        bars = [
            Bar(one.candidate, better, better, better, f"{better:+.2f}, {one.flows:,} flows")
            for one in group
            for better in [times * one.better]
        ]
        made.append((place, plot(bars, zero=True, title=f"effects of {place}")))
    return made


def _curve(found: TunedFlow) -> list[tuple[str, str]]:
    """Both axes are told times 100; a measure that is no share is told as it is."""
    times, most = 1.0 if found.is_share else 0.01, found.curve[-1][0]
    points = [(spent / most, times * max(0.0, behind)) for spent, _, behind in found.curve]
    name, below = f"behind in {found.objective}", f"scores asked for, of 100 (all: {most:,})"
    return [(f"{name[0].upper()}{name[1:]}", curves_plot(name, {name: points}, {name: 0}, below, "behind {1:.4g}"))]
