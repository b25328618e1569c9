"""The reader of spans: what it is trained on, that onnxruntime gives what torch gives, and what it answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from spolia.core.codec import decode, encode
from spolia.errors import DataError, ModelError, WeightsError
from spolia.generation.span_reader import SpanReader
from spolia.models.onnx import safetensors, weights
from spolia.models.onnx.tuned_minilm import MiniLMSpans, best_span, windows
from spolia.models.trained_weights import TrainedWeights, hash_of
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Hit, Item, Node, Query, Ranking, Span
from tests.retrieval.conftest import store

TEXTS = {
    "bridge": "The bridge over the Aa was built in 1832. It has four arches of red stone, and Ada Quarry paid for it.",
    "moon": "Ships wait for the tide. The tide is caused by the pull of the moon, as Newton has shown.",
    "salt": "Salt came from the mines of Hall. Horses drew it to the harbour, which took three days.",
}
PASSAGES = {id: [text] for id, text in TEXTS.items()}
ASKED = (
    ("When was the bridge built?", "1832", "bridge"),
    ("Who paid for the bridge?", "Ada Quarry", "bridge"),
    ("How many arches has the bridge?", "four", "bridge"),
    ("What causes the tide?", "the pull of the moon", "moon"),
    ("Who has shown what causes the tide?", "Newton", "moon"),
    ("Where did salt come from?", "the mines of Hall", "salt"),
    ("How long was the way to the harbour?", "three days", "salt"),
)
ITEMS = tuple(Item(str(at), asked, (said,), ((where,),)) for at, (asked, said, where) in enumerate(ASKED))
WITHOUT = Item("no", "Who painted the ceiling?", meta=(("passage_id", "salt"),))


def test_a_text_is_read_in_windows_that_overlap_and_leave_nothing_out() -> None:
    for length, size, overlap in ((1, 10, 3), (40, 10, 3), (41, 12, 0), (200, 9, 8)):
        all_windows = list(windows([7, 8], list(range(1000, 1000 + length)), size, overlap))
        assert {token for window in all_windows for token in window.ids if token >= 1000} == set(
            range(1000, 1000 + length)
        )
        assert all(
            len(window.ids) <= max(size, 6) and window.ids[window.first] == 1000 + window.start
            for window in all_windows
        )


def test_the_best_span_is_that_of_all_pairs() -> None:
    draw = np.random.default_rng(0)
    for length in (1, 2, 9, 30):
        logits = draw.normal(size=(3 + length + 1, 2)).astype(np.float32)
        pairs = [(i, j) for i in range(3, 3 + length) for j in range(i, min(3 + length, i + 4))]
        best = max(pairs, key=lambda item: logits[item[0], 0] + logits[item[1], 1])
        score = float(logits[best[0], 0] + logits[best[1], 1] - logits[0].sum())
        span = best_span(logits, 3, longest=4)
        assert span is not None
        assert span[1:] == best
        assert span[0] == pytest.approx(score, abs=1e-5)
    assert best_span(np.zeros((4, 2), np.float32), 3, longest=4) is None


def test_a_reader_refuses_windows_that_cannot_be_and_a_folder_without_weights(tmp_path: Path) -> None:
    for wrong in ({"window": 600}, {"overlap": 256}, {"longest": 0}):
        with pytest.raises(ModelError, match=r"Write a (number|window)"):
            MiniLMSpans(TrainedWeights("x"), **wrong)  # type: ignore[arg-type]
    with pytest.raises(WeightsError, match="spolia train"):
        MiniLMSpans(TrainedWeights(str(tmp_path))).spans("Who?", ["Ann."])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, Path]:
    """A reader that has learned seven questions by heart, and its folder."""
    pytest.importorskip("torch")
    from spolia.training.span_reader import SpanReaderTrainer, SpanRecipe
    from spolia.training.training import train

    try:
        weights.find(hub=False)
    except WeightsError as error:
        pytest.skip(f"needs the weights: {error}")
    folder = tmp_path_factory.mktemp("reader")
    recipe = SpanRecipe(batch=4, warm_up=2, rate=2e-4, head_rate=1e-2, foreign=0.1, unanswered=0.5, low_precision=False)
    trainer = SpanReaderTrainer(store(folder / "s.spolia", TEXTS), recipe=recipe)
    train(trainer, (*ITEMS, WITHOUT), folder / "out", kept_apart=(), steps=30, seed=1)
    return trainer, folder / "out"


@pytest.mark.slow
def test_onnxruntime_gives_what_torch_gives(trained: tuple[object, Path]) -> None:
    import torch

    from spolia.training.fine_tuning import pad_rows
    from spolia.training.span_reader import SpanReaderTrainer

    trainer, folder = trained
    assert isinstance(trainer, SpanReaderTrainer)
    rows = [[101, *range(2000, 2000 + length), 102] for length in (1, 30, 200)]
    logits = MiniLMSpans(TrainedWeights(str(folder)))._get_loaded().logits(rows, 512)
    with torch.no_grad():
        expected = [trainer.logits(*pad_rows([row]))[0].numpy() for row in rows]
    assert (
        max(float(np.abs(logit - expected_logit).max()) for logit, expected_logit in zip(logits, expected, strict=True))
        < 2e-5
    )
    assert max(float(np.abs(expected_logit).max()) for expected_logit in expected) > 1


@pytest.mark.slow
def test_a_trained_reader_answers_in_the_words_of_a_passage_cited_to_the_character(
    trained: tuple[object, Path],
) -> None:
    reader = SpanReader(MiniLMSpans(TrainedWeights(str(trained[1]))))
    nodes = [Node(id, text, f"d-{id}", span=Span(50, 50 + len(text))) for id, text in TEXTS.items()]
    right = 0
    for question, gold, _ in ASKED:
        hits = tuple(Hit(node, 1.0) for node in Random(question).sample(nodes, 3))
        answer = reader(Ranking(Query(question), hits))
        assert isinstance(answer, Answer)
        right += answer.text == f"{gold} [1]"
        for cited in answer.citations:
            assert cited.span is not None
            assert cited.quote == TEXTS[cited.node][cited.span.start - 50 : cited.span.end - 50]
            assert (cited.document, f"{cited.quote} [1]") == (f"d-{cited.node}", answer.text)
        assert reader.but(threshold=1e6)(Ranking(Query(question), hits)).abstained
    assert right >= 5
    assert reader(Ranking(Query("Who?"), ())).abstained
    assert decode(encode(reader), SpanReader) == reader
    alone, together = (reader.model.spans("Who?", texts) for texts in ([TEXTS["moon"]], list(TEXTS.values())))
    assert together[1] == alone[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["encoder.layer.0.output.dense.bias", "evil"])
def test_weights_of_another_shape_or_name_are_refused(trained: tuple[object, Path], tmp_path: Path, name: str) -> None:
    whole = dict(TrainedWeights(str(trained[1])).tensors("reader"))
    safetensors.write(tmp_path / "weights.safetensors", whole | {name: np.zeros(3, np.float32)})
    card = {"part": "reader", "sha256": hash_of(tmp_path / "weights.safetensors")}
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(WeightsError, match=f"MiniLM has no finite tensor {name}"):
        MiniLMSpans(TrainedWeights(str(tmp_path))).spans("Who?", ["Ann."])


@pytest.mark.slow
def test_a_training_that_was_interrupted_goes_on_to_the_same_weights(trained: tuple[object, Path]) -> None:
    from spolia.training.span_reader import SpanReaderTrainer

    trainer = trained[0]
    assert isinstance(trainer, SpanReaderTrainer)
    recipe = replace(trainer.recipe, batch=2, window=32)

    def steps(new_trainer: SpanReaderTrainer, first: int, last: int) -> None:
        for number in range(first, last):
            new_trainer.step(number / 3)

    whole, begun, resumed = (SpanReaderTrainer(trainer.group, recipe=recipe) for _ in range(3))
    for prepared in (whole, begun, resumed):
        prepared.prepare(ITEMS, ITEMS[:2], 0)
    weights_before = {name: array.copy() for name, array in whole.weights().items()}
    steps(whole, 0, 3)
    steps(begun, 0, 2)
    resumed.restore({name: np.copy(array) for name, array in begun.state().items()})
    steps(resumed, 2, 3)
    weights_after = whole.weights()
    assert all(np.array_equal(array, resumed.weights()[name]) for name, array in weights_after.items())
    assert all(
        not np.array_equal(array, weights_before[name])
        for name, array in weights_after.items()
        if "LayerNorm.bias" in name
    )
    assert not any(name.startswith("embeddings.") for name in weights_after)
    assert whole.validate() == resumed.validate()


@pytest.mark.slow
def test_an_answer_is_looked_for_where_the_question_says() -> None:
    pytest.importorskip("torch")
    from spolia.training.span_reader import SpanReaderTrainer, make_example

    second = json.dumps([{"start": TEXTS["moon"].rindex("tide"), "text": "tide"}])
    marked = Item("q", "What does the moon cause?", ("tide",), (("moon",),), meta=(("spans", second),))
    for item, stretch in ((ITEMS[3], (47, 67)), (marked, (29, 33))):
        example = make_example(item, PASSAGES)
        assert example is not None
        assert example.spans == (stretch,)
    unanswered = make_example(WITHOUT, PASSAGES)
    assert unanswered is not None
    assert unanswered.spans == ()
    assert make_example(Item("q", "Who?", ("Nobody there",), (("moon",),)), PASSAGES) is None
    assert make_example(Item("q", "Who?", ("Newton",), (("elsewhere",),)), PASSAGES) is None
    with pytest.raises(DataError, match="1 of 2 to train on, and 16 are needed"):
        SpanReaderTrainer(Corpus("none").group(), None, PASSAGES).prepare([ITEMS[0], WITHOUT], (), 0)
