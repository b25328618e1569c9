"""The results of a flow on questions, and all that they depend on, so that the gate can name what has changed."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from spolia import __version__
from spolia.checksums import check, sign
from spolia.core.run_context import access
from spolia.errors import DataError, pip_install
from spolia.evaluation.data.json_lines import whole_files
from spolia.evaluation.experiment.flows import Flow, code_of, groups_of, inside, reads, written
from spolia.evaluation.experiment.gold_locations import GoldLocations, document_of
from spolia.evaluation.experiment.score_table import Cell
from spolia.evaluation.measures.costs import shown
from spolia.evaluation.measures.measure import Seen, SetMeasure
from spolia.evaluation.measures.quote_places import GoldPlace, QuoteCoverage
from spolia.models.prompting.role import PromptFile, Role
from spolia.models.protocols import Embedder, LanguageModel
from spolia.run import Run
from spolia.stores.manifest import Manifest
from spolia.types import Answer, Failure, Gold, Hit, Item, Quote, Value, digest_of

FlowSignature: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By kind (`documents`, `chunks`, `index`, `flow`, …) what there is of it, as plain data."""


FEW = 2_000
"""Up to this many documents are all recorded; of more, the gold and the found documents."""


@dataclass(frozen=True)
class KnownDocument(Value):
    """A document: a hash of its title and text, and by group that is searched a hash of its nodes and their number."""

    content: str
    cuts: tuple[tuple[str, str, int], ...] = ()

    def recut(self, other: "KnownDocument") -> list[tuple[str, int, int]]:
        """Groups that both have and that cut it otherwise, each with the numbers of its nodes."""
        theirs = {group: (cut, nodes) for group, cut, nodes in other.cuts}
        both = ((group, cut, nodes, *theirs[group]) for group, cut, nodes in self.cuts if group in theirs)
        return [(group, nodes, now) for group, cut, nodes, new, now in both if cut != new]


@dataclass(frozen=True)
class SearchedGroups(Value):
    """What the groups that a flow searches hold for this user: manifests, documents by source, names by id."""

    groups: Mapping[str, tuple[Manifest, int, int]] = field(default_factory=dict)
    documents: Mapping[str, KnownDocument] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def by(cls, flow: Flow) -> "SearchedGroups":
        """What the groups of a flow hold; nothing where it searches no store."""
        groups: dict[str, tuple[Manifest, int, int]] = {}
        found: dict[str, tuple[str, str]] = {}
        cuts: dict[str, dict[str, list[Any]]] = {}
        for group in groups_of(flow):
            snapshot = group.snapshot()
            name = next(one for one in _names(group.name) if one not in groups)
            documents = {
                one.id: (one.uri or one.id, _hash(one.title, one.text)) for one in snapshot.documents(access())
            }
            for node in snapshot.all_nodes(group.name, access()):
                place = (node.span.start, node.span.end) if node.span else ()
                made = (node.number, place, _hash(node.indexed_text))
                cuts.setdefault(node.document, {}).setdefault(name, []).append(made)
            nodes = sum(len(cut.get(name, ())) for cut in cuts.values())
            manifest = snapshot.manifest(group.name)
            readers = manifest.reader or ", ".join(snapshot.reader_versions())
            groups[name] = (manifest.but(reader=readers), len(documents), nodes)
            found |= documents
        names: dict[str, str] = {}
        known: dict[str, KnownDocument] = {}
        for id, (uri, content) in found.items():
            name = names[id] = next(one for one in _names(uri) if one not in known)
            cut = cuts.get(id, {}).items()
            hashed = tuple((group, _hash(*map(repr, sorted(nodes))), len(nodes)) for group, nodes in cut)
            known[name] = KnownDocument(content, hashed)
        return cls(groups, known, names)

    def among(self, wanted: Set[str], before: Mapping[str, KnownDocument]) -> dict[str, KnownDocument]:
        """The wanted documents and those known before, by name; all if they are few."""
        few, every = len(self.documents) <= FEW, self.documents
        return {name: every[name] for name in sorted(every) if few or name in wanted or name in before}

    @property
    def content(self) -> str:
        return _hash(*(f"{name} {self.documents[name].content}" for name in sorted(self.documents)))

    @property
    def cuts(self) -> str:
        return _hash(*(f"{name} {self.documents[name].cuts!r}" for name in sorted(self.documents)))


