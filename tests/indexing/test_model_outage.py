"""A model server that is away: its group is left behind, everything else goes on, and it is asked a few times only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import ModelUnavailable
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.indexing.transforms.text_enrichment import Keywords, Summary
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition
from spolia.stores.groups.materialise import materialise
from spolia.stores.groups.nodes import FEW, MANY
from spolia.types import Query

pytestmark = pytest.mark.slow

SUMMARY = Summary(ScriptedModel(("It is about whales.",)))


class Server:
    """Replies, or is away; counts what it is asked while it is away."""

    def __init__(self) -> None:
        self.is_away, self.asked, self.left = False, 0, 0

    def go_after(self, replies: int) -> None:
        self.left, self.is_away = replies, True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    new_server, generate = Server(), ScriptedModel.generate

    def reached(self: ScriptedModel, *args: Any, **options: Any) -> Any:
        if new_server.is_away and new_server.left == 0:
            new_server.asked += 1
            raise ModelUnavailable("nobody answers")
        new_server.left = max(0, new_server.left - 1)
        return generate(self, *args, **options)

    monkeypatch.setattr(ScriptedModel, "generate", reached)
    return new_server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    for name in ("krill", "seals"):
        (new_folder / f"{name}.txt").write_text(f"Whales and {name}.")
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


def summary(corpus: Corpus) -> NodeGroup:
    return corpus.group("summary", Definition(SUMMARY))


def uris_in_group(corpus: Corpus, group: str) -> set[str]:
    return {node.uri for node in corpus.latest().all_nodes(group)}


def search_uris(corpus: Corpus, words: str) -> set[str]:
    return {node.uri for node in BM25(corpus.group())(Query(words)).nodes}


def test_new_changed_and_removed_files_are_followed_in_all_other_groups(
    folder: Path, corpus: Corpus, server: Server
) -> None:
    sync(folder, corpus, groups=[summary(corpus), corpus.group("sentence")])
    server.is_away = True
    (folder / "new.txt").write_text("Plankton drifts.")
    (folder / "krill.txt").write_text("Krill glows.")
    (folder / "seals.txt").unlink()
    report = sync(folder, corpus)
    assert (report.added, report.changed, report.removed, report.failed) == (1, 1, 1, ())
    ((group, reason),) = report.behind
    assert group == "summary"
    assert re.match(
        r"ModelUnavailable: nobody answers\. In the step .*\. What it lacks is made by the next run", reason
    )
    assert not report.is_in_step
    assert search_uris(corpus, "plankton") == {"new.txt"}
    assert search_uris(corpus, "krill glows") == {"krill.txt"}
    assert uris_in_group(corpus, "sentence") == {"new.txt", "krill.txt"}
    assert uris_in_group(corpus, "summary") == set()
    assert corpus.latest().check() == []
    second_summary = sync(folder, corpus)
    assert (second_summary.behind, second_summary.unmade, second_summary.generation) == (
        report.behind,
        report.unmade,
        report.generation,
    )
    server.is_away = False
    report = sync(folder, corpus)
    assert (report.is_in_step, uris_in_group(corpus, "summary")) == (True, {"new.txt", "krill.txt"})


def test_it_is_asked_a_few_times_whatever_there_is_to_ask(folder: Path, corpus: Corpus, server: Server) -> None:
    sync(folder, corpus, groups=[summary(corpus)])
    for number in range(150):
        (folder / f"{number:03}.txt").write_text(f"Text {number}.")
    server.is_away = True
    report = sync(folder, corpus, batch=20)
    assert (report.added, len(report.unmade), server.asked) == (150, 150, FEW)
    server.asked = 0
    sync(folder, corpus)  # it tries again what is lacking
    materialise([corpus.group("summary")])
    assert server.asked == 2 * FEW
    assert uris_in_group(corpus, "summary") == {"krill.txt", "seals.txt"}


def test_one_that_goes_away_later_is_noticed(folder: Path, corpus: Corpus, server: Server) -> None:
    sync(folder, corpus, groups=[summary(corpus)])
    for number in range(150):
        (folder / f"{number:03}.txt").write_text(f"Text {number}.")
    server.go_after(10)
    report = sync(folder, corpus)
    assert (len(report.unmade), len(report.behind)) == (140, 1)
    assert server.asked <= MANY
    assert len(uris_in_group(corpus, "summary")) == 12
    server.is_away = False
    assert sync(folder, corpus).is_in_step


def test_groups_of_one_server_are_left_behind_each(folder: Path, corpus: Corpus, server: Server) -> None:
    words = corpus.group("words", Definition(Keywords(ScriptedModel(("whales, krill",)))))
    lower_group = corpus.group("below", Definition(Sentences(), parent="summary"))
    sync(folder, corpus, groups=[summary(corpus), words, lower_group])
    server.is_away = True
    (folder / "new.txt").write_text("Plankton drifts.")
    report = sync(folder, corpus)
    assert {group for group, _ in report.behind} == {"summary", "words"}
    assert search_uris(corpus, "plankton") == {"new.txt"}
    server.is_away = False
    assert sync(folder, corpus).is_in_step
    assert "new.txt" in uris_in_group(corpus, "below")


def test_texts_are_added_all_the_same(corpus: Corpus, server: Server) -> None:
    add_texts(corpus, {"a": "Whales."}, groups=[summary(corpus)])
    server.is_away = True
    assert add_texts(corpus, {"b": "Plankton."}).behind
    assert search_uris(corpus, "plankton") == {"text:b"}


def test_a_group_that_is_made_anew_keeps_what_it_has(folder: Path, corpus: Corpus, server: Server) -> None:
    for number in range(FEW):
        (folder / f"{number}.txt").write_text(f"Text {number}.")
    sync(folder, corpus, groups=[summary(corpus)])
    previous_generation, uris = corpus.latest().generation, uris_in_group(corpus, "summary")
    other_group = corpus.group("summary", Definition(SUMMARY.but(max_words=20)))
    for replies in (0, 2):
        server.go_after(replies)
        with pytest.raises(ModelUnavailable, match="nobody answers") as failed:
            materialise([other_group], rebuild=True)
        assert "Nothing was published." in failed.value.__notes__[-1]
        server.go_after(replies)
        with pytest.raises(ModelUnavailable, match="nobody answers"):
            sync(folder, corpus, groups=[other_group], rebuild=True)
    assert (corpus.latest().generation, uris_in_group(corpus, "summary")) == (previous_generation, uris)


def test_a_main_group_that_a_model_makes_keeps_the_last_good_version(
    folder: Path, corpus: Corpus, server: Server
) -> None:
    sync(folder, corpus, splitter=SUMMARY)
    server.is_away = True
    (folder / "krill.txt").write_text("Krill glows.")
    for _ in range(5):  # it is not the document's fault: however often that is tried, it is tried again
        report = sync(folder, corpus, splitter=SUMMARY)
        assert (report.stale, len(report.behind)) == (("krill.txt",), 1)
    server.is_away = False
    assert sync(folder, corpus, splitter=SUMMARY).changed == 1


def test_a_rebuild_of_other_groups_goes_on(folder: Path, corpus: Corpus, server: Server) -> None:
    sync(folder, corpus, groups=[summary(corpus)])
    server.is_away = True
    report = sync(folder, corpus, splitter=Paragraphs(), rebuild=True)
    assert (report.behind, uris_in_group(corpus, "summary")) == ((), {"krill.txt", "seals.txt"})
