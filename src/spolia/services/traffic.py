"""The answers that a server gave, in its journal: whether they become worse, and how a candidate does beside them."""

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

FOUND = 10
"""Passages of an answer that are compared."""
BLOCK = 100
"""Answers that one look of the rule compares with the baseline."""
ALPHA = 0.05
"""Chance of a false alarm, over all looks and measures together."""
ENOUGH = 30
"""Answers that a baseline needs."""
DRAWS = 2_000
"""Of the bootstrap."""
MOST = 1_000
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
        """Also of a flow that failed."""
        return self.stop_reason in ("abstained", "error")


COLUMNS = [one.name for one in fields(ServedAnswer)]
TABLE = f"CREATE TABLE IF NOT EXISTS served ({', '.join(COLUMNS)}, PRIMARY KEY (run)) WITHOUT ROWID"
PUT = f"INSERT OR REPLACE INTO served ({', '.join(COLUMNS)}) VALUES ({','.join('?' * len(COLUMNS))})"
GET = f"SELECT {', '.join(COLUMNS)} FROM served WHERE started >= ? ORDER BY started, run"


def served_answer(
    flow: str, version: str, run: Run, lane: Lane, query: Query, answer: Answer, seconds: float, shadow_of: str = ""
) -> ServedAnswer:
    """What is written down of an answer that has just been given."""
    shown = answer.evidence if answer.evidence is not None else next(reversed(lane.retrievals), None)
    hits = () if shown is None else shown.hits[:FOUND]
    used = lane.usage
    return ServedAnswer(
        run.id, time() - seconds, flow, version, shadow_of, query.question[:1000], answer.stop_reason,
        float(hits[0].score) if hits else None, seconds, lane.cached, used.calls,
        used.input_tokens + used.output_tokens, used.cost_usd, tuple(hit.node.id for hit in hits),
    )  # fmt: skip


class TrafficLog:
    """Writes answers into a journal, those of a moment together; like all of it they may be dropped, and never delay
    an answer."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._rows: deque[ServedAnswer] = deque()

    def add(self, one: ServedAnswer) -> None:
        self._rows.append(one)
        self.journal.database.soon(self.hand_over)

    def hand_over(self) -> None:
        """Hand the collected answers to the writer."""
        rows = [self._rows.popleft() for _ in range(len(self._rows))]
        redact = self.journal.redaction() or str
        self.journal.database.write(TABLE, lambda: [()], 0)
        self.journal.database.write(PUT, lambda: [_row(one, redact) for one in rows], len(rows))


def _row(one: ServedAnswer, redact: Callable[[str], str]) -> list[Any]:
    row = vars(one) | {"question": redact(one.question), "found": json.dumps(one.found)}
    return [row[name] for name in COLUMNS]


def answers(journal: Journal, since: float = 0.0) -> list[ServedAnswer]:
    """All answers from a time on, oldest first."""
    if not journal.database.read("SELECT 1 FROM sqlite_master WHERE name = 'served'"):
        return []
    rows = journal.database.read(GET, (since,))
    plain = (dict(zip(COLUMNS, row, strict=True)) for row in rows)
    return [
        ServedAnswer(**one | {"cached": bool(one["cached"]), "found": tuple(json.loads(one["found"]))}) for one in plain
    ]


def score_of(one: ServedAnswer) -> float:
    return nan if one.score is None else one.score


def seconds_of(one: ServedAnswer) -> float:
    return nan if one.cached else one.seconds


MEASURES: Mapping[str, tuple[Callable[[ServedAnswer], float], tuple[float, float], bool]] = {
    "abstained": (lambda one: float(one.abstained), (0.0, 1.0), True),
    "top score": (score_of, (-inf, inf), False),
    "seconds": (seconds_of, (0.0, inf), True),
    "tokens": (lambda one: float(one.tokens), (0.0, inf), True),
    "USD": (lambda one: one.cost_usd, (0.0, inf), True),
}
"""By name: of an answer (NaN if not known), the range, and whether less is better."""


@dataclass(frozen=True)
class TrafficBaseline(Value):
    """What the answers of a flow were like: the values of each measure (None if not known), until a time."""

    flow: str
    version: str
    until: float
    values: Mapping[str, Sequence[float | None]]

    @classmethod
    def of(cls, asked: Sequence[ServedAnswer]) -> Self:
        """Of the newest answers.

        Raises:
            DataError: there are too few.
        """
        if len(asked) < ENOUGH:
            raise DataError(f"A baseline needs {ENOUGH} answers; the journal has {len(asked)} of this flow.")
        kept = asked[-MOST:]
        values = {
            name: [None if np.isnan(value := of(one)) else value for one in kept] for name, (of, *_) in MEASURES.items()
        }
        return cls(kept[-1].flow, kept[-1].version, kept[-1].started, values)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Raises DataError."""
        try:
            found = cls(**checksums.read(file))
            if not all(len(found.values[name]) for name in MEASURES):
                raise ValueError("no values")
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise DataError(
                f"{file} holds no baseline of traffic ({error}). Write: spolia monitor --baseline FILE --write"
            ) from error
        return found

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
        named = {name: getattr(self, name) for name in ("before", "now", "change")}
        plain = {name: None if one is None else one.json() for name, one in named.items()}
        return {"measure": self.measure, **plain, "alarm": self.alarm}


