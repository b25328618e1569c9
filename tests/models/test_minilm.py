"""MiniLM gives what the papers' formulas give, whatever the batch, the thread or the text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.codec import decode, encode
from spolia.core.function import step
from spolia.errors import Cancelled, ModelError, WeightsError
from spolia.models.onnx import minilm, weights
from spolia.models.onnx.minilm import MiniLM, batches
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.testing import check_embedder
from spolia.types import Query, Usage
from tests.models.oracle import Oracle
from tests.retrieval.conftest import store

pytestmark = pytest.mark.slow

TEXTS = (
    "Who employed Carsten Olsen?",
    "The fluid flows over a flat plate, and the boundary layer grows with the square root of the distance.",
    "Ünïcödé, emoji 😀 and 1,234.56 numbers",
    "",
    "ขอบคุณมาก 감사합니다 谢谢你们",
    "word " * 400,
    "a",
)


@pytest.fixture(scope="module")
def model() -> MiniLM:
    try:
        weights.find(hub=False)
    except WeightsError as error:
        pytest.skip(f"needs the weights: {error}")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tokenizers")
    return MiniLM()


@pytest.fixture(scope="module")
def oracle(model: MiniLM) -> Oracle:
    return Oracle(weights.find().tensors)


def test_it_keeps_the_contract_of_embedders(model: MiniLM) -> None:
    check_embedder(model)


def test_vectors_are_those_of_the_formulas(model: MiniLM, oracle: Oracle) -> None:
    rows = [model.tokenizer.ids(text, model.window) for text in TEXTS]
    cosines = (model.embed(TEXTS, kind="passage") * oracle.embed(rows)).sum(axis=1)
    assert cosines.min() > 0.999999


def test_the_window_is_where_reading_ends(model: MiniLM) -> None:
    inside, beyond = "word " * 254, "word " * 254 + "banana " * 50
    assert model.tokens([inside, beyond, ""]) == [256, 306, 2]
    inside_vector, beyond_vector = model.embed([inside, beyond], kind="passage")
    assert inside_vector @ beyond_vector > 0.999999


def test_texts_of_unknown_characters_are_alike_and_told_by_covers(model: MiniLM) -> None:
    thai, lao = "ขอบคุณมาก", "ຂອບໃຈຫຼາຍໆ"
    thai_vector, lao_vector = model.embed([thai, lao], kind="passage")
    assert thai_vector @ lao_vector > 0.999
    assert (model.covers(thai), model.covers(lao)) == (0.0, 0.0)
    assert model.covers("thank you") == 1.0
    assert 0.2 < model.covers("thank you very much ขอบคุณมาก") < 0.8


@settings(max_examples=10)
@given(
    st.lists(st.text(max_size=80) | st.text(alphabet="ab ", max_size=300), min_size=1, max_size=9),
    st.integers(1, 700),
)
def test_a_vector_does_not_depend_on_the_texts_beside_it(model: MiniLM, texts: list[str], batch_tokens: int) -> None:
    together = model.but(batch_tokens=batch_tokens).embed(texts, kind="passage")
    alone = np.concatenate([model.embed([text], kind="query") for text in texts])
    np.testing.assert_array_equal(together, alone)


def of_each_length() -> list[str]:
    """Texts of 2 to 20 tokens, each length four times, and a few long ones."""
    words = " ".join(TEXTS).split()
    return [" ".join(words[start : start + length]) for length in range(19) for start in (0, 5, 11, 17)] + [*TEXTS]


def test_one_many_threads_and_processes_give_the_same_bits(model: MiniLM) -> None:
    texts = of_each_length()
    alone = np.concatenate([model.embed([text], kind="query") for text in texts])
    rng = np.random.default_rng(0)
    for size in (2, 7, 50):
        chosen_rows = rng.choice(len(texts), size).tolist()
        np.testing.assert_array_equal(
            model.embed([texts[chosen_row] for chosen_row in chosen_rows], kind="passage"), alone[chosen_rows]
        )
    for changed in ({"threads": 2}, {"batch_tokens": 4096}):
        np.testing.assert_array_equal(model.but(**changed).embed(texts, kind="passage"), alone)
    with ThreadPoolExecutor(4) as threads:
        for vectors in threads.map(lambda _: model.embed(texts, kind="passage"), range(4)):
            np.testing.assert_array_equal(vectors, alone)
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        np.testing.assert_array_equal(processes.submit(model.embed, texts, kind="passage").result(), alone)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_ends_and_embeds_for_itself(model: MiniLM) -> None:
    several = model.but(threads=2)
    expected = several.embed(TEXTS, kind="passage")

    def child() -> None:
        assert np.array_equal(several.embed(TEXTS, kind="passage"), expected)

    process = get_context("fork").Process(target=child)
    process.start()
    process.join(600)
    ended = process.exitcode
    process.kill()
    assert ended == 0, "the session of the parent was freed, which waits for threads that a child has not"


def test_a_search_finds_the_same_with_the_same_scores_in_every_batch(model: MiniLM, tmp_path: Path) -> None:
    texts = [text for text in of_each_length() if text.strip()]
    group = store(tmp_path / "a.spolia", {str(start): text for start, text in enumerate(texts)}, embedder=model)
    search = Dense(group, model, top_k=10)
    queries = [Query(text) for text in texts]
    whole = search.batch(queries)
    assert [search(query) for query in queries] == whole
    assert [
        ranking for start in range(0, len(queries), 7) for ranking in search.batch(queries[start : start + 7])
    ] == whole


@given(st.lists(st.integers(2, 256), max_size=60), st.integers(1, 2000))
def test_batches_hold_each_row_once_of_one_length_and_no_more_than_their_tokens(lengths: list[int], limit: int) -> None:
    row_batches = list(batches(lengths, limit))
    assert sorted(row for batch in row_batches for row in batch) == list(range(len(lengths)))
    for batch in row_batches:
        assert len({lengths[row] for row in batch}) == 1
        assert len(batch) == 1 or len(batch) * lengths[batch[0]] <= limit


def test_threads_share_one_session(model: MiniLM) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert len({id(session) for session in threads.map(lambda _: model._get_session(), range(8))}) == 1


@step
def count_embedded(texts: Sequence[str]) -> int:
    return len(MiniLM(batch_tokens=1).embed(texts, kind="passage"))


def test_what_is_embedded_is_charged(model: MiniLM) -> None:
    with Run() as run:
        count_embedded(TEXTS)
        assert run.usage == Usage(embedded=len(TEXTS))


def test_a_cancellation_stops_before_the_next_batch(model: MiniLM) -> None:
    with Run() as run:
        run.cancel()
        with pytest.raises(Cancelled):
            count_embedded(TEXTS)


def test_the_address_is_plain_data_and_names_the_weights() -> None:
    model = MiniLM(threads=2)
    assert decode(encode(model)) == model == eval(repr(model))
    assert model.name == "all-MiniLM-L6-v2@53aa5117" == model.fingerprint()
    assert (model.dimension, model.window) == (384, 256)


def test_sizes_below_one_are_refused() -> None:
    for threads, batch_tokens in ((0, 512), (1, -1)):
        with pytest.raises(ModelError, match="at least 1"):
            MiniLM(threads=threads, batch_tokens=batch_tokens)


def test_the_graph_that_is_shipped_is_valid_and_the_one_that_is_written() -> None:
    onnx = pytest.importorskip("onnx")
    from tests.minilm_graph import graph

    raw = minilm.GRAPH.read_bytes()
    shipped = onnx.load_model_from_string(raw)
    assert shipped == graph(), "write: python -m tests.minilm_graph"
    inside = [tensor for tensor in shipped.graph.initializer if not tensor.external_data]
    for tensor in shipped.graph.initializer:
        if tensor.external_data:  # their file is given to the session, not to the checker
            shipped.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    del shipped.graph.initializer[:]
    shipped.graph.initializer.extend(inside)
    onnx.checker.check_model(shipped, full_check=True)
    assert len(raw) < 20_000
