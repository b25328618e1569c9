"""Rerankers with models on this machine: tiny ones with random weights, which say what their formulas say."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from spolia.models.local.embedders import LocalCrossEncoder, LocalTokenEmbedder
from spolia.models.local.language_model import LocalModel
from spolia.models.prompting import template
from spolia.models.vectors import max_sims
from spolia.post_retrieval.rerankers import TART, UPR, ColBERT, CrossEncoder, ModelReranker, MonoT5
from spolia.types import Hit, Node, Prompt, Query, Ranking
from tests.models.local import tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not tiny.is_installed(), reason="the extra local is not installed"),
]

QUESTION = "Who employed Olsen?"
TEXTS = ("Nokia employed Olsen.", "Salt is dug in mines.", "The moon pulls the sea, and ships wait for the tide.")
FOUND = Ranking(Query(QUESTION), tuple(Hit(Node(text[:4], text), 1.0) for text in TEXTS))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> LocalCrossEncoder:
    folder = tmp_path_factory.mktemp("classifier")
    tiny.bert(folder, "BertForSequenceClassification", num_labels=1)
    return LocalCrossEncoder(str(folder))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> LocalTokenEmbedder:
    folder = tmp_path_factory.mktemp("encoder")
    tiny.bert(folder)
    return LocalTokenEmbedder(str(folder))


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    folder = tmp_path_factory.mktemp("decoder")
    tiny.llama(folder)
    return LocalModel(str(folder), window=1_000)


def scores(op: ModelReranker) -> dict[str, float]:
    """Of each text, which is the same whatever else is judged."""
    together = {hit.node.text: hit.score for hit in op.but(strict=True)(FOUND).hits}
    for hit in FOUND.hits:
        (alone,) = op.but(strict=True)(FOUND.but(hits=(hit,))).hits
        assert alone.score == pytest.approx(together[hit.node.text], abs=1e-4)
    assert list(together.values()) == sorted(together.values(), reverse=True)
    return together


def prompt_of(op: UPR | MonoT5, text: str) -> Prompt:
    return Prompt(template.read(op.prompt).fill({"question": QUESTION, "passage": text}))


def test_a_cross_encoder_and_one_that_is_told_what_for(classifier: LocalCrossEncoder) -> None:
    plain, instructed = CrossEncoder(classifier), TART(classifier, instruction="Find employers.")
    assert scores(plain) == pytest.approx(dict(zip(TEXTS, classifier.scores(QUESTION, TEXTS), strict=True)), abs=1e-4)
    asked_text = f"Find employers. [SEP] {QUESTION}"
    assert scores(instructed) == pytest.approx(
        dict(zip(TEXTS, classifier.scores(asked_text, TEXTS), strict=True)), abs=1e-4
    )


def test_late_interaction(encoder: LocalTokenEmbedder) -> None:
    query = encoder.embed_tokens([QUESTION], kind="query").row(0)
    expected = {text: max_sims(query, encoder.embed_tokens([text], kind="passage"))[0] for text in TEXTS}
    assert scores(ColBERT(encoder)) == pytest.approx(expected, abs=1e-4)


def test_the_likelihood_of_the_question(decoder: LocalModel) -> None:
    op = UPR(decoder)
    for text, score in scores(op).items():
        tokens = decoder.continuation(prompt_of(op, text), f" {QUESTION}")
        assert "".join(token.text for token in tokens) == f" {QUESTION}"
        assert score == pytest.approx(sum(token.logprob for token in tokens), abs=1e-3)


def test_one_of_two_words(decoder: LocalModel) -> None:
    op = MonoT5(decoder, relevant="t", irrelevant="f", top=1_000)
    for text, score in scores(op).items():
        probabilities = {
            token.text: math.exp(token.logprob) for token in decoder.next_tokens(prompt_of(op, text), top=1_000)
        }
        yes, no = (sum(p for word, p in probabilities.items() if word.strip().lower() == letter) for letter in "tf")
        assert score == pytest.approx(yes / (yes + no), abs=1e-5)


def test_what_a_model_cannot_do_is_told_before_it_runs(decoder: LocalModel, tmp_path: Path) -> None:
    from spolia.core.check import check

    assert check(UPR(decoder)).problems == ()
    assert check(MonoT5(decoder)).problems == ()