def changes(before: TrafficBaseline, asked: Sequence[ServedAnswer]) -> tuple[TrafficChange, ...]:
    """How the answers since a baseline differ from it, and whether the rule of `alarms` calls them worse."""
    found, raised = [], alarms(before, asked)
    for name, (of, range, _) in MEASURES.items():
        was = _interval(_column(before, name), range)
        is_ = _interval(np.array([of(one) for one in asked]), range)
        found.append(TrafficChange(name, was, is_, difference(was, is_), raised[name]))
    return tuple(found)


def alarms(before: TrafficBaseline, asked: Sequence[ServedAnswer], block: int = BLOCK) -> dict[str, int]:
    """By measure, the first look that finds it worse; 0 for none.

    The rule looks at each whole block of answers once, in their order. Look k compares its block with the baseline by a
    one-sided test of each measure, at the level α / (k (k + 1) m) for m measures: Fisher's exact test of abstention,
    the rank-sum test of the others. All levels together are α. So at most one in twenty flows that do not change ever
    raises an alarm, however often you ask. The rule assumes that answers do not depend on each other: a script that
    sends one question again and again breaks that.

    Source: Bonferroni over looks and measures; Wilcoxon 1945; Fisher 1922.
    """
    found = {}
    for name, (of, _, less_is_better) in MEASURES.items():
        sign = 1.0 if less_is_better else -1.0
        now = sign * np.array([of(one) for one in asked])
        found[name] = _first_alarm(sign * _column(before, name), now, block, ALPHA / len(MEASURES))
    return found


def _column(before: TrafficBaseline, name: str) -> Any:
    return np.array([nan if one is None else one for one in before.values[name]])


