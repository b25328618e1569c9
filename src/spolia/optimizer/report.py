"""Report of a study as one page of HTML that needs nothing else."""

from html import escape
from itertools import groupby
from math import isfinite

from spolia.evaluation.experiment.comparison import format_interval, format_number
from spolia.evaluation.report.html import render_plots, render_section, render_table, wrap_page
from spolia.evaluation.report.plots import Bar, Dot, plot_bars, plot_curves, plot_dots
from spolia.evaluation.report.tables import SCORES_NOTE, Table
from spolia.optimizer.differences import FlowDifferences, FlowResult, QuestionDifference
from spolia.optimizer.tuned_flow import Finalist, TunedFlow

TIES = (
    "Tied: the 95 % interval of the paired difference to the chosen flow holds 0. Flows of one group of ties are not "
    "shown to be worse than its best. If no flow is shown to be better, the cheapest one of the group is chosen."
)
STYLE = (
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


def html(tuned_flow: TunedFlow) -> str:
    """Render the page: finalists with their ties, effects of the candidates, and how the leader came closer with more
    scores."""
    title = f"The best flow by {tuned_flow.objective}"
    choices = "".join(
        f"<span>{escape(place)}: <b>{escape(candidate)}</b></span>"
        for place, candidate in tuned_flow.finalists[0].choices
    )
    about = f"{tuned_flow.flows:,} flows, {tuned_flow.flows_asked:,} of them asked. {tuned_flow.strategy}"
    notes = [*tuned_flow.notes, *(f"Left out: {choices}, since {reason}" for choices, reason in tuned_flow.excluded)]
    return wrap_page(
        title,
        f'<style>{STYLE}</style><h1>{escape(title)}</h1><p class="outcome">{choices}</p><p>{escape(about)}</p>',
        *(f'<div class="warning">{escape(note)}</div>' for note in notes),
        f'<div class="facts">{render_table(_tabulate_facts(tuned_flow))}</div>',
        render_section(
            "Finalists",
            _render_leaderboard(tuned_flow),
            *_explain_ties(tuned_flow),
            _plot_ahead(tuned_flow),
            _plot_front(tuned_flow),
        ),
        *(_render_differences(tuned_flow, difference) for difference in tuned_flow.differences),
        render_section("Effects", render_plots(_plot_effects(tuned_flow)), f"<p>{EFFECTS}</p>")
        if tuned_flow.effects
        else "",
        render_section("Spend", render_plots(_plot_curves(tuned_flow)), f"<p>{CURVE}</p>")
        if len(tuned_flow.curve) > 1
        else "",
        render_section("Chosen flow", f"<code>{escape(repr(tuned_flow.flow))}</code>"),
    )


def render_fragment(tuned_flow: TunedFlow) -> str:
    """Render the score, notes, the finalists and the chosen flow for a notebook; `html` has the rest."""
    notes = "".join(f"<p>{escape(note)}</p>" for note in tuned_flow.notes)
    facts, leaderboard = render_table(_tabulate_facts(tuned_flow)), _render_leaderboard(tuned_flow)
    return f"{facts}{notes}{leaderboard}{tuned_flow.flow._repr_html_()}"


def _tabulate_facts(tuned_flow: TunedFlow) -> Table:
    """Tabulate which questions the flow was chosen by, and which tell how good it is."""
    if tuned_flow.fresh:
        reported = (f"{tuned_flow.fresh:,} fresh questions", "part report")
        tuned = (f"{tuned_flow.questions:,} questions", "parts tune and select")
    else:
        reported = ("the same questions", "corrected for the choice by a bootstrap")
        tuned = (f"{tuned_flow.questions:,} questions", "all: too few questions to hold any out, or the budget ended")
    computed = (f"{tuned_flow.rows:,} scores, {tuned_flow.spent.calls:,} calls", f"{tuned_flow.spent.cost_usd:.4g} USD")
    score = (format_interval(tuned_flow.score, tuned_flow.is_share), tuned_flow.measure)
    rows = (("score", *score), ("tuned on", *tuned), ("reported on", *reported), ("computed by this run", *computed))
    return Table(("", "", ""), rows)


def _render_leaderboard(tuned_flow: TunedFlow) -> str:
    """Render the finalists in groups of ties, a column for each place in which they differ; what all share is shown
    once."""
    choices = [dict(finalist.choices) for finalist in tuned_flow.finalists]
    places = dict.fromkeys(name for choice in choices for name in choice)
    differ = [name for name in places if len({choice.get(name) for choice in choices}) > 1]
    means = [name for name, _ in tuned_flow.finalists[0].means] if tuned_flow.has_means else []
    is_paid = any(finalist.usd or finalist.calls for finalist in tuned_flow.finalists)
    grouped = any(finalist.group is not None for finalist in tuned_flow.finalists)
    head = ["", tuned_flow.measure, *["ahead of the chosen", "group"] * grouped, "", *means]
    head += ["Pareto"] * tuned_flow.has_means + ["failed"] * tuned_flow.has_failed
    head += ["USD a question", "calls a question"] * is_paid + differ
    lines, previous_group = [], None
    for rank, finalist in enumerate(tuned_flow.finalists, 1):
        cells = [f"{rank}", format_interval(finalist.score, tuned_flow.is_share) if finalist.score else "not measured"]
        if grouped:
            cells += [
                format_interval(finalist.ahead, tuned_flow.is_share) if rank > 1 and finalist.ahead else "",
                f"{finalist.group or ''}",
            ]
        cells += [
            "chosen" if rank == 1 else _describe_standing(finalist),
            *(cell for _, cell in finalist.mean_cells if tuned_flow.has_means),
        ]
        cells += ["front" if finalist.on_front else ""] * tuned_flow.has_means
        cells += [f"{finalist.failed} of {finalist.questions_asked}"] * tuned_flow.has_failed
        cells += [f"{finalist.usd:.3g}", f"{finalist.calls:.3g}"] * is_paid
        cells += [choices[rank - 1].get(name, "–") for name in differ]
        kind = " ".join(["chosen"] * (rank == 1) + ["group"] * (rank > 1 and finalist.group != previous_group))
        previous_group = finalist.group
        lines.append(f'<tr class="{kind}">{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>')
    names = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    shared = ", ".join(f"{name}={choices[0][name]}" for name in places if name not in differ)
    return (
        f'<div class="wide study"><table><thead><tr>{names}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        + (f"<p>All finalists have {escape(shared)}.</p>" if shared and len(choices) > 1 else "")
    )


def _describe_standing(finalist: Finalist) -> str:
    if finalist.ahead is None:
        return ""
    return "worse" if finalist.ahead.high < 0 else "better" if finalist.ahead.low > 0 else "tied"


def _explain_ties(tuned_flow: TunedFlow) -> list[str]:
    if tuned_flow.unscored:
        return [f"<p>{escape(tuned_flow.unscored)}</p>"]
    if tuned_flow.regret_bound is None:
        return []
    bound = format_number(tuned_flow.regret_bound, tuned_flow.is_share)
    return [f"<p>{escape(SCORES_NOTE)} {TIES} No finalist is better by more than {bound} (95 % confidence).</p>"]


def _plot_ahead(tuned_flow: TunedFlow) -> str:
    times = 100 if tuned_flow.is_share else 1
    bars = [
        Bar(
            f"{index + 1}",
            times * i.low,
            times * i.mean,
            times * i.high,
            format_number(i.mean, tuned_flow.is_share),
            faint=tied,
        )
        for index, finalist in enumerate(tuned_flow.finalists)
        if index and (i := finalist.ahead) is not None
        for tied in [_describe_standing(finalist) == "tied"]
    ]
    return (
        render_plots([("Ahead of the chosen flow, by line of the table", plot_bars(bars, zero=True))]) if bars else ""
    )


def _plot_front(tuned_flow: TunedFlow) -> str:
    """Plot finalists by each other measure and the first one; of one measure, by what a question costs."""
    if not tuned_flow.has_means:
        return _plot_price(tuned_flow)
    (first, _), *other_measures = tuned_flow.finalists[0].means
    figures = []
    for column, (measure, _) in enumerate(other_measures, 1):
        dots = [
            Dot(
                finalist.means[column][1],
                finalist.means[0][1],
                ", ".join(map("=".join, finalist.choices)),
                not finalist.on_front,
            )
            for finalist in tuned_flow.finalists
            if isfinite(finalist.means[0][1]) and isfinite(finalist.means[column][1])
        ]
        if dots:
            figures.append((f"{first} by {measure}", plot_dots(f"{first} by {measure}", dots, measure)))
    return f"{render_plots(figures)}<p>{FRONT}</p>"


def _plot_price(tuned_flow: TunedFlow) -> str:
    """Plot finalists by their score and what a question costs: in USD, or in calls if no price is known."""
    unit, name = ("usd", "USD") if any(finalist.usd for finalist in tuned_flow.finalists) else ("calls", "calls")
    points = [
        (finalist, getattr(finalist, unit), finalist.ahead.mean, finalist.score.mean)
        for finalist in tuned_flow.finalists
        if finalist.score is not None and finalist.ahead is not None
    ]
    if len({cost for _, cost, *_ in points}) < 2:
        return ""
    dots = [
        Dot(
            cost,
            score * (100 if tuned_flow.is_share else 1),
            ", ".join(map("=".join, finalist.choices)),
            any(c <= cost and a >= ahead and (c, a) != (cost, ahead) for _, c, a, _ in points),
        )
        for finalist, cost, ahead, score in points
    ]
    title = f"{tuned_flow.objective} by {name} a question"
    return f"{render_plots([(title, plot_dots(title, dots, f'{name} a question'))])}<p>{PRICE}</p>"


def _plot_effects(tuned_flow: TunedFlow) -> list[tuple[str, str]]:
    """Plot the effects of candidates, by place."""
    times, figures = 100 if tuned_flow.is_share else 1, []
    for place, group in groupby(tuned_flow.effects, lambda effect: effect.place):
        bars = [
            Bar(effect.candidate, better, better, better, f"{better:+.2f}, {effect.flows:,} flows")
            for effect in group
            for better in [times * effect.better]
        ]
        figures.append((place, plot_bars(bars, zero=True, title=f"effects of {place}")))
    return figures


def _plot_curves(tuned_flow: TunedFlow) -> list[tuple[str, str]]:
    """Plot how far the leader was behind, by scores asked for and by what was paid."""
    times, figures = 1.0 if tuned_flow.is_share else 0.01, []
    name = f"behind in {tuned_flow.objective}"
    for column, x_label in ((0, "scores asked for"), (1, "USD")):
        x_max = tuned_flow.curve[-1][column]
        if x_max > 0:
            points = [(row[column] / x_max, times * max(0.0, row[2])) for row in tuned_flow.curve]
            svg = plot_curves(name, {name: points}, {name: 0}, x_label, "behind {1:.4g}", x_max)
            figures.append((f"{name[0].upper()}{name[1:]}, by {x_label}", svg))
    return figures


def _render_differences(tuned_flow: TunedFlow, difference: FlowDifferences) -> str:
    """Render the questions on which the chosen flow and another one differ most, and what both found."""
    differ = [
        (name, candidate, dict(difference.choices).get(name, "–"))
        for name, candidate in tuned_flow.finalists[0].choices
        if dict(difference.choices).get(name) != candidate
    ]
    measure = tuned_flow.measure
    counts = ((difference.better, "better"), (difference.worse, "worse"), (difference.equal, "the same"))
    counts_html = "".join(f"<span><b>{n:,}</b> {outcome}</span>" for n, outcome in counts)
    questions_html = "".join(_render_question(tuned_flow, difference, question) for question in difference.questions)
    return render_section(
        f"Against {difference.rival}",
        render_table(Table(("", "chosen", difference.rival), tuple(differ))) if differ else "",
        f'<div class="outcome">{counts_html}</div><p>Of the questions that both were asked, on how many the '
        f"chosen flow is better or worse in {escape(measure)}; below, those that differ most, with the scores and the "
        "top passages of both. Gold is green.</p>",
        questions_html,
    )


def _render_question(tuned_flow: TunedFlow, difference: FlowDifferences, question: QuestionDifference) -> str:
    chips = "".join(
        f'<span class="chip {"full" if ours else "part"}" title="{escape(name)}">'
        f"{format_number(result.score, tuned_flow.is_share)}</span>"
        for name, result, ours in (
            ("chosen", question.ours, question.ours.score >= question.theirs.score),
            (difference.rival, question.theirs, question.theirs.score > question.ours.score),
        )
    )
    part = "reported on" if question.is_fresh else "chose"
    flows = "".join(
        _render_result(name, result)
        for name, result in (("chosen", question.ours), (difference.rival, question.theirs))
    )
    return (
        f'<details class="question"><summary>'
        f'<span class="id" title="{escape(question.id)}">{escape(question.id)}</span>'
        f'<span class="asked">{escape(question.question)}</span><span class="soft">{part}</span>{chips}</summary>'
        f'<div class="inside"><div class="flows">{flows}</div></div></details>'
    )


def _render_result(name: str, result: FlowResult) -> str:
    hits = "".join(
        f'<li class="{"gold-hit" if passage.is_gold else ""}"><b>{escape(passage.name)}</b> '
        f'<span class="soft">{escape(passage.text)}</span></li>'
        for passage in result.passages
    )
    answer = f'<div class="answer">{escape(result.answer)}</div>' if result.answer else ""
    return f'<div class="flow"><h4>{escape(name)}</h4>{answer}<ol>{hits or "<li>nothing found</li>"}</ol></div>'