def signature(flow: Flow, held: SearchedGroups, run: Run) -> FlowSignature:
    """What a flow's results depend on. The paths of its stores do not count: it is the same on every machine."""
    made, searched = {}, {}
    for name, (manifest, _, _) in held.groups.items():
        of = {"transform": manifest.transform, "definition": manifest.definition, "reader": manifest.reader}
        made[name] = of | {"parent": manifest.parent, "ref": manifest.ref, "code": manifest.signature}
        embedded = [f"{one.said} {one.fingerprint}".strip() for one in manifest.embeddings]
        searched[name] = {"analyzer": repr(manifest.analyzer), "embeddings": ", ".join(embedded)}
    documents = {name: number for name, (_, number, _) in held.groups.items()}
    nodes = {name: number for name, (_, _, number) in held.groups.items()}
    parts = list(inside(flow))
    return {
        "documents": {"number": documents, "content": held.content},
        "chunks": {"number": nodes, "content": held.cuts, **made},
        "index": searched,
        "flow": {"written": written(flow), "code": code_of(flow)},
        "models": {one.name: one.fingerprint() for one in parts if isinstance(one, LanguageModel)},
        "prompts": {one.prompt: one.fingerprint() for one in parts if isinstance(one, Role)}
        | {one.place: one.fingerprint() for one in flow.resources if isinstance(one, PromptFile)},
        "embedders": {one.name: one.fingerprint() for one in parts if isinstance(one, Embedder)},
        "asked for": {"principals": sorted(run.principals), "filter": repr(run.filter or "")},
        "Spolia": {"version": __version__},
    }


def _names(name: str) -> Iterator[str]:
    """A name, and others for what has the same in another store."""
    yield name
    yield from (f"{name} ({number})" for number in count(2))


def _hash(*texts: str) -> str:
    digest = blake2b(digest_size=8)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()


RankSteps: TypeAlias = tuple[tuple[int, float], ...]
"""Ranks at which more of it was seen, each with the share of its characters that was seen so far."""


def best_steps(places: Iterable[Gold], found: Sequence[GoldPlace]) -> RankSteps:
    """The steps of a passage with several places: those of the place that is seen most, then first.

    >>> from spolia.types import Span
    >>> found = [GoldPlace("d", Span(0, 8)), GoldPlace("e"), GoldPlace("d", Span(8, 20))]
    >>> best_steps([Quote("d", 0, "The moon pulls.")], found), best_steps(["e"], found), best_steps(["f"], found)
    (((1, 0.5384615384615384), (3, 1.0)), ((2, 1.0),), ())
    """
    every = [tuple(_steps(place, found)) for place in places]
    return min(every, key=lambda steps: (-steps[-1][1], steps[-1][0]) if steps else (0.0, 0), default=())


def _steps(gold: Gold, found: Sequence[GoldPlace]) -> Iterator[tuple[int, float]]:
    seen = QuoteCoverage(gold) if isinstance(gold, Quote) else None
    for rank, one in enumerate(found, start=1):
        if seen is None and gold == one.document:
            yield rank, 1.0
            return
        if seen is not None and one.document == seen.quote.document and seen.see(one):
            yield rank, seen.share
            if not seen.unseen:
                return


def in_words(steps: RankSteps) -> str:
    """In words.

    >>> in_words(()), in_words(((3, 1.0),)), in_words(((1, 0.4),)), in_words(((1, 0.4), (5, 0.7), (9, 1.0)))
    ('not found', 'rank 3', '40 % of it at rank 1', '40 % of it at rank 1, all by rank 9')
    """
    if not steps:
        return "not found"
    (first, share), (last, seen) = steps[0], steps[-1]
    if share >= 1:
        return f"rank {first}"
    begins = f"{int(100 * share)} % of it at rank {first}"
    return begins if len(steps) == 1 else f"{begins}, {'all' if seen >= 1 else f'{int(100 * seen)} %'} by rank {last}"


