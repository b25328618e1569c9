"""What is written is what is printed, and what is written wrongly is told what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.errors import MeasureError, ModelError
from spolia.evaluation.measures.judged.ragas import Correctness
from spolia.evaluation.measures.measure import SetMeasure
from spolia.evaluation.measures.registry import CLASSES as KNOWN
from spolia.evaluation.measures.registry import CLASSES as TABLE
from spolia.evaluation.measures.registry import class_of, parse_measure, parse_measures
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.testing import HashingEmbedder
from tests.cases import check_each
from tests.tree import classes

LLM, EMBEDDER = ScriptedModel(("yes",), name="judge"), HashingEmbedder()

WRITTEN = [
    "R@5",
    "full@20",
    "P@1",
    "Hit@10",
    "MRR",
    "MRR@10",
    'MRR(rule="autorag")',
    "MAP",
    'MAP@100(rule="ragas")',
    "nDCG@10",
    'nDCG@10(rule="exponential")',
    "Rprec",
    "SetP",
    "SetR",
    "SetF1",
    "AnswerHit@5",
    "EM",
    'F1(rule="hotpotqa")',
    'F1(words="unicode", rule="squad2")',
    'Acc(rule="prefrag")',
    "PrefRAG-Avg",
    "ROUGE-1",
    "ROUGE-2",
    'ROUGE-L(words="unicode")',
    'BLEU(words="characters")',
    'SentenceBLEU(words="characters")',
    "METEOR-no-synonyms(alpha=0.8)",
    "CiteP",
    "CiteR",
    "Coverage",
    'Risk(of=F1(rule="squad2"))',
    "AbstentionF1",
    "TopScore",
    "AURC",
    "AURC(of=nDCG@10, by=Hit@1)",
    "ATC",
    "USD",
    "Seconds",
    'Calls(source="web")',
    "UsedCalls",
    "DocsShown",
]
JUDGED = [
    'SemScore(embedder="hashing-64")',
    'ContextPrecision(llm="judge")',
    'Faithfulness(llm="judge")',
    'AnswerRelevancy(llm="judge", embedder="hashing-64")',
    'Correctness(llm="judge")',
    'GEval(llm="judge", aspect="fluency", samples=5)',
    'ALCE-R(llm="judge")',
    'ALCE-P(llm="judge")',
]


@check_each("written", WRITTEN)
def test_a_measure_prints_as_it_is_written(written: str) -> None:
    assert str(parse_measure(written)) == written


@check_each("written", JUDGED)
def test_a_model_is_written_by_its_name_and_given_by_the_caller(written: str) -> None:
    measure = parse_measure(written, llm=LLM, embedder=EMBEDDER)
    assert str(measure) == written
    assert parse_measure(written.partition("(")[0], llm=LLM, embedder=EMBEDDER).notation == measure.notation
    with pytest.raises(MeasureError, match="needs"):
        parse_measure(written)


def test_every_measure_can_be_written_as_it_is_called() -> None:
    class_by_name = {name: class_of(name.removesuffix("@k")) for name in TABLE}
    assert set(class_by_name.values()) == set(classes(SetMeasure))
    for name, cls in class_by_name.items():
        assert cls is not None
        assert name.removesuffix("@k") == cls.notation
        assert (f"{cls.notation}@k" in KNOWN) == (getattr(cls, "k", None) is not None)


@check_each(
    ("written", "says"),
    [
        ("R", "R@5"),
        ("R@0", "k from 1"),
        ("F7", "Write one of: R@k"),
        ("", "R@k"),
        ("R@-1", "R@k"),
        ("R@5(", "R@k"),
        ("R@5)", "R@k"),
        ("nDCG(rule='autorag')", "nDCG@5"),
        ("F1@5", "F1 has no field 'k'"),
        ("F1(rule='squad')", 'F1 has no rule \'squad\'. Write one of: "squad2", "hotpotqa"'),
        ("F1(words='chinese')", "F1 knows no words 'chinese'. Write one of: \"squad\""),
        ("F1(case=True)", "F1 has no field 'case'.*It has: words, rule"),
        ("F1('squad2')", "cannot be read. Write name=value"),
        ("F1(rule=)", "cannot be read"),
        ("F1(**x)", "cannot be read"),
        ("F1(rule=__import__('os'))", "No measure is written"),
        ("AURC(of=BLEU)", "AURC cannot be made of BLEU. Write a measure of one answer"),
        ("Risk(of=3)", "Risk cannot be made of 3"),
        ("METEOR-no-synonyms(alpha='x')", "does not fit"),
        ("METEOR-no-synonyms(alpha=2)", "out of range"),
        ("BERTScore", "BERTScore needs an embedder"),
        ("F1(" * 500, "."),
    ],
)
def test_what_no_measure_is_called_is_refused_with_what_to_write(written: str, says: str) -> None:
    with pytest.raises(MeasureError, match=says):
        parse_measure(written)


def test_a_list_is_cut_at_the_commas_that_separate() -> None:
    text = 'R@5, full@2 ,AURC, F1(words="unicode", rule="hotpotqa"), R@5,'
    measures = parse_measures(text)
    assert [str(measure) for measure in measures] == ["R@5", "full@2", "AURC", 'F1(words="unicode", rule="hotpotqa")']


@pytest.mark.parametrize("text", [" , ", "", "R@5 R@10", "R@5, k=3", "R@5); print(1"])
def test_what_is_no_list_of_measures_is_refused(text: str) -> None:
    with pytest.raises(MeasureError, match=r"names no measure|not a list of measures|No measure"):
        parse_measures(text)


def test_roles_that_differ_in_more_than_their_file_are_told_apart(tmp_path: Path) -> None:
    (file := tmp_path / "mine.txt").write_text("{{question}} {{answer}}")
    judge = ScriptedModel(("yes",), name="judge")
    parsed = parse_measure(f'Correctness(role="{file}")', llm=judge)
    assert isinstance(parsed, Correctness)
    assert str(parsed) == f'Correctness(llm="judge", role="{file}")'
    assert parsed == Correctness(judge, parsed.role)
    other_correctness = Correctness(judge, parsed.role.but(default="no"))
    assert str(other_correctness) != str(parsed)
    with pytest.raises(ModelError, match="nowhere"):
        parse_measure('Correctness(role="nowhere.txt")', llm=judge)
