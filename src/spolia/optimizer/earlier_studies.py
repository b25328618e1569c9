"""What studies of other corpora chose, so that a new one need not begin with nothing."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Self, TypeAlias

from spolia import __version__, checksums
from spolia.core.combinators.space import Point
from spolia.core.plurals import several
from spolia.evaluation.experiment.flows import groups_of, reads
from spolia.optimizer.candidates import Candidates
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.strategies import WARM
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.private_files import make_folder
from spolia.types import Item, digest_of

FORM = 1
SHIPPED = Path(__file__).with_name("shipped_studies.json")
MARKS = 64
"""Hashes of questions that a record keeps: the smallest, so that sets that share questions share some of these."""
KNOWN = 0.5
"""Share of the places of a flow that a record must decide."""
LONGEST = 120
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NAME = re.compile(r".[A-Za-z][\w@.+-]{0,23}.")
Choices: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """What a study chose, without its texts: names of places and candidates, and hashes.

    Args:
        places: by place the candidates; quoted texts that are no short names are hashes.
        best: the finalists, the best first: what is taken at each place.
        scores: theirs on fresh questions; None where all questions chose.
        objective: the measures, also those with a limit.
        questions: hashes of questions, the `MARKS` smallest of the study, and of its whole data set.
        source: of one that is shipped, which data it is of; empty for your own.
        corpus: a hash of what the flows read.
        version: of Spolia.
        at: when it ended, in seconds since 1970.
    """

    places: Mapping[str, tuple[str, ...]]
    best: tuple[Choices, ...]
    scores: tuple[float | None, ...]
    objective: tuple[str, ...]
    questions: tuple[str, ...]
    source: str = ""
    corpus: str = ""
    version: str = __version__
    at: float = 0.0

    @classmethod
    def of(cls, plan: TuningPlan, found: TunedFlow) -> Self:
        """The record of a study that ended."""
        names, flow = SpaceNames(plan.candidates), plan.candidates.space.flow
        held = tuple(sorted(str(one) for one in reads(flow).values()))
        return cls(
            names.places,
            tuple(names.choices(one.point) for one in found.finalists),
            tuple(one.score.mean if one.score else None for one in found.finalists),
            tuple(map(str, plan.objectives.measures)),
            question_marks(plan.items),
            corpus=digest_of(held).hex()[:16],
            at=time.time(),
        )

    @classmethod
    def read(cls, plain: Any) -> Self | None:
        """From plain data; None where that is damaged, or of another version."""
        try:
            if plain["form"] != FORM:
                return None
            places = {str(name): tuple(map(str, values)) for name, values in plain["places"].items()}
            best = tuple(
                {
                    name: values[at]
                    for (name, values), at in zip(places.items(), one["takes"], strict=True)
                    if at is not None
                }
                for one in plain["best"]
            )
            scores = tuple(one["score"] for one in plain["best"])
            objective, questions = (tuple(map(str, plain[name])) for name in ("objective", "questions"))
            source, corpus, version = (str(plain[name]) for name in ("source", "corpus", "version"))
            return cls(places, best, scores, objective, questions, source, corpus, version, float(plain["at"]))
        except (ValueError, LookupError, TypeError, AttributeError):
            return None

    def json(self) -> dict[str, Any]:
        """Plain data; what a flow takes are indexes of candidates, by place."""
        found: dict[str, Any] = {"form": FORM}
        found |= {name: getattr(self, name) for name in ("source", "objective", "places")}
        found["best"] = [
            {
                "score": score and round(score, 4),
                "takes": [
                    values.index(choices[name]) if name in choices else None for name, values in self.places.items()
                ],
            }
            for choices, score in zip(self.best, self.scores, strict=True)
        ]
        return found | {name: getattr(self, name) for name in ("questions", "corpus", "version", "at")}

    @property
    def key(self) -> str:
        """The same for a study that is made again."""
        return digest_of((self.objective, self.places, self.questions)).hex()[:16]

    def suits(self, objectives: Objectives, questions: Iterable[str]) -> bool:
        """Whether it is of the same measures, at any depth, and of other questions."""
        ours = [str(one).partition("@")[0] for one in objectives.measures]
        theirs = [one.partition("@")[0] for one in self.objective]
        return ours == theirs and set(self.questions).isdisjoint(questions)


class SpaceNames:
    """Places and candidates of a space as they are called whatever the corpus is.

    >>> from spolia import Choice, Identity, step
    >>> from spolia.core.combinators.space import Space
    >>> @step
    ... def shown(text: str, *, prompt: str = "Answer in one word.") -> str:
    ...     return prompt + text
    >>> names = SpaceNames(Candidates(Space(Choice(Identity(), shown, name="shown"))))
    >>> names.places, names.choices({"shown": 0}), names.point({"shown": "Identity", "cut": "1"})
    ({'shown': ('Identity', 'shown')}, {'shown': 'Identity'}, {'shown': 0})
    """

    def __init__(self, candidates: Candidates) -> None:
        self.candidates, space = candidates, candidates.space
        paths = {group.corpus.path for group in groups_of(space.flow)}
        bases = [name.partition("#")[0] for name in space.places]  # what follows is a hash, also of the corpus
        counts, seen = Counter(bases), Counter[str]()
        self._names: dict[str, str] = {}
        self.places: dict[str, tuple[str, ...]] = {}
        for name, base in zip(space.places, bases, strict=True):
            seen[base] += 1
            self._names[name] = common = base if counts[base] == 1 else f"{base}#{seen[base]}"
            self.places[common] = tuple(_without_texts(one, paths) for one in candidates.written(name))

    def choices(self, point: Point) -> dict[str, str]:
        """What a point takes, by name."""
        return {self._names[name]: self.places[self._names[name]][at] for name, at in point.items()}

    def point(self, choices: Choices) -> dict[str, int]:
        """Where that is here, as far as its places and candidates are."""
        return {
            name: self.places[common].index(choices[common])
            for name, common in self._names.items()
            if choices.get(common) in self.places[common]
        }

    def is_known(self, point: Point) -> bool:
        """Whether a point decides enough of the places of its flow."""
        space = self.candidates.space
        open_ = [name for name in space.completed(point) if len(space.places[name].values) > 1]
        return sum(name in point for name in open_) >= max(1, KNOWN * len(open_))


@dataclass(frozen=True, eq=False)
class WarmStart:
    """The points with which a search begins, and their studies: the number of your own, and the data of shipped
    ones."""

    points: tuple[Point, ...] = ()
    own: int = 0
    shipped: tuple[str, ...] = ()

    def __str__(self) -> str:
        """In one line.

        >>> print(WarmStart(({"cut": 1},), 2, ("squad_newwiki",)))
        The search began with 1 flow that was best in 3 studies of other questions, shipped with Spolia: squad_newwiki.
        """
        flows = several(len(self.points), "flow")
        were = "was" if len(self.points) == 1 else "were"
        shipped = f", shipped with Spolia: {', '.join(self.shipped)}" if self.shipped else ""
        studies = "1 study" if (n := self.own + len(self.shipped)) == 1 else f"{n} studies"
        return f"The search began with {flows} that {were} best in {studies} of other questions{shipped}."

    def json(self) -> dict[str, Any]:
        """Plain data."""
        return {"points": [*map(dict, self.points)], "own": self.own, "shipped": [*self.shipped]}

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """A stored warm start; None if no readable one exists."""
        try:
            plain = checksums.recall(path) or {}
            points = tuple({str(name): int(at) for name, at in point.items()} for point in plain["points"])
            return cls(points, int(plain["own"]), tuple(map(str, plain["shipped"])))
        except (ValueError, LookupError, TypeError, AttributeError):
            return None


@dataclass(frozen=True)
class EarlierStudies:
    """A folder with a record of each study that ended, and the records that are shipped with Spolia.

    Args:
        folder: made with the first record.
        shipped: a file of records.
        questions: the marks of all questions of a data set, where a study may ask some of them.
    """

    folder: Path
    shipped: Path | None = SHIPPED
    questions: tuple[str, ...] = ()

    def warm_start(self, plan: TuningPlan) -> WarmStart:
        """The best points of studies of other questions, of each its best first, then of each its second, and so on. Of
        equal standing, one's own come first, the newest before."""
        names, questions = SpaceNames(plan.candidates), {*question_marks(plan.items), *self.questions}
        by_record: list[list[tuple[StudyRecord, Point]]] = []
        for record in self._records():
            if record.suits(plan.objectives, questions):
                points = (names.point(choices) for choices in record.best)
                by_record.append([(record, point) for point in points if names.is_known(point)])
        taken: dict[tuple[tuple[str, int], ...], tuple[StudyRecord, Point]] = {}
        for one in filter(None, chain.from_iterable(zip_longest(*by_record))):
            if len(taken) < WARM:
                taken.setdefault(tuple(one[1].items()), one)
        records = dict.fromkeys(record for record, _ in taken.values())
        shipped = tuple(record.source for record in records if record.source)
        return WarmStart(tuple(point for _, point in taken.values()), len(records) - len(shipped), shipped)

    def keep(self, record: StudyRecord) -> None:
        """Write a record down, in place of that of the same study; a folder that cannot be written to keeps none."""
        record = replace(record, questions=tuple(sorted({*record.questions, *self.questions})))
        path = self.folder / f"{record.key}.json"
        with suppress(OSError):
            make_folder(self.folder)
            checksums.write(path, record.json())

    def _records(self) -> list[StudyRecord]:
        files = map(checksums.recall, sorted(self.folder.glob("*.json")))
        own = filter(None, map(StudyRecord.read, filter(None, files)))
        shipped = map(StudyRecord.read, json.loads(self.shipped.read_bytes()) if self.shipped else ())
        return [*sorted(own, key=lambda record: (-record.at, record.key)), *filter(None, shipped)]


def question_marks(items: Iterable[Item]) -> tuple[str, ...]:
    """Hashes of questions: the smallest of them."""
    return tuple(sorted({digest_of(item.question).hex()[:12] for item in items})[:MARKS])


def _without_texts(candidate: str, paths: Iterable[str]) -> str:
    """A candidate as it is written, wherever its stores are: texts that are no short names become hashes."""
    for path in paths:
        candidate = candidate.replace(path, "")
    found = _QUOTED.sub(lambda one: one[0] if _NAME.fullmatch(one[0]) else f"'{_hash(one[0])}'", candidate)
    return found if len(found) <= LONGEST else _hash(found)


def _hash(text: str) -> str:
    return f"#{digest_of(text).hex()[:12]}"
