"""What a change would take is told before it is done; what is there is found until the new is whole."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import ManifestMismatch
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.splitters.text_units import Paragraphs, Sentences
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.report import Progress
from spolia.indexing.sync.sync import sync
from spolia.indexing.sync.texts import add_texts
from spolia.indexing.transforms.contextual_headers import ContextualHeaders
from spolia.indexing.transforms.text_enrichment import Keywords, Summary
from spolia.models.http.replies import estimate_tokens
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition, Embedding
from spolia.stores.groups.materialise import materialise
from spolia.stores.lexical.analysis import Analyzer
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Generation, Prompt, Usage, Value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    new_folder = tmp_path / "docs"
    new_folder.mkdir()
    for number in range(8):
        (new_folder / f"{number}.txt").write_text(f"Document {number} is about stones.\n\nIt has number {number}.")
    return new_folder


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return Corpus(str(tmp_path / "notes.spolia"))


@pytest.mark.slow
def test_the_old_generation_serves_until_the_new_one_is_whole(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    counts: set[tuple[int, int]] = set()

    def record_counts(now: Progress) -> None:
        stats = corpus.latest().stats()
        counts.add((stats.documents, dict(stats.nodes)["chunk"]))

    sync(folder, corpus, splitter=Paragraphs(), rebuild=True, batch=2, progress=record_counts)
    assert counts == {(8, 8)}
    assert dict(corpus.latest().stats().nodes) == {"chunk": 16}


@pytest.mark.slow
def test_without_a_rebuild_each_batch_is_published(folder: Path, corpus: Corpus) -> None:
    counts: set[int] = set()
    sync(folder, corpus, batch=2, progress=lambda now: counts.add(corpus.latest().stats().documents))
    assert {0, 2, 4, 6} <= counts


EMBEDDER = HashingEmbedder(16)


def files(corpus: Corpus) -> dict[str, bytes]:
    """Every file of a store but SQLite's shared memory, which readers write too."""
    return {
        str(path): path.read_bytes()
        for path in sorted(Path(corpus.path).rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def change(folder: Path) -> None:
    (folder / "new.txt").write_text("A new one about roads.")
    (folder / "1.txt").write_text("Document 1 is about whelks by now.")
    (folder / "2.txt").rename(folder / "two.txt")
    (folder / "3.txt").unlink()
    (folder / "broken.pdf").write_bytes(b"no PDF")
    (folder / "4.txt").write_text((folder / "4.txt").read_text())


@pytest.mark.slow
def test_a_plan_says_what_sync_then_does_and_writes_nothing(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=EMBEDDER, groups=[corpus.group("sentence")])
    change(folder)
    previous_contents, generation = files(corpus), corpus.latest().generation
    plan = planned(folder, corpus, embedder=EMBEDDER)
    assert (files(corpus), corpus.latest().generation) == (previous_contents, generation)
    assert (plan.new, plan.changed, plan.moved) == (("new.txt",), ("1.txt",), ("two.txt",))
    assert (plan.gone, plan.unchanged, plan.rebuild) == (("3.txt",), 5, False)
    report = sync(folder, corpus, embedder=EMBEDDER)
    assert plan.failed == report.failed
    ((uri, reason),) = plan.failed
    assert uri == "broken.pdf"
    assert "is not a readable PDF" in reason
    assert (report.added, report.changed, report.moved, report.removed, report.unchanged) == (1, 1, 1, 1, 5)
    chunk, sentence = plan.groups
    assert (chunk.change, chunk.nodes, chunk.texts, chunk.known) == ("kept", report.chunks, report.embedded, 0)
    assert (sentence.change, sentence.nodes, sentence.texts) == ("kept", 2, 0)


@pytest.mark.slow
def test_a_plan_of_a_store_that_is_not_there(folder: Path, corpus: Corpus) -> None:
    plan = planned(folder, corpus, embedder=EMBEDDER, groups=[corpus.group("sentence")])
    assert not corpus.exists()
    assert [(group.group, group.change, group.nodes, group.texts) for group in plan.groups] == [
        ("chunk", "new", 8, 8),
        ("sentence", "new", 16, 0),
    ]
    assert len(plan.new) == 8
    report = sync(folder, corpus, embedder=EMBEDDER, groups=[corpus.group("sentence")])
    assert dict(corpus.latest().stats().nodes) == {"chunk": 8, "sentence": 16}
    assert report.embedded == 8


@pytest.mark.slow
def test_a_rebuild_says_why_and_which_vectors_are_there(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, splitter=SlidingWindow(size=200), embedder=EMBEDDER, groups=[corpus.group("sentence")])
    (folder / "new.txt").write_text("A new one.")
    options: dict[str, Any] = {"splitter": SlidingWindow(size=100), "embedder": EMBEDDER}
    with pytest.raises(ManifestMismatch):
        sync(folder, corpus, **options)
    plan = planned(folder, corpus, **options)
    assert (plan.rebuild, plan.again, plan.new) == (True, 8, ("new.txt",))
    chunk, sentence = plan.groups
    assert chunk.why == ("transform.SlidingWindow.size: 200 there, 100 here",)
    assert (chunk.nodes, chunk.texts, chunk.known) == (9, 1, 8)
    assert (sentence.group, sentence.change) == ("sentence", "kept")
    report = sync(folder, corpus, rebuild=True, **options)
    assert (report.chunks, report.embedded) == (9, 1)
    assert corpus.latest().groups() == ("chunk", "sentence")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"embedder": HashingEmbedder(16, salt="x")}, "embeddings: 'hashing-16' (cosine"),
        ({"embedder": EMBEDDER, "analyzer": Analyzer(stop_words="english")}, "analyzer.stop_words: "),
    ],
)
def test_every_part_of_a_manifest_can_be_the_reason(
    folder: Path, corpus: Corpus, other: dict[str, Any], why: str
) -> None:
    sync(folder, corpus, embedder=EMBEDDER)
    plan = planned(folder, corpus, **other)
    assert plan.rebuild
    assert any(reason.startswith(why) for reason in plan.groups[0].why), plan.groups[0].why


