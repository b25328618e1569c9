"""Measures of answers against values worked out by hand: P and R stand beside every F."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import extract_text, normalise, unicode_words
from spolia.evaluation.measures.answers.meteor import count_chunks, fewest_chunks
from spolia.evaluation.measures.answers.ngrams import BLEU, common_subsequence
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.registry import parse_measure
from spolia.types import Answer, Citation, Failure
from tests.cases import check_each
from tests.evaluation.measures.fixtures import ABSTAINED, item_with, measure_of, ranking, total_of, unanswerable_item

BY_HAND = [
    ("EM", "The Eiffel Tower!", ["eiffel tower"], 1.0),
    ("EM", "the eiffel towers", ["eiffel tower"], 0.0),
    ("EM", "Nokia", ["Ericsson", "nokia."], 1.0),
    ("EM", "", ["Nokia"], 0.0),
    ("EM", "the", ["a"], 1.0),  # nothing is left on either side
    ("EM", "U.S.", ["us"], 1.0),
    ("EM", "“Nokia”", ["Nokia"], 0.0),  # quotes that are no ASCII are kept
    ('EM(words="unicode")', "“Nokia”", ["nokia"], 1.0),
    ('EM(words="unicode")', "東京。", ["東京"], 1.0),
    ("EM", "東京。", ["東京"], 0.0),
    ('EM(rule="regex")', "The 6,029 feet!", [r"6,?029 (feet|ft)"], 1.0),  # "6029 feet" after normalisation
    ('EM(rule="regex")', "about 6029 feet", [r"6,?029 (feet|ft)"], 0.0),  # all of it must match
    ('EM(rule="regex")', "NOKIA", ["nokia|ericsson"], 1.0),
    ("EM", "nokia", ["nokia|ericsson"], 0.0),
    ("F1", "in Paris France", ["Paris"], 2 * (1 / 3) * 1 / (1 / 3 + 1)),  # P 1/3, R 1: 1/2
    ("F1", "Paris", ["Paris, France"], 2 / 3),  # P 1, R 1/2
    ("F1", "Rome", ["Paris"], 0.0),
    ("F1", "a the an", ["an"], 0.0),  # both empty
    ('F1(rule="squad2")', "a the an", ["an"], 1.0),
    ('F1(rule="squad2")', "Paris", ["an"], 0.0),
    ("F1", "yes it is", ["yes"], 1 / 2),  # P 1/3, R 1
    ('F1(rule="hotpotqa")', "yes it is", ["yes"], 0.0),
    ('F1(rule="hotpotqa")', "Yes.", ["yes"], 1.0),
    ('F1(rule="hotpotqa")', "no", ["no way"], 0.0),
    ('F1(rule="hotpotqa")', "in Paris", ["Paris"], 2 / 3),
    ("F1", "new new york", ["new york new"], 1.0),
    ("F1", "new new york", ["new york"], 2 * (2 / 3) * 1 / (2 / 3 + 1)),  # "new" is shared once: 4/5
    ("F1", "Rome", ["Paris", "Rome Italy"], 2 / 3),  # the best
    ("F1", "東京タワー", ["東京"], 0.0),  # one word against another
    ('F1(words="unicode")', "東京タワー", ["東京"], 4 / 7),  # characters: P 2/5, R 2/2
    ('F1(words="unicode")', "القمر يسبب المد", ["القمر"], 1 / 2),  # P 1/3, R 1
    ("Acc", "It was in Paris, France.", ["paris"], 1.0),
    ("Acc", "not known", ["no"], 0.0),
    ("Acc", "19740", ["1974"], 0.0),
    ("Acc", "a", ["the"], 0.0),  # an answer without words stands nowhere
    ('Acc(rule="flashrag")', "Not known", ["no"], 1.0),
    ('Acc(rule="flashrag")', "U.S.A.", ["us"], 1.0),
    ('Acc(rule="prefrag")', "U.S.A.", ["us"], 0.0),  # lower-cased only
    ('Acc(rule="prefrag")', "19740", ["1974"], 1.0),
    ('Acc(rule="prefrag")', "the Moon", ["The moon"], 1.0),
    ('Acc(rule="bioasq")', "yes or no", ["no"], 1.0),
    ('Acc(rule="bioasq")', "unknown", ["no"], 0.0),
    ('Acc(rule="bioasq")', "f(x) or f(y)", ["f(x"], 1.0),  # no regular expression: taken as it is written
    ('Acc(words="unicode")', "首都は東京です", ["東京"], 1.0),
    ("PrefRAG-Avg", "in Paris", ["Paris"], (1 + 2 / 3 + 0) / 3),
    ("PrefRAG-Avg", "Paris", ["Paris"], 1.0),
    ("ROUGE-1", "the cat sat", ["the cat lay down"], 4 / 7),  # P 2/3, R 2/4
    ("ROUGE-1", "The CAT", ["the cat"], 1.0),
    ("ROUGE-2", "the cat sat", ["the cat lay down"], 2 / 5),  # P 1/2, R 1/3
    ("ROUGE-2", "cat", ["cat"], 0.0),  # no pair
    ("ROUGE-L", "the cat sat on the mat", ["the mat sat on the cat"], 4 / 6),  # "the sat on the"
    ("ROUGE-L", "police killed the gunman", ["police kill the gunman"], 3 / 4),  # Lin's example, P = R = 3/4
    ("ROUGE-L", "the gunman kill police", ["police kill the gunman"], 2 / 4),  # "the gunman"
    ("ROUGE-L", "달이 당긴다", ["달이 당긴다"], 0.0),  # ROUGE's own words have a-z alone
    ('ROUGE-L(words="unicode")', "달이 당긴다", ["달이 당긴다"], 1.0),
    ('ROUGE-L(words="unicode")', "月が海を引く", ["月が引く"], 4 / 5),  # P 4/6, R 4/4
    # F = P·R / (0.9·P + 0.1·R); penalty 0.5 · (chunks / aligned)^3
    ("METEOR-no-synonyms", "the cat", ["the cat"], 1 - 0.5 * (1 / 2) ** 3),
    ("METEOR-no-synonyms", "cat the", ["the cat"], 1 - 0.5 * (2 / 2) ** 3),
    ("METEOR-no-synonyms", "cats", ["cat"], 1 - 0.5),  # by the stem; one chunk of one word
    ('METEOR-no-synonyms(stem="")', "cats", ["cat"], 0.0),
    ("METEOR-no-synonyms", "dog", ["cat"], 0.0),
    (
        "METEOR-no-synonyms",
        "the cat sat on the mat",
        ["on the mat sat the cat"],  # all aligned, P = R = F = 1
        1 - 0.5 * (3 / 6) ** 3,  # the cat | sat | on the mat
    ),
    (
        "METEOR-no-synonyms",
        "a b c a d",
        ["a d a b c"],  # all aligned; a b c | a d, where the first a goes to the second place
        1 - 0.5 * (2 / 5) ** 3,
    ),
    ("METEOR-no-synonyms(gamma=0.0)", "the cat sat", ["the cat"], (2 / 3) / (0.9 * 2 / 3 + 0.1)),
]


@check_each(("written", "text", "answers", "value"), BY_HAND)
def test_a_measure_is_what_one_works_out_by_hand(written: str, text: str, answers: list[str], value: float) -> None:
    assert measure_of(written).score(Answer(text), item_with(*answers)) == pytest.approx(value, abs=1e-12)


BLEU_BY_HAND = [
    # 6 words; n-grams 6, 5, 4, 3; matches 5 (only "a" has none), 3, 2, 1; no shorter than its reference
    ([("the cat sat on a mat", ["the cat sat on the mat"])], (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)),
    # all match; c = 4, r = 6
    ([("the cat sat on", ["the cat sat on the mat"])], exp(1 - 6 / 4)),
    # 5 words; matches 4 of 5, 2 of 4, 0 of 3 (as 1/2), 0 of 2 (as 1/4)
    ([("a b x c d", ["a b y c d"])], (4 / 5 * 2 / 4 * (1 / 2) / 3 * (1 / 4) / 2) ** (1 / 4)),
    # counts are added up before anything is divided: 8 of 8, 6 of 6, 4 of 4, 2 of 2 words; c = 8, r = 9
    ([("a b c d", ["a b c d"]), ("e f g h", ["e f g h i"])], exp(1 - 9 / 8)),
    # the reference nearest in length, and of two equally near the shorter: r = 4, where c = 5
    ([("a b c d e", ["a b c d", "a b c d e f"])], 1.0),
    ([("x", ["a"])], 0.0),
    ([("a b", ["a b"])], 0.0),  # no n-gram of length 3
    ([("", ["a"])], 0.0),
]


@check_each(("pairs", "value"), BLEU_BY_HAND)
def test_bleu_is_what_one_works_out_by_hand(pairs: list[tuple[str, list[str]]], value: float) -> None:
    cases = [Case(item_with(*answers), Answer(text)) for text, answers in pairs]
    assert total_of(BLEU(), cases) == pytest.approx(value, abs=1e-12)


def test_an_accepted_answer_that_is_no_regular_expression_is_named() -> None:
    with pytest.raises(MeasureError, match=r"accepted answer '\(a' is not a regular expression"):
        measure_of('EM(rule="regex")').score(Answer("a"), item_with("(a"))


@pytest.mark.parametrize("pattern", ["a{99999999999}", "(" * 3000 + ")" * 3000], ids=["repeats", "nested"])
def test_an_accepted_answer_that_cannot_be_compiled_is_called_no_regular_expression(pattern: str) -> None:
    with pytest.raises(MeasureError, match="is not a regular expression"):
        measure_of('EM(rule="regex")').score(Answer("a"), item_with(pattern))
    assert measure_of('Acc(rule="bioasq")').score(Answer("a"), item_with(pattern)) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("measure", ['EM(rule="regex")', 'Acc(rule="bioasq")'])
def test_a_regular_expression_of_a_data_set_that_takes_for_ever_is_broken_off(
    measure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.evaluation.measures.answers.string_match._MATCH_S", 0.2)
    with pytest.raises(MeasureError, match=r"'.*\(a\+\)\+.*' of an accepted answer took longer than 0\.2 s"):
        measure_of(measure).score(Answer("a" * 60 + "b"), item_with("(a+)+"))
    assert measure_of(measure).score(Answer("aaa"), item_with("(a+)+")) == 1.0


def test_a_failure_is_an_empty_answer_to_bleu() -> None:
    right = Case(item_with("a b c d"), Answer("a b c d"))
    failed = Case(item_with("a b c d"), Failure("ValueError", "no"))
    assert total_of(BLEU(), [right, failed]) == pytest.approx(exp(1 - 8 / 4))


WORDS = st.text(alphabet="ab ctheANO.,!-東京ก็é", max_size=20)
ONE_FOR_EACH = ("EM", "F1", "Acc", 'Acc(rule="flashrag")', "PrefRAG-Avg", "ROUGE-1", "ROUGE-2", "ROUGE-L")
WRITTEN = st.sampled_from(
    [*ONE_FOR_EACH, "METEOR-no-synonyms", 'F1(words="unicode")', 'F1(rule="hotpotqa")', 'EM(words="unicode")']
)


@pytest.mark.slow
@given(WRITTEN, WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_a_measure_lies_between_0_and_1_and_the_order_of_the_gold_does_not_matter(
    written: str, text: str, answers: list[str]
) -> None:
    score = measure_of(written).score(Answer(text), item_with(*answers))
    assert score is not None
    assert 0 <= score <= 1
    assert measure_of(written).score(Answer(text), item_with(*reversed(answers))) == score


@pytest.mark.slow
@given(WORDS, st.lists(WORDS, min_size=1, max_size=3), st.sampled_from(["squad", "unicode"]))
def test_an_exact_match_has_f1_1_unless_it_is_empty(text: str, answers: list[str], words: str) -> None:
    item = item_with(*answers)
    exact = measure_of(f'EM(words="{words}")').score(Answer(text), item)
    f1 = measure_of(f'F1(words="{words}")').score(Answer(text), item)
    assert f1 is not None
    assert f1 == 1.0 or exact == 0.0 or not (normalise(text) and unicode_words(text))


@given(st.text(alphabet="abcd", max_size=30), st.text(alphabet="abcd", max_size=30))
def test_the_longest_common_subsequence_is_the_one_of_the_table(one: str, other: str) -> None:
    row = [0] * (len(other) + 1)
    for letter in one:
        previous_row = row
        row = [0]
        for place, against in enumerate(other, start=1):
            row.append(previous_row[place - 1] + 1 if letter == against else max(previous_row[place], row[-1]))
    assert common_subsequence(one, other) == row[-1]


@check_each(
    ("text", "words"),
    [
        ("Ｆｕｌｌ-width ½", ["full", "width", "1", "2"]),
        ("مَرحَبًا، يا عالم", ["مَرحَبًا", "يا", "عالم"]),
        ("नमस्ते दुनिया।", ["नमस्ते", "दुनिया"]),
        ("ก็ดี", ["ก็", "ดี"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("iPhone12は高い", ["iphone12", "は", "高", "い"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("🙂 \u200b\ud800", []),
        ("", []),
    ],
)
def test_words_of_any_script(text: str, words: list[str]) -> None:
    assert unicode_words(text) == words


def test_an_abstention_says_nothing_that_could_be_right_by_chance() -> None:
    assert measure_of('Acc(rule="prefrag")').score(ABSTAINED, item_with("no")) == 0.0
    assert measure_of('Acc(rule="prefrag")').score(Answer(ABSTAINED.text), item_with("no")) == 1.0
    for measure_name in ("EM", 'EM(rule="squad2")', 'F1(rule="squad2")'):  # of "The The" nothing is left to compare
        assert measure_of(measure_name).score(ABSTAINED, item_with("The The")) == 0.0


def test_markers_of_citations_are_not_words() -> None:
    cited = (Citation("1", "n", "d", "a.txt", "..."), Citation("12", "m", "d", "a.txt", "..."))
    assert measure_of("EM").score(Answer("Nokia [1][12].", cited), item_with("Nokia")) == 1.0
    assert extract_text(Answer("Nokia [1], see [2].", cited)) == "Nokia, see [2]."


@pytest.mark.parametrize("written", ['EM(rule="squad2")', 'F1(rule="squad2")'])
def test_by_the_rule_of_squad2_abstaining_is_the_answer_to_what_has_none(written: str) -> None:
    measure = measure_of(written)
    assert measure.applies(unanswerable_item())
    assert measure.score(ABSTAINED, unanswerable_item()) == 1.0
    assert measure.score(Answer("Nokia"), unanswerable_item()) == 0.0
    assert not measure_of("F1").applies(unanswerable_item())


@check_each("written", ONE_FOR_EACH)
def test_without_answers_in_the_gold_a_measure_does_not_apply(written: str) -> None:
    assert parse_measure(written).applies(item_with("a"))
    assert not parse_measure(written).applies(item_with(gold=(("p1",),)))


def test_a_ranking_is_no_answer() -> None:
    with pytest.raises(MeasureError, match="A Ranking is not an answer to measure"):
        measure_of("EM").score(ranking("a"), item_with("a"))


def _by_trying_all(words: list[str], gold: list[str]) -> tuple[int, int]:
    """Words and chunks of the best of all alignments: most equal words, most stems (first letters), fewest chunks."""
    best = (0, 0, 0)

    def align(index: int, pairs: dict[int, int]) -> None:
        nonlocal best
        if index == len(words):
            equal = sum(words[i] == gold[j] for i, j in pairs.items())
            best = max(best, (equal, len(pairs), -count_chunks(pairs)))
            return
        align(index + 1, pairs)
        for place, word in enumerate(gold):
            if word[0] == words[index][0] and place not in pairs.values():
                align(index + 1, pairs | {index: place})

    align(0, {})
    return best[1], -best[2]


FEW = st.lists(st.sampled_from(["a", "a1", "a2", "b", "b1", "c"]), max_size=6)


@pytest.mark.slow
@given(FEW, FEW)
def test_meteor_takes_the_largest_alignment_with_the_fewest_chunks(found: list[str], gold: list[str]) -> None:
    assert fewest_chunks(found, gold, lambda word: word[0]) == _by_trying_all(found, gold)


@pytest.mark.slow
def test_meteor_is_undetermined_where_a_search_does_not_end() -> None:
    """60 words of three letters each on both sides, in another order."""
    reply, gold = "a b c a a c b a c c " * 30, "c a b b a c a b c a b " * 30
    assert measure_of("METEOR-no-synonyms").score(Answer(reply), item_with(gold)) is None