FOUND, RANKED = 10, 100
"""Passages of each question that are written down, and whose order is."""
ANSWER, LONGEST = 240, 20_000
"""Characters of an answer that are written down, and that are compared."""
PARTS = ("text", "answer", "gold")
"""The inputs of a question's scores."""


@dataclass(frozen=True)
class BaselineQuestion(Value):
    """What a flow made of a question: its scores, and what decides why they differ later.

    `content` and `answered` are hashes of the question's `PARTS` and of the answer, `order` of all that was found.
    `found` has the first passages, document, start and end; `gold` the ranks at which how much of each gold passage was
    seen.
    """

    item: str
    content: tuple[str, ...]
    seen: Mapping[str, Seen | None]
    found: tuple[tuple[str, int, int], ...] = ()
    order: str = ""
    about: tuple[str, ...] = ()
    gold: Mapping[str, RankSteps] = field(default_factory=dict)
    answer: str = ""
    answered: str = ""
    failure: str = ""
    degraded: tuple[str, ...] = ()

    @classmethod
    def of(cls, item: Item, cell: Cell, places: GoldLocations, names: Mapping[str, str]) -> "BaselineQuestion":
        gold = [one for group in item.gold for one in group]
        stand = {document_of(place) for one in gold for place in places.of(one)}
        hits, result = shown(cell.case)[:RANKED], cell.case.result
        found = [GoldPlace.of(hit) for hit in hits]
        answer = result.text[:LONGEST] if isinstance(result, Answer) else ""
        cited = tuple(dict.fromkeys(one.document for one in result.citations)) if isinstance(result, Answer) else ()
        return cls(
            item.id,
            content_of(item),
            dict(cell.seen),
            tuple((names.get(one.document, one.document), *_ends(hit)) for one, hit in zip(found, hits, strict=True))[
                :FOUND
            ],
            short([(hit.node.id, *_ends(hit)) for hit in hits]),
            tuple(sorted(names.get(document, document) for document in stand)),
            {_named(one, names): best_steps(places.of(one), found) for one in gold},
            answer[:ANSWER],
            short((answer, cited)),
            f"{result.kind}: {result.message}"[:ANSWER] if isinstance(result, Failure) else "",
            tuple(one.step for one in cell.steps if one.reasons),
        )

    @property
    def documents(self) -> tuple[str, ...]:
        """Names of gold documents and of found ones."""
        return tuple(dict.fromkeys([*self.about, *(name for name, _, _ in self.found)]))

    @classmethod
    def read(cls, item: str, plain: Mapping[str, Any]) -> "BaselineQuestion":
        seen = {name: None if one is None else tuple(map(float, one)) for name, one in plain["seen"].items()}
        found = tuple((str(name), int(start), int(end)) for name, start, end in plain["found"])
        kept: dict[str, Any] = {name: tuple(map(str, plain[name])) for name in ("content", "about")}
        kept["degraded"] = tuple(map(str, plain.get("degraded", ())))
        kept["gold"] = {
            name: tuple((int(at), float(share)) for at, share in one) for name, one in plain["gold"].items()
        }
        return cls(item, **{**plain, **kept, "seen": seen, "found": found})

    def plain(self) -> dict[str, Any]:
        named = (
            name for name in type(self).__dataclass_fields__ if name != "item" and (name != "degraded" or self.degraded)
        )
        return {name: getattr(self, name) for name in named}


def content_of(item: Item) -> tuple[str, ...]:
    """Hashes of the parts of a question. Fields that say nothing of it, such as a type, may change."""
    return short(item.question), short(item.answers), short((item.gold, item.grades))


def _ends(hit: Hit) -> tuple[int, int]:
    return (hit.node.span.start, hit.node.span.end) if hit.node.span is not None else (-1, -1)


def _named(gold: Gold, names: Mapping[str, str]) -> str:
    name = names.get(document_of(gold), document_of(gold))
    return str(gold.but(document=name)) if isinstance(gold, Quote) else name


def short(value: object) -> str:
    """A content hash that is short enough to be read by people."""
    return digest_of(value).hex()[:16]


FORM = 3


