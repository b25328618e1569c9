"""A study as one page of HTML that needs nothing else."""

from html import escape
from itertools import groupby
from math import isfinite

from spolia.evaluation.experiment.comparison import amount, number
from spolia.evaluation.report.html import page, plots, section, table
from spolia.evaluation.report.plots import Bar, Dot, curves_plot, dots_plot, plot
from spolia.evaluation.report.tables import UNDER, Table
from spolia.optimizer.differences import FlowDifferences, FlowResult, QuestionDifference
from spolia.optimizer.tuned_flow import Finalist, TunedFlow

TIES = (
    "Tied: the 95 % interval of the paired difference to the chosen flow holds 0. Flows of one group of ties are not "
    "shown to be worse than its best. If no flow is shown to be better, the cheapest one of the group is chosen."
)
LOOK = (
    ".study tr.chosen td { font-weight: 600; } .study tr.group td { border-top: 2px solid var(--soft); } "
    ".facts table { width: auto; } .facts td { text-align: left; } .facts td:first-child { color: var(--soft); } "
    ".outcome { display: flex; gap: 1.4rem; flex-wrap: wrap; margin: .2rem 0 .6rem; } "
    "details.question { content-visibility: visible; }"
)
FRONT = "The large point is the chosen flow; grey: another finalist is better in one measure and as good in the others."
PRICE = "The large point is the chosen flow; grey: another finalist is as good for less, or better for the same."
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
    title = f"The best flow by {found.objective}"
    choices = "".join(
        f"<span>{escape(place)}: <b>{escape(one)}</b></span>" for place, one in found.finalists[0].choices
    )
    about = f"{found.flows:,} flows, {found.asked:,} of them asked. {found.strategy}"
    notes = [*found.notes, *(f"Left out: {one}, since {why}" for one, why in found.excluded)]
    return page(
        title,
        f'<style>{LOOK}</style><h1>{escape(title)}</h1><p class="outcome">{choices}</p><p>{escape(about)}</p>',
        *(f'<div class="warning">{escape(note)}</div>' for note in notes),
        f'<div class="facts">{table(_parts(found))}</div>',
        section("Finalists", _leaderboard(found), *_under(found), _ahead(found), _front(found)),
        *(_against(found, one) for one in found.differences),
        section("Effects", plots(_effects(found)), f"<p>{EFFECTS}</p>") if found.effects else "",
        section("Spend", plots(_curves(found)), f"<p>{CURVE}</p>") if len(found.curve) > 1 else "",
        section("Chosen flow", f"<code>{escape(repr(found.flow))}</code>"),
    )


def fragment(found: TunedFlow) -> str:
    """The score, notes, the finalists and the chosen flow, as a notebook shows them; `html` has the rest."""
    notes = "".join(f"<p>{escape(note)}</p>" for note in found.notes)
    return f"{table(_parts(found))}{notes}{_leaderboard(found)}{found.flow._repr_html_()}"


def _parts(found: TunedFlow) -> Table:
    """Which questions the flow was chosen by, and which tell how good it is."""
    if found.fresh:
        reported = (f"{found.fresh:,} fresh questions", "part report")
        tuned = (f"{found.questions:,} questions", "parts tune and select")
    else:
        reported = ("the same questions", "corrected for the choice by a bootstrap")
        tuned = (f"{found.questions:,} questions", "all: too few questions to hold any out, or the budget ended")
    asked = (f"{found.rows:,} scores, {found.spent.calls:,} calls", f"{found.spent.cost_usd:.4g} USD")
    score = (amount(found.score, found.is_share), found.measure)
    rows = (("score", *score), ("tuned on", *tuned), ("reported on", *reported), ("computed by this run", *asked))
    return Table(("", "", ""), rows)


def _leaderboard(found: TunedFlow) -> str:
    """The finalists in groups of ties, a column for each place in which they differ; what all of them share is shown
    once."""
    choices = [dict(one.choices) for one in found.finalists]
    places = dict.fromkeys(name for one in choices for name in one)
    differ = [name for name in places if len({one.get(name) for one in choices}) > 1]
    means = [name for name, _ in found.finalists[0].means] if found.has_means else []
    is_paid = any(one.usd or one.calls for one in found.finalists)
    grouped = any(one.group is not None for one in found.finalists)
    head = ["", found.measure, *["ahead of the chosen", "group"] * grouped, "", *means]
    head += ["Pareto"] * found.has_means + ["failed"] * found.has_failed
    head += ["USD a question", "calls a question"] * is_paid + differ
    lines, before = [], None
    for at, one in enumerate(found.finalists, 1):
        cells = [f"{at}", amount(one.score, found.is_share) if one.score else "not measured"]
        if grouped:
            cells += [amount(one.ahead, found.is_share) if at > 1 and one.ahead else "", f"{one.group or ''}"]
        cells += ["chosen" if at == 1 else _standing(one), *(cell for _, cell in one.mean_cells if found.has_means)]
        cells += ["front" if one.on_front else ""] * found.has_means
        cells += [f"{one.failed} of {one.asked}"] * found.has_failed
        cells += [f"{one.usd:.3g}", f"{one.calls:.3g}"] * is_paid
        cells += [choices[at - 1].get(name, "–") for name in differ]
        kind = " ".join(["chosen"] * (at == 1) + ["group"] * (at > 1 and one.group != before))
        before = one.group
        lines.append(f'<tr class="{kind}">{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>')
    names = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    shared = ", ".join(f"{name}={choices[0][name]}" for name in places if name not in differ)
    return (
        f'<div class="wide study"><table><thead><tr>{names}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        + (f"<p>All finalists have {escape(shared)}.</p>" if shared and len(choices) > 1 else "")
    )


