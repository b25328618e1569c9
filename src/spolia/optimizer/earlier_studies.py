"""Records of studies of other corpora, with whose best flows a new study begins."""

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
from spolia.evaluation.experiment.flows import content_fingerprints, searched_groups
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.strategies import WARM_FLOWS
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.private_files import make_folder
from spolia.types import Item, digest_of

FORM = 1
SHIPPED = Path(__file__).with_name("shipped_studies.json")
QUESTION_MARKS = 64
"""Hashes of questions that a record keeps: the smallest, so that sets that share questions share some of these."""
KNOWN_SHARE = 0.5
"""Share of the places of a flow that a record must decide."""
CANDIDATE_CHARACTERS = 120
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NAME = re.compile(r".[A-Za-z][\w@.+-]{0,23}.")
Choices: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class StudyRecord:
    """Record of what a study chose, without its texts: names of places and candidates, and hashes.

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
    def from_study(cls, plan: TuningPlan, result: TunedFlow) -> Self:
        """Make the record of a study that ended."""
        names, flow = SpaceNames(plan.candidates), plan.candidates.space.flow
        fingerprints = tuple(sorted(str(fingerprint) for fingerprint in content_fingerprints(flow).values()))
        return cls(
            names.places,
            tuple(names.choices(finalist.point) for finalist in result.finalists),
            tuple(finalist.score.mean if finalist.score else None for finalist in result.finalists),
            tuple(map(str, plan.objectives.measures)),
            question_marks(plan.items),
            corpus=digest_of(fingerprints).hex()[:16],
            at=time.time(),
        )

    @classmethod
    def read(cls, plain: Any) -> Self | None:
        """Parse a record from plain data; None if it is damaged or of another version."""
        try:
            if plain["form"] != FORM:
                return None
            places = {str(name): tuple(map(str, values)) for name, values in plain["places"].items()}
            best = tuple(
                {
                    name: values[index]
                    for (name, values), index in zip(places.items(), entry["takes"], strict=True)
                    if index is not None
                }
                for entry in plain["best"]
            )
            scores = tuple(entry["score"] for entry in plain["best"])
            objective, questions = (tuple(map(str, plain[name])) for name in ("objective", "questions"))
            source, corpus, version = (str(plain[name]) for name in ("source", "corpus", "version"))
            return cls(places, best, scores, objective, questions, source, corpus, version, float(plain["at"]))
        except (ValueError, LookupError, TypeError, AttributeError):
            return None

    def json(self) -> dict[str, Any]:
        """Return the record as plain data; what a flow takes are indexes of candidates, by place."""
        plain: dict[str, Any] = {"form": FORM}
        plain |= {name: getattr(self, name) for name in ("source", "objective", "places")}
        plain["best"] = [
            {
                "score": score and round(score, 4),
                "takes": [
                    values.index(choices[name]) if name in choices else None for name, values in self.places.items()
                ],
            }
            for choices, score in zip(self.best, self.scores, strict=True)
        ]
        return plain | {name: getattr(self, name) for name in ("questions", "corpus", "version", "at")}

    @property
    def key(self) -> str:
        """Return a hash that is the same if the study is made again."""
        return digest_of((self.objective, self.places, self.questions)).hex()[:16]

    def is_suitable(self, objectives: Objectives, questions: Iterable[str]) -> bool:
        """Return whether the record is of the same measures, at any depth, and of other questions."""
        ours = [str(measure).partition("@")[0] for measure in objectives.measures]
        theirs = [notation.partition("@")[0] for notation in self.objective]
        return ours == theirs and set(self.questions).isdisjoint(questions)


class SpaceNames:
    """Names of the places and candidates of a space that do not depend on the corpus.

    >>> from spolia import Choice, Identity, step
    >>> from spolia.core.combinators.space import Space
    >>> @step
    ... def shown(text: str, *, prompt: str = "Answer in one word.") -> str:
    ...     return prompt + text
    >>> names = SpaceNames(FlowTable(Space(Choice(Identity(), shown, name="shown"))))
    >>> names.places, names.choices({"shown": 0}), names.point({"shown": "Identity", "cut": "1"})
    ({'shown': ('Identity', 'shown')}, {'shown': 'Identity'}, {'shown': 0})
    """

    def __init__(self, candidates: FlowTable) -> None:
        self.candidates, space = candidates, candidates.space
        paths = {group.corpus.path for group in searched_groups(space.flow)}
        bases = [name.partition("#")[0] for name in space.places]  # what follows is a hash, also of the corpus
        counts, occurrences = Counter(bases), Counter[str]()
        self._names: dict[str, str] = {}
        self.places: dict[str, tuple[str, ...]] = {}
        for name, base in zip(space.places, bases, strict=True):
            occurrences[base] += 1
            self._names[name] = common = base if counts[base] == 1 else f"{base}#{occurrences[base]}"
            self.places[common] = tuple(_hash_texts(text, paths) for text in candidates.candidate_texts(name))

    def choices(self, point: Point) -> dict[str, str]:
        """Return what a point takes, by name."""
        return {self._names[name]: self.places[self._names[name]][index] for name, index in point.items()}

    def point(self, choices: Choices) -> dict[str, int]:
        """Return the point of these choices, as far as the places and candidates exist here."""
        return {
            name: self.places[common].index(choices[common])
            for name, common in self._names.items()
            if choices.get(common) in self.places[common]
        }

    def is_known(self, point: Point) -> bool:
        """Return whether a point decides enough of the places of its flow."""
        space = self.candidates.space
        open_ = [name for name in space.complete(point) if len(space.places[name].values) > 1]
        return sum(name in point for name in open_) >= max(1, KNOWN_SHARE * len(open_))


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Points with which a search begins, and their studies: the number of your own, and the data of shipped ones."""

    points: tuple[Point, ...] = ()
    own: int = 0
    shipped: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Format the warm start in one line.

        >>> print(WarmStart(({"cut": 1},), 2, ("squad_newwiki",)))
        The search began with 1 flow that was best in 3 studies of other questions, shipped with Spolia: squad_newwiki.
        """
        flows = several(len(self.points), "flow")
        were = "was" if len(self.points) == 1 else "were"
        shipped = f", shipped with Spolia: {', '.join(self.shipped)}" if self.shipped else ""
        studies = "1 study" if (n := self.own + len(self.shipped)) == 1 else f"{n} studies"
        return f"The search began with {flows} that {were} best in {studies} of other questions{shipped}."

    def json(self) -> dict[str, Any]:
        """Return the warm start as plain data."""
        return {"points": [*map(dict, self.points)], "own": self.own, "shipped": [*self.shipped]}

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a stored warm start; None if no readable one exists."""
        try:
            plain = checksums.recall(path) or {}
            points = tuple({str(name): int(index) for name, index in point.items()} for point in plain["points"])
            return cls(points, int(plain["own"]), tuple(map(str, plain["shipped"])))
        except (ValueError, LookupError, TypeError, AttributeError):
            return None


