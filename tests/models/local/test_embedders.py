"""Local embedders give what the formulas make of the raw states of the model, whatever the batch."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.core.codec import decode, encode
from spolia.errors import MissingExtra, ModelError, WeightsError
from spolia.models.local.address import Local
from spolia.models.local.embedders import (
    LocalCrossEncoder,
    LocalEmbedder,
    LocalImageEmbedder,
    LocalLLMReranker,
    LocalSparseEmbedder,
    LocalTokenEmbedder,
)
from spolia.models.protocols import Embedder, ImageEmbedder, Scorer, SparseEmbedder, TokenEmbedder
from spolia.run import Run
from spolia.testing import check_embedder
from tests.models.local import tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not tiny.is_installed(), reason="the extra local is not installed"),
]

TEXTS = ("Nokia employed Olsen.", "Salt", "The moon pulls the sea, and ships wait for the tide.", "")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    folder = tmp_path_factory.mktemp("encoder")
    return str(folder), tiny.bert(folder)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    folder = tmp_path_factory.mktemp("decoder")
    return str(folder), tiny.llama(folder, kind="LlamaModel")


def states(folder: str, model: Any, text: str) -> Any:
    """The last hidden states of one text alone: float64[tokens, width]."""
    import torch
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(folder)(text)["input_ids"] or [0]
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state[0].double().numpy()


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


@pytest.mark.parametrize(
    ("pooling", "pooled"),
    [("mean", lambda h: h.sum(axis=0) / len(h)), ("cls", lambda h: h[0]), ("last", lambda h: h[-1])],
)
@pytest.mark.parametrize("batch_tokens", [1, 12, 4096])
def test_a_vector_is_the_pooled_states(encoder: Any, pooling: Any, pooled: Any, batch_tokens: int) -> None:
    folder, model = encoder
    vectors = LocalEmbedder(folder, pooling=pooling, batch_tokens=batch_tokens).embed(TEXTS, kind="passage")
    expected = [unit(pooled(states(folder, model, text))) for text in TEXTS]
    np.testing.assert_allclose(vectors, expected, atol=2e-6)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize("is_alone", [True, False], ids=["cpu", "fixed shapes"])
def test_a_vector_does_not_depend_on_the_texts_beside_it(
    encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_alone: bool
) -> None:
    """To the last bit; on an accelerator by shapes that follow from the text's own length alone."""
    monkeypatch.setattr(Local, "_runs_rows_alone", is_alone)
    tiny.bert(tmp_path, "BertForSequenceClassification", num_labels=1)
    embedder, scorer = LocalEmbedder(encoder[0]), LocalCrossEncoder(str(tmp_path))
    texts = [" ".join(" ".join(TEXTS).split()[:length]) for length in range(12)] * 4
    whole, scores = embedder.embed(texts, kind="passage"), scorer.scores("salt?", texts)
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 31, 40):
        chosen_rows = rng.choice(len(texts), size).tolist()
        np.testing.assert_array_equal(
            embedder.embed([texts[chosen_row] for chosen_row in chosen_rows], kind="query"), whole[chosen_rows]
        )
        assert scorer.scores("salt?", [texts[chosen_row] for chosen_row in chosen_rows]) == tuple(
            scores[chosen_row] for chosen_row in chosen_rows
        )
    expected = [unit(states(encoder[0], encoder[1], text).mean(axis=0)) for text in texts[:12]]
    np.testing.assert_allclose(whole[:12], expected, atol=2e-6)


def test_the_last_token_of_a_decoder_is_no_padding(decoder: Any) -> None:
    folder, model = decoder
    vectors = LocalEmbedder(folder, pooling="last").embed(TEXTS, kind="query")
    expected = [unit(states(folder, model, text)[-1]) for text in TEXTS if text]
    expected.append(np.eye(16)[0])  # of the empty text there is padding alone, whose embedding is all zeros
    np.testing.assert_allclose(vectors, expected, atol=2e-6)


