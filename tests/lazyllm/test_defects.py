"""What was measured to go wrong in LazyLLM 1.4.0 with documents, groups, stores and retrieval goes right here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spolia import BM25, Branch, Corpus, Dense, Query, ReciprocalRankFusion, Run, ScriptedModel, add_texts, sync
from spolia.core.operator import Operator
from spolia.errors import DocumentError, FilterError, GroupError, ManifestMismatch
from spolia.filters import Field, where
from spolia.flow_files import across
from spolia.indexing import Summary, transform
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.registry import READERS
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.dry_run import planned
from spolia.post_retrieval import KeywordFilter
from spolia.retrieval import BySimilarity, similarity
from spolia.stores.adapters.lancedb import LanceDB
from spolia.stores.definition import Definition, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.stores.indexes import HNSW, IndexSettings
from spolia.stores.manifest import signature
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Hit, Node, Ranking

SMALL, LARGE = HashingEmbedder(32), HashingEmbedder(128)
THINGS = ("arch", "bridge", "column", "dome", "façade", "gate", "hall", "isle", "jetty", "keep", "lintel", "mole")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    for number, thing in enumerate(THINGS):
        (new_folder / f"{thing}.txt").write_text(f"The {thing} is of stone. " + "Stone, stone. " * number)
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.uri: document.text for document in corpus.snapshot().documents()}


# Retrieval.


@similarity
def shared_letters(query: str, node: Node) -> int:
    return len(set(query) & set(node.text))


@pytest.mark.parametrize("top_k", [1, 5, 50])
def test_results_are_in_the_order_of_their_scores(folder: Path, corpus: Corpus, top_k: int) -> None:
    sync(folder, corpus, embedder=SMALL)
    group = corpus.group()
    flows: list[Operator[Query, Ranking]] = [
        BM25(group, top_k),
        Dense(group, SMALL, top_k),
        BySimilarity(group, shared_letters, top_k),
        Branch(BM25(group), Dense(group, SMALL)) >> ReciprocalRankFusion(top_k=top_k),
    ]
    for flow in flows:
        scores = [hit.score for hit in flow(Query("of which stone is the stone dome"))]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == min(top_k, len(THINGS))


@pytest.mark.slow
def test_two_embeddings_are_fused_to_exactly_as_many_as_were_asked_for(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    group = corpus.group("both", Definition(Sentences(), embeddings=(Embedding(SMALL), Embedding(LARGE))))
    for top_k in (1, 6, 10):
        ranking = across(group, (SMALL, LARGE), top_k)(Query("a stone bridge"))
        assert len(ranking) == len({hit.node.id for hit in ranking}) == top_k
    assert across(group, (SMALL, LARGE), 6)(Query("a stone bridge")).nodes[0].text == "The bridge is of stone."


def test_the_value_0_can_be_filtered_by(folder: Path, corpus: Corpus) -> None:
    fields = [Field("number", "int"), Field("note"), Field("is_round", "bool")]
    sync(
        folder,
        corpus,
        fields=fields,
        metadata=lambda uri: {
            "number": THINGS.index(uri[:-4]),
            "note": "" if uri == "arch.txt" else "x",
            "is_round": False,
        },
        embedder=SMALL,
    )
    for condition, number in ((where(number=[0]), 1), (where(number=0, note=""), 1), (where(is_round=False), 12)):
        for flow in (BM25(corpus.group(), 20), Dense(corpus.group(), SMALL, 20)):
            assert len(flow(Query("stone", filter=condition))) == number
    with pytest.raises(FilterError, match="no metadata field 'numbr'"):
        BM25(corpus.group())(Query("stone", filter=where(numbr=0)))


@pytest.mark.slow
def test_words_find_as_many_with_a_vector_database_beside_them(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    group = corpus.group("beside", Definition(Sentences(), embeddings=(Embedding(SMALL, LanceDB()),)))
    for top_k in (1, 10, 12):
        ranking = BM25(group, top_k)(Query("the thing is of stone"))
        assert len(ranking) == top_k
        assert len(Dense(group, SMALL, top_k)(Query("stone"))) == top_k
    assert BM25(group, 10)(Query("dome")).nodes[0].text == "The dome is of stone."


def test_required_keywords_are_all_required_and_belong_to_one_filter() -> None:
    ranking = Ranking(
        Query("dessert"),
        tuple(Hit(Node(text, text), 1.0) for text in ("apple pie", "banana split", "apple and banana", "a split log")),
    )

    def filter_texts(required: tuple[str, ...] = (), excluded: tuple[str, ...] = ()) -> list[str]:
        return [hit.node.text for hit in KeywordFilter(required, excluded)(ranking)]

    assert filter_texts(("apple", "banana")) == ["apple and banana"]
    assert filter_texts(("split",)) == ["banana split", "a split log"]
    assert filter_texts(("split",), ("banana",)) == ["a split log"]
    assert filter_texts(("apple", "banana")) == ["apple and banana"]


# Starting again, and following a folder.


@pytest.mark.slow
def test_starting_again_embeds_nothing_and_doubles_nothing(folder: Path, corpus: Corpus) -> None:
    program = (
        "import sys\n"
        "from spolia import Corpus, Dense, Query, Run, sync\n"
        "from spolia.testing import HashingEmbedder\n"
        "corpus, embedder = Corpus(sys.argv[2]), HashingEmbedder(32)\n"
        "with Run() as run:\n"
        "    report = sync(sys.argv[1], corpus, embedder=embedder)\n"
        "with Run() as asked:\n"
        "    found = Dense(corpus.group(), embedder, top_k=50)(Query('stone'))\n"
        "documents = corpus.snapshot().stats().documents\n"
        "print(report.embedded, run.usage.embedded, asked.usage.embedded, len(found), documents)\n"
    )

    def started() -> list[int]:
        command = [sys.executable, "-c", program, str(folder), corpus.path]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        return [int(number) for number in ran.stdout.split()]

    assert started() == [12, 12, 1, 12, 12]  # a question costs one embedding, its own
    assert [started() for _ in range(3)] == [[0, 0, 1, 12, 12]] * 3
    assert corpus.snapshot().check() == []


@pytest.mark.slow
def test_a_changed_file_is_read_again(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    (folder / "gate.txt").write_text("Of wood now.")
    report = sync(folder, corpus)
    assert (report.changed, report.unchanged) == (1, 11)
    assert texts(corpus)["gate.txt"] == "Of wood now."
    assert BM25(corpus.group())(Query("wood")).nodes[0].uri == "gate.txt"


@pytest.mark.slow
def test_one_changed_file_embeds_its_own_new_passages_only(folder: Path, corpus: Corpus) -> None:
    long = folder / "long.txt"
    long.write_text("First. Second. Third.")
    sync(folder, corpus, embedder=SMALL, splitter=Sentences())
    long.write_text("First. Second and a half. Third.")
    with Run() as run:
        report = sync(folder, corpus, embedder=SMALL, splitter=Sentences())
    assert (report.changed, report.embedded, run.usage.embedded) == (1, 1, 1)
    assert "Second and a half." in {node.text for node in corpus.snapshot().all_nodes("chunk")}


def test_one_content_under_two_names_is_read_and_embedded_once(folder: Path, corpus: Corpus) -> None:
    (folder / "copy.txt").write_bytes((folder / "arch.txt").read_bytes())
    report = sync(folder, corpus, embedder=SMALL)
    assert (report.added, corpus.snapshot().stats().documents, report.embedded) == (13, 12, 12)
    assert len(BM25(corpus.group(), 50)(Query("arch"))) == 1


def test_a_moved_folder_is_not_embedded_again(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=SMALL)
    (folder / "deep").mkdir()
    for file in list(folder.glob("*.txt")):
        file.rename(folder / "deep" / file.name)
    report = sync(folder, corpus, embedder=SMALL)
    assert (report.moved, report.added, report.removed, report.chunks, report.embedded) == (12, 0, 0, 0, 0)


class Picky:
    """A reader of `.rune` files, none of which it likes; it counts them."""

    name, version, media_type, suffixes = "rune", 1, "text/x-rune", (".rune",)
    read_so_far = 0

    def read(self, source: Blob, /) -> Reading:
        self.read_so_far += 1
        raise DocumentError(f"{source.uri} is not carved deep enough.")


def test_a_broken_file_is_recorded_with_its_reason_and_not_read_for_ever(folder: Path, corpus: Corpus) -> None:
    (folder / "broken.rune").write_bytes(b"no such thing")
    reader = Picky()
    first = sync(folder, corpus, readers=(*READERS, reader), retry=False)
    tried = reader.read_so_far
    for _ in range(3):
        report = sync(folder, corpus, readers=(*READERS, reader), retry=False)
        assert (report.failed, report.generation) == (first.failed, first.generation)
    assert reader.read_so_far == tried
    assert report.failed == (("broken.rune", "broken.rune is not carved deep enough."),)
    assert corpus.snapshot().sources()["broken.rune"].error == "broken.rune is not carved deep enough."
    assert len(BM25(corpus.group(), 50)(Query("stone"))) == 12  # the others are there


@pytest.mark.slow
def test_following_a_folder_deletes_no_document_that_was_added_otherwise(folder: Path, corpus: Corpus) -> None:
    add_texts(corpus, {"note": "Added by a program: a stone."})
    for _ in range(3):
        sync(folder, corpus)
    assert texts(corpus)["text:note"] == "Added by a program: a stone."
    assert len(texts(corpus)) == 13


# Groups.


@transform
def first_word(text: str) -> str:
    return text.split()[0]


def test_two_lambdas_that_look_alike_are_not_taken_for_one_another(folder: Path, corpus: Corpus) -> None:
    def of(words: str) -> Any:
        return transform(lambda text: text + words)

    assert of("a").digest != of("b").digest
    sync(folder, corpus)
    for splitter in (of("a"), of("b")):
        with pytest.raises(GroupError, match="a lambda has no name"):
            materialise([corpus.group("lambda", Definition(splitter))])


@pytest.mark.slow
def test_a_changed_function_is_noticed(folder: Path, corpus: Corpus) -> None:
    def last_word(text: str) -> str:
        return text.split()[-1]

    sync(folder, corpus)
    materialise([corpus.group("word", Definition(first_word))])
    with pytest.raises(ManifestMismatch, match=r"'word'.*first_word.*last_word.*rebuild=True"):
        materialise([corpus.group("word", Definition(transform(last_word)))])
    assert {node.text for node in corpus.snapshot().all_nodes("word")} == {"The"}


def test_a_transform_that_returns_0_makes_a_node(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    group = corpus.group("count", Definition(stones))
    materialise([group])
    assert "0" in {node.text for node in corpus.snapshot().all_nodes("count")}


@transform
def stones(text: str) -> int:
    return text.count("Stone,")


@pytest.mark.slow
def test_a_new_group_can_be_searched_when_others_are_embedded(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=SMALL)
    assert Dense(corpus.group(), SMALL, 1)(Query("dome")).hits
    later = corpus.group("later", Definition(Sentences(), embeddings=(Embedding(LARGE), Embedding(SMALL))))
    for flow in (Dense(later, LARGE, 3), Dense(later, SMALL, 3), BM25(later, 3)):
        assert flow(Query("The dome is of stone.")).nodes[0].text == "The dome is of stone."
    assert BM25(corpus.group("sentence"), 3)(Query("dome")).hits


@pytest.mark.parametrize("index", [HNSW(), pytest.param(LanceDB(), marks=pytest.mark.slow)], ids=["within", "beside"])
def test_an_embedding_can_be_added_to_a_group_that_is_there(folder: Path, corpus: Corpus, index: IndexSettings) -> None:
    sync(folder, corpus)
    embedding, other_embedding = Embedding(SMALL), Embedding(LARGE, index)
    materialise([corpus.group("more", Definition(Sentences(), embeddings=(embedding,)))])
    ids_before = {node.id for node in corpus.snapshot().all_nodes("more")}
    text_count = len({node.indexed_text for node in corpus.snapshot().all_nodes("more")})
    group_with_both = corpus.group("more", Definition(Sentences(), embeddings=(embedding, other_embedding)))
    plans = {group.group: group for group in planned(folder, corpus, groups=[group_with_both]).groups}
    assert (plans["more"].change, plans["more"].nodes, plans["more"].texts) == ("embedded", 0, text_count)
    with Run() as run:
        ranking = across(group_with_both, (SMALL, LARGE), 6)(Query("The dome is of stone."))
    assert len(ranking) == 6
    assert run.usage.embedded == text_count + 2  # by the new embedder alone, and the question by both
    assert {node.id for node in corpus.snapshot().all_nodes("more")} == ids_before
    assert Dense(group_with_both, LARGE, 1)(Query("The dome is of stone.")).nodes[0].text == "The dome is of stone."
    assert len(Dense(corpus.group("more"), LARGE, 20)(Query("stone"))) == 20
    (folder / "new.txt").write_text("Something new.")
    sync(folder, corpus, groups=[group_with_both])
    assert Dense(group_with_both, LARGE, 1)(Query("Something new.")).nodes[0].uri == "new.txt"
    assert corpus.snapshot().check() == []


def test_the_signature_covers_model_prompt_and_parameters(tmp_path: Path) -> None:
    def signed(summary: Operator[Any, Any]) -> str:
        return signature(Definition(summary), {})

    prompt = tmp_path / "mine.txt"
    prompt.write_text("Say it in short: {{text}}")
    llm = ScriptedModel(("yes",))
    own = Summary(llm, role=Summary.role.but(prompt=str(prompt)))
    signatures = [
        signed(Summary(llm)),
        signed(Summary(ScriptedModel(("no",)))),
        signed(Summary(llm, max_words=9)),
        signed(own),
    ]
    assert len(set(signatures)) == 4
    assert signed(Summary(ScriptedModel(("yes",)))) == signatures[0]
    prompt.write_text("Say it in one word: {{text}}")
    assert signed(Summary(llm, role=Summary.role.but(prompt=str(prompt)))) != signatures[3]


@dataclass(frozen=True)
class Renamed(HashingEmbedder):
    """The same vectors under another name, as another version of a model has."""

    name: ClassVar[str] = "another model"


def test_another_embedding_model_is_noticed(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=SMALL)
    with pytest.raises(ManifestMismatch, match="another model"):
        sync(folder, corpus, embedder=Renamed(32))
    with pytest.raises(ManifestMismatch, match="another model"):
        Dense(corpus.group(), Renamed(32))(Query("stone"))
    assert len(Dense(corpus.group(), SMALL, 3)(Query("stone"))) == 3


# Cost.


@dataclass(frozen=True)
class Counting(HashingEmbedder):
    """Notes how many texts it is given at a time."""

    asked: ClassVar[list[int]] = []

    def embed(self, texts: Sequence[str], *, kind: Any) -> Any:
        self.asked.append(len(texts))
        return super().embed(texts, kind=kind)


@pytest.mark.slow
def test_texts_of_many_documents_are_embedded_together(folder: Path, corpus: Corpus) -> None:
    Counting.asked.clear()
    sync(folder, corpus, embedder=Counting(32))
    assert Counting.asked == [12]
    Dense(corpus.group(), Counting(32)).batch([Query("dome"), Query("gate"), Query("keep")])
    assert Counting.asked == [12, 3]


OFFLINE = """
import sys
def refuse(event, arguments):
    if event.startswith("socket."):
        raise OSError(f"not while this is tested: {event}")
sys.addaudithook(refuse)
import spolia
assert not {"numpy", "socket", "urllib3", "torch", "tiktoken"} & set(sys.modules), sorted(sys.modules)
from importlib import import_module
from spolia.core.public_names import MODULE_OF
for name, module in MODULE_OF.items():
    getattr(import_module(module), name)
from spolia import BM25, Corpus, Query, sync
corpus = Corpus(sys.argv[2])
sync(sys.argv[1], corpus)
for name in ("document", "page", "sentence", "fine", "medium", "coarse"):
    assert BM25(corpus.group(name))(Query("dome")).hits, name
print(*sorted(name for name in ("torch", "tiktoken", "transformers", "nltk") if name in sys.modules), "done")
"""


@pytest.mark.slow
def test_without_a_network_everything_is_imported_and_every_built_in_group_built(folder: Path, corpus: Corpus) -> None:
    command = [sys.executable, "-c", OFFLINE, str(folder), corpus.path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.returncode) == ("done\n", 0), ran.stderr
