"""Results of a flow on questions with all that they depend on, so that the gate can name what has changed."""

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
from spolia.evaluation.data.json_lines import replace_files
from spolia.evaluation.experiment.flows import (
    Flow,
    code_hashes,
    content_fingerprints,
    portable_notation,
    searched_groups,
    walk_parts,
)
from spolia.evaluation.experiment.gold_locations import GoldLocations, gold_document
from spolia.evaluation.experiment.score_table import Cell
from spolia.evaluation.measures.costs import shown_hits
from spolia.evaluation.measures.measure import Observation, SetMeasure
from spolia.evaluation.measures.quote_places import GoldPlace, QuoteCoverage
from spolia.models.prompting.role import PromptFile, Role
from spolia.models.protocols import Embedder, LanguageModel
from spolia.run import Run
from spolia.stores.manifest import Manifest
from spolia.types import Answer, Failure, Gold, Hit, Item, Quote, Value, digest_of

FlowSignature: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By kind (`documents`, `chunks`, `index`, `flow`, …) what there is of it, as plain data."""


ALL_DOCUMENTS_UP_TO = 2_000
"""Up to this many documents are all recorded; of more, the gold and the found documents."""


@dataclass(frozen=True)
class KnownDocument(Value):
    """Hashes of a document: one of title and text, and for each searched group one of its nodes with their count."""

    content: str
    cuts: tuple[tuple[str, str, int], ...] = ()

    def find_recut(self, document: "KnownDocument") -> list[tuple[str, int, int]]:
        """Return the groups that both have and that cut it differently, each with the numbers of its nodes."""
        theirs = {group: (cut, nodes) for group, cut, nodes in document.cuts}
        shared = ((group, cut, nodes, *theirs[group]) for group, cut, nodes in self.cuts if group in theirs)
        return [(group, nodes, now) for group, cut, nodes, new, now in shared if cut != new]


@dataclass(frozen=True)
class SearchedGroups(Value):
    """Contents of the searched groups, as this user sees them: manifests, documents by source, names by id."""

    groups: Mapping[str, tuple[Manifest, int, int]] = field(default_factory=dict)
    documents: Mapping[str, KnownDocument] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_flow(cls, flow: Flow) -> "SearchedGroups":
        """Collect what the groups of a flow hold; empty if it searches no store."""
        groups: dict[str, tuple[Manifest, int, int]] = {}
        sources: dict[str, tuple[str, str]] = {}
        cuts: dict[str, dict[str, list[Any]]] = {}
        for group in searched_groups(flow):
            snapshot = group.snapshot()
            name = next(candidate for candidate in _candidate_names(group.name) if candidate not in groups)
            documents = {
                document.id: (document.uri or document.id, _hash(document.title, document.text))
                for document in snapshot.documents(access())
            }
            for node in snapshot.all_nodes(group.name, access()):
                place = (node.span.start, node.span.end) if node.span else ()
                entry = (node.number, place, _hash(node.indexed_text))
                cuts.setdefault(node.document, {}).setdefault(name, []).append(entry)
            nodes = sum(len(cut.get(name, ())) for cut in cuts.values())
            manifest = snapshot.manifest(group.name)
            readers = manifest.reader or ", ".join(snapshot.reader_versions())
            groups[name] = (manifest.but(reader=readers), len(documents), nodes)
            sources |= documents
        names: dict[str, str] = {}
        documents_by_name: dict[str, KnownDocument] = {}
        for id, (uri, content) in sources.items():
            name = names[id] = next(
                candidate for candidate in _candidate_names(uri) if candidate not in documents_by_name
            )
            cut = cuts.get(id, {}).items()
            hashed = tuple((group, _hash(*map(repr, sorted(nodes))), len(nodes)) for group, nodes in cut)
            documents_by_name[name] = KnownDocument(content, hashed)
        return cls(groups, documents_by_name, names)

    def select_documents(self, names: Set[str], recorded: Mapping[str, KnownDocument]) -> dict[str, KnownDocument]:
        """Return the named documents and those recorded before, by name; all if they are few."""
        records_all, documents = len(self.documents) <= ALL_DOCUMENTS_UP_TO, self.documents
        return {name: documents[name] for name in sorted(documents) if records_all or name in names or name in recorded}

    @property
    def content(self) -> str:
        return _hash(*(f"{name} {self.documents[name].content}" for name in sorted(self.documents)))

    @property
    def cuts(self) -> str:
        return _hash(*(f"{name} {self.documents[name].cuts!r}" for name in sorted(self.documents)))


def compute_signature(flow: Flow, searched_groups: SearchedGroups, run: Run) -> FlowSignature:
    """Return what a flow's results depend on. Paths of stores do not count, so it is the same on every machine."""
    chunks, indexes = {}, {}
    for name, (manifest, _, _) in searched_groups.groups.items():
        recipe = {"transform": manifest.transform, "definition": manifest.definition, "reader": manifest.reader}
        chunks[name] = recipe | {"parent": manifest.parent, "ref": manifest.ref, "code": manifest.signature}
        embedded = [f"{embedding.description} {embedding.fingerprint}".strip() for embedding in manifest.embeddings]
        indexes[name] = {"analyzer": repr(manifest.analyzer), "embeddings": ", ".join(embedded)}
    documents = {name: number for name, (_, number, _) in searched_groups.groups.items()}
    nodes = {name: number for name, (_, _, number) in searched_groups.groups.items()}
    parts = list(walk_parts(flow))
    return {
        "documents": {"number": documents, "content": searched_groups.content},
        "chunks": {"number": nodes, "content": searched_groups.cuts, **chunks},
        "index": indexes,
        "flow": {"written": portable_notation(flow), "code": code_hashes(flow)},
        "models": {part.name: part.fingerprint() for part in parts if isinstance(part, LanguageModel)},
        "prompts": {part.prompt: part.fingerprint() for part in parts if isinstance(part, Role)}
        | {part.place: part.fingerprint() for part in flow.resources if isinstance(part, PromptFile)},
        "embedders": {resource.name: resource.fingerprint() for resource in parts if isinstance(resource, Embedder)},
        "asked for": {"principals": sorted(run.principals), "filter": repr(run.filter or "")},
        "Spolia": {"version": __version__},
    }