def test_the_token_that_ends_a_text_is_put_after_it(decoder: Any) -> None:
    folder, model = decoder
    embedder = LocalEmbedder(folder, pooling="last", end=True)
    expected = unit(states(folder, model, TEXTS[0] + "<|end|>")[-1])
    np.testing.assert_allclose(embedder.embed(TEXTS[:1], kind="query"), [expected], atol=2e-6)
    whole = embedder.rows(TEXTS[:1], "query")[0]
    assert embedder.but(window=4).rows(TEXTS[:1], "query") == [[*whole[:3], 0]]


def test_poolings_pass_over_padding_on_either_side() -> None:
    import torch

    from spolia.models.local.embedders import first_token, last_token, mean

    hidden = torch.tensor([[[9.0], [1.0], [2.0]], [[3.0], [5.0], [9.0]]])
    mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    assert [pool(hidden, mask).flatten().tolist() for pool in (mean, first_token, last_token)] == [
        [1.5, 4.0],
        [1.0, 3.0],
        [2.0, 5.0],
    ]


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {"pooling": "cls"}),
        ({"pooling_mode": "lasttoken"}, None),
        ({"pooling_mode_lasttoken": True}, {"pooling": "last"}),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode": "cls", "include_prompt": False}, None),
        ({}, {"pooling": "mean"}),
    ],
)
def test_a_folder_says_its_pooling_and_prompts(
    said: dict[str, Any], same: dict[str, Any] | None, tmp_path: Path
) -> None:
    tiny.bert(tmp_path)
    plain = LocalEmbedder(str(tmp_path)).fingerprint()
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(said))
    if same is not None:
        assert (LocalEmbedder(str(tmp_path)).fingerprint() == plain) is (same["pooling"] == "mean")
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "who ", "document": "salt "}, "default_prompt_name": None})
    )
    embedder = LocalEmbedder(str(tmp_path))
    if same is None:
        with pytest.raises(
            WeightsError, match=r"which LocalEmbedder does not compute. Write another model, or pooling="
        ):
            embedder.embed(TEXTS, kind="query")
        same = {"pooling": "cls"}
        embedder = embedder.but(pooling="cls")
    explicit = LocalEmbedder(str(tmp_path), query_prefix="who ", passage_prefix="salt ", **same)
    for kind in ("query", "passage"):
        assert embedder.embed(TEXTS, kind=kind).tolist() == explicit.embed(TEXTS, kind=kind).tolist()
    assert embedder.fingerprint() == explicit.fingerprint()
    bare = embedder.but(query_prefix="", passage_prefix="")
    assert bare.fingerprint() != embedder.fingerprint()


RERANKS = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize("no", [None, 9])
def test_a_reranker_is_asked_as_its_folder_says(no: int | None, tmp_path: Path) -> None:
    import torch
    from transformers import AutoTokenizer

    model = tiny.llama(tmp_path, RERANKS)
    scorer = LocalLLMReranker(str(tmp_path), window=60)
    plain = scorer.scores("Who?", TEXTS)
    (tmp_path / "1_LogitScore").mkdir()
    (tmp_path / "1_LogitScore" / "config.json").write_text(json.dumps({"true_token_id": 7, "false_token_id": no}))
    kinds = [{"path": "", "type": "x.Transformer"}, {"path": "1_LogitScore", "type": "x.logit_score.LogitScore"}]
    (tmp_path / "modules.json").write_text(json.dumps(kinds))
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"web": "Judge."}, "default_prompt_name": "web"})
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)

    def expected(text: str, prompt: str) -> float:
        whole_prompt = f"<|system|>{prompt}<|query|>Who?<|document|>{text}<|assistant|>"
        with torch.no_grad():
            last = model(input_ids=torch.tensor([tokenizer(whole_prompt)["input_ids"]])).logits[0, -1]
        return float(last[7]) - (0.0 if no is None else float(last[no]))

    scores = scorer.scores("Who?", [*TEXTS[:2], "<|assistant|>", TEXTS[2] * 9])
    assert scores[:3] == pytest.approx([expected(text, "Judge.") for text in (*TEXTS[:2], "‹|assistant|>")], abs=1e-4)
    assert scores[:2] != pytest.approx(plain[:2])
    assert scores[3] in [pytest.approx(expected((TEXTS[2] * 9)[:end], "Judge."), abs=1e-4) for end in range(120)]
    instructed_scores = scorer.but(instruction="Rank.").scores("Who?", TEXTS[:1])
    assert instructed_scores == pytest.approx([expected(TEXTS[0], "Rank.")], abs=1e-4)


