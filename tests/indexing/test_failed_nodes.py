"""A document that one group cannot be made of: it is found in the others, it is told, and it is tried again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DocumentError, ModelUnavailable
from spolia.indexing.splitters.text_units import Sentences
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.indexing.transforms.function import transform
from spolia.indexing.transforms.text_enrichment import Summary
from spolia.journal import Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Definition, Part, Piece, Splitter
from spolia.stores.groups import nodes
from spolia.stores.groups.materialise import materialise
from spolia.stores.portable import export_store, import_store
from spolia.types import Query

BAD = "bad.txt"
ASKED: list[str] = []
BROKEN: set[str] = set()


@transform
def titles(text: str) -> str:
    ASKED.append(text)
    if text in BROKEN:
        raise ValueError("no title")
    return f"Title of {text[:8]}"


@transform
def joined(text: str, refs: list[str]) -> str:
    return "|".join(refs)


@dataclass(frozen=True)
class Failing(Splitter):
    """Gives one piece of a text, and then fails if it is among the broken ones."""

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        yield Piece(part.node.text[:5], 0)
        if part.document.text in BROKEN:
            raise RuntimeError("in mid-text")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    for name in ("a.txt", BAD, "c.txt"):
        (new_folder / name).write_text(f"{name} speaks of stones. It ends here.")
    ASKED.clear()
    BROKEN.clear()
    BROKEN.add((new_folder / BAD).read_text())
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "s.spolia"))


def uris_in_group(corpus: Corpus, group: str) -> set[str]:
    return {node.uri for node in corpus.latest().all_nodes(group)}


def uris_and_groups(unmade: Any) -> list[tuple[str, str]]:
    return [(lack.uri, lack.group) for lack in unmade]


def title_group(corpus: Corpus) -> NodeGroup:
    return corpus.group("title", Definition(titles))


@pytest.mark.slow
def test_a_document_is_found_in_the_groups_that_could_be_made_of_it(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    (lack,) = materialise([title_group(corpus)])
    assert (lack.uri, lack.group) == (BAD, "title")
    assert "ValueError: no title" in lack.reason
    (folder / BAD).write_text((folder / BAD).read_text().replace("ends", "stops"))
    BROKEN.add((folder / BAD).read_text())
    report = sync(folder, corpus, operators=[titles])
    assert report.failed == ()
    assert uris_and_groups(report.unmade) == [(BAD, "title")]
    assert uris_in_group(corpus, "chunk") == {"a.txt", BAD, "c.txt"}
    assert uris_in_group(corpus, "title") == {"a.txt", "c.txt"}
    assert {node.uri for node in BM25(corpus.group())(Query("stops")).nodes} == {BAD}
    assert corpus.latest().check() == []


@pytest.mark.slow
def test_what_could_not_be_made_is_tried_again_by_sync(folder: Path, corpus: Corpus) -> None:
    report = sync(folder, corpus, groups=[title_group(corpus)])
    assert uris_and_groups(report.unmade) == [(BAD, "title")]
    ASKED.clear()
    second_summary = sync(folder, corpus, operators=[titles])
    assert [(folder / BAD).read_text()] == ASKED
    assert (second_summary.unmade, second_summary.generation) == (report.unmade, report.generation)
    ASKED.clear()
    assert sync(folder, corpus, operators=[titles], retry=False).unmade == report.unmade
    assert ASKED == []
    BROKEN.clear()
    assert sync(folder, corpus, operators=[titles]).unmade == ()
    assert uris_in_group(corpus, "title") == {"a.txt", BAD, "c.txt"}
    ASKED.clear()
    sync(folder, corpus, operators=[titles])
    assert ASKED == []
    assert corpus.latest().check() == []


@pytest.mark.slow
def test_what_could_not_be_made_is_tried_again_by_materialise_but_not_by_a_search(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    group, runs = title_group(corpus), Runs(folder.parent / "runs.db")
    with Run(journal=runs.journal) as run:
        assert BM25(group)(Query("title"))
    runs.journal.flush()
    notes = [note for span in runs.journal.spans(run.id) for note in span.notes]
    assert any(f"lacks 1 documents that it could not be made of: {BAD}" in note for note in notes)
    ASKED.clear()
    assert BM25(group)(Query("title"))
    assert ASKED == []
    assert uris_and_groups(materialise([group])) == [(BAD, "title")]
    BROKEN.clear()
    assert materialise([group]) == ()
    assert uris_in_group(corpus, "title") == {"a.txt", BAD, "c.txt"}


@pytest.mark.slow
def test_groups_below_follow_when_theirs_can_be_made(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    lower_group = corpus.group("word", Definition(Sentences(), parent="title"))
    group_by_refs = corpus.group("refs", Definition(joined, ref="title"))
    assert uris_and_groups(materialise([title_group(corpus), lower_group, group_by_refs])) == [(BAD, "title")]
    assert uris_in_group(corpus, "word") == uris_in_group(corpus, "refs") == {"a.txt", "c.txt"}
    BROKEN.clear()
    sync(folder, corpus, operators=[titles, joined])
    assert uris_in_group(corpus, "word") == uris_in_group(corpus, "refs") == {"a.txt", BAD, "c.txt"}
    assert corpus.latest().check() == []


def test_a_group_that_can_be_made_of_nothing_is_an_error_and_is_not_there(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    BROKEN.update(path.read_text() for path in folder.iterdir())
    with pytest.raises(DocumentError, match=r"titles failed.*no title") as failed:
        materialise([title_group(corpus)])
    assert failed.value.__notes__ == ["Group 'title' could be made of no document. Nothing was published."]
    assert corpus.latest().groups() == ("chunk",)


@pytest.mark.slow
def test_the_main_group_is_a_group_like_any_other(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "LISTED", 10_000)
    report = sync(folder, corpus, splitter=Failing(), groups=[corpus.group("sentence")], workers=0)
    assert dict(report.failed) == {BAD: "RuntimeError: in mid-text"}  # it was there in no group when it was read
    long = "Stones. " * 1_300
    BROKEN.add(long)
    (folder / "long.txt").write_text(long)
    report = sync(folder, corpus, splitter=Failing(), workers=0)
    assert uris_and_groups(report.unmade) == [(BAD, "chunk"), ("long.txt", "chunk")]
    assert uris_in_group(corpus, "sentence") == {"a.txt", BAD, "c.txt", "long.txt"}
    assert uris_in_group(corpus, "chunk") == {"a.txt", "c.txt"}
    BROKEN.clear()
    assert sync(folder, corpus, splitter=Failing(), workers=0).unmade == ()
    assert uris_in_group(corpus, "chunk") == {"a.txt", BAD, "c.txt", "long.txt"}
    assert corpus.latest().check() == []


@transform
def halves(text: str) -> str:
    return "\ud800" if text in BROKEN else text


def test_what_a_store_cannot_take_fails_its_group_only(folder: Path, corpus: Corpus) -> None:
    report = sync(folder, corpus, groups=[corpus.group("odd", Definition(halves))])
    assert uris_and_groups(report.unmade) == [(BAD, "odd")]
    assert uris_in_group(corpus, "chunk") == {"a.txt", BAD, "c.txt"}
    assert uris_in_group(corpus, "odd") == {"a.txt", "c.txt"}


def test_a_copy_of_a_document_shares_what_was_made_of_it(folder: Path, corpus: Corpus) -> None:
    BROKEN.clear()
    sync(folder, corpus, groups=[title_group(corpus)])
    BROKEN.add((folder / "a.txt").read_text())
    (folder / "copy.txt").write_text((folder / "a.txt").read_text())
    report = sync(folder, corpus, operators=[titles])
    assert (report.added, report.failed, report.unmade) == (1, (), ())
    assert uris_in_group(corpus, "title") == {"a.txt", BAD, "c.txt"}  # one document under two names


@pytest.mark.slow
def test_another_reader_list_keeps_what_is_noted(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, groups=[title_group(corpus)], access=lambda uri: ["ann"])
    report = sync(folder, corpus, operators=[titles], access=lambda uri: ["bob"], retry=False)
    assert report.changed == 3
    assert uris_and_groups(report.unmade) == [(BAD, "title")]


@pytest.mark.slow
def test_what_is_noted_goes_with_its_document_and_its_group(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, groups=[title_group(corpus)])
    (folder / BAD).unlink()
    assert sync(folder, corpus, operators=[titles]).unmade == ()
    for _ in range(3):  # until the generations that saw it are forgotten
        add_texts(corpus, {"more": f"{_}"}, operators=[titles])
    assert corpus.latest().check() == []
    (folder / BAD).write_text(next(iter(BROKEN)))
    assert uris_and_groups(sync(folder, corpus, operators=[titles]).unmade) == [(BAD, "title")]
    with corpus.writer() as writer:
        writer.drop("title")
    assert corpus.latest().unmade() == ()


@pytest.mark.slow
def test_an_export_holds_what_could_not_be_made(folder: Path, corpus: Corpus, tmp_path: Path) -> None:
    sync(folder, corpus, groups=[title_group(corpus)])
    export_store(corpus, tmp_path / "s.zip")
    other_corpus = Corpus(str(tmp_path / "other.spolia"))
    import_store(tmp_path / "s.zip", other_corpus)
    assert other_corpus.latest().unmade() == corpus.latest().unmade() != ()


@pytest.mark.slow
def test_a_plan_counts_what_is_tried_again(folder: Path, corpus: Corpus) -> None:
    group = corpus.group("summary", Definition(Summary(ScriptedModel((("a.txt|c.txt", "A summary of stones."),)))))
    assert uris_and_groups(sync(folder, corpus, groups=[group]).unmade) == [(BAD, "summary")]
    plans = {plan.group: plan for plan in planned(folder, corpus, groups=[group]).groups}
    assert plans["summary"].calls == 2  # one question and its repair, for one document


def test_a_model_that_one_document_could_not_reach_fails_that_one(
    folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = ScriptedModel.generate

    def unreached(self: ScriptedModel, prompt: Any, *args: Any, **options: Any) -> Any:
        if BAD in str(prompt):
            raise ModelUnavailable("nobody answers")
        return generate(self, prompt, *args, **options)

    monkeypatch.setattr(ScriptedModel, "generate", unreached)
    group = corpus.group("summary", Definition(Summary(ScriptedModel(("A summary.",)))))
    assert uris_and_groups(sync(folder, corpus, groups=[group]).unmade) == [(BAD, "summary")]
    report = sync(folder, corpus, groups=[group])
    assert uris_and_groups(report.unmade) == [(BAD, "summary")]
    ((behind, reason),) = (
        report.behind
    )  # nobody could be reached: that keeps nothing else from being done, so it is told
    assert (behind, "nobody answers" in reason) == ("summary", True)
    monkeypatch.undo()
    assert sync(folder, corpus, groups=[group]).unmade == ()


# What is said of files.


def _fails(uri: str) -> Mapping[str, Any]:
    if uri == BAD:
        raise KeyError("year")
    return {"year": 2020}


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (_fails, r"metadata\('bad.txt'\) failed: KeyError: 'year'"),
        (lambda uri: ["year"] if uri == BAD else {}, r"metadata\('bad.txt'\) gave \['year'\]\. Give names with values"),
        (
            lambda uri: {"at": object()} if uri == BAD else {},
            r"gave a value that is none: <object.*of type object\. Write",
        ),
        (lambda uri: {1: "a"} if uri == BAD else {}, r"gave the name 1\. Give names that are texts"),
        (lambda uri: {"a": inf} if uri == BAD else {}, r"gave 'a': inf\. Give a finite number"),
        (lambda uri: {"a": "\udc80"} if uri == BAD else {}, r"no encoding of Unicode"),
    ],
)
def test_bad_metadata_fail_their_file_in_words(folder: Path, corpus: Corpus, metadata: Any, said: str) -> None:
    report = sync(folder, corpus, metadata=metadata)
    assert [uri for uri, _ in report.failed] == [BAD]
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(report.failed[0][1])
    assert uris_in_group(corpus, "chunk") == {"a.txt", "c.txt"}
    assert sync(folder, corpus, metadata=lambda uri: {}).failed == ()


def test_metadata_that_fail_later_leave_the_document_as_it_was(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, metadata=lambda uri: {"year": 2020})
    report = sync(folder, corpus, metadata=_fails)
    assert (len(report.failed), report.unchanged) == (1, 2)
    assert uris_in_group(corpus, "chunk") == {"a.txt", BAD, "c.txt"}
    assert sync(folder, corpus, metadata=lambda uri: {"year": 2020}).failed == ()


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (
            lambda uri: ["\ud800"] if uri == "c.txt" else ["ann"],
            r"access\('c.txt'\) gave the principal '\\ud800'",
        ),
        (lambda uri: {"a.txt": ["ann"], "bad.txt": []}[uri], r"access\('c.txt'\) failed: KeyError: 'c.txt'"),
    ],
)
def test_bad_reader_lists_are_refused_before_anything_is_written(
    folder: Path, corpus: Corpus, access: Any, said: str
) -> None:
    from spolia.errors import StoreError

    with pytest.raises(StoreError, match=said):
        sync(folder, corpus, access=access, batch=1)
    assert corpus.latest().generation == 0
