"""A ColBERT checkpoint gives what the published algorithm gives, written here once more with torch alone."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.errors import ModelError, WeightsError
from spolia.models.local.colbert import LocalColBERT
from spolia.models.protocols import Scorer, TokenEmbedder
from spolia.post_retrieval.rerankers import ColBERT
from spolia.types import Hit, Node, Query, Ranking
from tests.models.local import tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not tiny.is_installed(), reason="the extra local is not installed"),
]

LONG = "The moon pulls the sea, and ships wait for the tide. Salt is dug in mines."
QUERIES = ("Who employed Olsen?", "salt", LONG, "")
PASSAGES = (
    "Nokia employed Carsten Olsen in Salo.",
    "Salt, salt, salt! (7,000 years of it)",
    "The moon pulls the sea, and ships wait for the tide. " * 3,
    "",
)
SIGNS = list(string.punctuation)
DIMENSION = 8


def checkpoint(folder: Path, **metadata: Any) -> Any:
    """A checkpoint in the files of stanford-futuredata/ColBERT, and its parts."""
    import torch
    from safetensors.torch import save_file

    bert = tiny.bert(folder, seed=3, tokens=("[unused0]", "[unused1]", *SIGNS))
    linear = torch.randn(DIMENSION, 16, generator=torch.Generator().manual_seed(1))
    tensors = {f"bert.{name}": tensor.contiguous() for name, tensor in bert.state_dict().items()}
    save_file(tensors | {"linear.weight": linear}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["HF_ColBERT"]}))
    if metadata:
        (folder / "artifact.metadata").write_text(json.dumps(metadata))
    return bert, linear


def reference_vectors(
    folder: Path, bert: Any, linear: Any, texts: Any, marker: str, length: int, *, is_query: bool, attends: bool = False
) -> list[Any]:
    """The algorithm of Khattab and Zaharia (2020), sections 3.2 and 3.3, as `tensorize`, `query` and `doc` of their
    code do it: a placeholder that becomes the marker, one batch with padding, [MASK] where a question is padded."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    read = tokenizer(
        [f". {text}" for text in texts], padding="max_length" if is_query else "longest", truncation=True,
        max_length=length, return_tensors="pt",
    )  # fmt: skip
    ids, mask = read["input_ids"], read["attention_mask"]
    ids[:, 1] = tokenizer.convert_tokens_to_ids(marker)
    if is_query:
        ids[ids == tokenizer.pad_token_id] = tokenizer.mask_token_id
        if attends:
            mask[ids == tokenizer.mask_token_id] = 1
    with torch.no_grad():
        vectors = bert(ids, attention_mask=mask)[0] @ linear.T
    vectors = torch.nn.functional.normalize(vectors, p=2, dim=2)
    skipped = set() if is_query else {tokenizer.encode(sign, add_special_tokens=False)[0] for sign in SIGNS}
    is_kept = [[id not in skipped and id != tokenizer.pad_token_id for id in row] for row in ids.tolist()]
    return [rows[row].numpy() for rows, row in zip(vectors, map(torch.tensor, is_kept), strict=True)]


def assert_same_vectors(token_vectors: Any, expected: list[Any]) -> None:
    assert [token_vectors.row(number).shape for number in range(len(token_vectors))] == [
        rows.shape for rows in expected
    ]
    for number, rows in enumerate(expected):
        np.testing.assert_allclose(token_vectors.row(number), rows, atol=2e-5)


@pytest.mark.parametrize("is_alone", [True, False], ids=["cpu", "fixed shapes"])
@pytest.mark.parametrize("attends", [False, True])
def test_token_vectors_are_those_of_the_published_algorithm(
    tmp_path: Path, attends: bool, is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalColBERT, "_runs_rows_alone", is_alone)
    bert, linear = checkpoint(tmp_path, query_maxlen=16, doc_maxlen=24, attend_to_mask_tokens=attends)
    embedder = LocalColBERT(str(tmp_path))
    assert isinstance(embedder, TokenEmbedder)
    assert embedder.dimension == DIMENSION
    token_vectors = embedder.embed_tokens(QUERIES, kind="query")
    assert_same_vectors(
        token_vectors,
        reference_vectors(tmp_path, bert, linear, QUERIES, "[unused0]", 16, is_query=True, attends=attends),
    )
    assert [len(token_vectors.row(number)) for number in range(4)] == [16] * 4
    passages = embedder.embed_tokens(PASSAGES, kind="passage")
    assert_same_vectors(passages, reference_vectors(tmp_path, bert, linear, PASSAGES, "[unused1]", 24, is_query=False))
    assert len(passages.row(3)) == 3  # [CLS] [D] [SEP]
    assert len(embedder.embed_tokens((), kind="query")) == 0


def test_a_checkpoint_without_metadata_has_the_defaults_of_the_published_code(tmp_path: Path) -> None:
    bert, linear = checkpoint(tmp_path)
    embedder = LocalColBERT(str(tmp_path))
    assert_same_vectors(
        embedder.embed_tokens(QUERIES, kind="query"),
        reference_vectors(tmp_path, bert, linear, QUERIES, "[unused0]", 32, is_query=True),
    )
    longer = embedder.but(query_tokens=40, passage_tokens=20)
    assert_same_vectors(
        longer.embed_tokens(QUERIES, kind="query"),
        reference_vectors(tmp_path, bert, linear, QUERIES, "[unused0]", 40, is_query=True),
    )
    assert_same_vectors(
        longer.embed_tokens(PASSAGES, kind="passage"),
        reference_vectors(tmp_path, bert, linear, PASSAGES, "[unused1]", 20, is_query=False),
    )
    assert longer.name != embedder.name