@pytest.mark.slow
def test_a_group_of_another_definition_is_rebuilt_with_those_below(folder: Path, corpus: Corpus) -> None:
    lower_definition = Definition(Sentences(), parent="part")
    sync(
        folder, corpus, groups=[corpus.group("part", Definition(Paragraphs())), corpus.group("below", lower_definition)]
    )
    other_group = corpus.group("part", Definition(SlidingWindow(size=64)))
    plan = planned(folder, corpus, groups=[other_group])
    changes = {group.group: (group.change, group.nodes) for group in plan.groups}
    assert changes == {"chunk": ("kept", 0), "part": ("rebuilt", 8), "below": ("rebuilt", 16)}
    assert plan.unchanged == 8
    materialise([other_group], rebuild=True)
    assert dict(corpus.latest().stats().nodes) == {"chunk": 8, "part": 8, "below": 16}


@pytest.mark.slow
def test_models_are_not_asked_but_counted(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus)
    model = ScriptedModel(("Short.",) * 20)
    group = corpus.group("short", Definition(Summary(model), parent="chunk", embeddings=(Embedding(EMBEDDER),)))
    lower_group = corpus.group("below", Definition(Sentences(), parent="short"))
    (folder / "new.txt").write_text("A new one.")
    plan, calls = planned(folder, corpus, groups=[group, lower_group]), Summary(model).calls()
    assert calls
    counts = {
        group_plan.group: (group_plan.change, group_plan.nodes, group_plan.texts, group_plan.calls)
        for group_plan in plan.groups
    }
    assert counts == {"chunk": ("kept", 1, 0, 0), "short": ("new", None, None, 9 * calls), "below": ("new", None, 0, 0)}


@dataclass(frozen=True)
class Priced(Value):
    """A model that replies and notes what it was sent; its price is stated."""

    usd_per_million: tuple[float, float] = (2.0, 8.0)
    name: str = "priced"
    capabilities: frozenset[str] = frozenset({"chat"})
    scoped = False

    def fingerprint(self) -> str:
        return self.name

    def priced(self, usage: Usage) -> Usage:  # the former name of `add_price`
        input_usd, output_usd = self.usd_per_million
        return usage.but(cost_usd=(usage.input_tokens * input_usd + usage.output_tokens * output_usd) / 1e6)

    def generate(self, prompt: Prompt, *, max_tokens: int = 512, **more: Any) -> Generation:
        SENT.append((prompt, max_tokens))
        return Generation("Short.")


