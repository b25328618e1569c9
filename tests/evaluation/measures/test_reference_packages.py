"""The same numbers as the packages that everybody compares with, on random input."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spolia.evaluation.measures.answers.embedding_similarity import BERTScore
from spolia.evaluation.measures.answers.meteor import Meteor
from spolia.evaluation.measures.answers.ngrams import BLEU, SentenceBLEU
from spolia.evaluation.measures.measure import Case, measured
from spolia.evaluation.measures.registry import parse_measure
from spolia.evaluation.measures.retrieval_measure import RetrievalMeasure
from spolia.models.local.embedders import LocalTokenEmbedder
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Answer, Item
from tests.cases import check_each
from tests.evaluation.measures.fixtures import item_with, measure_of
from tests.models.local import tiny

TREC = {
    **{f"P@{k}": f"P_{k}" for k in (1, 5, 10, 100)},
    **{f"R@{k}": f"recall_{k}" for k in (1, 5, 10, 100)},
    **{f"Hit@{k}": f"success_{k}" for k in (1, 5, 10)},
    **{f"nDCG@{k}": f"ndcg_cut_{k}" for k in (1, 5, 10, 100)},
    **{f"MAP@{k}": f"map_cut_{k}" for k in (5, 10, 100)},
    "nDCG@1000": "ndcg",
    "MAP": "map",
    "MRR": "recip_rank",
    "Rprec": "Rprec",
    "SetP": "set_P",
    "SetR": "set_recall",
    "SetF1": "set_F",
}
ASKED_FOR = {
    "P.1,5,10,100", "recall.1,5,10,100", "success.1,5,10", "ndcg_cut.1,5,10,100", "map_cut.5,10,100", "ndcg", "map",
    "recip_rank", "Rprec", "set_P", "set_recall", "set_F",
}  # fmt: skip
WORDS = tuple(
    "the The moon MOON tide's pulls, pulled. of 3.5 1,000 a-b 東京 élan (x) &amp; cat cats running".split()  # noqa: SIM905
)


@pytest.fixture(scope="module")
def runs() -> tuple[list[Item], dict[str, list[str]]]:
    """300 questions with 1 to 12 graded passages of 60, of which up to 60 are found; some find nothing of use."""
    draw, items, ranked_ids = random.Random(7), [], {}
    pool = [f"p{number}" for number in range(60)]
    for number in range(300):
        grades = {name: draw.randint(1, 4) for name in draw.sample(pool, draw.randint(1, 12))}
        gold = tuple((name,) for name in grades)
        items.append(Item(f"q{number}", "?", gold=gold, grades=tuple((name, float(g)) for name, g in grades.items())))
        ranked_ids[f"q{number}"] = draw.sample(pool, draw.randint(1, 60))
    return items, ranked_ids


@pytest.fixture(scope="module")
def trec(runs: tuple[list[Item], dict[str, list[str]]]) -> dict[str, dict[str, float]]:
    import pytrec_eval

    items, ranked_ids = runs
    qrels = {item.id: {name: int(grade) for name, grade in item.grades} for item in items}
    scored = {id: {name: float(-rank) for rank, name in enumerate(names)} for id, names in ranked_ids.items()}
    evaluated: dict[str, dict[str, float]] = pytrec_eval.RelevanceEvaluator(qrels, ASKED_FOR).evaluate(scored)
    return evaluated


@check_each("written", TREC)
def test_measures_of_retrieval_are_those_of_trec_eval(
    written: str, runs: tuple[list[Item], dict[str, list[str]]], trec: dict[str, dict[str, float]]
) -> None:
    items, ranked_ids = runs
    measure: Any = parse_measure(written)
    assert isinstance(measure, RetrievalMeasure)
    for item in items:
        assert measure.score_ids(ranked_ids[item.id], item) == pytest.approx(trec[item.id][TREC[written]], abs=1e-9)


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, list[str]]]:
    draw = random.Random(11)

    def text(longest: int) -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(0, longest)))

    return [(text(30), [text(20) for _ in range(draw.randint(1, 3))]) for _ in range(300)]


@pytest.mark.slow
@pytest.mark.parametrize(("written", "name"), [("ROUGE-1", "rouge1"), ("ROUGE-2", "rouge2"), ("ROUGE-L", "rougeL")])
def test_rouge_is_that_of_rouge_score(written: str, name: str, texts: list[tuple[str, list[str]]]) -> None:
    from rouge_score.rouge_scorer import RougeScorer  # type: ignore[import-untyped]

    scorer = RougeScorer([name])
    for text, answers in texts:
        theirs = max(scorer.score(answer, text)[name].fmeasure for answer in answers)
        assert measure_of(written).score(Answer(text), item_with(*answers)) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "tokenize"), [("13a", "13a"), ("characters", "char")])
@pytest.mark.parametrize("count", [1, 3, 20, 300])
def test_bleu_is_that_of_sacrebleu(words: str, tokenize: str, count: int, texts: list[tuple[str, list[str]]]) -> None:
    import sacrebleu

    sample = texts[:count]
    cases = [Case(item_with(*answers), Answer(text)) for text, answers in sample]
    longest = max(len(answers) for _, answers in sample)
    references: Any = [[answers[n] if n < len(answers) else None for _, answers in sample] for n in range(longest)]
    bleu = sacrebleu.BLEU(tokenize=tokenize)
    theirs = bleu.corpus_score([text for text, _ in sample], references).score / 100
    assert measured(BLEU(words=words), cases).value == pytest.approx(theirs, abs=1e-12)
    alone = [sacrebleu.sentence_bleu(text, answers, tokenize=tokenize).score / 100 for text, answers in sample]
    assert measured(SentenceBLEU(words=words), cases).value == pytest.approx(sum(alone) / count, abs=1e-12)


class _NoSynonyms:
    """A WordNet that knows no word."""

    def synsets(self, word: str) -> list[Any]:
        return []


class _Stems:
    def stem(self, word: str) -> str:
        return " ".join(Analyzer().terms(word)) or word


FORMS = (("moon", "moons"), ("pull", "pulls", "pulled"), ("sea", "seas"), ("ship", "shipping"), ("red",), ("cat",))


@pytest.mark.slow
def test_meteor_is_that_of_nltk_where_no_word_comes_twice() -> None:
    """Where a word has several places nltk takes the last, which is not the best alignment."""
    from nltk.translate.meteor_score import single_meteor_score  # type: ignore[import-untyped]

    draw = random.Random(3)
    for _ in range(200):
        sides = [[draw.choice(forms) for forms in draw.sample(FORMS, draw.randint(1, len(FORMS)))] for _ in range(2)]
        theirs = single_meteor_score(sides[1], sides[0], stemmer=_Stems(), wordnet=_NoSynonyms())
        assert Meteor().score_text(" ".join(sides[0]), [" ".join(sides[1])]) == pytest.approx(theirs, abs=1e-12)


def _published_bert_score(folder: Path, model: Any, text: str, answer: str) -> float:
    """F1 as the authors' package has it: cosines of all tokens, weights 0 for [CLS] and [SEP] and 1 for the others."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    vectors, weights = [], []
    for sentence in (text, answer):
        ids = tokenizer(sentence)["input_ids"]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([ids])).last_hidden_state[0].double()
        vectors.append(states / states.norm(dim=1, keepdim=True))
        counts = [float(id not in (tokenizer.cls_token_id, tokenizer.sep_token_id)) for id in ids]
        weights.append(torch.tensor(counts).double() / max(1.0, sum(counts)))
    cosines = vectors[0] @ vectors[1].T
    precision = float((cosines.amax(dim=1) * weights[0]).sum())
    recall = float((cosines.amax(dim=0) * weights[1]).sum())
    return 2 * precision * recall / (precision + recall) if precision > 0 and recall > 0 else 0.0


@pytest.mark.slow
@pytest.mark.skipif(not tiny.is_installed(), reason="the extra local is not installed")
def test_bert_score_is_that_of_its_authors_which_gives_special_tokens_no_weight(tmp_path: Path) -> None:
    model = tiny.bert(tmp_path)
    measure = BERTScore(LocalTokenEmbedder(str(tmp_path)))
    texts = ["Nokia employed Olsen.", "Salt is dug in mines", "ships wait for the xyz tide", "Salt", ""]
    for text in texts:
        for answer in texts[:-1]:
            theirs = _published_bert_score(tmp_path, model, text, answer)
            assert measure.score_text(text, [answer]) == pytest.approx(theirs, abs=1e-5)
