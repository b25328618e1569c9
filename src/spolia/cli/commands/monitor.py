"""`spolia monitor`: alarms if the answers of a server become worse, and results of its candidate."""

from collections import Counter
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from spolia.cli.exit_codes import Exit
from spolia.cli.options import MAIN, AsJson, ProfileFile, StorePath
from spolia.cli.parameters import option
from spolia.cli.runs import FEEDBACK, RUNS
from spolia.cli.screen import Screen, one_line, table
from spolia.core.plurals import several
from spolia.evaluation.creation.feedback import Feedback, FeedbackQueue
from spolia.journal import Runs
from spolia.services import traffic
from spolia.services.traffic import ServedAnswer, ShadowReport, TrafficChange, read_answers
from spolia.stores.corpus import Corpus
from spolia.stores.lexical.analysis import Analyzer

PRODUCTION = "production"
ASKING = (
    "can could did do doe does had has have how i many me much my should we what when where which who whi why would you"
)
"""Words of English questions that are no topics, and in no list of stop words."""
WITHOUT_STOP_WORDS = ("arabic", "greek", "romanian", "tamil", "turkish")
"""Languages of which tantivy has no stop words."""


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spolia.evaluation.statistics.interval import Interval


def monitor(
    store: StorePath,
    baseline: Annotated[Path | None, option("--baseline FILE", "Earlier answers to compare with.")] = None,
    write: Annotated[bool, option("--write", "Write the baseline from the newest answers.")] = False,
    flow: Annotated[str, option("--flow NAME", "The flow; by default production, else the one asked most.")] = "",
    profile_file: ProfileFile = None,
    json: AsJson = False,
) -> Exit:
    """Compare newer answers of `spolia serve` with a baseline: abstention, scores, time, tokens, cost.

    Monitor tests every 100 answers, more strictly each time. Exit code 1 if a test says that they are worse: then
    tune again. Flows that do not change raise such an alarm in at most 5 of 100 deployments,
    however often you ask. You also see words of questions without an answer, thumbs up, and the candidate of `serve
    --shadow` beside production: common passages, abstention, time, tokens, cost, F1 against corrected answers.
    A baseline needs 30 answers.
    """
    screen = Screen(json=json)
    served_answers, feedback, texts, words_of = _read_records(store)
    flow_answers, name = _select_flow(served_answers, flow)
    if not flow_answers:
        screen.give(flow=name, n=0)
        screen.say(f"{store}: no answers by {name or 'a flow'} yet; `spolia serve` records them.")
        return Exit.NOTHING
    if write and baseline is not None:
        traffic_baseline = traffic.TrafficBaseline.from_answers(flow_answers)
        traffic_baseline.write(baseline)
        screen.give(
            written=str(baseline),
            flow=traffic_baseline.flow,
            version=traffic_baseline.version,
            until=traffic_baseline.until,
        )
        screen.show(f"{baseline}: {name}, {several(len(traffic_baseline.values['seconds']), 'answer')}")
        return Exit.DONE
    earlier_baseline = None if baseline is None else traffic.TrafficBaseline.read(baseline)
    if earlier_baseline is not None and (earlier_baseline.flow, earlier_baseline.version) != (
        name,
        flow_answers[-1].version,
    ):
        screen.say(f"{name} was switched after {baseline}: write a new one with --write.", "yellow")
        earlier_baseline = None
    if earlier_baseline is not None:
        flow_answers = [answer for answer in flow_answers if answer.started > earlier_baseline.until]
    changes = () if earlier_baseline is None else traffic.compare_traffic(earlier_baseline, flow_answers)
    alarms = [change.measure for change in changes if change.alarm]
    candidate, unanswered = (
        traffic.compare_candidate(served_answers, feedback, texts),
        traffic.find_topics(flow_answers, words_of),
    )
    thumbs, abstained = (
        dict(traffic.thumb_shares(served_answers, feedback)),
        sum(answer.abstained for answer in flow_answers),
    )
    screen.give(
        flow=name, n=len(flow_answers), abstained=abstained, tune_again=bool(alarms), alarms=alarms,
        changes=[change.json() for change in changes], topics=[topic.json() for topic in unanswered],
        candidate=None if candidate is None else candidate.json(),
        thumbs_up={name: interval.json() for name, interval in thumbs.items()},
    )  # fmt: skip
    screen.show(f"{name}: {several(len(flow_answers), 'answer')}, {abstained:,} abstained")
    if changes:
        rows = [_format_change(change) for change in changes if not _is_nothing(change.before, change.now)]
        screen.show(table(rows, "", "baseline", "now", "change", ""))
    if unanswered:
        topics = (
            (topic.word, str(topic.questions), _format_share(topic.unanswered), one_line(topic.example, 60))
            for topic in unanswered
        )
        screen.show(table(topics, "unanswered", "questions", "no answer", "such as"))
    if candidate is not None:
        _show_candidate(screen, candidate)
    if thumbs:
        screen.show(
            table(
                ((name, _format_share(interval), str(interval.n)) for name, interval in thumbs.items()),
                "",
                "thumbs up",
                "of",
            )
        )
    if alarms:
        screen.show(f"Tune again: {', '.join(alarms)} became worse.")
    return Exit.WORSE if alarms else Exit.DONE