def _candidate_names(name: str) -> Iterator[str]:
    """Yield a name, then numbered forms of it for stores in which another thing has that name."""
    yield name
    yield from (f"{name} ({number})" for number in count(2))


def _hash(*texts: str) -> str:
    digest = blake2b(digest_size=8)
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()


RankSteps: TypeAlias = tuple[tuple[int, float], ...]
"""Ranks at which more of it was seen, each with the share of its characters that was seen so far."""


def best_steps(places: Iterable[Gold], found_places: Sequence[GoldPlace]) -> RankSteps:
    """Return the steps of a passage with several places: those of the place that was seen most, then first.

    >>> from spolia.types import Span
    >>> found = [GoldPlace("d", Span(0, 8)), GoldPlace("e"), GoldPlace("d", Span(8, 20))]
    >>> best_steps([Quote("d", 0, "The moon pulls.")], found), best_steps(["e"], found), best_steps(["f"], found)
    (((1, 0.5384615384615384), (3, 1.0)), ((2, 1.0),), ())
    """
    all_steps = [tuple(_coverage_steps(place, found_places)) for place in places]
    return min(all_steps, key=lambda steps: (-steps[-1][1], steps[-1][0]) if steps else (0.0, 0), default=())


def _coverage_steps(gold: Gold, found_places: Sequence[GoldPlace]) -> Iterator[tuple[int, float]]:
    coverage = QuoteCoverage(gold) if isinstance(gold, Quote) else None
    for rank, place in enumerate(found_places, start=1):
        if coverage is None and gold == place.document:
            yield rank, 1.0
            return
        if coverage is not None and place.document == coverage.quote.document and coverage.add_place(place):
            yield rank, coverage.share
            if not coverage.uncovered:
                return


def format_steps(steps: RankSteps) -> str:
    """Format rank steps in words.

    >>> format_steps(()), format_steps(((3, 1.0),)), format_steps(((1, 0.4),))
    ('not found', 'rank 3', '40 % of it at rank 1')
    >>> format_steps(((1, 0.4), (5, 0.7), (9, 1.0)))
    '40 % of it at rank 1, all by rank 9'
    """
    if not steps:
        return "not found"
    (first, share), (last, last_share) = steps[0], steps[-1]
    if share >= 1:
        return f"rank {first}"
    begins = f"{int(100 * share)} % of it at rank {first}"
    return (
        begins
        if len(steps) == 1
        else f"{begins}, {'all' if last_share >= 1 else f'{int(100 * last_share)} %'} by rank {last}"
    )


