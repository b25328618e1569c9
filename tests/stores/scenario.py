"""A small ingestion that comes past every fail point, and what a store must hold after it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spolia.filters import Field
from spolia.stores.backends.publication import KEPT_GENERATIONS
from spolia.stores.backends.rows import SourceRow, hash_of
from spolia.stores.corpus import POSTGRES, Corpus
from spolia.stores.files import segment_path
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.stores.vectors import segments
from spolia.stores.vectors.dense import write_segment
from spolia.stores.writer import Writer
from spolia.types import Document, Node, Span

EMBEDDER, DIMENSION = "hashing embedder/1", 8
WHOLE = Manifest("whole", "Whole()", "text 1")
MANIFEST = Manifest("chunk", "Lines()", "text 1", embeddings=(GroupEmbedding(EMBEDDER, DIMENSION),))
ORPHAN = 900_000

State = Mapping[str, str]
FIRST: State = {
    "a.txt": "Carsten Olsen built bridges.\nHe was employed by the city.",
    "b.txt": "Stones of old temples\nwere set into new walls.",
    "same.txt": "One text under two names.",
    "also.txt": "One text under two names.",
    "secret/c.txt": "Only ann may read about the treasure.",
}
SECOND: State = {
    "a.txt": "Carsten Olsen built bridges.\nHe retired in 1931.\nNobody knows where.",
    "moved/b.txt": "Stones of old temples\nwere set into new walls.",
    "also.txt": "One text under two names.",
    "secret/c.txt": "Only ann may read about the treasure.",
    "d.txt": "",
}
THIRD: State = {**SECOND, "e.txt": "A late arrival.\nSet into new walls.", "broken.txt": "\0"}
FOURTH: State = {**THIRD, "a.txt": "Carsten Olsen is back.", "f.txt": "The last file."}
FIFTH: State = {**FOURTH, "g.txt": "One more."}
STATES = (FIRST, SECOND, THIRD, FOURTH, FOURTH, FIFTH)
"""By generation."""


def embed(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Words hashed into a few dimensions: cheap and the same everywhere."""
    vectors = np.zeros((len(texts), DIMENSION), np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split():
            vectors[row, hashlib.md5(word.encode()).digest()[0] % DIMENSION] += 1
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def document_of(uri: str, text: str, readers: tuple[str, ...] = ()) -> tuple[Document, list[Node]]:
    """A document with one node for each line."""
    id = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    document = Document(id, text, uri=uri, title=text[:8], meta=(("suffix", ".txt"),), readers=readers)
    nodes, start = [], 0
    for number, line in enumerate(text.splitlines(keepends=True)):
        span = Span(start, start + len(line), lines=(number + 1, number + 1))
        nodes.append(Node(f"{id}:{number}", line, id, span=span, context=document.title, meta=document.meta))
        start += len(line)
    return document, nodes


def source_of(uri: str, text: str) -> SourceRow:
    content_hash = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return SourceRow(uri, len(text), 1_000, content_hash, content_hash)


def put(writer: Writer, uri: str, text: str, readers: tuple[str, ...] = ()) -> None:
    document, nodes = document_of(uri, text, readers)
    writer.put_document(document, iter(nodes), source_of(uri, text))


def add_missing_vectors(writer: Writer) -> int:
    missing = list(writer.unembedded("chunk", EMBEDDER))
    if missing:
        writer.add_vectors(EMBEDDER, [hash for hash, _ in missing], embed([text for _, text in missing]))
    return len(missing)


def sync(corpus: Corpus, state: State, log: Path | None = None) -> int:
    """Make the store hold what the folder holds, as a real sync does; returns how many texts were embedded."""
    with corpus.writer() as writer:
        writer.define("chunk", MANIFEST)
        sources = writer.sources()
        gone = {row.content_hash: uri for uri, row in sources.items() if uri not in state}
        for uri, text in sorted(state.items()):
            _sync_one(writer, sources, gone, uri, text)
        for uri in sorted(gone.values()):
            writer.remove(uri)
        writer.remember("folder", {"": str(len(state)), **dict.fromkeys(gone.values(), "")})
        embedded = add_missing_vectors(writer)
        generation = writer.publish()
        if log is not None:  # a kill from here on may not lose this generation
            log.write_text(str(generation))
    return embedded


def _sync_one(writer: Writer, source_rows: Mapping[str, SourceRow], gone: dict[str, str], uri: str, text: str) -> None:
    source = source_of(uri, text)
    previous_row = source_rows.get(uri)
    if previous_row is not None and previous_row.content_hash == source.content_hash:
        if previous_row.mtime_ns != source.mtime_ns:
            writer.touch(previous_row.but(mtime_ns=source.mtime_ns))
    elif text == "\0":
        writer.fail(source.but(document="", status="failed", error="not a text"))
    elif previous_row is None and source.content_hash in gone:
        writer.move(gone.pop(source.content_hash), source)
    elif previous_row is None and writer.document_key(source.document) is None:
        document, nodes = document_of(uri, text, _readers(uri))
        writer.insert([(document, (), source, {})], [(document, nodes)])
    else:
        put(writer, uri, text, _readers(uri))


def _readers(uri: str) -> tuple[str, ...]:
    return ("ann",) if uri.startswith("secret/") else ()


def _synced(state: State) -> Callable[[Corpus, Path | None], None]:
    """And read: indexes that follow are made then."""

    def step(corpus: Corpus, said: Path | None) -> None:
        sync(corpus, state, said)
        corpus.snapshot().open.lexical("chunk")

    return step


def _begin(corpus: Corpus, said: Path | None) -> None:
    segments.SMALL_SEGMENTS = 4
    corpus.create()
    _synced(FIRST)(corpus, said)


def _leave_vectors_behind(corpus: Corpus, said: Path | None) -> None:
    leave_vectors_behind(corpus, ["Carsten \nHe retired in 1931.\n"])


def _touch(corpus: Corpus, said: Path | None) -> None:
    with corpus.writer() as writer:
        source = writer.sources()["a.txt"]
        writer.touch(source.but(mtime_ns=2_000))


def regroup(corpus: Corpus, said: Path | None = None) -> None:
    """A second group of all documents, built anew, a declared field, and another reader list."""
    with corpus.writer() as writer:
        writer.declare((Field("suffix"),))
        writer.define("spare", WHOLE.but(group="spare"))
        writer.redefine("whole", WHOLE)
        writer.drop("spare")
        for document in list(writer.documents()):
            whole = Node(f"{document.id}:whole", document.text, document.id, "whole", parent=document.id, number=1)
            writer.add_nodes(document, [whole])
            writer.note_unmade(document.id, {"chunk": "It is noted, and taken back."})
            writer.note_unmade(document.id, {"chunk": ""})
        for document in [candidate for candidate in writer.documents() if candidate.readers]:
            writer.set_readers(document, ("ann", "bob"))
        generation = writer.publish()
        if said is not None:
            said.write_text(str(generation))


INGESTION = (
    _begin,
    _leave_vectors_behind,
    _synced(SECOND),
    _touch,
    _synced(THIRD),
    _synced(FOURTH),
    _synced(FOURTH),
    regroup,
    _synced(FIFTH),
)
"""Makes a store and brings it from state to state, past what a crash leaves behind."""


def cut_a_segment(corpus: Corpus) -> None:
    """What a bad disk leaves."""
    segment = max((Path(corpus.path) / "vectors").glob("*/*.seg"))
    segment.write_bytes(segment.read_bytes()[:-1])


def leave_vectors_behind(corpus: Corpus, texts: Sequence[str]) -> None:
    """What a writer leaves that is killed after it has made vectors durable."""
    if corpus.path.startswith(POSTGRES):
        embedding = corpus.backend.make_vector_writer(corpus.backend.connect_for_reading())
        embedding.add(EMBEDDER, [hash_of(text) for text in texts], embed(texts))
        embedding.flush()
        return
    segment = segment_path(Path(corpus.path), EMBEDDER, ORPHAN)
    if not segment.exists():
        write_segment(segment, EMBEDDER, [hash_of(text) for text in texts], embed(texts))
    segment.with_name("000007.tmp").write_bytes(b"half")


# What must be equal, row for row. Keys, generations and places in segments depend on how often it was interrupted.
_SEEN = "{0}.birth <= :at AND {0}.death > :at"
TABLES = {
    "documents": f"""SELECT d.id, hash, text, title, media_type, pages, headings, meta, a.readers FROM documents d
        LEFT JOIN audiences a ON a.id = d.audience
        WHERE {_SEEN.format("d")} ORDER BY d.id""",
    "sources": f"""SELECT uri, d.id, size, mtime_ns, content_hash, status, error, report FROM sources s
        LEFT JOIN documents d ON d.key = s.document WHERE {_SEEN.format("s")} ORDER BY uri""",
    "nodes": f"""SELECT n.id, grp, d.id, n.hash, n.text, context, start, stop, first_page, last_page, first_line,
        last_line, seconds, parent, n.meta, n.number, a.readers FROM nodes n JOIN documents d ON d.key = n.document
        LEFT JOIN audiences a ON a.id = n.audience
        WHERE {_SEEN.format("n")} ORDER BY n.id""",
    "cursors": "SELECT source, item, cursor FROM cursors WHERE item <> 'root' ORDER BY source, item",
    "manifests": "SELECT grp, manifest FROM manifests ORDER BY grp",
    "vectors": "SELECT embedder, hash FROM vectors ORDER BY embedder, hash",
}


def tables(corpus: Corpus) -> dict[str, list[Any]]:
    """Every table, as each of the generations shows it that are kept even if nobody reads them."""
    connection = corpus.backend.connect_for_reading()
    generations = [row[0] for row in connection.execute("SELECT generation FROM generations ORDER BY generation")]
    rows_by_table = {}
    for back, generation in enumerate(generations[: -KEPT_GENERATIONS - 1 : -1]):
        for name, query in TABLES.items():
            values = {"at": generation} if ":at" in query else {}
            rows = connection.execute(query, values).fetchall()
            rows_by_table[f"{name}, {back} generations ago"] = [tuple(map(_timeless, row)) for row in rows]
    connection.close()
    return rows_by_table


def _timeless(value: Any) -> Any:
    """A report without when and how often its source was tried in vain: an interrupted run tries once more."""
    return re.sub(r',"(attempts|tried_ns)":\d+', "", value) if isinstance(value, str) and value[:2] == '{"' else value


def problems(corpus: Corpus) -> list[str]:
    """Problems of a store; none where there is none yet."""
    return corpus.snapshot().check() if corpus.exists() else []


def texts_of(nodes: Iterable[Node]) -> list[str]:
    return [node.text for node in nodes]
