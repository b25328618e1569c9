"""What a flow's results depend on, so that it can be said what has changed: documents, cuts, indexes, code, models."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any, TypeAlias

from spolia import __version__
from spolia.core.run_context import access
from spolia.evaluation.experiment.flows import Flow, code_of, groups_of, inside, written
from spolia.models.prompting.role import PromptFile, Role
from spolia.models.protocols import Embedder, LanguageModel
from spolia.run import Run
from spolia.stores.manifest import Manifest
from spolia.types import Value

FlowSignature: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By kind (`documents`, `chunks`, `index`, `flow`, …) what there is of it, as plain data."""


FEW = 2_000
"""Documents that are all written down; of more, those that are gold or were found."""


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
        """Of the documents those that are wanted, and those that were known before; all if they are few. By name."""
        few, every = len(self.documents) <= FEW, self.documents
        return {name: every[name] for name in sorted(every) if few or name in wanted or name in before}

    @property
    def content(self) -> str:
        """A hash of all documents."""
        return _hash(*(f"{name} {self.documents[name].content}" for name in sorted(self.documents)))

    @property
    def cuts(self) -> str:
        """A hash of how all documents are cut."""
        return _hash(*(f"{name} {self.documents[name].cuts!r}" for name in sorted(self.documents)))


def signature(flow: Flow, held: SearchedGroups, run: Run) -> FlowSignature:
    """What a flow's results depend on. Where its stores are is no part of it: the same on every machine."""
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