RECORDED_PASSAGES, ORDERED_PASSAGES = 10, 100
"""Passages of each question that are written down, and whose order is."""
RECORDED_CHARACTERS, COMPARED_CHARACTERS = 240, 20_000
"""Characters of an answer that are written down, and that are compared."""
PARTS = ("text", "answer", "gold")
"""The inputs of a question's scores."""


@dataclass(frozen=True)
class BaselineQuestion(Value):
    """Result of a flow on a question: its scores, and what explains why they differ later.

    `content` and `answered` are hashes of the question's `PARTS` and of the answer, `order` of all that was found.
    `found` has the first passages, document, start and end; `gold` the ranks at which how much of each gold passage was
    seen.
    """

    item: str
    content: tuple[str, ...]
    seen: Mapping[str, Observation | None]
    found: tuple[tuple[str, int, int], ...] = ()
    order: str = ""
    about: tuple[str, ...] = ()
    gold: Mapping[str, RankSteps] = field(default_factory=dict)
    answer: str = ""
    answered: str = ""
    failure: str = ""
    degraded: tuple[str, ...] = ()

    @classmethod
    def from_cell(cls, item: Item, cell: Cell, places: GoldLocations, names: Mapping[str, str]) -> "BaselineQuestion":
        gold = [passage for group in item.gold for passage in group]
        gold_documents = {gold_document(place) for passage in gold for place in places.places_for(passage)}
        hits, result = shown_hits(cell.case)[:ORDERED_PASSAGES], cell.case.result
        hit_places = [GoldPlace.from_hit(hit) for hit in hits]
        answer = result.text[:COMPARED_CHARACTERS] if isinstance(result, Answer) else ""
        cited = (
            tuple(dict.fromkeys(citation.document for citation in result.citations))
            if isinstance(result, Answer)
            else ()
        )
        return cls(
            item.id,
            hash_item(item),
            dict(cell.observations),
            tuple(
                (names.get(place.document, place.document), *_ends(hit))
                for place, hit in zip(hit_places, hits, strict=True)
            )[:RECORDED_PASSAGES],
            short_hash([(hit.node.id, *_ends(hit)) for hit in hits]),
            tuple(sorted(names.get(document, document) for document in gold_documents)),
            {_name_gold(passage, names): best_steps(places.places_for(passage), hit_places) for passage in gold},
            answer[:RECORDED_CHARACTERS],
            short_hash((answer, cited)),
            f"{result.kind}: {result.message}"[:RECORDED_CHARACTERS] if isinstance(result, Failure) else "",
            tuple(step.step for step in cell.steps if step.reasons),
        )

    @property
    def documents(self) -> tuple[str, ...]:
        """Return the names of gold documents and of found ones."""
        return tuple(dict.fromkeys([*self.about, *(name for name, _, _ in self.found)]))

    @classmethod
    def from_plain(cls, item: str, plain: Mapping[str, Any]) -> "BaselineQuestion":
        observations = {
            name: None if numbers is None else tuple(map(float, numbers)) for name, numbers in plain["seen"].items()
        }
        passages = tuple((str(name), int(start), int(end)) for name, start, end in plain["found"])
        fields: dict[str, Any] = {name: tuple(map(str, plain[name])) for name in ("content", "about")}
        fields["degraded"] = tuple(map(str, plain.get("degraded", ())))  # earlier versions wrote none
        fields["gold"] = {
            name: tuple((int(rank), float(share)) for rank, share in steps) for name, steps in plain["gold"].items()
        }
        return cls(item, **{**plain, **fields, "seen": observations, "found": passages})

    def plain(self) -> dict[str, Any]:
        names = (
            name for name in type(self).__dataclass_fields__ if name != "item" and (name != "degraded" or self.degraded)
        )
        return {name: getattr(self, name) for name in names}


def hash_item(item: Item) -> tuple[str, ...]:
    """Hash the parts of a question. Fields that do not affect scores, such as a type, may change."""
    return short_hash(item.question), short_hash(item.answers), short_hash((item.gold, item.grades))