@dataclass(frozen=True)
class EarlierStudies:
    """Folder with a record of each study that ended, and the records that are shipped with Spolia.

    Args:
        folder: made with the first record.
        shipped: a file of records.
        questions: the marks of all questions of a data set, where a study may ask some of them.
    """

    folder: Path
    shipped: Path | None = SHIPPED
    questions: tuple[str, ...] = ()

    def find_warm_start(self, plan: TuningPlan) -> WarmStart:
        """Return the best points of suitable studies: first the best of each, then the second of each, and so on; your
        own studies come first, the newest before."""
        names, questions = SpaceNames(plan.candidates), {*question_marks(plan.items), *self.questions}
        by_record: list[list[tuple[StudyRecord, Point]]] = []
        for record in self._read_records():
            if record.is_suitable(plan.objectives, questions):
                points = (names.point(choices) for choices in record.best)
                by_record.append([(record, point) for point in points if names.is_known(point)])
        entries: dict[tuple[tuple[str, int], ...], tuple[StudyRecord, Point]] = {}
        for entry in filter(None, chain.from_iterable(zip_longest(*by_record))):
            if len(entries) < WARM_FLOWS:
                entries.setdefault(tuple(entry[1].items()), entry)
        records = dict.fromkeys(record for record, _ in entries.values())
        shipped = tuple(record.source for record in records if record.source)
        return WarmStart(tuple(point for _, point in entries.values()), len(records) - len(shipped), shipped)

    def store_record(self, record: StudyRecord) -> None:
        """Write a record, in place of that of the same study. A folder that cannot be written is ignored."""
        record = replace(record, questions=tuple(sorted({*record.questions, *self.questions})))
        path = self.folder / f"{record.key}.json"
        # A record only helps later studies: a read-only folder must not fail this one.
        with suppress(OSError):
            make_folder(self.folder)
            checksums.write(path, record.json())

    def _read_records(self) -> list[StudyRecord]:
        files = map(checksums.recall, sorted(self.folder.glob("*.json")))  # `glob` has no order
        own_records = filter(None, map(StudyRecord.read, filter(None, files)))
        shipped = map(StudyRecord.read, json.loads(self.shipped.read_bytes()) if self.shipped else ())
        return [*sorted(own_records, key=lambda record: (-record.at, record.key)), *filter(None, shipped)]


def question_marks(items: Iterable[Item]) -> tuple[str, ...]:
    """Return hashes of questions: the smallest of them."""
    return tuple(sorted({digest_of(item.question).hex()[:12] for item in items})[:QUESTION_MARKS])


def _hash_texts(candidate: str, paths: Iterable[str]) -> str:
    """Return a candidate without paths of stores and without texts: texts other than short names become hashes."""
    for path in paths:
        candidate = candidate.replace(path, "")
    text = _QUOTED.sub(lambda match: match[0] if _NAME.fullmatch(match[0]) else f"'{_hash_text(match[0])}'", candidate)
    return text if len(text) <= CANDIDATE_CHARACTERS else _hash_text(text)


def _hash_text(text: str) -> str:
    return f"#{digest_of(text).hex()[:12]}"
