"""Nodes that show a picture are embedded by it, where the embedder of their group has a side for pictures."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from docx import Document as Docx
from PIL import Image

from spolia.errors import GroupError, ManifestMismatch, ModelUnavailable, StoreError
from spolia.indexing.structure.regions import Regions
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.sync import sync
from spolia.models.protocols import Embedder, ImageEmbedder, Kind
from spolia.retrieval.dense import Dense
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.stores.portable import export_store, import_store
from spolia.stores.vectors.dense import Vectors
from spolia.testing import HashingEmbedder
from spolia.types import Document, Query, Region, Value

pytestmark = pytest.mark.slow

ALL: frozenset[str] = frozenset()
HUES = ("red", "green", "blue")


@dataclass(frozen=True)
class Colours(Value):
    """Pictures by their mean colour, texts by the words for colours in them."""

    name: str = "colours"
    dimension: int = 3
    window: int = 64
    said: list[object] = field(default_factory=list, compare=False, repr=False)

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        self.said.extend(texts if kind == "passage" else ())
        return _unit([[text.lower().split().count(hue) for hue in HUES] for text in texts])

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0

    def embed_images(self, images: Sequence[bytes]) -> Vectors:
        decoded = [np.asarray(Image.open(io.BytesIO(image)).convert("RGB"), np.float32) for image in images]
        self.said.extend(images)
        return _unit([dots.mean(axis=(0, 1)).tolist() for dots in decoded])


def _unit(rows: Sequence[Sequence[float]]) -> Vectors:
    vectors = np.asarray(rows, np.float32).reshape(-1, 3)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def png(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), colour).save(buffer, "PNG")
    return buffer.getvalue()


def pictures_of(corpus: Corpus, *embedders: Embedder) -> NodeGroup:
    embeddings = tuple(map(Embedding, embedders))
    return corpus.group("picture", Definition(Regions("image", wordless=True), embeddings=embeddings))


def picture_document(name: str, caption: str, *, image: str) -> Document:
    return Document(name, "Stones.", name, regions=(Region("image", 7, 7, image=image, caption=caption),))


@pytest.fixture
def corpus(address: str) -> Corpus:
    return Corpus(address)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "notes"
    new_folder.mkdir()
    for colour in ("red", "blue"):
        (new_folder / f"{colour}.png").write_bytes(png(colour))
    docx = Docx()
    docx.add_paragraph("A meadow.")
    docx.add_picture(io.BytesIO(png("lime")))
    docx.add_picture(io.BytesIO(png("red")))
    docx.save(str(new_folder / "meadow.docx"))
    return new_folder


both = pytest.mark.parametrize("address", ["folder", "PostgreSQL"], indirect=True)


@both
def test_words_find_what_is_seen(corpus: Corpus, folder: Path) -> None:
    colours = Colours()
    assert isinstance(colours, ImageEmbedder)
    assert not isinstance(HashingEmbedder(), ImageEmbedder)
    group = pictures_of(corpus, colours)
    plan = planned(folder, corpus, groups=[group])
    assert [(plan_entry.pictures, plan_entry.texts) for plan_entry in plan.groups if plan_entry.group == "picture"] == [
        (3, 0)
    ]
    report = sync(folder, corpus, groups=[group])
    assert (report.unmade, report.failed, report.embedded) == ((), (), 3)
    assert len(colours.said) == 3  # the red one, which is in two documents, once
    snapshot, find = corpus.snapshot(), Dense(pictures_of(corpus, colours), colours, top_k=2)
    assert snapshot.check() == []
    for hue, uris in (("red", {"red.png", "meadow.docx"}), ("blue", {"blue.png"}), ("green", {"meadow.docx"})):
        ranked = find(Query(f"Something {hue}"))
        assert {item.node.uri for item in ranked if item.score > 0.9} == uris
        node = next(iter(ranked)).node
        data = snapshot.image(node.document, str(dict(node.meta)["image"]), ALL)
        assert Image.open(io.BytesIO(data)).getpixel((5, 5)) == tuple(255 * (hue == plan_entry) for plan_entry in HUES)
    assert sync(folder, corpus, groups=[group]).embedded == 0
    second_plan = planned(folder, corpus, groups=[corpus.group("again", group.definition)])
    assert [
        (plan_entry.pictures, plan_entry.known) for plan_entry in second_plan.groups if plan_entry.group == "again"
    ] == [(0, 3)]


@both
def test_another_caption_embeds_nothing(corpus: Corpus) -> None:
    colours = Colours()
    corpus.create()
    for caption in ("A sunset", "A rose"):
        with corpus.writer() as writer:
            writer.put_document(picture_document("d", caption, image="f00d"), (), SourceRow("d"), {"f00d": png("red")})
            writer.unmake("d", writer.manifests)
            writer.publish()
        materialise([pictures_of(corpus, colours)])
        assert [node.text for node in corpus.snapshot().all_nodes("picture")] == [caption]
    assert len(colours.said) == 1
    assert corpus.snapshot().check() == []


@both
def test_nodes_without_a_picture_are_embedded_by_their_text(corpus: Corpus) -> None:
    colours = Colours()
    corpus.create()
    with corpus.writer() as writer:
        document = picture_document("a", "A blue sky", image="")  # noted, and not kept
        other_document = picture_document("b", "A green field", image="").but(
            meta=(("image", "cover.png"),)
        )  # a field of the caller's
        writer.put_document(document, (), SourceRow("a"))
        writer.put_document(other_document, (), SourceRow("b"))
        writer.put_document(picture_document("c", "A blue sky", image="f00d"), (), SourceRow("c"), {"f00d": png("red")})
        writer.publish()
    materialise([pictures_of(corpus, colours)])
    assert colours.said == ["A blue sky", "A green field", png("red")]
    assert next(item.node.document for item in Dense(pictures_of(corpus, colours), colours)(Query("red"))) == "c"


@both
def test_bytes_that_are_no_picture_concern_their_node_only(corpus: Corpus) -> None:
    colours = Colours()
    corpus.create()
    with corpus.writer() as writer:
        for name, data in (("a", png("red")), ("b", b"\x89PNG\r\n\x1a\nnone"), ("c", b""), ("d", png("blue"))):
            document = picture_document(name, f"Picture {name}", image=f"{name}{name}")
            writer.put_document(document, (), SourceRow(f"{name}.pdf"), {f"{name}{name}": data})
        writer.publish()
    unread = materialise([pictures_of(corpus, colours)])
    assert [(lack.document, lack.uri, lack.group) for lack in unread] == [
        ("b", "b.pdf", "picture"),
        ("c", "c.pdf", "picture"),
    ]
    assert all("could not be embedded by 'colours'" in lack.reason for lack in unread)
    assert "UnidentifiedImageError" in unread[0].reason
    snapshot = corpus.snapshot()
    assert snapshot.check() == []
    assert snapshot.unmade() == ()
    assert len(list(snapshot.all_nodes("picture"))) == 4
    assert [item.node.document for item in Dense(pictures_of(corpus, colours), colours, top_k=1)(Query("blue"))] == [
        "d"
    ]
    assert materialise([pictures_of(corpus, colours)]) == ()


@dataclass(frozen=True)
class Away(Colours):
    """An embedder that cannot be reached, or that reads nothing."""

    error: Exception = field(default_factory=lambda: ModelUnavailable("away"), compare=False)

    def embed_images(self, images: Sequence[bytes]) -> Vectors:
        raise self.error


@pytest.mark.parametrize("error", [ModelUnavailable("away"), TypeError("a slip")])
def test_what_lies_at_the_embedder_is_raised_and_nothing_kept(tmp_path: Path, error: Exception) -> None:
    corpus = Corpus(tmp_path / "s.spolia").create()
    with corpus.writer() as writer:
        writer.put_document(picture_document("a", "Red", image="aa"), (), SourceRow("a"), {"aa": png("red")})
        writer.publish()
    with pytest.raises(type(error)):
        materialise([pictures_of(corpus, Away(error=error))])
    colours = Colours()
    materialise([pictures_of(corpus, colours)])
    assert len(colours.said) == 1


def test_a_picture_that_was_not_put_is_said(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "s.spolia").create()
    with corpus.writer() as writer:
        writer.put_document(picture_document("a", "Red", image="aa"), (), SourceRow("a"))
        writer.publish()
    with pytest.raises(StoreError, match="'a:picture:1' shows a picture that its document was put without"):
        materialise([pictures_of(corpus, Colours())])


def test_a_group_goes_by_pictures_or_by_texts(tmp_path: Path) -> None:
    corpus, colours = Corpus(tmp_path / "s.spolia").create(), Colours()
    with corpus.writer() as writer:
        writer.put_document(picture_document("a", "Red", image="aa"), (), SourceRow("a"), {"aa": png("blue")})
        writer.publish()
    with pytest.raises(GroupError, match="Define two groups"):
        materialise([pictures_of(corpus, colours, HashingEmbedder())])
    materialise([corpus.group("picture", Definition(Regions("image", wordless=True)))])
    previous_snapshot = corpus.snapshot()
    materialise([pictures_of(corpus, colours)])  # the nodes were there, without vectors
    assert [type(embedded_value) for embedded_value in colours.said] == [bytes]
    assert previous_snapshot.check() == corpus.snapshot().check() == []
    with pytest.raises(GroupError, match="Define two groups"):
        materialise([pictures_of(corpus, HashingEmbedder())])
    with pytest.raises(ManifestMismatch, match="pictures: embedded there, not here"):
        materialise([pictures_of(corpus, Words())], rebuild=True)


class Words(HashingEmbedder):
    """An embedder with the name and the size of another, and no side for pictures."""

    name = "colours"

    def __init__(self) -> None:
        super().__init__(dimension=3)

    def fingerprint(self) -> str:
        return "colours"


def test_the_main_group_may_go_over_to_pictures_and_back(folder: Path, tmp_path: Path) -> None:
    corpus, colours, cut = Corpus(tmp_path / "s.spolia"), Colours(), Regions("image", wordless=True)
    sync(folder, corpus, splitter=cut, embedder=HashingEmbedder())
    for embedder in (colours, HashingEmbedder(), colours):
        previous_snapshot = corpus.snapshot()
        sync(folder, corpus, splitter=cut, embedder=embedder, rebuild=True)
        assert previous_snapshot.check() == corpus.snapshot().check() == []
        assert len(Dense(corpus.group(), embedder)(Query("red"))) == 4
    assert len(colours.said) == 3


@both
def test_an_export_keeps_it(corpus: Corpus, folder: Path, tmp_path: Path) -> None:
    colours = Colours()
    sync(folder, corpus, groups=[pictures_of(corpus, colours)])
    export_store(corpus, tmp_path / "notes.zip")
    other_corpus = Corpus(tmp_path / "other.spolia")
    import_store(tmp_path / "notes.zip", other_corpus)
    group = pictures_of(other_corpus, colours)
    assert other_corpus.snapshot().check() == []
    assert [item.node.uri for item in Dense(group, colours, top_k=1)(Query("blue"))] == ["blue.png"]
    (folder / "more.png").write_bytes(png("blue"))
    sync(folder, other_corpus, groups=[group])
    assert len(colours.said) == 3


def test_a_damaged_segment_has_the_pictures_embedded_again(folder: Path, tmp_path: Path) -> None:
    corpus, colours = Corpus(tmp_path / "s.spolia"), Colours()
    sync(folder, corpus, groups=[pictures_of(corpus, colours)])
    [segment] = (tmp_path / "s.spolia" / "vectors").glob("*/*.seg")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 0xFF
    segment.write_bytes(data)
    with corpus.writer() as writer:
        assert writer.repair()
        assert len(list(writer.unembedded_pictures("picture", "colours"))) == 3
        assert list(writer.unembedded("picture", "colours")) == []


def test_a_run_tells_of_a_document_with_bytes_that_are_no_picture(folder: Path, tmp_path: Path) -> None:
    corpus, colours = Corpus(tmp_path / "s.spolia"), Colours()
    group = pictures_of(corpus, colours)
    assert sync(folder, corpus, groups=[group]).unmade == ()
    with zipfile.ZipFile(folder / "meadow.docx") as archive, zipfile.ZipFile(folder / "odd.docx", "w") as new_archive:
        for name in archive.namelist():
            new_archive.writestr(name, b"\x89PNG\r\n\x1a\nnone" if name.endswith("image1.png") else archive.read(name))
    report = sync(folder, corpus, groups=[group])
    assert (report.added, report.failed) == (1, ())
    assert [(lack.uri, lack.group) for lack in report.unmade] == [("odd.docx", "picture")]
    ranking = Dense(group, colours)(Query("red"))
    assert {item.node.uri for item in ranking if item.score > 0.9} == {"red.png", "meadow.docx", "odd.docx"}
    assert corpus.snapshot().check() == []