def _standing(one: Finalist) -> str:
    if one.ahead is None:
        return ""
    return "worse" if one.ahead.high < 0 else "better" if one.ahead.low > 0 else "tied"


def _under(found: TunedFlow) -> list[str]:
    if found.unscored:
        return [f"<p>{escape(found.unscored)}</p>"]
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
    """A plot for each other measure: finalists by that and the first one; of one measure, by what a question costs."""
    if not found.has_means:
        return _price(found)
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


def _price(found: TunedFlow) -> str:
    """Finalists by their score and what a question costs: in USD, or in calls if no price is known."""
    unit, name = ("usd", "USD") if any(one.usd for one in found.finalists) else ("calls", "calls")
    points = [
        (one, getattr(one, unit), one.ahead.mean, one.score.mean)
        for one in found.finalists
        if one.score is not None and one.ahead is not None
    ]
    if len({cost for _, cost, *_ in points}) < 2:
        return ""
    dots = [
        Dot(
            cost,
            score * (100 if found.is_share else 1),
            ", ".join(map("=".join, one.choices)),
            any(c <= cost and a >= ahead and (c, a) != (cost, ahead) for _, c, a, _ in points),
        )
        for one, cost, ahead, score in points
    ]
    title = f"{found.objective} by {name} a question"
    return f"{plots([(title, dots_plot(title, dots, f'{name} a question'))])}<p>{PRICE}</p>"


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


def _curves(found: TunedFlow) -> list[tuple[str, str]]:
    """By scores asked for, and by what was paid."""
    times, made = 1.0 if found.is_share else 0.01, []
    name = f"behind in {found.objective}"
    for column, below in ((0, "scores asked for"), (1, "USD")):
        most = found.curve[-1][column]
        if most > 0:
            points = [(row[column] / most, times * max(0.0, row[2])) for row in found.curve]
            drawn = curves_plot(name, {name: points}, {name: 0}, below, "behind {1:.4g}", most)
            made.append((f"{name[0].upper()}{name[1:]}, by {below}", drawn))
    return made


def _against(found: TunedFlow, one: FlowDifferences) -> str:
    """The questions on which the chosen flow and another one differ most, and what both found."""
    differ = [
        (name, taken, dict(one.choices).get(name, "–"))
        for name, taken in found.finalists[0].choices
        if dict(one.choices).get(name) != taken
    ]
    measure = found.measure
    counts = ((one.better, "better"), (one.worse, "worse"), (one.equal, "the same"))
    told = "".join(f"<span><b>{n:,}</b> {what}</span>" for n, what in counts)
    shown = "".join(_question(found, one, at) for at in one.questions)
    return section(
        f"Against {one.rival}",
        table(Table(("", "chosen", one.rival), tuple(differ))) if differ else "",
        f'<div class="outcome">{told}</div><p>Of the questions that both were asked, on how many the '
        f"chosen flow is better or worse in {escape(measure)}; below, those that differ most, with the scores and the "
        "top passages of both. Gold is green.</p>",
        shown,
    )


def _question(found: TunedFlow, one: FlowDifferences, at: QuestionDifference) -> str:
    chips = "".join(
        f'<span class="chip {"full" if ours else "part"}" title="{escape(name)}">{number(result.score, found.is_share)}'
        "</span>"
        for name, result, ours in (
            ("chosen", at.ours, at.ours.score >= at.theirs.score),
            (one.rival, at.theirs, at.theirs.score > at.ours.score),
        )
    )
    part = "reported on" if at.is_fresh else "chose"
    flows = "".join(_result(name, result) for name, result in (("chosen", at.ours), (one.rival, at.theirs)))
    return (
        f'<details class="question"><summary><span class="id" title="{escape(at.id)}">{escape(at.id)}</span>'
        f'<span class="asked">{escape(at.question)}</span><span class="soft">{part}</span>{chips}</summary>'
        f'<div class="inside"><div class="flows">{flows}</div></div></details>'
    )


def _result(name: str, result: FlowResult) -> str:
    hits = "".join(
        f'<li class="{"gold-hit" if one.is_gold else ""}"><b>{escape(one.name)}</b> '
        f'<span class="soft">{escape(one.text)}</span></li>'
        for one in result.passages
    )
    answer = f'<div class="answer">{escape(result.answer)}</div>' if result.answer else ""
    return f'<div class="flow"><h4>{escape(name)}</h4>{answer}<ol>{hits or "<li>nothing found</li>"}</ol></div>'