def _ends(hit: Hit) -> tuple[int, int]:
    return (hit.node.span.start, hit.node.span.end) if hit.node.span is not None else (-1, -1)


def _name_gold(gold: Gold, names: Mapping[str, str]) -> str:
    name = names.get(gold_document(gold), gold_document(gold))
    return str(gold.but(document=name)) if isinstance(gold, Quote) else name


def short_hash(value: object) -> str:
    """Return a content hash that is short enough to be read by people."""
    return digest_of(value).hex()[:16]


FORM = 3


@dataclass(frozen=True)
class Baseline(Value):
    """Results of one flow on questions, and all that they depend on.

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
        return {question.item: question for question in self.questions}

    def select_items(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that the baseline has, in their order."""
        recorded = self.by_item
        return [item for item in items if item.id in recorded]

    def write(self, path: str | Path) -> None:
        """Write the baseline as JSON, a line for each document and question, so that version control shows what
        differs."""
        with replace_files(Path(path)) as (part,):
            part.write_text(self.text(), "utf-8", errors="backslashreplace")  # ids can hold half characters

    def text(self) -> str:
        plain = {
            "spolia_baseline": FORM,
            "data": self.data,
            "flow": self.flow,
            "command": dict(self.command),
            "measures": dict(self.measures),
            "signature": {kind: dict(part) for kind, part in self.signature.items()},
            "documents": {name: astuple(self.documents[name]) for name in sorted(self.documents)},
            "questions": {question.item: question.plain() for question in self.questions},
        }
        lines = (f"{json.dumps(name)}: {_format_block(value)}" for name, value in sign(plain).items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def read(cls, path: str | Path) -> "Baseline":
        """Read a baseline from its file; DataError if the file is missing or has another form."""
        try:
            plain = json.loads(Path(path).read_text("utf-8"))
            form = plain["spolia_baseline"]
        except FileNotFoundError as error:
            raise DataError(f"There is no baseline {path}. Write one: {_write_command(path)}") from error
        except OSError as error:
            raise DataError(
                f"{path} cannot be read: {error.strerror or error}. Write one: {_write_command(path)}"
            ) from error
        except (ValueError, RecursionError) as error:
            line_text = f" after line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise DataError(
                f"{path} is not a baseline: it is not JSON{line_text}, cut short perhaps, or with the marks of a merge "
                f"in it. Write one: {_write_command(path)}"
            ) from error
        except (LookupError, TypeError) as error:
            raise DataError(f"{path} is JSON, but no baseline. Write one: {_write_command(path)}") from error
        if form != FORM:
            is_newer = isinstance(form, int) and form > FORM
            newer = f"Upgrade: {pip_install('', '-U')}, or write" if is_newer else "Write"
            raise DataError(
                f"{path} is a baseline of form {form!r}; this version knows {FORM}. {newer} a new one: "
                f"{_write_command(path)}"
            )
        try:
            return _parse_baseline(path, check(plain))
        except ValueError as error:
            raise DataError(
                f"{path} is damaged: {error}. Take it from your version control, or write it again: "
                f"{_write_command(path)}"
            ) from error


def measure_hashes(measures: Iterable[SetMeasure]) -> dict[str, str]:
    """Return measures by their notation, each with a hash of its fields, its code, its models and its prompt files."""
    return {
        str(measure): short_hash((code_hashes(measure), content_fingerprints(measure), [repr(measure)]))
        for measure in measures
    }


def _parse_baseline(path: str | Path, plain: Mapping[str, Any]) -> Baseline:
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
            tuple(BaselineQuestion.from_plain(id, question) for id, question in plain["questions"].items()),
            dict(plain.get("command", {})),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        lacks = f"lacks {error}" if isinstance(error, KeyError) else "has something else where it has its entries"
        raise DataError(f"{path} is a damaged baseline: it {lacks}. Write a new one: {_write_command(path)}") from error


def _write_command(path: str | Path) -> str:
    return f"spolia gate FLOW --data DIR --baseline {path} --write"


def _format_block(value: object) -> str:
    if not isinstance(value, Mapping) or not value:
        return _format_line(value)
    return "{\n" + ",\n".join(f" {_format_line(name)}: {_format_line(entry)}" for name, entry in value.items()) + "\n}"


def _format_line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
