"""Compression: less text, the same citations. Numbers are written by hand from the formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.core.operator import Operator
from spolia.core.run_context import collect_degradations
from spolia.errors import ModelRejected, WiringError
from spolia.flow_files.files import dump, load
from spolia.generation.reader import Reader
from spolia.models.http.completions import CompletionModel
from spolia.models.prompting.likelihood import Surprise, align_tokens
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.post_retrieval.compression import (
    Extractive,
    LLMLingua,
    LongLLMLingua,
    SelectiveContext,
    join_spans,
    split_budget,
    split_segments,
)
from spolia.post_retrieval.summary import Refine, TreeSummarise
from spolia.run import Run
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Hit, Node, Prompt, Query, Ranking, Span, Token, Value
from tests.cases import check_each
from tests.degradation import degraded
from tests.post_retrieval.compression.scorer import Scorer
from tests.post_retrieval.selection.test_selection import Angles


def ranking_of(*texts: str, question: str = "Who?") -> Ranking:
    nodes = [
        Node(f"n{index}", text, "d", span=Span(100 * index, 100 * index + len(text)), uri="a.txt")
        for index, text in enumerate(texts)
    ]
    return Ranking(Query(question), tuple(Hit(node, 9.0 - index) for index, node in enumerate(nodes)), "bm25")


def texts(ranking: Ranking) -> list[str]:
    return [node.text for node in ranking.nodes]


def is_subsequence(short: Sequence[str], long: Sequence[str]) -> bool:
    rest = iter(long)
    return all(word in rest for word in short)


# -------------------------------------------------------------------------------------------- where tokens stand


@pytest.mark.slow
@given(st.text(max_size=60), st.data())
def test_tokens_are_all_of_the_text_each_once(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    odd = data.draw(st.sampled_from(["", "\ufffd", "bytes:\\xe4", "zzz"]))
    surprises = align_tokens([Token(piece, -1.0) for piece in (*pieces, odd)], text)
    assert "".join(text[surprise.start : surprise.end] for surprise in surprises) == text
    assert all(surprise.nats >= 0 for surprise in surprises)
    if text:
        assert math.fsum(surprise.nats for surprise in surprises) == pytest.approx(
            len([p for p in pieces if p]) + 1, abs=len(pieces)
        )


def test_a_token_may_begin_before_the_text_and_pieces_of_characters_count_for_what_follows() -> None:
    surprises = align_tokens((Token("\n Nokia", -1.0), Token("\ufffd", -2.0), Token(" Oy", -0.5)), "Nokia Oy")
    assert surprises == [Surprise(0, 5, 1.0), Surprise(5, 8, 2.5)]


@pytest.mark.parametrize("none", [math.nan, math.inf, 0.5])
def test_tokens_without_a_log_probability_are_told(none: float) -> None:
    with collect_degradations() as degradations:
        surprises = align_tokens((Token("Nokia", none), Token(" Oy", -0.5)), "Nokia Oy")
    assert surprises == [Surprise(0, 5, 0.0), Surprise(5, 8, 0.5)]
    assert degradations == ["1 of 2 tokens have no log-probability, and count as foretold."]


@given(st.text(max_size=200), st.integers(1, 20))
def test_segments_are_all_of_the_text(text: str, characters: int) -> None:
    parts = list(split_segments(text, characters))
    assert "".join(parts) == text
    assert all(0 < len(part) <= characters for part in parts)


# ----------------------------------------------------------------------------------------------- selective context


def test_exactly_the_sentences_below_the_percentile_go() -> None:
    # mean self-information 1, 2, 3, 4, 5; the percentile of 0.35 is 1 + 0.35 · 4 = 2.4
    model = Scorer(nats=(("One", 1.0), ("Two", 2.0), ("Three", 3.0), ("Four", 4.0), ("Five", 5.0)))
    op = SelectiveContext(model)
    assert texts(op(ranking_of("One. Five. Two.", "Three. Four."))) == ["Five.", "Three. Four."]
    assert texts(op(ranking_of("One.", "Five. Two. Four."))) == ["Five. Four."]


def test_the_self_information_of_a_stretch_is_a_mean() -> None:
    model = Scorer(nats=(("rare", 3.0), ("long", 1.0)))  # "a rare" (1 + 3) / 2 = 2, "a long one" 1
    assert texts(SelectiveContext(model, ratio=0.5)(ranking_of("A long one. A rare."))) == ["A rare."]
    assert texts(SelectiveContext(model, 0.5, "token")(ranking_of("a rare long rare"))) == ["rare rare"]
    assert texts(SelectiveContext(model, 0.6, "phrase")(ranking_of("a long one, a rare, more"))) == ["a rare,"]


def test_ratio_0_changes_nothing() -> None:
    ranking = ranking_of("One. Two, three.  Four.\n", "  ", "五。六。")
    for unit in ("sentence", "phrase", "token"):
        compressed = SelectiveContext(Scorer(), 0.0, unit)(ranking)
        assert compressed.hits == (ranking.hits[0], ranking.hits[2])


def test_ties_and_nothing() -> None:
    assert texts(SelectiveContext(Scorer(), 0.9)(ranking_of("One. Two."))) == ["One. Two."]
    assert SelectiveContext(Scorer())(ranking_of()).hits == ()


# ------------------------------------------------------------------------------------------------------- llmlingua


def test_half_of_the_tokens_stay_those_that_surprise() -> None:
    model = Scorer(nats=(("Nokia", 5.0), ("Olsen", 4.0), ("employed", 3.0)))
    short = LLMLingua(model)(ranking_of("It was that Nokia employed Olsen."))
    assert texts(short) == ["Nokia employed Olsen."]
    assert short.query == ranking_of().query
    assert short.hits[0].score == 9.0


@check_each("rate", [0.1, 0.29, 0.5, 0.75, 1.0])
@check_each("segment", [7, 30, 1000])
def test_what_is_left_is_a_subsequence_within_the_budget(rate: float, segment: int) -> None:
    words = [f"w{index}" for index in range(100)]
    model = Scorer(nats=tuple((word, float(index * 37 % 101)) for index, word in enumerate(words)))
    (text,) = texts(LLMLingua(model, rate, segment)(ranking_of(" ".join(words))))
    assert is_subsequence(text.split(), words)
    assert 1 <= len(text.split()) <= round(100 * rate)
    assert len(text.split()) == round(100 * rate)


def test_later_segments_are_read_after_what_is_left_of_the_earlier_ones() -> None:
    model = Scorer(nats=(("Nokia", 5.0), ("again", 3.0), ("twice", 2.5)), hints=(("again", "Nokia"),))
    assert texts(LLMLingua(model, 0.5, 17)(ranking_of("So, Nokia. Run again twice."))) == ["Nokia. twice."]


# --------------------------------------------------------------------------------------------------- longllmlingua


def test_what_the_question_makes_likelier_stays_and_the_better_hit_keeps_more() -> None:
    hints = (("Nokia", "employed"), ("Olsen", "employed"), ("employed", "Nokia"))
    model = Scorer(nats=(("Nokia", 4.0), ("Olsen", 4.0), ("employed", 4.0), ("salt", 9.0)), hints=hints)
    ranking = ranking_of("salt is dug salt", "it was Nokia that employed Olsen", question="who employed")
    short = LongLLMLingua(model, target_tokens=4)(ranking)
    # both hits have r by the words of the question: "employed" costs half after the second hit
    # so that hit comes first; its rate is 4 / 10 + 0.3, which is 4 of its 6 tokens, and nothing is left for the other
    assert [hit.node.id for hit in short.hits] == ["n1"]
    # "Nokia" and "Olsen" weigh 4 - 2 each after the question, all others 0, of which the first two stay
    assert texts(short) == ["it was Nokia Olsen"]
    assert short.hits[0].found == (ranking.nodes[1],)


def test_the_score_is_the_mean_log_probability_of_the_question() -> None:
    model = Scorer(nats=(("Who", 3.0),), otherwise=1.0)
    (hit,) = LongLLMLingua(model)(ranking_of("Nokia", question="Who?")).hits
    # 13 tokens: "Who?" is no word of the table, nor is any other: each costs 1
    assert hit.score == pytest.approx(-1.0)
    (hit,) = LongLLMLingua(model)(ranking_of("Nokia", question="Who")).hits
    assert hit.score == pytest.approx(-(3.0 + 12 * 1.0) / 13)


@check_each(
    ("lengths", "target", "spread", "kept"),
    [
        ([100, 100], 100, 0.0, [50, 50]),
        ([100, 100], 100, 0.2, [70, 30]),
        ([100, 100, 100], 150, 0.3, [80, 60, 10]),  # 0.5 + 0.3, 0.5 + 0.1, and what is left of 150
        ([10, 10], 100, 0.3, [10, 10]),
        ([100, 100, 100, 100], 4, 1.0, [4, 0, 0, 0]),
        ([5], 1, 0.0, [1]),
        ([1000, 1000], 1, 0.0, [1, 0]),
        ([], 5, 0.3, []),
    ],
)
def test_a_budget_is_shared(lengths: list[int], target: int, spread: float, kept: list[int]) -> None:
    assert split_budget(lengths, target, spread) == kept


@pytest.mark.slow
@given(st.lists(st.integers(1, 500), min_size=1, max_size=30), st.integers(1, 2000), st.floats(0, 1))
def test_a_budget_is_never_passed_and_never_unused(lengths: list[int], target: int, spread: float) -> None:
    shares = split_budget(lengths, target, spread)
    assert 1 <= sum(shares) <= target
    assert all(own <= length for own, length in zip(shares, lengths, strict=True))


def test_some_hits_never_become_none() -> None:
    assert len(LongLLMLingua(Scorer(), target_tokens=1)(ranking_of("a b c", "d e f")).hits) == 1
    blank = ranking_of("  ", "\n")
    assert LongLLMLingua(Scorer())(blank) == blank


# ------------------------------------------------------------------------------------------------------ extractive


def test_sentences_that_hold_terms_of_the_question_stay_in_their_order() -> None:
    ranking = ranking_of(
        "Ships wait. The tide is caused by the moon. Salt is dug.",
        "The moon.",
        question="What causes the tide? The moon?",
    )
    short = Extractive(most=2)(ranking)
    assert texts(short) == ["The tide is caused by the moon.", "The moon."]
    (part,) = short.hits[0].found
    assert part.text == "The tide is caused by the moon."
    assert part.span == Span(12, 12 + len(part.text))
    assert short.hits[1] == ranking.hits[1]  # all of it stays, so it stays as it was


@pytest.mark.parametrize(
    ("at_least", "kept"), [(0.5, "Red stones."), (0.25, "Red sea. Red stones."), (0.51, "Red stones.")]
)
def test_the_share_of_the_questions_terms_that_a_sentence_holds(at_least: float, kept: str) -> None:
    # of red, old, stones, Rome the first sentence holds none, the second one, the third two; one stays in any case
    text = "Blue hills. Red sea. Red stones."
    assert texts(Extractive(at_least=at_least)(ranking_of(text, question="red old stones Rome"))) == [kept]


def test_the_cosine_of_a_sentence_with_the_question() -> None:
    # cos 90° = 0, cos 60° = 0.5, cos 30° = 0.87
    ranking = ranking_of("90", "60", "30", question="0")
    assert texts(Extractive(Angles(), at_least=0.49)(ranking)) == ["60", "30"]
    assert texts(Extractive(Angles(), at_least=0.51)(ranking)) == ["30"]
    assert texts(Extractive(Angles(), at_least=-1, most=2)(ranking)) == ["60", "30"]


class Longest(Value):
    """A scorer by length."""

    name, waits, scoped = "longest", False, False

    def fingerprint(self) -> str:
        return self.name

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        return tuple(len(text) / 100 for text in texts)


def test_a_scorer_judges_the_sentences_in_place_of_an_embedder() -> None:
    ranking = ranking_of("Ships wait. The tide is caused by the moon. Salt.", question="Salt?")
    assert texts(Extractive(at_least=0.11, scorer=Longest())(ranking)) == [
        "Ships wait. The tide is caused by the moon."
    ]
    with pytest.raises(WiringError, match="by an embedder or by a scorer"):
        Extractive(Angles(), scorer=Longest())


def test_a_reader_cites_the_sentences_that_are_left() -> None:
    short = Extractive(most=1)(
        ranking_of("Ships wait. The tide is caused by the moon.", question="What causes the tide?")
    )
    answer = Reader(ScriptedModel(("The moon [1].",)))(short)
    assert [(citation.quote, citation.span) for citation in answer.citations] == [
        ("The tide is caused by the moon.", Span(12, 43))
    ]


def test_some_sentence_always_stays() -> None:
    assert texts(Extractive(at_least=1.0)(ranking_of("Ships wait. Salt is dug.", question="tide"))) == ["Ships wait."]
    assert Extractive()(ranking_of()).hits == ()
    blank = ranking_of("", " ")
    assert Extractive()(blank) == blank


# ---------------------------------------------------------------------------------------- refine, tree_summarise


def calls(op: Operator[Ranking, Ranking], ranking: Ranking) -> int:
    with Run() as run:
        op(ranking)
        return run.usage.calls


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_refining_takes_a_call_for_each(count: int) -> None:
    assert calls(Refine(ScriptedModel(("Notes.",))), ranking_of(*(f"Text {index}." for index in range(count)))) == count


@check_each(
    ("count", "width", "levels"), [(0, 2, []), (1, 2, []), (2, 2, [1]), (5, 2, [2, 1, 1]), (9, 3, [3, 1]), (7, 9, [1])]
)
def test_merging_takes_the_logarithm_of_levels(count: int, width: int, levels: list[int]) -> None:
    assert calls(TreeSummarise(ScriptedModel(("Merged.",)), width), ranking_of(*map(str, range(count)))) == sum(levels)
    if count:
        assert len(levels) == math.ceil(math.log(count, width) - 1e-9)


def test_one_hit_stands_for_all_and_all_are_cited() -> None:
    ranking = ranking_of("At Nokia.", "In Salo.")
    for op in (
        Refine(ScriptedModel(("He was at Nokia in Salo.",))),
        TreeSummarise(ScriptedModel(("He was at Nokia in Salo.",))),
    ):
        (hit,) = op(ranking).hits
        assert (hit.node.text, hit.score, hit.found) == ("He was at Nokia in Salo.", 9.0, ranking.nodes)


def test_a_call_that_fails_leaves_the_texts() -> None:
    with degraded() as reasons:
        assert texts(TreeSummarise(ScriptedModel((("Nokia", "x"),)), 2)(ranking_of("a", "b"))) == ["a\n\nb"]
        assert texts(Refine(ScriptedModel((("<passage>b", "Notes."),)))(ranking_of("a", "b", "c"))) == ["Notes."]
        assert texts(Refine(ScriptedModel((("Nokia", "x"),)))(ranking_of("a", "b"))) == ["a"]
    assert len(reasons) == 5


def test_texts_beyond_the_window_are_shown_in_part() -> None:
    long = "word " * 10_000
    with degraded() as reasons:
        assert texts(TreeSummarise(ScriptedModel((("left out", "Merged."),)))(ranking_of(long, "b"))) == ["Merged."]
        assert texts(Refine(ScriptedModel((("left out", "Notes."),)), characters=100)(ranking_of(long))) == ["Notes."]
    assert not reasons


# ------------------------------------------------------------------------------------------------------- bad input


SCORING: list[Callable[..., Operator[Ranking, Ranking]]] = [SelectiveContext, LLMLingua, LongLLMLingua]


@pytest.mark.parametrize("make", SCORING)
def test_a_model_without_log_probabilities_is_told_at_once(make: Callable[..., Operator[Ranking, Ranking]]) -> None:
    with pytest.raises(ModelRejected, match="has no 'scores'"):
        make(ScriptedModel(("x",)))(ranking_of("a b"))


@pytest.mark.parametrize("make", SCORING)
def test_a_server_that_promised_them_and_states_none(make: Callable[..., Operator[Ranking, Ranking]]) -> None:
    with OpenAIServer(ServedReply(logprob=None)) as server, pytest.raises(ModelRejected, match="states no log-prob"):
        make(CompletionModel("any", server.url))(ranking_of("a b"))


@check_each("make", SCORING)
@check_each("text", ["x", "五。六。七。", "a\u200db 👩‍👩‍👧 ไทย", "no " * 2_000, "\n\n a \n"])
def test_any_text_is_compressed(make: Callable[..., Operator[Ranking, Ranking]], text: str) -> None:
    short = make(Scorer())(ranking_of(text))
    assert is_subsequence("".join(texts(short)).split(), text.split()) or "".join(texts(short)) in text
    assert texts(short)


@dataclass(frozen=True)
class Blanks(Scorer):
    """A model for which blanks are tokens of their own, and tell more than any word."""

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        return tuple(Token(part, -99.0 if part.isspace() else -1.0) for part in re.findall(r"\s+|\S+", text))


@pytest.mark.parametrize(
    "op",
    [
        LLMLingua(Blanks(), 0.1),
        LongLLMLingua(Blanks(), target_tokens=1),
        SelectiveContext(Blanks(), 0.9, "token"),
    ],
    ids=lambda op: type(op).__name__,
)
def test_of_a_text_with_words_a_word_is_left(op: Operator[Ranking, Ranking]) -> None:
    assert texts(op(ranking_of("\nNokia\n\nemployed\nOlsen\n"))) == ["Nokia"]


@pytest.mark.parametrize("op", [Extractive(), SelectiveContext(Scorer()), LLMLingua(Scorer()), LongLLMLingua(Scorer())])
def test_the_hits_are_gone_through_a_fixed_number_of_times(
    op: Operator[Ranking, Ranking], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []

    def nodes(ranking: Ranking) -> tuple[Node, ...]:
        passes.append(1)
        return tuple(hit.node for hit in ranking.hits)

    monkeypatch.setattr(Ranking, "nodes", property(nodes))
    op(ranking_of(*("A red stone. A blue sea." for _ in range(50))))
    assert len(passes) <= 2


def test_words_that_a_blank_stood_between_stay_apart() -> None:
    model = Blanks(nats=())
    assert texts(LLMLingua(Scorer(nats=(("a", 9.0), ("c", 9.0))), 0.67)(ranking_of("a b c"))) == ["a c"]
    assert join_spans("Nokia\nemployed\nOlsen", [(0, 5), (15, 20)]) == "Nokia\nOlsen"
    assert is_subsequence("".join(texts(LLMLingua(model, 0.8)(ranking_of("a\nb c\nd")))), "a\nb c\nd")


@check_each("logprob", [-math.inf, math.nan])
@check_each("make", SCORING)
def test_tokens_that_are_impossible_or_have_no_probability_leave_some(
    make: Callable[..., Operator[Ranking, Ranking]], logprob: float
) -> None:
    @dataclass(frozen=True)
    class Odd(Scorer):
        def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
            return tuple(Token(word, logprob) for word in re.findall(r"\s*\S+", text))

    short = make(Odd())(ranking_of("One. Two. Three.", "Four."))
    assert "".join(texts(short)).strip()
    assert all(math.isfinite(hit.score) for hit in short.hits)


def test_a_text_that_a_model_cannot_hold_is_an_error() -> None:
    with pytest.raises(ModelRejected, match="longer than the window"):
        LongLLMLingua(Scorer(window=50), characters=10_000)(ranking_of("word " * 100))
    assert texts(LLMLingua(Scorer(window=1_100), segment=100)(ranking_of("word " * 2_000)))


@check_each(
    "wrong",
    [
        lambda: SelectiveContext(Scorer(), 1.0),
        lambda: LLMLingua(Scorer(), 0.0),
        lambda: LLMLingua(Scorer(), segment=0),
        lambda: LongLLMLingua(Scorer(), target_tokens=0),
        lambda: LongLLMLingua(Scorer(), spread=2.0),
        lambda: Extractive(most=0),
        lambda: Extractive(at_least=math.nan),
        lambda: Refine(Scorer(), max_tokens=0),
        lambda: TreeSummarise(Scorer(), width=1),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(WiringError):
        wrong()


@pytest.mark.parametrize("make", [*SCORING, Refine, TreeSummarise])
def test_each_is_written_to_a_file(make: Callable[..., Operator[Ranking, Ranking]]) -> None:
    op = make(ScriptedModel(("x",)))
    assert load(dump(op)) == op
