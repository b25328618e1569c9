"""Documents for the tests of stores, how they are stored, and by definition who may find which of their nodes."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from spolia.errors import SpoliaError
from spolia.filters import Between, Condition, Field, Schema, where
from spolia.models.vectors import SparseRows
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Metric
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.open_store import forget
from spolia.stores.snapshot.records import file_meta, with_file_fields
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.writer import Writer
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Document, Meta, Node, Span, Value

DENSE, SPARSE = HashingEmbedder(24), "terms/1"
FIELDS = Schema((Field("year", "int"), Field("kind", default="note")))
ALL = frozenset({"ann", "bob", "staff"})
ASKERS = (frozenset[str](), frozenset({"ann"}), frozenset({"staff", "eve"}), ALL)
FILTERS: tuple[Condition | None, ...] = (
    None,
    where(kind="note"),
    ~where(year=(2, 3)),
    Between("year", at_least=2) & where(kind="draft"),
    where(file_name="7.txt"),
)
QUESTIONS = ("stone wall", "the tide of the sea", "salt", "zeppelin")
WORDS = ("stone", "wall", "tide", "sea", "salt", "moon", "bridge", "temple", "river", "owl")


@dataclass(frozen=True)
class Entry(Value):
    """A source with its document, a node for each line and word; `first` may read the first line, if given apart."""

    uri: str
    text: str
    readers: tuple[str, ...] = ()
    meta: Meta = ()
    first: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return the document's id; two sources with the same of everything hold one document."""
        return f"{crc32(repr((self.text, self.readers, self.meta, self.first)).encode('utf-8', 'replace')):08x}"

    @property
    def source(self) -> SourceRow:
        return SourceRow(self.uri, len(self.text), 1_000, self.id, self.id)

    @property
    def document(self) -> Document:
        return Document(
            self.id, self.text, uri=self.uri, title=f"Title {self.id}", meta=self.meta, readers=self.readers
        )

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes of both groups, each line before its words."""
        start = words = 0
        for number, line in enumerate(self.text.splitlines(keepends=True), 1):
            span, own = Span(start, start + len(line), lines=(number, number)), self.first if number == 1 else ()
            id = f"{self.id}:{number}"
            whole = Node(
                id, line, self.id, "line", span, uri=self.uri, parent=self.id, meta=(*self.meta, ("at", number))
            )
            yield whole.but(number=number, readers=own)
            for word in line.split():
                words += 1
                node = Node(f"{self.id}:w{words}", word, self.id, "word", uri=self.uri, parent=id, number=words)
                yield node.but(readers=own)
            start += len(line)


def make_entries(count: int = 24, version: int = 0) -> list[Entry]:
    """Make documents that differ in everything that can be searched for."""
    entries = []
    for number in range(count):
        words = [WORDS[(number * step + version) % len(WORDS)] for step in (1, 3, 5, 7)]
        text = f"{words[0]} {words[1]} {number}\n{words[2]} {words[3]} {words[2]}\nversion{version}"
        year = () if number % 5 == 4 else (("year", number % 5),)
        kind = (("kind", "draft"),) if number % 3 == 0 else ()
        readers = ((), ("ann",), ("bob", "staff"), ())[number % 4]
        entries.append(Entry(f"{number}.txt", text, readers, (*year, *kind), ("bob",) if number % 6 == 0 else ()))
    return entries


def define_groups(writer: Writer, metric: Metric = "cosine", *, sparse: bool = False) -> None:
    """Declare the fields, and the groups of lines and words."""
    index = json.dumps("Exact")
    embeddings = [GroupEmbedding(DENSE.name, DENSE.dimension, metric, index=index)]
    embeddings += [GroupEmbedding(SPARSE, 0, "dot")] if sparse else []
    writer.declare(FIELDS)
    writer.define("line", Manifest("line", "Lines()", "by hand", embeddings=tuple(embeddings)))
    writer.define("word", Manifest("word", "Words()", "by hand", parent="line"))


def put_entry(writer: Writer, entry: Entry) -> None:
    """Put an entry in the place of what its source held."""
    writer.put_document(entry.document, entry.nodes(), entry.source)


def embed_missing(writer: Writer) -> int:
    """Embed the texts that have no vector yet; return how many they were."""
    lacking = list(writer.unembedded("line", DENSE.name))
    if lacking:
        texts = [text for _, text in lacking]
        writer.add_vectors(DENSE.name, [hash for hash, _ in lacking], DENSE.embed(texts, kind="passage"))
    if writer.manifests["line"].find_embedding(SPARSE) and (terms := list(writer.unembedded("line", SPARSE))):
        writer.add_sparse(SPARSE, [hash for hash, _ in terms], weigh_words([text for _, text in terms]))
    return len(lacking)


def weigh_words(texts: Iterable[str]) -> SparseRows:
    """Compute a weight for each word."""
    return SparseRows.from_weights(
        [{crc32(word.encode()) % 997: 0.5 + len(word) for word in text.split()} for text in texts]
    )


def fill_store(corpus: Corpus, shelf: Sequence[Entry], metric: Metric = "cosine", *, sparse: bool = False) -> Corpus:
    """Make the store hold these entries and no others, in one publication."""
    with corpus.create().writer() as writer:
        define_groups(writer, metric, sparse=sparse)
        for uri in writer.sources().keys() - {entry.uri for entry in shelf}:
            writer.remove(uri)
        for entry in shelf:
            put_entry(writer, entry)
        embed_missing(writer)
    return corpus


# What a store must say, by definition.


def readable_ids(
    shelf: Sequence[Entry], group: str, access: frozenset[str], filter: Condition | None = None
) -> set[str]:
    """Return the ids of the nodes that may be found; all nodes have the fields of their document and of its file."""
    ids = set()
    for entry in shelf:
        of_file = file_meta(entry.uri, len(entry.text), 0, 1_000, 0)
        for node in entry.nodes():
            readers = node.readers or entry.readers
            record = FIELDS.record(with_file_fields(entry.meta, of_file))
            is_readable = not readers or not access.isdisjoint(readers)
            if node.group == group and is_readable and (filter is None or filter.accepts(record)):
                ids.add(node.id)
    return ids


def collect_answers(snapshot: Snapshot) -> dict[str, Any]:
    """Collect all answers of a store, without keys, which differ from store to store."""
    vectors = DENSE.embed(QUESTIONS, kind="query")

    def hits(pairs: list[tuple[int, float]]) -> list[tuple[str, float]]:
        return [(hit.node.id, round(hit.score, 5)) for hit in snapshot.hits(pairs, ALL)]

    restrictions = [(principals, filter) for principals in ASKERS for filter in FILTERS]
    return {
        "sources": snapshot.sources(),
        "documents": list(snapshot.documents(ALL)),
        "nodes": {group: list(snapshot.all_nodes(group, ALL)) for group in snapshot.groups()},
        "manifests": snapshot.manifests,
        "words": [
            hits(snapshot.search("line", text, 9, *restriction)) for text in QUESTIONS for restriction in restrictions
        ],
        "vectors": [
            hits(row)
            for restriction in restrictions
            for row in snapshot.nearest_batch("line", DENSE.name, vectors, 9, *restriction)
        ],
    }


class Contract:
    """Base of the tests. `place` is an empty folder of the test, given by pytest's `tmp_path`."""

    def address(self, place: Path) -> str:
        """Return the address of a store that does not exist yet; the same for the same place, and no other."""
        raise NotImplementedError

    @contextmanager
    def store(self, place: Path, shelf: Sequence[Entry] | None = None) -> Iterator[Corpus]:
        """Open a store with these entries as its first generation; None for no store."""
        corpus = Corpus(self.address(place))
        try:
            yield corpus if shelf is None else fill_store(corpus, shelf)
        finally:
            forget(corpus.backend)


def expect_error(kind: type[SpoliaError], call: Callable[[], object]) -> str:
    """Return the message of the error that a call raises; it must be of this kind."""
    message = None
    try:
        call()
    except kind as error:
        message = str(error)
    assert message is not None, f"no {kind.__name__} was raised"
    return message
