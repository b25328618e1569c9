"""Extract: quotes exactly, says enough and no more, abstains, and does not care how it is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.errors import WiringError
from spolia.generation.extract import (
    EMBEDDED,
    HARD_LIMIT,
    LEXICAL,
    LONGEST,
    Clues,
    Extract,
    Passage,
    chances,
    clues,
    confidence,
    count_words,
    price_per_word,
    split_quotable,
)
from spolia.generation.sentence_vectors import SentenceVectors
from spolia.journal import Runs
from spolia.journal.cache import Cache
from spolia.models.protocols import Kind
from spolia.run import Run
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Hit, Node, Query, Ranking, Span, Value
from tests.records import tamper

TIDES = (
    "# Tides\n\nShips wait for the tide. The tide is caused by the pull of the moon.\nSo is the current. "
    "Harbours were built for 3,200 ships in 1832 by Ada Quarry."
)
STONES = "Old stones are set into new walls. Masons call them spolia. They were cut long ago, and hold still."


@dataclass(frozen=True)
class Letters(Value):
    """An embedder that counts letters: real vectors of length 1, no weights. Remembers nothing."""

    name: str = "letters"
    dimension: int = 26
    window: int = 1000
    scoped: bool = False

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: Kind) -> npt.NDArray[np.float32]:
        calls.append(list(texts))
        rows = np.array([[text.lower().count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts], np.float32)
        return np.asarray(
            rows.reshape(-1, 26) / np.linalg.norm(rows.reshape(-1, 26), axis=1, keepdims=True), np.float32
        )

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text) for text in texts]

    def covers(self, text: str) -> float:
        return 1.0


calls: list[list[str]] = []


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spolia.generation.sentence_vectors._vector_cache", {})


def node(text: str, name: str = "d", start: int = 0, context: str = "", line: int | None = None) -> Node:
    lines = None if line is None else (line, line + text.count("\n"))
    span = Span(start, start + len(text), lines=lines)
    return Node(f"{name}#{start}", text, name, span=span, context=context, uri=f"{name}.md")


def ranking_of(question: str, *nodes: Node) -> Ranking:
    return Ranking(Query(question), tuple(Hit(passage_node, 1.0 / n) for n, passage_node in enumerate(nodes, 1)))


def test_the_quote_stands_in_the_document_at_its_span() -> None:
    document = "A preface of another kind.\n" + TIDES
    answer = Extract(words=20)(ranking_of("What causes the tide?", node(TIDES, start=27, context="Tides", line=2)))
    assert answer.text == "The tide is caused by the pull of the moon. [1]"
    (citation,) = answer.citations
    assert citation.span is not None
    assert document[citation.span.start : citation.span.end] == citation.quote
    assert citation.span.lines == (4, 4)
    assert (citation.marker, citation.node, citation.document, citation.uri) == ("1", "d#27", "d", "d.md")


def test_a_reference_in_a_sentence_is_told_apart_from_the_marks_of_the_answer() -> None:
    text = "The tide is caused by the pull of the moon [2]. Ships wait."
    answer = Extract(words=20)(ranking_of("What causes the tide?", node(text)))
    assert answer.text == "The tide is caused by the pull of the moon ⟦2⟧. [1]"
    assert answer.citations[0].quote == "The tide is caused by the pull of the moon [2]."


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("| Ship | Master |\n|---|---|\n| de Hoop | Ann Quarry of the old harbour |\n| geloof | Bob Stone |", "| {} |"),
        ("ship | master\nde Hoop | Ann Quarry of the old harbour\ngeloof | Bob Stone of the new quay", "{}"),
        ("ship\tmaster\nde Hoop\tAnn Quarry of the old harbour\ngeloof\t\tBob Stone of the new quay", "{}"),
    ],
)
def test_a_row_of_a_table_is_a_quote_of_its_own_with_its_cells_apart(table: str, rows: str) -> None:
    answer = Extract(words=60)(ranking_of("Who is master of de Hoop?", node(f"Ships of 1632.\n\n{table}\n\nAll sail.")))
    lines = answer.text.split("\n")
    assert lines[0] == f"{rows.format('de Hoop | Ann Quarry of the old harbour')} [1]"
    assert [line.count("[") for line in lines] == [1] * len(answer.citations)
    assert all("\n" not in citation.quote for citation in answer.citations)


def test_a_date_or_number_is_preferred_where_one_is_asked_for() -> None:
    answer = Extract(words=10, threshold=0)(
        ranking_of("When were the harbours built?", node(TIDES + " Harbours were built well."))
    )
    assert "1832" in answer.citations[0].quote


def test_words_that_other_sentences_of_the_passage_hold_count_for_the_answer() -> None:
    lighthouses = [
        node(
            f"Lighthouse {n} stands on island {n % 7}. It was lit in {1800 + n}. Its keeper had {n % 5} goats.", f"{n}"
        )
        for n in (9, 33, 13, 24)
    ]
    answer = Extract(words=30)(ranking_of("How many goats had the keeper of lighthouse 9?", *lighthouses))
    assert "Its keeper had 4 goats." in [citation.quote for citation in answer.citations]


NO_ANSWERS = [
    "# Cause of the tide",
    "Cause of the tide",
    "2.1 What causes the tide",
    "2 Cause of the tide in the moon",
    "Do you know what causes the tide?",
    "« What causes the tide ? »",
    "潮汐是什么引起的，cause tide？",
]


@pytest.mark.parametrize("line", NO_ANSWERS)
@pytest.mark.parametrize("embedder", [None, Letters()])
def test_neither_a_question_nor_a_heading_is_an_answer(line: str, embedder: Letters | None) -> None:
    text = f"Ships wait.\n\n{line}\n\nIt is the pull of the moon.\n\nHarbours are built."
    answer = Extract(embedder, words=200, threshold=0.0)(ranking_of("What causes the tide?", node(text)))
    assert line not in [citation.quote for citation in answer.citations]
    assert answer.citations


@pytest.mark.parametrize("line", ["Ada Quarry", "Pier of the harbour: 12 m", "- The tide pilot", "Tide | moon"])
def test_a_label_an_item_and_a_row_are_no_headings(line: str) -> None:
    text = f"Pilot:\n\n{line}\n\nShips wait."
    assert not Passage.from_text(text, split_quotable(text)).headings


def test_a_heading_counts_for_the_sentences_below_it_and_a_first_row_for_those_of_its_table() -> None:
    text = "Storms\n\nMasts break.\n\nSteel\n\nBar | Yield | Strength\nB1 | 890 | 1000\nB2 | 900 | 1200\n\nMasts bend."
    answer = Extract(words=10, threshold=0)(ranking_of("Which strength has B1 of steel?", node(text)))
    assert answer.citations[0].quote == "B1 | 890 | 1000"


@pytest.mark.parametrize("question", ["What is spolia?", "What's a spolia", "What is the Spolia?"])
def test_a_definition_answers_what_something_is(question: str) -> None:
    text = "Masons like spolia and what spolia is worth. Spolia (pl.) is a reused stone. What spolia is may vary."
    assert Extract(words=5)(ranking_of(question, node(text))).citations[0].quote == "Spolia (pl.) is a reused stone."


@pytest.mark.parametrize("embedder", [None, Letters()])
def test_nothing_found_is_an_abstention(embedder: Letters | None) -> None:
    answer = Extract(embedder)(ranking_of("What causes the tide?"))
    assert (answer.abstained, answer.citations, answer.text) == (True, (), Extract().abstention)


def test_passages_about_something_else_are_an_abstention() -> None:
    answer = Extract()(ranking_of("Who wrote the opera about Nabucco?", node(STONES), node(TIDES)))
    assert answer.abstained
    assert not Extract(threshold=0.0)(
        ranking_of("Who wrote the opera about Nabucco?", node(STONES), node(TIDES))
    ).abstained


def test_a_heading_or_the_question_itself_is_no_answer() -> None:
    faq = "What causes the tide?\nThe pull of the moon does, day and night.\n"
    answer = Extract()(ranking_of("What causes the tide?", node(faq), node("Tide causes", context="Tide causes")))
    assert answer.citations[0].quote == "The pull of the moon does, day and night."
    assert all(citation.quote not in ("What causes the tide?", "Tide causes") for citation in answer.citations)


def test_a_sentence_that_two_passages_share_is_quoted_once() -> None:
    overlapping = node(TIDES, start=0), node(TIDES[TIDES.index("The tide") :], start=TIDES.index("The tide"))
    answer = Extract(words=200)(ranking_of("What causes the tide?", *overlapping))
    quotes = [citation.quote for citation in answer.citations]
    assert len(quotes) == len(set(quotes))


def test_more_words_never_say_less() -> None:
    ranking = ranking_of("Which stones are set into walls by masons?", node(STONES), node(TIDES))
    sizes = [len(Extract(words=words)(ranking).citations) for words in (10, 20, 40, 80, 160)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 1


def test_a_reply_is_never_longer_than_the_limit() -> None:
    text = " ".join(f"The tide of the year {year} was caused by the moon." for year in range(1500, 1600))
    answer = Extract(words=15)(ranking_of("Which year had a tide that was caused by the moon?", node(text)))
    assert sum(count_words(citation.quote) for citation in answer.citations) <= HARD_LIMIT * 15


@pytest.mark.parametrize("embedder", [None, Letters()])
def test_one_by_one_and_together_are_the_same(embedder: Letters | None) -> None:
    extract = Extract(embedder)
    rankings = [
        ranking_of(q, node(TIDES), node(STONES, "s")) for q in ("What causes the tide?", "What do masons call them?")
    ]
    assert list(extract.apply_batch(rankings)) == [extract(ranking) for ranking in rankings]


def test_a_batch_embeds_each_text_once() -> None:
    calls.clear()
    rankings = [
        ranking_of(q, node(TIDES), node(STONES, "s")) for q in ("What causes the tide?", "Why wait?", "Why wait?")
    ]
    Extract(Letters()).apply_batch(rankings)
    texts = [text for call in calls for text in call]
    assert len(texts) == len(set(texts))
    assert len(calls) == 2


def test_only_the_best_passages_are_read() -> None:
    ranking = ranking_of(
        "What do masons call old stones?", *(node(TIDES, f"t{n}") for n in range(3)), node(STONES, "s")
    )
    answer = Extract(passages=3, threshold=0.0)(ranking)
    assert "s" not in {citation.document for citation in answer.citations}
    assert answer.evidence is not None
    assert len(answer.evidence) == 3


SCRIPTS = [
    ("潮汐是由什么引起的？", "船在等待潮水。", "潮汐是由月球的引力引起的。", "城墙很古老。"),
    ("조석은 무엇 때문에 생기는가?", "배가 기다린다. ", "조석은 달의 인력 때문에 생긴다.", " 성벽은 오래되었다."),
    ("ما الذي يسبب المد؟", "السفن تنتظر. ", "المد يسببه جذب القمر.", " الجدران قديمة."),
    ("¿Qué causa la marea?", "Los barcos esperan. ", "La marea la causa la luna.", " Los muros son viejos."),
]


@pytest.mark.parametrize(("question", "before", "quote", "after"), SCRIPTS)
def test_other_scripts_are_quoted_exactly(question: str, before: str, quote: str, after: str) -> None:
    answer = Extract(words=8)(ranking_of(question, node(before + quote + after)))
    assert answer.citations[0].quote == quote


def test_the_text_of_a_node_that_is_not_the_documents_is_cited_as_a_whole() -> None:
    summary = Node("n", TIDES, "d", "summary", Span(0, 9000))
    answer = Extract(words=20)(ranking_of("What causes the tide?", summary))
    assert answer.citations[0].span == Span(0, 9000)


@pytest.mark.parametrize("wrong", [{"words": 0}, {"passages": 0}, {"threshold": 1.5}, {"threshold": float("nan")}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(WiringError, match=next(iter(wrong))):
        Extract(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=60)
@given(st.text(max_size=400), st.text(max_size=60))
def test_any_text_is_quoted_exactly(text: str, question: str) -> None:
    answer = Extract(threshold=0.0)(ranking_of(question or "?", node(text, start=7)))
    for citation in answer.citations:
        assert citation.span is not None
        assert text[citation.span.start - 7 : citation.span.end - 7] == citation.quote
    assert answer == Extract(threshold=0.0)(ranking_of(question or "?", node(text, start=7)))


@settings(max_examples=60)
@given(st.text(alphabet="ab, .;\n漢字、。", max_size=600))
def test_pieces_are_short_in_order_and_lose_nothing(text: str) -> None:
    spans = split_quotable(text, longest=5)
    assert all(count_words(text[start:end]) <= 5 and start < end for start, end in spans)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))
    assert "".join("".join(text[start:end] for start, end in spans).split()) == "".join(text.split())


def test_encoded_data_is_cut_too() -> None:
    assert max(end - start for start, end in split_quotable("QmFzZTY0" * 10_000)) <= 12 * LONGEST


def test_chances_sum_to_one_and_follow_the_clues() -> None:
    passages = (
        Passage("Tides", ("The tide is caused by the moon.", "Ships wait.")),
        Passage("", ("The tide is caused by the moon.",)),
    )
    for weights, cosines in ((LEXICAL, None), (EMBEDDED, [0.9, 0.1, 0.9])):
        likely = chances(clues("What causes the tide?", passages, Analyzer(), cosines), weights)
        assert sum(likely) == pytest.approx(1.0)
        assert likely[0] > likely[1] > likely[2] == pytest.approx(0.0)
    assert chances([], LEXICAL) == []


def test_likeness_does_not_depend_on_the_scale_of_the_cosines() -> None:
    passages = [Passage("", ("One.", "Two.", "Three."))]
    low, high = (clues("Which?", passages, Analyzer(), c) for c in ([0.1, 0.2, 0.3], [0.7, 0.75, 0.8]))
    assert [span.likeness for span in low] == pytest.approx([span.likeness for span in high])
    flat = clues("Which?", passages, Analyzer(), [0.5, 0.5, 0.5])
    assert {span.likeness for span in flat} == {0.0}


def test_confidence_grows_with_the_evidence_of_the_sentence_and_of_its_passage() -> None:
    def sure(near: float, whole: float, cosine: float | None = None) -> float:
        return confidence(Clues(0, 0, near, 0, 0, 0, 0, whole), cosine)

    assert sure(0.1, 0.5) < sure(0.5, 0.5) < sure(0.5, 1.0)
    assert sure(0.5, 0.5, 0.2) < sure(0.5, 0.5, 0.5) < sure(0.9, 0.5, 0.5) < sure(0.9, 0.9, 0.5)
    assert price_per_word(80) < price_per_word(30)


def test_a_sentence_wrapped_over_indented_lines_is_one() -> None:
    text = (
        "- Budgets are reserved before a call is sent to a model, and\n  settled after it, so that they hold.\n- Next."
    )
    quotes = [text[start:end] for start, end in split_quotable(text)]
    assert quotes[0].endswith("so that they hold.")
    assert len(quotes) == 2


def test_a_single_sentence_is_enough_to_answer_from() -> None:
    node = Node("n1", "Whelks live under the pier.", document="d1", span=Span(0, 27))
    answer = Extract()(Ranking(Query("Where do whelks live?"), (Hit(node, 1.0),)))
    assert answer.text == "Whelks live under the pier. [1]"
    assert Extract()(Ranking(Query("Who dug the salt mine?"), (Hit(node, 1.0),))).abstained


def test_questions_about_the_same_passages_share_the_vectors_of_their_sentences() -> None:
    from spolia.testing import HashingEmbedder

    read = (node("The tide is caused by the moon. Ships wait for it."), node("Salt is dug in mines.", "s"))
    rankings = [ranking_of(f"What is {word}?", *read) for word in ("a tide", "a mine", "salt")]
    fresh = [Extract(HashingEmbedder(8))(ranking) for ranking in rankings]
    with Run() as run:
        second_answers = [Extract(HashingEmbedder(8))(ranking) for ranking in rankings]
    assert second_answers == fresh
    assert run.usage.embedded == 3, "the questions, and no sentence again"
    with Run() as run:
        Extract(HashingEmbedder(16))(rankings[0])
    assert run.usage.embedded == 4, "of another embedder nothing is known yet"


@pytest.mark.parametrize("alone", [True, False])
def test_another_process_takes_the_vectors_of_sentences_from_the_cache_of_the_run(
    alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spolia.testing import HashingEmbedder

    extract = Extract(HashingEmbedder(8))
    read = (node("The tide is caused by the moon. Ships wait for it."), node("Salt is dug in mines.", "s"))
    embedded = list[int]()
    for question in ("What causes the tide?", "What is dug in a mine?"):
        monkeypatch.setattr("spolia.generation.sentence_vectors._vector_cache", {})
        ranking = ranking_of(question, *read)
        with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache, journal=runs.journal) as run:
            answer = extract(ranking) if alone else extract.batch([ranking])[0]
        embedded.append(run.actual_usage.embedded)
        monkeypatch.setattr("spolia.generation.sentence_vectors._vector_cache", {})
        assert answer == extract(ranking)
    assert embedded == [4, 1], "the second process embeds its question alone"


def test_no_text_of_a_passage_is_kept_with_the_vectors_of_its_sentences(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
        SentenceVectors(Letters())(("The whelk is secret.",))
    with tamper(tmp_path / "runs.db") as connection:
        ((value,),) = connection.execute("SELECT value FROM cache").fetchall()
    assert b"whelk" not in value


def test_vectors_that_depend_on_who_asks_are_not_taken_for_another_asker(tmp_path: Path) -> None:
    extract, calls[:] = Extract(Letters(scoped=True)), []
    with Runs(tmp_path / "runs.db") as runs:
        for asker, question in (("ada", "What is salt?"), ("ada", "What is a mine?"), ("ben", "What is dug?")):
            with Run(groups=(asker,), cache=runs.cache):
                extract(ranking_of(question, node("Salt is dug in mines.")))
    assert [asked_text for (asked_text,) in calls] == [
        *("What is salt?", "Salt is dug in mines.", "What is a mine?", "What is dug?", "Salt is dug in mines.")
    ]


@pytest.mark.parametrize("embedder", [None, Letters()])
def test_only_what_an_embedder_judged_is_kept(embedder: Letters | None) -> None:
    with Run(cache=Cache()) as run:
        for _ in range(2):
            Extract(embedder)(ranking_of("What causes the tide?", node("The moon causes the tide.")))
    assert run.counts()["Extract"] == (1 if embedder else 2)


def test_a_quoted_image_is_inert_and_its_citation_exact() -> None:
    text = "The wiring of the lamp is drawn in ![plan](https://evil.example/?q=1)."
    ranking = Ranking(Query("Where is the wiring of the lamp drawn?"), (Hit(Node("n", text, document="d"), 1.0),))
    inert, live = Extract()(ranking), Extract(live_markdown=True)(ranking)
    assert inert.text == live.text.replace("![", "!⟦")
    assert inert.citations[0].quote in text
