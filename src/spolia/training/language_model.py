"""Tuning of language models with TRL: on replies (sft), on preferences (dpo), or by a measure as reward (grpo)."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from spolia.core.plurals import several
from spolia.core.run_context import check_cancelled
from spolia.errors import DataError, require_extra
from spolia.evaluation.data.json_lines import replace_files
from spolia.evaluation.measures.measure import Measure
from spolia.models.file_hash import hash_of
from spolia.models.http.completions import join_messages
from spolia.models.local.address import (
    config_of,
    content_of,
    folder_of,
    load_model,
    load_tokenizer,
    torch,
    transformers,
)
from spolia.models.local.language_model import LocalModel
from spolia.models.trained_weights import CARD, list_loaded
from spolia.private_files import set_aside
from spolia.training.rows import FIELDS, Row, read_rows, score_reply
from spolia.training.training import (
    CURVE_POINTS,
    KEPT_AT_MOST,
    KEPT_EVERY_S,
    StepCallback,
    dump_json,
    format_card,
    lock_folder,
    read_finished_card,
)
from spolia.types import Message, Prompt, Value, digest_of

with require_extra("tune", "trl", "Tuning a language model"):
    import datasets
    import peft
    import trl

PART, VERSION, STEPS = "lm", 1, 100
CHECKPOINTS = "checkpoints"
RATES: Mapping[str, tuple[float, float]] = {"sft": (1e-4, 1e-5), "dpo": (5e-6, 5e-7), "grpo": (1e-5, 1e-6)}
"""Learning rates of LoRA and of the whole model."""
LOGGED = {"sft": (), "dpo": ("rewards/margins",), "grpo": ("reward",)}
"""What the curve has beside the loss."""


def rank() -> int:
    """Return the number of this process among those that `torchrun` started for one training; 0 if it is alone."""
    return int(os.environ.get("RANK", "0"))


def process_count() -> int:
    """Return how many processes share one training."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@dataclass(frozen=True)
