"""A document is made in a group or it is not: what is lacking is made by the next run, whatever brought it about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from spolia.errors import GroupError, ManifestMismatch, StoreBusy
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.report import reports
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.indexing.transforms.function import transform
from spolia.models.protocols import Kind
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition
from spolia.stores.vectors.dense import Vectors
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Query

EMBEDDER = HashingEmbedder(16)
ASKED: list[str] = []


@transform
def titled(text: str) -> str:
    ASKED.append(text)
    return f"About {text}"[:12] if text.strip() else ""


EMBEDDED: list[str] = []


class Interrupted(HashingEmbedder):
    """Is interrupted in its second call."""

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        if EMBEDDED:
            raise KeyboardInterrupt
        EMBEDDED.extend(texts)
        return super().embed(texts, kind=kind)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "tides.txt").write_text("Tides follow the moon.\n\nThey rise twice a day.")
    (docs / "salt.txt").write_text("Salt is dug in mines.\n\nIt was money once.")
    (docs / "empty.txt").write_text(" ")
    ASKED.clear()
    return docs


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


def search_uris(corpus: Corpus, text: str, group: str = "chunk") -> list[str]:
    return [node.uri for node in BM25(corpus.group(group))(Query(text)).nodes]


@pytest.mark.slow
def test_a_main_group_that_was_dropped_is_made_again_of_what_is_there(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, splitter=Paragraphs(), embedder=EMBEDDER)
    with corpus.writer() as writer:
        writer.drop("chunk")
    assert corpus.latest().groups() == ()
    (group,) = planned(folder, corpus, splitter=Sentences(), embedder=EMBEDDER).groups
    assert (group.change, group.nodes) == ("new", 4)
    report = sync(folder, corpus, splitter=Sentences(), embedder=EMBEDDER)
    assert (report.chunks, report.unchanged, report.unmade) == (4, 3, ())
    assert search_uris(corpus, "moon") == ["tides.txt"]
    assert reports(corpus)["tides.txt"].chunks == 2
    assert corpus.latest().check() == []
    assert sync(folder, corpus, splitter=Sentences(), embedder=EMBEDDER).chunks == 0


@pytest.mark.slow
def test_a_run_that_makes_a_group_again_goes_on_where_it_was_stopped(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    with corpus.writer() as writer:
        writer.drop("chunk")

    class Stop(Exception):
        pass

    count = 0

    def stop(now: object) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise Stop

    with pytest.raises(Stop):
        sync(folder, corpus, batch=1, progress=stop)
    assert any("were not made yet" in message for message in corpus.latest().check())
    assert corpus.latest().unmade()[0].is_untried
    sync(folder, corpus, retry=False)
    assert corpus.latest().check() == []
    assert dict(corpus.latest().stats().nodes) == {"chunk": 2}


def test_a_check_tells_documents_that_a_defined_group_lacks(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    manifest = corpus.latest().manifest("chunk")
    with corpus.writer() as writer:
        writer.redefine("chunk", manifest)
    (message,) = corpus.latest().check()
    assert "group 'chunk': 3 documents were not made yet" in message
    assert "spolia index" in message


@pytest.mark.slow
def test_a_rebuild_of_the_main_group_keeps_groups_that_are_not_made_from_it(folder: Path, corpus: Corpus) -> None:
    titles = corpus.group("title", Definition(titled))
    sync(folder, corpus, splitter=Paragraphs(), groups=[titles, corpus.group("sentence")])
    ASKED.clear()
    report = sync(folder, corpus, splitter=SlidingWindow(size=50, overlap=0), operators=[titled], rebuild=True)
    assert ASKED == []
    assert set(corpus.latest().groups()) == {"chunk", "sentence", "title"}
    assert search_uris(corpus, "salt", "title") == ["salt.txt"]
    assert report.chunks == dict(corpus.latest().stats().nodes)["chunk"]
    assert corpus.latest().check() == []


@pytest.mark.slow
def test_a_rebuild_makes_groups_again_that_are_made_from_the_main_one(folder: Path, corpus: Corpus) -> None:
    titles = corpus.group("title", Definition(titled, parent="chunk"))
    sync(folder, corpus, splitter=Paragraphs(), groups=[titles])
    previous_generation = corpus.latest().generation
    ASKED.clear()
    with pytest.raises(GroupError, match=r"'title' is made from 'chunk'.*Nothing was changed.*operators=.*drop title"):
        sync(folder, corpus, splitter=Sentences(), rebuild=True)
    assert corpus.latest().generation == previous_generation
    plan = planned(folder, corpus, splitter=Sentences(), operators=[titled])
    assert [(group_plan.group, group_plan.change, group_plan.nodes) for group_plan in plan.groups] == [
        ("chunk", "rebuilt", 4),
        ("title", "rebuilt", 4),
    ]
    ASKED.clear()
    sync(folder, corpus, splitter=Sentences(), operators=[titled], rebuild=True)
    assert len(ASKED) == 4
    assert dict(corpus.latest().stats().nodes) == {"chunk": 4, "title": 4}
    assert corpus.latest().check() == []
    assert sync(folder, corpus, splitter=Sentences(), operators=[titled]).unmade == ()


@pytest.mark.slow
def test_another_embedder_cuts_nothing_again(folder: Path, corpus: Corpus) -> None:
    titles = corpus.group("title", Definition(titled, parent="chunk"))
    sync(folder, corpus, splitter=Paragraphs(), embedder=EMBEDDER, groups=[titles])
    ASKED.clear()
    other_embedder = HashingEmbedder(32)
    report = sync(folder, corpus, splitter=Paragraphs(), embedder=other_embedder, rebuild=True, operators=[titled])
    assert (ASKED, report.embedded, report.chunks) == ([], 4, 0)
    assert corpus.latest().manifest("chunk").embedder == other_embedder.name
    assert reports(corpus)["tides.txt"].chunks == 2
    assert corpus.latest().check() == []


@pytest.mark.slow
def test_an_abandoned_group_is_left_behind_and_the_others_go_on(folder: Path, corpus: Corpus) -> None:
    titles = corpus.group("title", Definition(titled))
    sync(folder, corpus, groups=[titles, corpus.group("sentence")])
    (folder / "moss.txt").write_text("Moss grows slowly.")
    report = sync(folder, Corpus(corpus.path))  # which was not told what titles are made by
    ((group, reason),) = report.behind
    assert group == "title"
    assert "titled" in reason
    for way in ("operators=", "definition", "spolia groups drop title"):
        assert way in reason
    assert [(lack.uri, lack.group) for lack in report.unmade] == [("moss.txt", "title")]
    assert search_uris(corpus, "moss") == search_uris(corpus, "moss", "sentence") == ["moss.txt"]
    assert search_uris(corpus, "salt", "title") == ["salt.txt"]
    assert corpus.latest().check() == []
    later = sync(folder, corpus, operators=[titled])
    assert (later.behind, later.unmade) == ((), ())
    assert search_uris(corpus, "moss", "title") == ["moss.txt"]


@pytest.mark.slow
def test_what_was_embedded_is_kept_when_a_run_is_interrupted(folder: Path, corpus: Corpus) -> None:
    (folder / "many.txt").write_text("\n\n".join(f"Number {number}." for number in range(300)))
    embedder = Interrupted(16)
    with pytest.raises(KeyboardInterrupt):
        sync(folder, corpus, splitter=Paragraphs(), embedder=embedder)
    embedded_count = len(EMBEDDED)
    assert embedded_count
    assert corpus.latest().groups() == ()
    report = sync(folder, corpus, splitter=Paragraphs(), embedder=HashingEmbedder(16))
    assert report.embedded == 304 - embedded_count
    assert corpus.latest().check() == []


def test_who_searches_while_the_first_run_is_under_way_is_told_so(folder: Path, corpus: Corpus) -> None:
    messages: list[str] = []
    reader = Corpus(corpus.path, wait_s=0)

    def search_once(now: object) -> None:
        if not messages:
            with pytest.raises(StoreBusy, match="no group 'chunk' yet") as busy:
                search_uris(reader, "moon")
            messages.append(str(busy.value))

    sync(folder, corpus, progress=search_once)
    assert "is being indexed, by this process" in messages[0]
    assert "Published so far: 0 documents" in messages[0]
    assert search_uris(reader, "moon") == ["tides.txt"]


@pytest.mark.slow
def test_an_embedder_that_is_left_out_is_named(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=EMBEDDER)
    message = rf"embedded with '{EMBEDDER.name}', and no embedder was named\. .*embedder=HashingEmbedder\(…\)"
    with pytest.raises(ManifestMismatch, match=message):
        sync(folder, corpus)
    with pytest.raises(ManifestMismatch, match=message):
        add_texts(corpus, {"a": "A text."})
    add_texts(corpus, {"a": "A text."}, embedder=EMBEDDER)


@pytest.mark.slow
def test_groups_below_an_abandoned_one_follow_when_it_does(folder: Path, corpus: Corpus) -> None:
    lower_group = corpus.group("word", Definition(Sentences(), parent="title"))
    sync(folder, corpus, groups=[corpus.group("title", Definition(titled)), lower_group])
    (folder / "moss.txt").write_text("Moss grows slowly.")
    sync(folder, Corpus(corpus.path))
    assert search_uris(corpus, "moss", "word") == []
    sync(folder, corpus, operators=[titled])
    assert search_uris(corpus, "moss", "word") == ["moss.txt"]
