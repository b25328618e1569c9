"""Reader lists that code of one's own sets on a document or a node are refused: to drop them would open the text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from spolia import BM25, Corpus, Definition, Query, add_texts, sync
from spolia.errors import WiringError
from spolia.indexing import transform
from spolia.indexing.readers.reader import Blob, Reading
from spolia.stores import materialise
from spolia.stores.definition import Part, document_node
from spolia.types import Document, Node


def secret(blob: Blob) -> Document:
    return Document("x", blob.data.decode(), readers=("ann",) if b"secret" in blob.data else ())


@pytest.mark.parametrize("access", [None, lambda uri: ["ann", "bob"]])
def test_a_reader_cannot_say_who_may_read(tmp_path: Path, access: object) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("A secret of the tides.")
    (tmp_path / "notes" / "b.md").write_text("The tide rises.")
    corpus = Corpus(tmp_path / "a.spolia")
    report = sync(tmp_path / "notes", corpus, readers={"*.md": secret}, access=access)  # type: ignore[arg-type]
    with corpus.writer() as writer:
        assert [document.uri for document in writer.documents()] == ["b.md"]
    ((uri, message),) = report.failed
    assert uri == "a.md"
    assert "The reader secret gave 'a.md' the readers ('ann',)" in message
    assert "Write sync(..., access=lambda uri: ['ann'])" in message


@dataclass(frozen=True)
class ByName:
    """Calls a document by the name of its file alone."""

    name: str = "by_name"
    version: int = 1
    media_type: str = "text/plain"
    suffixes: tuple[str, ...] = (".foo",)

    def read(self, blob: Blob, /) -> Reading:
        return Reading(blob.document(self, blob.data.decode()).but(uri=Path(blob.uri).name))


def test_a_document_of_another_uri_is_refused_so_that_it_gets_no_access_list_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "notes" / "private").mkdir(parents=True)
    (tmp_path / "notes" / "private" / "a.foo").write_text("A secret of the tides.")
    (tmp_path / "notes" / "b.foo").write_text("The tides rise.")
    corpus = Corpus(tmp_path / "a.spolia")

    def access(uri: str) -> list[str]:
        return ["ann"] if uri.startswith("private/") else []

    report = sync(tmp_path / "notes", corpus, readers={"*.foo": ByName()}, access=access)
    assert BM25(corpus.group())(Query("tides")).texts == ("The tides rise.",)
    ((uri, message),) = report.failed
    assert uri == "private/a.foo"
    assert "The by_name reader gave a document of 'a.foo' for 'private/a.foo'" in message


@transform
def own(node: Node) -> Node:
    return node.but(readers=("ann",))


@transform
def shortened(node: Node) -> list[Node]:
    return [node.but(text=node.text[:8]), Node("n", "Salt.")]


def test_a_transform_cannot_say_who_may_read(fast_folder: Path) -> None:
    corpus = Corpus(str(fast_folder / "a.spolia"))
    add_texts(corpus, {"tides.md": "The tide rises."}, access=lambda uri: ["bob"])
    with pytest.raises(WiringError, match=r"The transform own, .* with the readers \('ann',\) of its own"):
        materialise([corpus.group("own", Definition(own))])
    assert corpus.latest().groups() == ("chunk",)
    materialise([corpus.group("short", Definition(shortened))])
    with corpus.writer() as writer:
        (document,) = writer.documents()
        nodes = list(writer.nodes(document.id, "short"))
    assert [(node.text, node.readers) for node in nodes] == [("The tide", ("bob",)), ("Salt.", ("bob",))]


def test_the_message_names_the_transform(fast_folder: Path) -> None:
    document = Document("d", "The tide rises.", "tides.md")
    with pytest.raises(WiringError, match=r"own.*'tides\.md'.*Set who may read the document: sync\(\.\.\., access="):
        own(Part(document_node(document), document))