@dataclass(frozen=True)
class Baseline(Value):
    """What one flow made of questions, and all that this depends on.

    Args:
        measures: by measure, a hash of what it computes.
        documents: gold and found ones, by name.
        command: the options of the command line, so that you need not repeat them: a text, or several, by option.
    """

    data: str
    flow: str
    measures: Mapping[str, str]
    signature: FlowSignature
    documents: Mapping[str, KnownDocument]
    questions: tuple[BaselineQuestion, ...]
    command: Mapping[str, str | list[str]] = field(default_factory=dict)

    @property
    def by_item(self) -> dict[str, BaselineQuestion]:
        return {one.item: one for one in self.questions}

    def among(self, items: Iterable[Item]) -> list[Item]:
        """Of some questions those that the baseline has, in their order."""
        known = self.by_item
        return [item for item in items if item.id in known]

    def write(self, path: str | Path) -> None:
        """Write it as JSON, a line for each document and question, so that a version control shows what differs."""
        with whole_files(Path(path)) as (part,):
            part.write_text(self.text(), "utf-8", errors="backslashreplace")

    def text(self) -> str:
        plain = {
            "spolia_baseline": FORM,
            "data": self.data,
            "flow": self.flow,
            "command": dict(self.command),
            "measures": dict(self.measures),
            "signature": {kind: dict(one) for kind, one in self.signature.items()},
            "documents": {name: astuple(self.documents[name]) for name in sorted(self.documents)},
            "questions": {one.item: one.plain() for one in self.questions},
        }
        lines = (f"{json.dumps(name)}: {_block(value)}" for name, value in sign(plain).items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def read(cls, path: str | Path) -> "Baseline":
        """A baseline from its file; DataError if the file is missing or has another form."""
        try:
            plain = json.loads(Path(path).read_text("utf-8"))
            form = plain["spolia_baseline"]
        except FileNotFoundError as error:
            raise DataError(f"There is no baseline {path}. Write one: {_writing(path)}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}. Write one: {_writing(path)}") from error
        except (ValueError, RecursionError) as error:
            where = f" after line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise DataError(
                f"{path} is not a baseline: it is not JSON{where}, cut short perhaps, or with the marks of a merge in "
                f"it. Write one: {_writing(path)}"
            ) from error
        except (LookupError, TypeError) as error:
            raise DataError(f"{path} is JSON, but no baseline. Write one: {_writing(path)}") from error
        if form != FORM:
            is_newer = isinstance(form, int) and form > FORM
            newer = f"Upgrade: {pip_install('', '-U')}, or write" if is_newer else "Write"
            raise DataError(
                f"{path} is a baseline of form {form!r}; this version knows {FORM}. {newer} a new one: {_writing(path)}"
            )
        try:
            return _baseline(path, check(plain))
        except ValueError as error:
            raise DataError(
                f"{path} is damaged: {error}. Take it from your version control, or write it again: {_writing(path)}"
            ) from error


def measured_by(measures: Iterable[SetMeasure]) -> dict[str, str]:
    """Measures as they are written, each with a hash of its fields, its code, its models and its prompt files."""
    return {str(one): short((code_of(one), reads(one), [repr(one)])) for one in measures}


def _baseline(path: str | Path, plain: Mapping[str, Any]) -> Baseline:
    try:
        return Baseline(
            plain["data"],
            plain["flow"],
            dict(plain["measures"]),
            plain["signature"],
            {
                name: KnownDocument(content, tuple((group, cut, nodes) for group, cut, nodes in cuts))
                for name, (content, cuts) in plain["documents"].items()
            },
            tuple(BaselineQuestion.read(id, one) for id, one in plain["questions"].items()),
            dict(plain.get("command", {})),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        lacks = f"lacks {error}" if isinstance(error, KeyError) else "has something else where it has its entries"
        raise DataError(f"{path} is a damaged baseline: it {lacks}. Write a new one: {_writing(path)}") from error


def _writing(path: str | Path) -> str:
    return f"spolia gate FLOW --data DIR --baseline {path} --write"


def _block(value: object) -> str:
    if not isinstance(value, Mapping) or not value:
        return _line(value)
    return "{\n" + ",\n".join(f" {_line(name)}: {_line(one)}" for name, one in value.items()) + "\n}"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
