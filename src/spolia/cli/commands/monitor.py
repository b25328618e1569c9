"""`spolia monitor`: whether the answers of a server become worse, and how its candidate does."""

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
from spolia.services.traffic import ServedAnswer, ShadowReport, TrafficChange, answers
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
    every, feedback, texts, words_of = _recorded(store)
    asked, name = _of_flow(every, flow)
    if not asked:
        screen.give(flow=name, n=0)
        screen.say(f"{store}: no answers by {name or 'a flow'} yet; `spolia serve` records them.")
        return Exit.NOTHING
    if write and baseline is not None:
        found = traffic.TrafficBaseline.of(asked)
        found.write(baseline)
        screen.give(written=str(baseline), flow=found.flow, version=found.version, until=found.until)
        screen.show(f"{baseline}: {name}, {several(len(found.values['seconds']), 'answer')}")
        return Exit.DONE
    before = None if baseline is None else traffic.TrafficBaseline.read(baseline)
    if before is not None and (before.flow, before.version) != (name, asked[-1].version):
        screen.say(f"{name} was switched after {baseline}: write a new one with --write.", "yellow")
        before = None
    if before is not None:
        asked = [one for one in asked if one.started > before.until]
    changes = () if before is None else traffic.changes(before, asked)
    alarms = [one.measure for one in changes if one.alarm]
    candidate, unanswered = traffic.shadowed(every, feedback, texts), traffic.topics(asked, words_of)
    thumbs, abstained = dict(traffic.thumbs(every, feedback)), sum(one.abstained for one in asked)
    screen.give(
        flow=name, n=len(asked), abstained=abstained, tune_again=bool(alarms), alarms=alarms,
        changes=[one.json() for one in changes], topics=[one.json() for one in unanswered],
        candidate=None if candidate is None else candidate.json(),
        thumbs_up={name: one.json() for name, one in thumbs.items()},
    )  # fmt: skip
    screen.show(f"{name}: {several(len(asked), 'answer')}, {abstained:,} abstained")
    if changes:
        taken = [_row(one) for one in changes if not _is_nothing(one.before, one.now)]
        screen.show(table(taken, "", "baseline", "now", "change", ""))
    if unanswered:
        topics = (
            (one.word, str(one.questions), _share(one.unanswered), one_line(one.example, 60)) for one in unanswered
        )
        screen.show(table(topics, "unanswered", "questions", "no answer", "such as"))
    if candidate is not None:
        _show_candidate(screen, candidate)
    if thumbs:
        screen.show(table(((name, _share(one), str(one.n)) for name, one in thumbs.items()), "", "thumbs up", "of"))
    if alarms:
        screen.show(f"Tune again: {', '.join(alarms)} became worse.")
    return Exit.WORSE if alarms else Exit.DONE


def _recorded(
    store: str,
) -> "tuple[list[ServedAnswer], dict[str, Feedback], dict[str, str], Callable[[str], list[str]]]":
    """The answers of a server, feedback by run, texts of judged answers, and what finds words."""
    corpus = Corpus(store)
    language = corpus.snapshot().manifest(MAIN).analyzer.stem
    analyzer = Analyzer(language, stop_words="" if language in WITHOUT_STOP_WORDS else language)
    common = frozenset(ASKING.split())
    feedback = FeedbackQueue(corpus.backend.folder / FEEDBACK).read()
    with Runs(corpus.backend.folder / RUNS) as runs:
        every = answers(runs.journal)
        judged = [one for one in every if one.shadow_of in feedback]
        texts = {run: runs.journal.answer(run) for one in judged for run in (one.run, one.shadow_of)}
    return every, feedback, texts, lambda question: [one for one in analyzer.terms(question) if one not in common]


def _of_flow(every: "Sequence[ServedAnswer]", flow: str) -> "tuple[list[ServedAnswer], str]":
    """The answers of the current version of a flow, without those of its shadow, and the name of the flow."""
    asked = [one for one in every if not one.shadow_of]
    names = Counter(one.flow for one in asked)
    most = next((name for name, _ in names.most_common(1)), "")
    name = flow or (PRODUCTION if PRODUCTION in names else most)
    asked = [one for one in asked if one.flow == name]
    return [one for one in asked if one.version == asked[-1].version], name


def _row(one: "TrafficChange") -> "Sequence[str]":
    told = f"worse, from answer {(one.alarm - 1) * 100 + 1:,} on" if one.alarm else ""
    return one.measure, _number(one.before), _number(one.now), _number(one.change, "+"), told


def _show_candidate(screen: Screen, found: "ShadowReport") -> None:
    screen.show(
        f"candidate: {several(found.n, 'question')} of production, {_share(found.overlap)} of the passages are the same"
    )
    rows = [
        (name, *map(_number, three[:2]), _number(three[2], "+"))
        for name, three in found.measures.items()
        if not _is_nothing(*three[:2])
    ]
    screen.show(table(rows, "", "production", "candidate", "difference"))


def _is_nothing(*means: "Interval | None") -> bool:
    """Whether nothing of a measure was taken, such as tokens where no model is asked."""
    known = [one for one in means if one is not None]
    return bool(known) and all(one.mean == 0 and not isfinite(one.high) for one in known)


def _number(one: "Interval | None", sign: str = "") -> str:
    """A mean with its interval; `?` for a bound that the scores do not tell, for example if all are the same."""
    if one is None:
        return "–"
    low, high = (f"{end:{sign}.3g}" if isfinite(end) else "?" for end in (one.low, one.high))
    return f"{one.mean:{sign}.3g} [{low}, {high}]"


def _share(one: "Interval") -> str:
    return f"{100 * one.mean:.0f} % [{100 * one.low:.0f}, {100 * one.high:.0f}]"