SENT: list[tuple[Prompt, int]] = []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transform", "prompts"),
    [
        (Summary(Priced(), characters=20), 9),
        (ContextualHeaders(Priced(), Sentences()), 17),
        (Keywords(Priced(usd_per_million=(0.0, 0.0))), 9),
    ],
    ids=lambda value: getattr(value, "short", str(value)),
)
def test_tokens_and_money_are_those_of_the_prompts_that_are_then_sent(
    folder: Path, corpus: Corpus, transform: Any, prompts: int
) -> None:
    sync(folder, corpus)
    (folder / "new.txt").write_text("Ein neuer Stein — über Wälle, for one.")
    (folder / "blank.txt").write_text("  ")
    SENT.clear()
    group = corpus.group("made", Definition(transform))
    plan = planned(folder, corpus, groups=[group])
    assert not SENT
    (group_plan,) = [candidate for candidate in plan.groups if candidate.group == "made"]
    sync(folder, corpus, groups=[group])
    assert group_plan.prompts == len(SENT) == prompts
    input_tokens = sum(estimate_tokens(m.content) + 8 for prompt, _ in SENT for m in prompt.messages)
    output_tokens = sum(maximum for _, maximum in SENT)
    assert (group_plan.input_tokens, group_plan.output_tokens) == (input_tokens, output_tokens)
    expected = transform.llm.priced(Usage(input_tokens=input_tokens, output_tokens=output_tokens)).cost_usd
    assert group_plan.cost_usd == (pytest.approx(expected) if expected else None)


@pytest.mark.slow
def test_only_what_a_change_makes_anew_costs(folder: Path, corpus: Corpus) -> None:
    first = corpus.group("made", Definition(Summary(Priced())))
    sync(folder, corpus, groups=[first])
    unchanged = {group.group: group for group in planned(folder, corpus, groups=[first]).groups}
    assert (unchanged["made"].prompts, unchanged["made"].cost_usd) == (0, None)
    (folder / "1.txt").write_text("Whelks.")
    changed = {group.group: group for group in planned(folder, corpus, groups=[first], operators=[Priced]).groups}
    assert (changed["made"].change, changed["made"].prompts) == ("kept", 1)
    other_group = corpus.group("made", Definition(Summary(Priced(), max_words=5)))
    rebuilt = {group.group: group for group in planned(folder, corpus, groups=[other_group]).groups}
    assert (rebuilt["made"].change, rebuilt["made"].prompts) == ("rebuilt", 8)
    assert rebuilt["made"].why == ("transform.Summary.max_words: 60 there, 5 here",)


def test_texts_to_embed_have_tokens_and_no_embedder_is_asked(folder: Path, corpus: Corpus) -> None:
    class Mute(HashingEmbedder):
        def embed(self, texts: Any, *, kind: Any) -> Any:
            raise AssertionError("It was asked.")

    plan = planned(folder, corpus, embedder=Mute(16))
    assert plan.groups[0].texts == 8
    texts = [f"Document {number} is about stones.\n\nIt has number {number}." for number in range(8)]
    assert plan.groups[0].text_tokens == sum(map(estimate_tokens, texts))
    assert plan.seconds is None
    assert (planned(folder, corpus, embedder=EMBEDDER, timed=True).seconds or 0) > 0


def test_a_fast_plan_reads_no_file(folder: Path, corpus: Corpus) -> None:
    sync(folder, corpus, embedder=EMBEDDER)
    change(folder)
    plan = planned(folder, corpus, embedder=EMBEDDER, fast=True)
    assert (plan.new, plan.gone) == (("broken.pdf", "new.txt", "two.txt"), ("2.txt", "3.txt"))
    assert (plan.changed, plan.unchanged, plan.seconds) == (("1.txt", "4.txt"), 4, None)
    assert (plan.groups[0].nodes, plan.groups[0].texts) == (None, None)


@pytest.mark.slow
def test_texts_and_reader_lists_are_kept_in_mind(folder: Path, corpus: Corpus) -> None:
    arguments: dict[str, Any] = {"access": lambda uri: ("ann",), "metadata": lambda uri: {"year": 1}}
    sync(folder, corpus, **arguments)
    add_texts(corpus, {"memo": "Whelks live under the pier."}, access=lambda uri: [])
    assert planned(folder, corpus, **arguments).unchanged == 8
    plan = planned(folder, corpus, access=lambda uri: ("bob",), metadata=arguments["metadata"])
    assert (len(plan.changed), plan.groups[0].nodes, plan.gone) == (8, 0, ())
    plan = planned(folder, corpus, splitter=Paragraphs(), **arguments)
    assert (plan.groups[0].nodes, plan.gone) == (17, ())