def _first_alarm(then: Any, now: Any, block: int, alpha: float) -> int:
    for look in range(1, len(now) // block + 1):
        part = now[(look - 1) * block : look * block]
        if more_than(part[~np.isnan(part)], then[~np.isnan(then)]) <= alpha / (look * (look + 1)):
            return look
    return 0


def more_than(now: Any, then: Any) -> float:
    """The chance that values as large as these, or larger, come of the same distribution as those of then.

    >>> more_than(np.ones(5), np.zeros(45)) < 1e-5, more_than(np.arange(9.0), np.arange(9.0)) > 0.4
    (True, True)
    """
    if not now.size or not then.size:
        return 1.0
    every = np.concatenate((now, then))
    n, m = now.size, then.size
    if np.isin(every, (0.0, 1.0)).all():
        ones, seen = int(every.sum()), int(now.sum())
        ways = sum(comb(ones, k) * comb(n + m - ones, n - k) for k in range(seen, min(ones, n) + 1))
        return ways / comb(n + m, n)
    _, inverse, counts = np.unique(every, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    over = float(ranks[:n].sum()) - n * (n + m + 1) / 2
    ties = float((counts.astype(float) ** 3 - counts).sum()) / ((n + m) * (n + m - 1))
    spread = sqrt(n * m / 12 * (n + m + 1 - ties))
    return 0.5 * erfc((over - 0.5) / spread / sqrt(2)) if spread else 1.0


def _interval(column: Any, range: tuple[float, float]) -> Interval | None:
    known = column[~np.isnan(column)]
    return Sample(known[:, None], range=range, resamples=DRAWS).interval(0) if known.size else None


def difference(before: Interval | None, now: Interval | None) -> Interval | None:
    """By how much a mean of other questions differs: the ends as far away as those of the two intervals, squared.

    Source: Newcombe 1998, method 10, for shares; Donner and Zou 2012 for means.
    """
    if before is None or now is None:
        return None
    mean = now.mean - before.mean
    low = mean - sqrt((now.mean - now.low) ** 2 + (before.high - before.mean) ** 2)
    high = mean + sqrt((now.high - now.mean) ** 2 + (before.mean - before.low) ** 2)
    return Interval(mean, low, high, now.n, now.level, "Newcombe") if isfinite(low) and isfinite(high) else None


@dataclass(frozen=True)
class Topic(Value):
    """A word of questions: in how many it is, and the share of them that had no answer."""

    word: str
    questions: int
    unanswered: Interval
    example: str

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "unanswered": self.unanswered.json()}


def topics(asked: Iterable[ServedAnswer], words_of: Callable[[str], Iterable[str]], most: int = 5) -> list[Topic]:
    """The words that most unanswered questions share and that stand for them: the lower end of the share without an
    answer is above the share of all questions."""
    every = list(asked)
    there, lacking, example = Counter[str](), Counter[str](), dict[str, str]()
    for one in every:
        for word in set(words_of(one.question)):
            there[word] += 1
            if one.abstained:
                lacking[word] += 1
                example.setdefault(word, one.question)
    usual = sum(one.abstained for one in every) / max(1, len(every))
    found = [Topic(word, there[word], wilson(n, there[word]), example[word]) for word, n in lacking.items() if n > 1]
    typical = [one for one in found if one.unanswered.low > usual or usual == 1]
    return sorted(typical, key=lambda one: (-lacking[one.word], one.word))[:most]


@dataclass(frozen=True)
class ShadowReport(Value):
    """A candidate beside production, on the same questions: by measure the mean of both, and the difference."""

    n: int
    overlap: Interval
    measures: Mapping[str, tuple[Interval | None, Interval | None, Interval | None]]

    def json(self) -> dict[str, Any]:
        plain = {name: [None if one is None else one.json() for one in three] for name, three in self.measures.items()}
        return {"n": self.n, "overlap": self.overlap.json(), "measures": plain}


def shadowed(
    every: Sequence[ServedAnswer], feedback: Mapping[str, Feedback], texts: Mapping[str, str]
) -> ShadowReport | None:
    """The answers of the newest candidate beside those that users got; None if no candidate was asked.

    The overlap is the share of the passages of both that both found. `F1` compares with the answers that users
    corrected.

    Args:
        feedback: by the run of the answer.
        texts: answers of the candidate and of production by run, as far as they are needed.
    """
    by_run = {one.run: one for one in every}
    candidates = [one for one in every if one.shadow_of in by_run]
    newest = [one for one in candidates if one.version == candidates[-1].version]
    pairs = [(by_run[one.shadow_of], one) for one in newest]
    if not pairs:
        return None
    overlap = np.array([_overlap(*pair) for pair in pairs])
    compared = {
        name: _paired([tuple(map(of, pair)) for pair in pairs], range)
        for name, (of, range, _) in MEASURES.items()
        if name != "top score"
    }
    if right := [(pair, feedback[pair[0].run].corrected) for pair in pairs if _is_corrected(feedback, pair[0])]:
        scores = [tuple(_f1(texts.get(one.run, ""), corrected) for one in pair) for pair, corrected in right]
        compared["F1"] = _paired(scores, (0.0, 1.0))
    found = _interval(overlap, (0.0, 1.0))
    assert found is not None
    return ShadowReport(len(pairs), found, compared)


def _is_corrected(feedback: Mapping[str, Feedback], one: ServedAnswer) -> bool:
    return one.run in feedback and bool(feedback[one.run].corrected)


def _f1(text: str, corrected: str) -> float:
    return F1().score(Answer(text), Item("feedback", "", answers=(corrected,))) or 0.0


def _overlap(one: ServedAnswer, other: ServedAnswer) -> float:
    either = {*one.found, *other.found}
    return len({*one.found} & {*other.found}) / len(either) if either else 1.0


def _paired(
    rows: Sequence[Sequence[float]], range: tuple[float, float]
) -> tuple[Interval | None, Interval | None, Interval | None]:
    known = [row for row in rows if not any(np.isnan(row))]
    if not known:
        return None, None, None
    sample = Sample(known, range=range, resamples=DRAWS)
    return sample.interval(0), sample.interval(1), sample.difference(1, 0)


def thumbs(every: Iterable[ServedAnswer], feedback: Mapping[str, Feedback]) -> Iterator[tuple[str, Interval]]:
    """By flow: the share of thumbs up, of the answers that have a thumb."""
    said: dict[str, list[bool]] = {}
    for one in every:
        if (found := feedback.get(one.run)) is not None:
            said.setdefault(one.flow, []).append(found.thumb == "up")
    for flow, ups in sorted(said.items()):
        yield flow, wilson(sum(ups), len(ups))
