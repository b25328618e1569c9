"""Language models tuned with TRL: tiny ones, made on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DataError, WeightsError
from spolia.evaluation.measures.measure import Measure
from spolia.evaluation.measures.registry import parse_measure
from spolia.models.local.language_model import LocalModel
from spolia.training.rows import Row, message_rows, preference_row, reply_message
from spolia.training.training import lock_folder
from spolia.types import Message, Prompt
from tests.models.local.tiny import llama

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("trl") is None, reason="the extra tune is not installed"),
]


def prompt(number: int) -> Prompt:
    return Prompt((Message("user", f"Who employed Olsen {number}?"),))


PAIRS = [preference_row("", prompt(at), "Nokia", "the sea", "ann") for at in range(4)]
REPLIES = [{"prompt": message_rows(prompt(at)), "completion": reply_message("Nokia in Salo")} for at in range(4)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    llama(folder)
    return folder


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Sequence[Row]], Path]:
    def write(rows: Sequence[Row]) -> Path:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / "rows.jsonl"

    return write


def chance(model: LocalModel, text: str, number: int = 0) -> float:
    """ln P of a reply."""
    return sum(token.logprob for token in model.continuation(prompt(number), text))


def test_a_model_learns_the_replies_of_its_rows_and_a_killed_training_ends_alike(
    base: Path, tmp_path: Path, written: Callable[[Sequence[Row]], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from spolia.training import language_model
    from spolia.training.language_model import Tuning, tune

    rows, tuning = written(REPLIES), Tuning(rate=0.02, rank=4, batch=2)
    whole = tune(rows, str(base), tmp_path / "whole", tuning, steps=12, seed=3)
    assert [row["step"] for row in whole.card["curve"]] == list(range(1, 13))
    assert whole.card["curve"][-1]["loss"] < 0.7 * whole.card["curve"][0]["loss"]
    likelihood_before, likelihood_after = (
        chance(model, "Nokia in Salo") for model in (LocalModel(str(base), window=1000), whole.model)
    )
    assert likelihood_after > likelihood_before + 3
    assert {file.suffix for file in (tmp_path / "whole").iterdir()} <= {".json", ".safetensors", ".jinja"}
    assert tune(rows, str(base), tmp_path / "whole", tuning, steps=12, seed=3).card == whole.card
    with lock_folder(tmp_path / "whole"):  # as the first process of torchrun holds it
        with pytest.raises(DataError, match="Another process trains into"):
            tune(rows, str(base), tmp_path / "whole", tuning, steps=12, seed=3)
        with monkeypatch.context() as second:
            second.setenv("RANK", "1")
            assert tune(rows, str(base), tmp_path / "whole", tuning, steps=12, seed=3).card == whole.card

    def kill(step: int, *more: Any) -> None:
        if step == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(language_model, "KEPT_EVERY_S", 0.0)
    monkeypatch.setattr(language_model, "KEPT_AT_MOST", 0)
    arguments = (rows, str(base), tmp_path / "again", tuning)
    with pytest.raises(KeyboardInterrupt):
        tune(*arguments, steps=12, seed=3, on_progress=kill)
    steps: list[int] = []
    with pytest.raises(DataError, match="another training that was interrupted"):
        tune(*arguments, steps=12, seed=4)
    resumed = tune(*arguments, steps=12, seed=3, on_progress=lambda step, *more: steps.append(step))
    assert steps[0] == 7
    assert resumed.card["sha256"] == whole.card["sha256"]
    assert resumed.card["curve"] == whole.card["curve"]
    assert not (tmp_path / "again" / "checkpoints").exists()
    with pytest.raises(DataError, match="holds another training: a lm, seed 3"):
        tune(*arguments, steps=12, seed=4)
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(resumed.card["files"])
    own = tmp_path / "again" / "model.safetensors"
    own.write_bytes(own.read_bytes()[:-1] + b"x")
    with pytest.raises(WeightsError, match=r"model.safetensors is not the file that its card describes"):
        chance(LocalModel(str(tmp_path / "again"), window=1000), "Nokia")


def test_the_processes_of_torchrun_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from spolia.training.language_model import Tuning

    monkeypatch.setenv("WORLD_SIZE", "2")
    assert Tuning(batch=8, accumulate=2).trl_options["per_device_train_batch_size"] == 2
    with pytest.raises(DataError, match="A batch of 3 cannot be split into 1 parts on each of 2 devices"):
        Tuning(batch=3)


@pytest.mark.parametrize("rank", [0, 4])
def test_preferences_raise_the_margin_in_all_weights_or_in_lora(
    rank: int, base: Path, tmp_path: Path, written: Callable[[Sequence[Row]], Path]
) -> None:
    from spolia.training.language_model import Tuning, tune

    tuning = Tuning("dpo", rate=0.003, rank=rank, batch=4, accumulate=2)
    tuned = tune(written(PAIRS), str(base), tmp_path / "out", tuning, steps=6)
    assert tuned.card["curve"][0]["margins"] == 0
    assert tuned.card["curve"][-1]["margins"] > 0.1
    margins = [
        chance(model, "Nokia") - chance(model, "the sea") for model in (LocalModel(str(base), window=1000), tuned.model)
    ]
    assert margins[1] > margins[0] + 1


@dataclass(frozen=True)
class Begins(Measure):
    """1 for a reply that begins with the answer."""

    notation = "Begins"

    def applies(self, item: Any) -> bool:
        return True

    def score(self, result: Any, item: Any) -> float:
        return float(result.text.startswith(item.answers[0]))


def test_a_reward_raises_the_probability_of_what_it_prefers(
    base: Path, tmp_path: Path, written: Callable[[Sequence[Row]], Path]
) -> None:
    from spolia.training.language_model import Tuning, tune

    untuned = LocalModel(str(base), window=1000)
    (likely, *_) = [token.text for token in untuned.next_tokens(prompt(0), top=5) if token.text.isalpha()]
    passage = {"id": "n1", "document": "p1", "text": "Nokia."}
    fields = {"question": "Who?", "answers": [likely], "gold": [["p1"]], "passages": [passage]}
    rows = written([{"id": "", "prompt": message_rows(prompt(index)), **fields} for index in range(2)])
    tuning = Tuning("grpo", rate=0.05, rank=4, batch=32, replies=16, reply_tokens=1, beta=0.0)
    tuned = tune(rows, str(base), tmp_path / "out", tuning, measure=Begins(), steps=8)
    assert chance(tuned.model, likely) > chance(untuned, likely) + 1
    assert max(token["reward"] for token in tuned.card["curve"]) > 0
    with pytest.raises(DataError, match="Write --reward EM"):
        tune(rows, str(base), tmp_path / "other", tuning)


def test_rows_that_are_too_long_are_left_out_and_counted(
    base: Path, tmp_path: Path, written: Callable[[Sequence[Row]], Path]
) -> None:
    from spolia.training.language_model import Tuning, reward_function, tune

    long = {"prompt": message_rows(prompt(0)), "completion": reply_message("Nokia " * 40)}
    rows, tuning = written([*REPLIES, long]), Tuning(max_tokens=60, rank=4, batch=1)
    assert tune(rows, str(base), tmp_path / "out", tuning, steps=1).card["notes"] == [
        "1 row of more than 60 tokens are left out."
    ]
    with pytest.raises(DataError, match="All 5 rows are longer than 2 tokens"):
        tune(rows, str(base), tmp_path / "none", tuning.but(max_tokens=2), steps=1)
    with pytest.raises(DataError, match="cannot be split"):
        Tuning("grpo", batch=6)
    columns = {"id": ["q"], "question": ["Who?"], "answers": [["Nokia"]], "gold": [[]], "passages": [[]]}
    exact = parse_measure("EM")
    assert isinstance(exact, Measure)
    assert reward_function(exact)([reply_message("Nokia")], **columns, prompts=None) == [1.0]