def test_prefixes_are_read_before_texts(encoder: Any) -> None:
    folder, model = encoder
    embedder = LocalEmbedder(folder, query_prefix="who ", passage_prefix="salt ")
    for kind, prefix in (("query", "who "), ("passage", "salt ")):
        expected = unit(states(folder, model, prefix + TEXTS[0]).mean(axis=0))
        np.testing.assert_allclose(embedder.embed(TEXTS[:1], kind=kind), [expected], atol=2e-6)  # type: ignore[arg-type]
    assert embedder.tokens(["sea"]) == [4]  # [CLS] salt sea [SEP]


def test_what_is_beyond_the_window_is_not_read(encoder: Any) -> None:
    folder, model = encoder
    short = LocalEmbedder(folder, window=5)
    assert short.tokens(["salt is dug in mines"]) == [7]
    expected = unit(states(folder, model, "salt is dug").mean(axis=0))
    np.testing.assert_allclose(short.embed(["salt is dug in mines"], kind="passage"), [expected], atol=2e-6)


def test_threads_that_cut_otherwise_do_not_disturb_each_other(encoder: Any) -> None:
    embedder, text, wrong = LocalEmbedder(encoder[0]), "salt is dug " * 50, list[int]()

    def cut(window: int) -> None:
        short = embedder.but(window=window)
        for _ in range(200):
            lengths = [*short.tokens([text]), len(short.rows([text], "query")[0])]
            wrong.extend([] if lengths == [152, window] else lengths)

    threads = [threading.Thread(target=cut, args=(window,)) for window in range(5, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_it_keeps_the_contract_of_embedders(encoder: Any) -> None:
    embedder = LocalEmbedder(encoder[0], window=32)
    check_embedder(embedder)
    assert isinstance(embedder, Embedder)
    assert embedder.dimension == 16
    assert embedder.covers("salt 한국") == pytest.approx(1 - 2 / 7)
    assert decode(encode(embedder), LocalEmbedder) == embedder
    with Run() as run:
        embedder.embed(TEXTS, kind="query")
        assert run.usage.embedded == len(TEXTS)


def test_what_looks_like_a_special_token_in_a_text_is_none(encoder: Any, tmp_path: Path) -> None:
    session = LocalEmbedder(encoder[0]).open_session()
    assert session.ids("salt [SEP] salt", None).count(3) == 1
    tiny.bert(tmp_path, "BertForSequenceClassification", num_labels=1)
    scorer = LocalCrossEncoder(str(tmp_path))
    pair = scorer._pair(scorer.open_session(), "who [SEP] salt [CLS]", "salt [SEP]")["input_ids"]
    assert (pair.count(2), pair.count(3)) == (1, 2)


def test_hidden_states_of_every_layer(encoder: Any) -> None:
    import torch

    folder, model = encoder
    embedder = LocalEmbedder(folder)
    states_by_text = embedder.hidden_states(TEXTS)
    for text, rows in zip(TEXTS, states_by_text, strict=True):
        np.testing.assert_allclose(rows, states(folder, model, text), atol=2e-5)
    first = embedder.hidden_states(TEXTS[:1], layer=0)[0]
    with torch.no_grad():
        ids = torch.tensor([embedder.open_session().ids(TEXTS[0], None)])
        np.testing.assert_allclose(first, model.embeddings(input_ids=ids)[0].numpy(), atol=2e-6)
    with pytest.raises(ModelError, match=r"no layer 3\. Write one from 0 to 2"):
        embedder.hidden_states(TEXTS, layer=3)


def test_token_vectors_are_the_projected_states(encoder: Any, tmp_path: Path) -> None:
    import shutil

    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(encoder[0], tmp_path, dirs_exist_ok=True)
    projection = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    tensors = load_file(tmp_path / "model.safetensors") | {"linear.weight": projection}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    embedder = LocalTokenEmbedder(str(tmp_path), projection="linear.weight", batch_tokens=9)
    assert isinstance(embedder, TokenEmbedder)
    token_vectors = embedder.embed_tokens(TEXTS, kind="passage")
    assert embedder.dimension == 4
    for number, text in enumerate(TEXTS):
        rows = states(encoder[0], encoder[1], text) @ projection.double().numpy().T
        np.testing.assert_allclose(token_vectors.row(number), [unit(row) for row in rows], atol=1e-5)
    plain = LocalTokenEmbedder(encoder[0]).embed_tokens(TEXTS[:1], kind="query")
    np.testing.assert_allclose(plain.row(0)[0], unit(states(encoder[0], encoder[1], TEXTS[0])[0]), atol=1e-5)
    with pytest.raises(WeightsError, match=r"no float32 matrix 'linear\.bias'"):
        embedder.but(projection="linear.bias").embed_tokens(TEXTS, kind="query")


@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_sparse_weights_are_the_largest_logs_over_the_tokens(tmp_path: Path, batch_tokens: int) -> None:
    import torch

    model = tiny.bert(tmp_path, "BertForMaskedLM")
    embedder = LocalSparseEmbedder(str(tmp_path), batch_tokens=batch_tokens)
    assert isinstance(embedder, SparseEmbedder)
    sparse_rows = embedder.embed_sparse(TEXTS, kind="passage")
    for number, text in enumerate(TEXTS):
        ids = torch.tensor([embedder.open_session().ids(text, None)])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0].double().numpy()
        weights = np.log1p(np.maximum(logits, 0)).max(axis=0)
        expected = {term: weight for term, weight in enumerate(weights) if weight > 0}
        assert sparse_rows.weights_of(number) == pytest.approx(expected, abs=2e-5)
        assert 0 < len(expected) < len(weights)
    assert len(embedder.embed_sparse([], kind="query")) == 0


def test_what_is_no_masked_language_model_is_told(encoder: Any) -> None:
    with pytest.raises(WeightsError, match=r"has no tensor cls.* not made for AutoModelForMaskedLM"):
        LocalSparseEmbedder(encoder[0]).embed_sparse(TEXTS, kind="query")
    with pytest.raises(WeightsError, match=r"has no tensor classifier.* not made for AutoModelForSequenceClass"):
        LocalCrossEncoder(encoder[0]).scores("?", TEXTS)


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_a_cross_encoder_reads_query_and_text_together(tmp_path: Path, classes: int, batch_tokens: int) -> None:
    import torch
    from transformers import AutoTokenizer

    model = tiny.bert(tmp_path, "BertForSequenceClassification", num_labels=classes)
    scorer = LocalCrossEncoder(str(tmp_path), batch_tokens=batch_tokens)
    assert isinstance(scorer, Scorer)
    scores = scorer.scores("Who employed Olsen?", TEXTS)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text, score in zip(TEXTS, scores, strict=True):
        pair = tokenizer("Who employed Olsen?", text, return_tensors="pt")
        with torch.no_grad():
            logits = model(**pair).logits[0].double()
        expected = logits[0] if classes == 1 else logits[1] - torch.logsumexp(logits, 0)
        assert score == pytest.approx(float(expected), abs=1e-5)
    assert scorer.scores("?", ()) == ()
    with pytest.raises(ModelError, match="none of them 5"):
        scorer.but(label=5).scores("?", TEXTS)


def test_of_a_pair_that_is_too_long_the_longer_is_cut(tmp_path: Path) -> None:
    tiny.bert(tmp_path, "BertForSequenceClassification", num_labels=1)
    scorer = LocalCrossEncoder(str(tmp_path), window=12)
    long = "salt is dug in mines " * 20
    assert scorer.scores("who", [long]) == pytest.approx(scorer.scores("who", [long + "by nobody"]))


def test_pictures_and_texts_are_embedded_in_one_space(tmp_path: Path) -> None:
    import torch

    pytest.importorskip("PIL", reason="pillow is not installed")
    from spolia.indexing.readers.pdf.drawings import png_of

    model = tiny.clip(tmp_path)
    embedder = LocalImageEmbedder(str(tmp_path), images_at_once=2)
    assert isinstance(embedder, ImageEmbedder)
    check_embedder(embedder)
    pictures = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    mean, deviation = np.array([0.48145466, 0.4578275, 0.40821073]), np.array([0.26862954, 0.26130258, 0.27577711])
    pixels = torch.tensor(((pictures / 255 - mean) / deviation).transpose(0, 3, 1, 2), dtype=torch.float32)
    with torch.no_grad():
        projected = model.visual_projection(model.vision_model(pixel_values=pixels).pooler_output).double().numpy()
        ids = torch.tensor([embedder.open_session().ids(TEXTS[0], None)])
        read = model.text_projection(model.text_model(input_ids=ids).pooler_output)[0].double().numpy()
    vectors = embedder.embed_images([png_of(picture) for picture in pictures])
    np.testing.assert_allclose(vectors, [unit(row) for row in projected], atol=1e-5)
    np.testing.assert_allclose(embedder.embed(TEXTS[:1], kind="query"), [unit(read)], atol=1e-5)
    assert embedder.embed_images([]).shape == (0, 8)
    with pytest.raises(Exception, match="cannot identify image"):
        embedder.embed_images([b"no picture"])


def test_a_model_of_texts_embeds_no_pictures(encoder: Any) -> None:
    with pytest.raises(WeightsError, match="no projection_dim"):
        LocalImageEmbedder(encoder[0]).embed_images([b""])


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    return tmp_path


def test_other_weights_and_other_settings_are_other_embedders(folders: Path) -> None:
    tiny.bert(folders / "a")
    tiny.bert(folders / "b", seed=1)
    embedder, other_embedder = LocalEmbedder(str(folders / "a")), LocalEmbedder(str(folders / "b"))
    changed = [
        embedder,
        other_embedder,
        embedder.but(pooling="cls"),
        embedder.but(query_prefix="q: "),
        embedder.but(window=9),
    ]
    assert (
        len({variant.fingerprint() for variant in changed})
        == len({variant.name for variant in changed})
        == len(changed)
    )
    assert embedder.but(threads=2, batch_tokens=1).fingerprint() == embedder.fingerprint()
    previous_fingerprint, vectors = embedder.fingerprint(), embedder.embed(TEXTS, kind="query")
    np.testing.assert_array_equal(embedder.embed(TEXTS, kind="query"), vectors)
    tiny.bert(folders / "a", seed=2)
    assert embedder.fingerprint() != previous_fingerprint
    assert abs(embedder.embed(TEXTS, kind="query") - vectors).max() > 0.1  # what is open is what the fingerprint says
    assert LocalEmbedder(str(folders / "none")).fingerprint() is None


def test_the_commit_is_the_fingerprint_of_a_repository() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    embedder = LocalEmbedder("acme/small", revision=commit)
    assert commit in (embedder.fingerprint() or "")
    assert embedder.name.startswith("small@")
    with pytest.raises(ModelError, match=r"revision is 'main', which may mean other weights tomorrow"):
        LocalEmbedder("acme/small", revision="main")


def test_a_repository_is_opened_from_the_hubs_cache(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    monkeypatch.setenv("HF_HUB_CACHE", str(folders))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tiny.bert(folders / "models--acme--small" / "snapshots" / commit)
    assert LocalEmbedder("acme/small", revision=commit).embed(["salt"], kind="query").shape == (1, 16)
    with pytest.raises(WeightsError, match=r"not in the hub's cache .*, and the hub was not asked"):
        LocalEmbedder("acme/large", revision=commit).embed(["salt"], kind="query")


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"window": 0}, "window=0"), ({"dtype": "int8"}, "dtype='int8'"), ({"pooling": "max"}, "pooling='max'")],
)
def test_settings_that_cannot_be(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ModelError, match=says):
        LocalEmbedder("a", **changes)


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_without_the_extra_it_is_named(folders: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    tiny.bert(folders)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=rf"A local model needs {module}, .*pip install 'spolia\[local\]'"):
        LocalEmbedder(str(folders)).embed(["salt"], kind="query")


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from spolia.models import LocalEmbedder, LocalModel; "
        "LocalModel('a'); LocalEmbedder('a').fingerprint(); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers"} & set(ran.stdout.split())


