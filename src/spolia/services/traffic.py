"""Log of a server's answers in its journal: tests whether they become worse, and how a candidate compares."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import comb, erfc, inf, isfinite, nan, sqrt
from pathlib import Path
from time import time
from typing import Any, Self

import numpy as np

from spolia import checksums
from spolia.errors import DataError
from spolia.evaluation.creation.feedback import Feedback
from spolia.evaluation.measures.answers.string_match import F1
from spolia.evaluation.statistics.interval import Interval, wilson
from spolia.evaluation.statistics.sample import Sample
from spolia.journal import Journal
from spolia.run import Run
from spolia.run.lane import Lane
from spolia.types import Answer, Item, Query, Value

MAX_PASSAGES = 10
"""Passages of an answer that are compared."""
BLOCK = 100
"""Answers that one look of the rule compares with the baseline."""
ALPHA = 0.05
"""Chance of a false alarm, over all looks and measures together."""
MIN_ANSWERS = 30
"""Answers that a baseline needs."""
DRAWS = 2_000
"""Of the bootstrap."""
MAX_ANSWERS = 1_000
"""Answers that a baseline keeps: the newest ones."""


@dataclass(frozen=True)
class ServedAnswer(Value):
    """An answer of a server.

    Args:
        run: finds its trace.
        started: seconds since the epoch.
        flow: as it was asked for; `version` is the beginning of the SHA-256 of a promoted file.
        shadow_of: the run whose question a candidate was asked too; empty for an answer that a user got.
        score: of the best passage; None if nothing was found.
        cached: a step's result came from the cache, so `seconds` says nothing.
        calls, tokens, cost_usd: what models were needed for, cached results included.
        found: ids of the best passages.
    """

    run: str
    started: float
    flow: str
    version: str
    shadow_of: str
    question: str
    stop_reason: str
    score: float | None
    seconds: float
    cached: bool
    calls: int
    tokens: int
    cost_usd: float
    found: tuple[str, ...]

    @property
    def abstained(self) -> bool:
        """Return whether the user got no answer, also because the flow failed."""
        return self.stop_reason in ("abstained", "error")


COLUMNS = [column.name for column in fields(ServedAnswer)]
TABLE = f"CREATE TABLE IF NOT EXISTS served ({', '.join(COLUMNS)}, PRIMARY KEY (run)) WITHOUT ROWID"
PUT = f"INSERT OR REPLACE INTO served ({', '.join(COLUMNS)}) VALUES ({','.join('?' * len(COLUMNS))})"
GET = f"SELECT {', '.join(COLUMNS)} FROM served WHERE started >= ? ORDER BY started, run"


def served_answer(
    flow: str, version: str, run: Run, lane: Lane, query: Query, answer: Answer, seconds: float, shadow_of: str = ""
) -> ServedAnswer:
    """Build the record of an answer that has just been given."""
    evidence = answer.evidence if answer.evidence is not None else next(reversed(lane.retrievals), None)
    hits = () if evidence is None else evidence.hits[:MAX_PASSAGES]
    used = lane.usage
    return ServedAnswer(
        run.id, time() - seconds, flow, version, shadow_of, query.question[:1000], answer.stop_reason,
        float(hits[0].score) if hits else None, seconds, lane.cached, used.calls,
        used.input_tokens + used.output_tokens, used.cost_usd, tuple(hit.node.id for hit in hits),
    )  # fmt: skip


class TrafficLog:
    """Log of answers in a journal, written in batches. Like all of the journal it may drop rows, and never delays an
    answer."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._rows: deque[ServedAnswer] = deque()

    def add(self, answer: ServedAnswer) -> None:
        self._rows.append(answer)
        self.journal.database.schedule(self.hand_over)

    def hand_over(self) -> None:
        """Hand the collected answers to the writer."""
        rows = [self._rows.popleft() for _ in range(len(self._rows))]  # not until it is empty: others append meanwhile
        redact = self.journal.redaction() or str
        self.journal.database.write(TABLE, lambda: [()], 0)
        self.journal.database.write(PUT, lambda: [_answer_row(answer, redact) for answer in rows], len(rows))


def _answer_row(answer: ServedAnswer, redact: Callable[[str], str]) -> list[Any]:
    row = vars(answer) | {"question": redact(answer.question), "found": json.dumps(answer.found)}
    return [row[name] for name in COLUMNS]