class Tuning(Value):
    """Options of tuning a language model.

    Args:
        method: `sft` learns replies, `dpo` prefers the chosen reply to the rejected one, `grpo` raises a measure.
        rank: of LoRA, in all linear layers; 0 to tune all weights.
        rate: of AdamW, falling to 0; 0 for the usual one of the method.
        batch: rows of a step; with `grpo` replies, of which there are `replies` for each prompt.
        accumulate: parts of a batch that are computed one after the other, to save memory.
        beta: how much the model is held to what it was before (`dpo`, `grpo`).
        max_tokens: of a row; longer ones are left out.
        replies: of a prompt that are compared (`grpo`).
        reply_tokens: of each of these, at most.
        threads: of the CPU; with another number sums are rounded otherwise.

    Source: Hu et al., "LoRA", 2022; Rafailov et al., "Direct preference optimization", 2023; Shao et al.,
    "DeepSeekMath" (GRPO), 2024.
    """

    method: str = "sft"
    rank: int = 16
    rate: float = 0.0
    batch: int = 8
    accumulate: int = 1
    beta: float = 0.1
    max_tokens: int = 4096
    replies: int = 8
    reply_tokens: int = 128
    threads: int = 1

    def __post_init__(self) -> None:
        if self.method not in FIELDS:
            raise DataError(f"There is no method {self.method!r}. Write one of: {', '.join(FIELDS)}.")
        if self.batch % (self.accumulate * process_count()) or (self.method == "grpo" and self.batch % self.replies):
            raise DataError(
                f"A batch of {self.batch} cannot be split into {self.accumulate} parts on each of "
                f"{several(process_count(), 'device')}, or into groups of {self.replies} replies. Write a batch "
                "that all divide."
            )

    @property
    def trl_options(self) -> dict[str, Any]:
        """Return the options as TRL takes them."""
        options: dict[str, Any] = {"learning_rate": self.rate or RATES[self.method][self.rank == 0]}
        options |= {"per_device_train_batch_size": self.batch // self.accumulate // process_count()}
        options |= {"gradient_accumulation_steps": self.accumulate}
        if self.method == "grpo":
            grpo_options = {
                "num_generations": self.replies,
                "max_completion_length": self.reply_tokens,
                "beta": self.beta,
            }
            return options | grpo_options
        # Too long rows are left out, not cut.
        return options | {"max_length": None} | ({"beta": self.beta} if self.method == "dpo" else {})


@dataclass(frozen=True)
class TunedModel(Value):
    """A tuned model: its address, to put into a flow, and the card of its training."""

    model: LocalModel
    card: Mapping[str, Any]


def tune(
    rows: str | Path,
    base: str,
    out: str | Path,
    tuning: Tuning = Tuning(),
    *,
    revision: str = "",
    measure: Measure | None = None,
    steps: int = STEPS,
    seed: int = 0,
    on_progress: StepCallback = lambda step, steps, loss, validation: None,
) -> TunedModel:
    """Tune a language model on rows, and write it as a folder that `LocalModel` and servers open.

    The same call again goes on where it was killed; after the end it returns the same. On a CPU the same call gives
    the same weights. A graphics card is used if torch finds one, with bfloat16. Under `torchrun` the processes share
    each batch, and the first one alone locks and writes the folder.

    Args:
        rows: a file of `spolia rows`, or your own in the same form.
        base: folder of the model to tune; with a revision, a repository of the model hub.
        out: folder for weights (safetensors), tokenizer and `card.json`.
        measure: scores the replies of `grpo`: EM, F1, CiteP, CiteR …
        steps: how many.
        seed: of the first LoRA weights, the order of the rows, and the replies that are drawn.
        on_progress: gets each step with its loss.

    Raises:
        DataError: the rows do not fit the method, or `out` holds another training.
        WeightsError: the base cannot be opened.
    """
    if (tuning.method == "grpo") is (measure is None):
        raise DataError("grpo, and no other method, takes a measure. Write --reward EM, for example.")
    with lock_folder(Path(out)) if rank() == 0 else nullcontext(Path(out).expanduser().resolve()) as folder:
        training = _TuningRun(Path(rows), base, revision, folder, tuning, measure, steps, seed)
        if (card := training.read_card()) is None:
            card = training.run(on_progress)
        positions = config_of(str(folder), "").get("max_position_embeddings", LocalModel.window)
        return TunedModel(LocalModel(str(folder), window=min(positions, LocalModel.window)), card)


class _TuningRun:
    """One tuning of a model in its folder."""

    def __init__(
        self,
        rows: Path,
        base: str,
        revision: str,
        folder: Path,
        tuning: Tuning,
        measure: Measure | None,
        steps: int,
        seed: int,
    ) -> None:
        self.file, self.base, self.revision, self.folder = rows, folder_of(base, revision), revision, folder
        self.tuning, self.measure, self.steps, self.seed = tuning, measure, steps, seed
        self.rows = read_rows(rows, tuning.method)
        self.data = {"name": rows.name, "sha256": hash_of(rows)}
        self.settings = asdict(tuning) | {"reward": "" if measure is None else str(measure)}
        self.origin = {"model": base, "revision": revision, "content": content_of(base, revision) or ""}
        plan = (PART, VERSION, dump_json(self.settings), self.data["sha256"], self.origin["content"], steps, seed)
        self.identity = digest_of(plan).hex()
        self.curve: list[dict[str, float]] = []

    def read_card(self) -> dict[str, Any] | None:
        """Return the card if this training has ended before; DataError if the folder holds another one."""
        card = read_finished_card(self.folder)
        if card is not None and card["training"] != self.identity:
            raise DataError(
                f"{self.folder} holds another training: a {card.get('part')}, seed {card.get('seed')}. Write another "
                "folder, or delete this one."
            )
        return card

    def run(self, on_progress: StepCallback) -> dict[str, Any]:
        began, cpu, checkpoint = time.monotonic(), time.process_time(), self._find_checkpoint()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            # The order of additions depends on their number, and so do the weights.
            torch().set_num_threads(self.tuning.threads)
            transformers().set_seed(self.seed)
            model, tokenizer = self._load_base()
            rows, left_out = self._select_rows(tokenizer)
            trainer = self._make_trainer(model, tokenizer, rows)
            trainer.remove_callback(transformers().PrinterCallback)  # it prints each step to stdout
            trainer.add_callback(_step_callback(self, on_progress)())
            trainer.train(resume_from_checkpoint=checkpoint)
            if rank() == 0:
                self._write_model(trainer, tokenizer)
        cost = {"cpu_s": round(time.process_time() - cpu, 1), "seconds": round(time.monotonic() - began, 1)}
        if rank() == 0:
            self._write_card(len(rows), left_out, cost | {"device": str(trainer.args.device)})
        trainer.accelerator.wait_for_everyone()  # before the other processes read the card of the first one
        card = self.read_card()
        assert card is not None
        return card

    def _load_base(self) -> tuple[Any, Any]:
        """Load the base and its tokenizer; only safetensors are read, and no code of the model runs."""
        # With LoRA the base does not learn; weights that learn need float32.
        is_half = bool(torch().cuda.is_available() and self.tuning.rank)
        tokenizer = load_tokenizer(self.base)
        if tokenizer.pad_token_id is None:  # TRL pads batches, and some models lack a token for that
            tokenizer.pad_token = tokenizer.eos_token
        return load_model(self.base, LocalModel(str(self.base), dtype="bfloat16" if is_half else "float32")), tokenizer

    def _select_rows(self, tokenizer: Any) -> tuple[list[Row], int]:
        """Return the rows as TRL takes them, without rows that are too long, and how many were left out."""
        names = ("prompt", *FIELDS[self.tuning.method])
        extra_names = ("id", "question", "answers", "gold", "passages") if self.tuning.method == "grpo" else ()
        selected = []
        for row in self.rows:
            columns = {name: row[name] if tokenizer.chat_template else _join_messages(row[name]) for name in names}
            if all(
                _count_tokens(tokenizer, columns["prompt"], columns[name]) <= self.tuning.max_tokens
                for name in names[1:] or names  # grpo has no reply: the prompt counts alone
            ):
                selected.append(columns | {name: row[name] for name in extra_names})
        if not selected:
            raise DataError(f"All {len(self.rows)} rows are longer than {self.tuning.max_tokens} tokens. Allow more.")
        return selected, len(self.rows) - len(selected)

    def _make_trainer(self, model: Any, tokenizer: Any, rows: Sequence[Row]) -> Any:
        cuda = torch().cuda.is_available()
        config, kind = {
            "sft": (trl.SFTConfig, trl.SFTTrainer),
            "dpo": (trl.DPOConfig, trl.DPOTrainer),
            "grpo": (trl.GRPOConfig, trl.GRPOTrainer),
        }[self.tuning.method]
        args = config(
            output_dir=str(self.folder / CHECKPOINTS / self.identity[:16]), max_steps=self.steps, seed=self.seed,
            # `_step_callback` decides when a checkpoint is saved.
            use_cpu=not cuda, bf16=cuda, report_to="none", disable_tqdm=True, logging_steps=1, save_strategy="no",
            save_total_limit=1, lr_scheduler_type="cosine", warmup_steps=min(10, self.steps // 10),
            **self.tuning.trl_options,
        )  # fmt: skip
        datasets.disable_progress_bars()
        lora = None
        if rank := self.tuning.rank:
            lora = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
        options = {"model": model, "args": args, "processing_class": tokenizer, "peft_config": lora}
        options |= {"train_dataset": datasets.Dataset.from_list(list(rows))}
        if self.measure is not None:
            options["reward_funcs"] = reward_function(self.measure)
        return kind(**options)

    # Kills.

    def _find_checkpoint(self) -> str | None:
        """Return the newest complete checkpoint of this training, or None; DataError for one of another training."""
        own_folder = self.folder / CHECKPOINTS / self.identity[:16]
        if other_names := [entry.name for entry in (self.folder / CHECKPOINTS).glob("*") if entry != own_folder]:
            raise DataError(
                f"{self.folder} holds another training that was interrupted ({other_names[0]}). Write another folder, "
                "or delete this one."
            )
        for folder in sorted(own_folder.glob("checkpoint-*"), key=lambda one: -int(one.name.rpartition("-")[2])):
            try:
                state = json.loads((folder / "trainer_state.json").read_text("utf-8"))
                self.curve = list(map(self._curve_point, filter(lambda one: "loss" in one, state["log_history"])))
                return str(folder)
            except (OSError, ValueError, KeyError):  # the kill came while it was written
                if rank() == 0:
                    set_aside(folder)
        return None

    def _curve_point(self, logs: Mapping[str, Any]) -> dict[str, float]:
        names = {"step": "step", "loss": "loss"} | {key: key.rpartition("/")[2] for key in LOGGED[self.tuning.method]}
        return {name: logs[key] for key, name in names.items() if key in logs}

    def record_step(self, logs: Mapping[str, Any]) -> None:
        """Add a step to the curve."""
        if not math.isfinite(logs["loss"]):
            raise DataError(f"The loss of step {logs['step']} is {logs['loss']}. Lower the learning rate.")
        self.curve.append(self._curve_point(logs))

    # The end.

    def _write_model(self, trainer: Any, tokenizer: Any) -> None:
        model = trainer.accelerator.unwrap_model(trainer.model)
        model = model.merge_and_unload() if self.tuning.rank else model
        model.save_pretrained(self.folder)
        tokenizer.save_pretrained(self.folder)

    def _write_card(self, rows: int, left_out: int, cost: Mapping[str, Any]) -> None:
        hashes = {file: hash_of(self.folder / file) for file in list_loaded(self.folder)}
        interval = max(1, self.steps // CURVE_POINTS)
        packages = ("spolia", "torch", "transformers", "trl", "peft", "accelerate", "datasets")
        card = {
            "part": PART,
            "sha256": sha256(dump_json(hashes).encode()).hexdigest(),
            "files": hashes,
            "base": self.origin,
            "data": self.data | {"rows": rows, "left_out": left_out},
            "settings": self.settings,
            "seed": self.seed,
            "steps": {"made": self.steps},
            "curve": [point for point in self.curve if point["step"] % interval == 0 or point["step"] == self.steps],
            "cost": cost,
            "versions": {"part": VERSION, "python": platform.python_version()}
            | {name: version(name) for name in packages},
            "notes": self._notes(left_out),
            "training": self.identity,
        }
        with replace_files(self.folder / CARD) as (path,):
            path.write_text(format_card(card), "utf-8")
        shutil.rmtree(self.folder / CHECKPOINTS, ignore_errors=True)  # with a card, nothing is continued

    def _notes(self, left_out: int) -> list[str]:
        long = f"{several(left_out, 'row')} of more than {self.tuning.max_tokens} tokens are left out."
        return [long] if left_out else []


def reward_function(measure: Measure) -> Callable[..., list[float]]:
    """Make a TRL reward function of a measure; it gets replies, and for each name of a row its values."""

    def scores(completions: Sequence[Any], **columns: Any) -> list[float]:
        texts = [completion if isinstance(completion, str) else completion[-1]["content"] for completion in completions]
        names = ("id", "question", "answers", "gold", "passages")
        return [
            score_reply(measure, {name: columns[name][number] for name in names}, text)
            for number, text in enumerate(texts)
        ]

    scores.__name__ = str(measure)  # TRL names its logs by the function
    return scores


def _join_messages(messages: Sequence[Row]) -> str:
    """Join messages for a model without a chat template, as `LocalModel` shows them to it."""
    return join_messages(Prompt(tuple(Message(message["role"], message["content"]) for message in messages)))


def _count_tokens(tokenizer: Any, prompt: Any, reply: Any) -> int:
    """Count the tokens of a prompt with a reply."""
    if isinstance(prompt, str):
        return len(tokenizer(prompt + (reply if reply is not prompt else ""))["input_ids"])
    text = tokenizer.apply_chat_template([*prompt, *(reply if reply is not prompt else ())], tokenize=False)
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])  # the template has written them


def _step_callback(run: _TuningRun, on_progress: StepCallback) -> type:
    """Build the TRL callback that reports each step and keeps a checkpoint about every `KEPT_EVERY_S`."""

    class Steps(transformers().TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.kept, self.begun, self.took = time.monotonic(), 0.0, 0.0

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **more: Any) -> None:
            if "loss" in logs:
                run.record_step({**logs, "step": state.global_step})
                if rank() == 0:
                    on_progress(state.global_step, run.steps, logs["loss"], None)

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            check_cancelled()
            self.begun = time.monotonic()
            if rank() == 0 and self.begun - self.kept > max(KEPT_EVERY_S, KEPT_AT_MOST * self.took):
                control.should_save = True

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.kept = time.monotonic()
            self.took = self.kept - self.begun

    return Steps