def test_a_window_beyond_what_the_model_was_made_for_is_refused(encoder: Any) -> None:
    with pytest.raises(WeightsError, match=r"made for 512 tokens, and window is 513\. Write window=512, or less"):
        LocalEmbedder(encoder[0], window=513).embed(["salt"], kind="query")
    assert LocalEmbedder(encoder[0]).embed(["salt " * 1000], kind="query").shape == (1, 16)


def test_a_folder_without_a_model(folders: Path) -> None:
    with pytest.raises(WeightsError, match=r"is not a folder with a config\.json"):
        LocalEmbedder(str(folders)).embed(["salt"], kind="query")


def test_weights_that_may_hold_code_are_not_opened(folders: Path) -> None:
    import torch

    model = tiny.bert(folders)
    (folders / "model.safetensors").unlink()
    torch.save(model.state_dict(), folders / "pytorch_model.bin")
    with pytest.raises(WeightsError, match="cannot be opened as AutoModel"):
        LocalEmbedder(str(folders)).embed(["salt"], kind="query")


def test_code_that_comes_with_a_model_is_never_run(folders: Path) -> None:
    tiny.bert(folders)
    config = json.loads((folders / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (folders / "config.json").write_text(json.dumps(config | own))
    (folders / "own.py").write_text(f"open({str(folders / 'ran')!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    with pytest.raises(WeightsError, match="cannot be opened as AutoModel"):
        LocalEmbedder(str(folders)).embed(["salt"], kind="query")
    assert not (folders / "ran").exists()


# ------------------------------------------------------------------------------------- language models that rerank

INSTRUCTION = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)


def flag_embedding(folder: str, model: Any, query: str, text: str, max_length: int) -> float:
    """The published scoring, written down from FlagEmbedding: inputs and the logit of "Yes" at the last position."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids(said: str) -> list[int]:
        return list(tokenizer(said, add_special_tokens=False)["input_ids"])

    query_ids = ids(f"A: {query}")[: max_length * 3 // 4]
    first = ([] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]) + query_ids
    second = ids("\n") + ids(f"B: {text}")
    whole = first + second[: max_length - len(first)] + ids("\n") + ids(INSTRUCTION)
    with torch.no_grad():
        return float(model(input_ids=torch.tensor([whole])).logits[:, -1, ids("Yes")[0]])


@pytest.mark.parametrize("window", [600, 24])
def test_a_language_model_that_reranks_gives_the_raw_logit_of_yes(tmp_path: Path, window: int) -> None:
    model = tiny.llama(tmp_path)
    scorer = LocalLLMReranker(str(tmp_path), window=window)
    assert isinstance(scorer, Scorer)
    scores = scorer.scores("Who employed Olsen in the year of the tide?", TEXTS)
    expected = [
        flag_embedding(str(tmp_path), model, "Who employed Olsen in the year of the tide?", text, window)
        for text in TEXTS
    ]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert len(set(scores)) > 1
    assert scorer.scores("?", ()) == ()


def test_what_such_a_model_says_of_a_text_does_not_depend_on_the_texts_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.llama(tmp_path)
    scorer = LocalLLMReranker(str(tmp_path), window=600)
    alone = [scorer.scores("salt?", [text])[0] for text in TEXTS]
    assert list(scorer.scores("salt?", TEXTS)) == alone
    monkeypatch.setattr(LocalLLMReranker, "_runs_rows_alone", False)  # as on an accelerator, with padding at the end
    np.testing.assert_allclose(scorer.scores("salt?", TEXTS), alone, atol=1e-5)