def _read_records(
    store: str,
) -> "tuple[list[ServedAnswer], dict[str, Feedback], dict[str, str], Callable[[str], list[str]]]":
    """Read a server's answers, feedback by run, texts of judged answers, and a function that finds words."""
    corpus = Corpus(store)
    language = corpus.snapshot().manifest(MAIN).analyzer.stem
    analyzer = Analyzer(language, stop_words="" if language in WITHOUT_STOP_WORDS else language)
    common = frozenset(ASKING.split())
    feedback = FeedbackQueue(corpus.backend.folder / FEEDBACK).read()
    with Runs(corpus.backend.folder / RUNS) as runs:
        served_answers = read_answers(runs.journal)
        judged = [answer for answer in served_answers if answer.shadow_of in feedback]
        texts = {run: runs.journal.answer(run) for answer in judged for run in (answer.run, answer.shadow_of)}
    return (
        served_answers,
        feedback,
        texts,
        lambda question: [term for term in analyzer.terms(question) if term not in common],
    )


def _select_flow(served_answers: "Sequence[ServedAnswer]", flow: str) -> "tuple[list[ServedAnswer], str]":
    """Select the answers of a flow's current version, without its shadow's; return them with the flow's name."""
    flow_answers = [answer for answer in served_answers if not answer.shadow_of]
    names = Counter(answer.flow for answer in flow_answers)
    most_asked = next((name for name, _ in names.most_common(1)), "")
    name = flow or (PRODUCTION if PRODUCTION in names else most_asked)
    flow_answers = [answer for answer in flow_answers if answer.flow == name]
    return [answer for answer in flow_answers if answer.version == flow_answers[-1].version], name


def _format_change(change: "TrafficChange") -> "Sequence[str]":
    alarm_text = f"worse, from answer {(change.alarm - 1) * 100 + 1:,} on" if change.alarm else ""
    return (
        change.measure,
        _format_interval(change.before),
        _format_interval(change.now),
        _format_interval(change.change, "+"),
        alarm_text,
    )


def _show_candidate(screen: Screen, shadow_report: "ShadowReport") -> None:
    screen.show(
        f"candidate: {several(shadow_report.n, 'question')} of production, {_format_share(shadow_report.overlap)} of "
        "the passages are the same"
    )
    rows = [
        (name, *map(_format_interval, intervals[:2]), _format_interval(intervals[2], "+"))
        for name, intervals in shadow_report.measures.items()
        if not _is_nothing(*intervals[:2])
    ]
    screen.show(table(rows, "", "production", "candidate", "difference"))


def _is_nothing(*means: "Interval | None") -> bool:
    """Check whether a measure counted nothing, such as tokens where no model is asked."""
    known_means = [mean for mean in means if mean is not None]
    return bool(known_means) and all(interval.mean == 0 and not isfinite(interval.high) for interval in known_means)


def _format_interval(interval: "Interval | None", sign: str = "") -> str:
    """Format a mean with its interval; `?` stands for a bound that the scores cannot estimate."""
    if interval is None:
        return "–"
    low, high = (f"{end:{sign}.3g}" if isfinite(end) else "?" for end in (interval.low, interval.high))
    return f"{interval.mean:{sign}.3g} [{low}, {high}]"


def _format_share(interval: "Interval") -> str:
    return f"{100 * interval.mean:.0f} % [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"