def test_scores_are_sums_of_the_largest_products(tmp_path: Path) -> None:
    bert, linear = checkpoint(tmp_path, query_maxlen=16, doc_maxlen=40)
    (query_vectors,) = reference_vectors(tmp_path, bert, linear, QUERIES[:1], "[unused0]", 16, is_query=True)
    texts = reference_vectors(tmp_path, bert, linear, PASSAGES, "[unused1]", 40, is_query=False)
    ranking = Ranking(
        Query(QUERIES[0]), tuple(Hit(Node(str(number), text), 0.0) for number, text in enumerate(PASSAGES))
    )
    scores = {hit.node.id: hit.score for hit in ColBERT(LocalColBERT(str(tmp_path)), top_k=4)(ranking)}
    model = LocalColBERT(str(tmp_path))
    assert isinstance(model, Scorer)
    assert model.scores(QUERIES[0], PASSAGES) == tuple(scores[str(number)] for number in range(len(PASSAGES)))
    expected = {str(number): float((query_vectors @ rows.T).max(axis=1).sum()) for number, rows in enumerate(texts)}
    assert scores == pytest.approx(expected, abs=1e-4)


def test_punctuation_counts_where_the_checkpoint_says_so_and_a_written_marker_is_text(tmp_path: Path) -> None:
    checkpoint(tmp_path, mask_punctuation=False, query_maxlen=16)
    embedder = LocalColBERT(str(tmp_path))
    with_signs, without = embedder.embed_tokens(("salt , salt .", "salt salt"), kind="passage").offsets[1:].tolist()
    assert (with_signs, without - with_signs) == (7, 5)
    row = embedder._row(embedder.open_session(), _reading_of(embedder), "[unused1] [MASK]", "passage")
    assert [row.count(id) for id in (4, 5, 6)] == [0, 0, 1]  # [MASK], [unused0], [unused1]


def _reading_of(embedder: LocalColBERT) -> Any:
    from spolia.models.local.colbert import _read_settings

    return _read_settings(embedder.open_session())


def pylate(folder: Path, **options: Any) -> Any:
    """The same in PyLate's files: an encoder, a Dense layer in a folder of its own, markers that were added."""
    import torch
    from safetensors.torch import save_file

    bert = tiny.bert(folder, seed=3, tokens=("[Q] ", "[D] ", *SIGNS))
    linear = torch.randn(DIMENSION, 16, generator=torch.Generator().manual_seed(1))
    (folder / "1_Dense").mkdir()
    save_file({"linear.weight": linear}, folder / "1_Dense" / "model.safetensors", {"format": "pt"})
    dense = {"in_features": 16, "out_features": DIMENSION, "activation_function": "torch.nn.modules.linear.Identity"}
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    config = {"query_prefix": "[Q] ", "document_prefix": "[D] ", "query_length": 16, "document_length": 24} | options
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return bert, linear


def test_a_pylate_folder_is_read_with_its_own_markers_and_projection(tmp_path: Path) -> None:
    bert, linear = pylate(tmp_path, skiplist_words=SIGNS, attend_to_expansion_tokens=True)
    embedder = LocalColBERT(str(tmp_path))
    assert embedder.dimension == DIMENSION
    assert_same_vectors(
        embedder.embed_tokens(QUERIES, kind="query"),
        reference_vectors(tmp_path, bert, linear, QUERIES, "[Q] ", 16, is_query=True, attends=True),
    )
    assert_same_vectors(
        embedder.embed_tokens(PASSAGES, kind="passage"),
        reference_vectors(tmp_path, bert, linear, PASSAGES, "[D] ", 24, is_query=False),
    )


def test_a_pylate_model_without_expansion_reads_questions_as_long_as_they_are(tmp_path: Path) -> None:
    pylate(tmp_path, do_query_expansion=False, skiplist_words=[])
    token_vectors = LocalColBERT(str(tmp_path)).embed_tokens(("salt", "salt salt"), kind="query")
    assert np.diff(token_vectors.offsets).tolist() == [4, 5]


def test_another_projection_in_its_own_folder_is_another_model(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    pylate(tmp_path)
    previous_name = LocalColBERT(str(tmp_path)).name
    save_file({"linear.weight": torch.eye(DIMENSION, 16)}, tmp_path / "1_Dense" / "model.safetensors")
    assert LocalColBERT(str(tmp_path)).name != previous_name


def test_what_is_no_such_checkpoint_is_an_error_that_says_why(tmp_path: Path) -> None:
    (bare := tmp_path / "bare").mkdir()
    tiny.bert(bare)
    with pytest.raises(WeightsError, match=r"no float32 matrix 'linear\.weight': it is not a ColBERT checkpoint"):
        LocalColBERT(str(bare)).dimension  # noqa: B018
    (other_folder := tmp_path / "other").mkdir()
    checkpoint(other_folder, query_token_id="[Q]")
    with pytest.raises(WeightsError, match=r"no token '\[Q\]', which marks questions or passages"):
        LocalColBERT(str(other_folder)).embed_tokens(QUERIES, kind="query")
    (curved := tmp_path / "curved").mkdir()
    pylate(curved)
    dense_config = {"activation_function": "torch.nn.modules.activation.Tanh"}
    (curved / "1_Dense" / "config.json").write_text(json.dumps(dense_config))
    with pytest.raises(WeightsError, match=r"not a plain projection: it has linear\.weight, activation torch.*Tanh"):
        LocalColBERT(str(curved)).dimension  # noqa: B018
    with pytest.raises(ModelError, match=r"query_tokens=3\. Write a number from 4 to 512"):
        LocalColBERT("models/colbert", query_tokens=3)