def read_answers(journal: Journal, since: float = 0.0) -> list[ServedAnswer]:
    """Read all answers from a time on, oldest first."""
    if not journal.database.read("SELECT 1 FROM sqlite_master WHERE name = 'served'"):  # created with the first answer
        return []
    rows = journal.database.read(GET, (since,))
    plain = (dict(zip(COLUMNS, row, strict=True)) for row in rows)
    return [
        ServedAnswer(**columns | {"cached": bool(columns["cached"]), "found": tuple(json.loads(columns["found"]))})
        for columns in plain
    ]


def score_of(answer: ServedAnswer) -> float:
    return nan if answer.score is None else answer.score


def seconds_of(answer: ServedAnswer) -> float:
    return nan if answer.cached else answer.seconds


MEASURES: Mapping[str, tuple[Callable[[ServedAnswer], float], tuple[float, float], bool]] = {
    "abstained": (lambda answer: float(answer.abstained), (0.0, 1.0), True),
    "top score": (score_of, (-inf, inf), False),
    "seconds": (seconds_of, (0.0, inf), True),
    "tokens": (lambda answer: float(answer.tokens), (0.0, inf), True),
    "USD": (lambda answer: answer.cost_usd, (0.0, inf), True),
}
"""By name: of an answer (NaN if not known), the range, and whether less is better."""


