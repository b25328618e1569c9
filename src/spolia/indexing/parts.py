"""What a store is built with: what the caller says, else what it was built with, else what suits the documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spolia.errors import ManifestMismatch
from spolia.indexing.files import Found
from spolia.indexing.intake import Intake, Unreadable
from spolia.indexing.lengths import TokenCounter
from spolia.indexing.readers.choosing import Readers, versions
from spolia.indexing.splitters.sliding_window import SlidingWindow
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.stores.corpus import NodeGroup
from spolia.stores.defined import embedder_of, in_order, manifest_of, signature, transform_of
from spolia.stores.definition import Definition, Embedding, Transform
from spolia.stores.groups.growing import Growth
from spolia.stores.groups.materialising import refuse_other
from spolia.stores.lexical.analysis import Analyzer, analyzer_for
from spolia.stores.manifest import Manifest
from spolia.stores.writer import Writer

SAMPLED_FILES = 40
_SAMPLED_CHARACTERS = 5_000
_SAMPLED_BYTES = 1_000_000


def default_splitter(embedder: Embedder | None) -> SlidingWindow:
    """Windows of 200 tokens as the embedder counts them; without one, or if it does not show how, of 800 characters.

    >>> default_splitter(None)
    SlidingWindow(size=200, chars_per_token=4, tokenizer=None, covered=0.95, overlap=20)
    """
    counter = getattr(embedder, "tokenizer", None)
    return SlidingWindow(tokenizer=counter if isinstance(counter, TokenCounter) else None)


def main_definition(splitter: Transform | None, embedder: Embedder | None, analyzer: Analyzer | None) -> Definition:
    """The definition of the group that `sync` always has."""
    return Definition(
        splitter or default_splitter(embedder),
        embeddings=(Embedding(embedder),) if embedder is not None else (),
        analyzer=analyzer,
    )


@dataclass(frozen=True)
class Wanted:
    """The groups that a caller asks for.

    Args:
        main: name of the first one.
        definition: of the first one.
        groups: further ones.
        known: operators of the caller's own in definitions that the store holds.
        readers: of formats.
    """

    main: str
    definition: Definition
    groups: Sequence[NodeGroup] = ()
    known: Sequence[Operator[Any, Any] | type] = ()
    readers: Readers = ()

    def define(self, writer: Writer, found: Found, taking: Intake, *, rebuild: bool) -> bool:
        """Write the manifests of what is asked for; what is there must be the same. Whether it forgot what was there.

        Raises:
            ManifestMismatch: a group is made of something else.
            GroupError: a group that nobody defines, or that cannot be stored.
        """
        there = writer.manifests.get(self.main)
        analyzer = there.analyzer if there is not None else analyzer_for(_samples(found, taking))
        if rebuild:
            for manifest in reversed(in_order(writer.manifests)):
                if manifest.group != self.main:
                    writer.drop(manifest.group)
        reader = versions(self.readers)
        main = manifest_of(self.main, self.definition, analyzer, writer.manifests, reader)
        forgets = there is not None and there != main
        writer.define(self.main, main, rebuild=rebuild)
        for group in self.groups:
            if group.definition is not None and group.name in writer.manifests:
                refuse_other(group, writer.manifests)
        return forgets

    def growths(self, manifests: dict[str, Manifest]) -> list[Growth]:
        """All groups of the store, each with the objects that make it, in order.

        Raises:
            GroupError: one is made by what is not known here.
        """
        given = {group.name: group.definition for group in self.groups if group.definition is not None}
        given[self.main] = self.definition
        passed = [embedding.embedder for definition in given.values() for embedding in definition.embeddings]
        return [
            Growth(
                manifest.group,
                given[manifest.group].transform if manifest.group in given else transform_of(manifest, self.known),
                manifest.parent,
                manifest.ref,
                tuple(embedder_of(how, manifest.group, passed) for how in manifest.embeddings),
            )
            for manifest in in_order(manifests)
        ]

    def refuse_changed(self, manifests: dict[str, Manifest]) -> None:
        """Refuse to go on with groups of the store that would be made otherwise by now.

        Raises:
            GroupError: one is made by what is not known here.
            ManifestMismatch: the code, models or prompts of one have changed since it was built.
        """
        for manifest in in_order(manifests):
            if manifest.group in (self.main, *(group.name for group in self.groups)) or not manifest.signature:
                continue
            definition = Definition(transform_of(manifest, self.known), manifest.parent, manifest.ref)
            if manifest.signature != signature(definition, manifests):
                raise ManifestMismatch(
                    f"Group {manifest.group!r} was made by {manifest.transform}, whose code, models or prompts have "
                    f"changed since. Build it anew: spolia groups build {manifest.group} --rebuild, or in Python "
                    f"materialise([corpus.group({manifest.group!r}, definition)], rebuild=True)."
                )


def _samples(found: Found, taking: Intake) -> Iterable[str]:
    """The beginnings of some documents from all over the folder."""
    files = [file for file in found.files.values() if file.size <= _SAMPLED_BYTES]
    step = max(1, len(files) // SAMPLED_FILES)
    for file in islice(files, 0, None, step):
        try:
            yield taking.sample(file).document.text[:_SAMPLED_CHARACTERS]
        except Unreadable:
            continue  # it is recorded when its turn comes