@dataclass(frozen=True)
class TrafficBaseline(Value):
    """Baseline of a flow's answers: the values of each measure (None if unknown), until a time."""

    flow: str
    version: str
    until: float
    values: Mapping[str, Sequence[float | None]]

    @classmethod
    def from_answers(cls, answers: Sequence[ServedAnswer]) -> Self:
        """Make a baseline from the newest answers.

        Raises:
            DataError: there are too few.
        """
        if len(answers) < MIN_ANSWERS:
            raise DataError(f"A baseline needs {MIN_ANSWERS} answers; the journal has {len(answers)} of this flow.")
        newest = answers[-MAX_ANSWERS:]
        values = {
            name: [None if np.isnan(value := measure(answer)) else value for answer in newest]
            for name, (measure, *_) in MEASURES.items()
        }
        return cls(newest[-1].flow, newest[-1].version, newest[-1].started, values)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a baseline from a file. Raises DataError."""
        try:
            baseline = cls(**checksums.read(file))
            if not all(len(baseline.values[name]) for name in MEASURES):
                raise ValueError("no values")
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise DataError(
                f"{file} holds no baseline of traffic ({error}). Write: spolia monitor --baseline FILE --write"
            ) from error
        return baseline

    def write(self, file: Path) -> None:
        checksums.write(file, asdict(self))


@dataclass(frozen=True)
class TrafficChange(Value):
    """One measure, in the baseline and now; `alarm` is the first look at which it was worse, 0 for none."""

    measure: str
    before: Interval | None
    now: Interval | None
    change: Interval | None
    alarm: int

    def json(self) -> dict[str, Any]:
        intervals = {name: getattr(self, name) for name in ("before", "now", "change")}
        plain = {name: None if interval is None else interval.json() for name, interval in intervals.items()}
        return {"measure": self.measure, **plain, "alarm": self.alarm}


def compare_traffic(baseline: TrafficBaseline, answers: Sequence[ServedAnswer]) -> tuple[TrafficChange, ...]:
    """Compare the answers since a baseline with it, and apply the rule of `find_alarms`."""
    traffic_changes, raised = [], find_alarms(baseline, answers)
    for name, (measure, range, _) in MEASURES.items():
        old_interval = _interval(_baseline_values(baseline, name), range)
        new_interval = _interval(np.array([measure(answer) for answer in answers]), range)
        traffic_changes.append(
            TrafficChange(name, old_interval, new_interval, difference(old_interval, new_interval), raised[name])
        )
    return tuple(traffic_changes)


def find_alarms(baseline: TrafficBaseline, answers: Sequence[ServedAnswer], block: int = BLOCK) -> dict[str, int]:
    """Return for each measure the first look that finds it worse; 0 for none.

    The rule looks at each whole block of answers once, in their order. Look k compares its block with the baseline by a
    one-sided test of each measure, at the level α / (k (k + 1) m) for m measures: Fisher's exact test of abstention,
    the rank-sum test of the others. All levels together are α. So at most one in twenty flows that do not change ever
    raises an alarm, however often you ask. The rule assumes that answers do not depend on each other: a script that
    sends one question again and again breaks that.

    Source: Bonferroni over looks and measures; Wilcoxon 1945; Fisher 1922.
    """
    alarm_looks = {}
    for name, (measure, _, less_is_better) in MEASURES.items():
        sign = 1.0 if less_is_better else -1.0
        now = sign * np.array([measure(answer) for answer in answers])
        alarm_looks[name] = _first_alarm(sign * _baseline_values(baseline, name), now, block, ALPHA / len(MEASURES))
    return alarm_looks


def _baseline_values(baseline: TrafficBaseline, name: str) -> Any:
    return np.array([nan if value is None else value for value in baseline.values[name]])


def _first_alarm(then: Any, now: Any, block: int, alpha: float) -> int:
    for look_number in range(1, len(now) // block + 1):
        part = now[(look_number - 1) * block : look_number * block]
        # The levels 1 / (k (k + 1)) of all looks add up to 1.
        if one_sided_p_value(part[~np.isnan(part)], then[~np.isnan(then)]) <= alpha / (look_number * (look_number + 1)):
            return look_number
    return 0


def one_sided_p_value(now: Any, then: Any) -> float:
    """Return the chance of values as large as these, or larger, if they come from the same distribution as those of
    then.

    >>> one_sided_p_value(np.ones(5), np.zeros(45)) < 1e-5, one_sided_p_value(np.arange(9.0), np.arange(9.0)) > 0.4
    (True, True)
    """
    if not now.size or not then.size:
        return 1.0
    values = np.concatenate((now, then))
    n, m = now.size, then.size
    if np.isin(values, (0.0, 1.0)).all():  # shares: an exact test, since a normal approximation is poor for rare ones
        total_ones, new_ones = int(values.sum()), int(now.sum())
        ways = sum(
            comb(total_ones, k) * comb(n + m - total_ones, n - k) for k in range(new_ones, min(total_ones, n) + 1)
        )
        return ways / comb(n + m, n)
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    excess = float(ranks[:n].sum()) - n * (n + m + 1) / 2
    # Equal values narrow the spread of rank sums.
    ties = float((counts.astype(float) ** 3 - counts).sum()) / ((n + m) * (n + m - 1))
    spread = sqrt(n * m / 12 * (n + m + 1 - ties))
    # 0.5: rank sums are whole numbers, the normal curve is continuous
    return 0.5 * erfc((excess - 0.5) / spread / sqrt(2)) if spread else 1.0


def _interval(column: Any, range: tuple[float, float]) -> Interval | None:
    values = column[~np.isnan(column)]
    return Sample(values[:, None], range=range, resamples=DRAWS).interval(0) if values.size else None


def difference(baseline: Interval | None, now: Interval | None) -> Interval | None:
    """Return the interval of a difference of means over different questions: its ends combine those of both intervals
    as squares.

    Source: Newcombe 1998, method 10, for shares; Donner and Zou 2012 for means.
    """
    if baseline is None or now is None:
        return None
    mean = now.mean - baseline.mean
    low = mean - sqrt((now.mean - now.low) ** 2 + (baseline.high - baseline.mean) ** 2)
    high = mean + sqrt((now.high - now.mean) ** 2 + (baseline.mean - baseline.low) ** 2)
    return Interval(mean, low, high, now.n, now.level, "Newcombe") if isfinite(low) and isfinite(high) else None


@dataclass(frozen=True)
class Topic(Value):
    """Word of questions: the number of questions with it, and the share of them that had no answer."""

    word: str
    questions: int
    unanswered: Interval
    example: str

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "unanswered": self.unanswered.json()}


def find_topics(
    answers: Iterable[ServedAnswer], words_of: Callable[[str], Iterable[str]], limit: int = 5
) -> list[Topic]:
    """Find the words that most unanswered questions share and that characterise them: the lower end of their share
    without an answer is above the share over all questions."""
    all_answers = list(answers)
    question_counts, lacking, example = Counter[str](), Counter[str](), dict[str, str]()
    for item in all_answers:
        for word in set(words_of(item.question)):
            question_counts[word] += 1
            if item.abstained:
                lacking[word] += 1
                example.setdefault(word, item.question)
    usual = sum(item.abstained for item in all_answers) / max(1, len(all_answers))
    frequent_topics = [
        Topic(word, question_counts[word], wilson(n, question_counts[word]), example[word])
        for word, n in lacking.items()
        if n > 1  # one question is no topic
    ]
    # if nothing was answered, no share can be higher
    typical = [item for item in frequent_topics if item.unanswered.low > usual or usual == 1]
    return sorted(typical, key=lambda topic: (-lacking[topic.word], topic.word))[:limit]


@dataclass(frozen=True)
class ShadowReport(Value):
    """Comparison of a candidate with production on the same questions: by measure both means and the difference."""

    n: int
    overlap: Interval
    measures: Mapping[str, tuple[Interval | None, Interval | None, Interval | None]]

    def json(self) -> dict[str, Any]:
        plain = {
            name: [None if interval is None else interval.json() for interval in intervals]
            for name, intervals in self.measures.items()
        }
        return {"n": self.n, "overlap": self.overlap.json(), "measures": plain}


def compare_candidate(
    answers: Sequence[ServedAnswer], feedback: Mapping[str, Feedback], texts: Mapping[str, str]
) -> ShadowReport | None:
    """Compare the answers of the newest candidate with those that users got; None if no candidate was asked.

    The overlap is the share of the passages of both that both found. `F1` compares with the answers that users
    corrected.

    Args:
        feedback: by the run of the answer.
        texts: answers of the candidate and of production by run, as far as they are needed.
    """
    by_run = {answer.run: answer for answer in answers}
    candidates = [answer for answer in answers if answer.shadow_of in by_run]
    newest = [answer for answer in candidates if answer.version == candidates[-1].version]
    pairs = [(by_run[answer.shadow_of], answer) for answer in newest]
    if not pairs:
        return None
    overlap = np.array([_overlap(*pair) for pair in pairs])
    compared = {
        name: _paired_intervals([tuple(map(measure, pair)) for pair in pairs], range)
        for name, (measure, range, _) in MEASURES.items()
        if name != "top score"  # scores of two flows have different scales
    }
    if right := [(pair, feedback[pair[0].run].corrected) for pair in pairs if _is_corrected(feedback, pair[0])]:
        scores = [tuple(_f1(texts.get(answer.run, ""), corrected) for answer in pair) for pair, corrected in right]
        compared["F1"] = _paired_intervals(scores, (0.0, 1.0))
    overlap_interval = _interval(overlap, (0.0, 1.0))
    assert overlap_interval is not None
    return ShadowReport(len(pairs), overlap_interval, compared)


def _is_corrected(feedback: Mapping[str, Feedback], answer: ServedAnswer) -> bool:
    return answer.run in feedback and bool(feedback[answer.run].corrected)


def _f1(text: str, corrected: str) -> float:
    return F1().score(Answer(text), Item("feedback", "", answers=(corrected,))) or 0.0


def _overlap(first: ServedAnswer, second: ServedAnswer) -> float:
    either = {*first.found, *second.found}
    return len({*first.found} & {*second.found}) / len(either) if either else 1.0  # both found nothing: they agree


def _paired_intervals(
    rows: Sequence[Sequence[float]], range: tuple[float, float]
) -> tuple[Interval | None, Interval | None, Interval | None]:
    complete_rows = [row for row in rows if not any(np.isnan(row))]
    if not complete_rows:
        return None, None, None
    sample = Sample(complete_rows, range=range, resamples=DRAWS)
    return sample.interval(0), sample.interval(1), sample.difference(1, 0)


def thumb_shares(answers: Iterable[ServedAnswer], feedback: Mapping[str, Feedback]) -> Iterator[tuple[str, Interval]]:
    """Yield for each flow the share of thumbs up among its answers with a thumb."""
    votes: dict[str, list[bool]] = {}
    for answer in answers:
        if (answer_feedback := feedback.get(answer.run)) is not None:
            votes.setdefault(answer.flow, []).append(answer_feedback.thumb == "up")
    for flow, ups in sorted(votes.items()):
        yield flow, wilson(sum(ups), len(ups))
