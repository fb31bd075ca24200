"""TRL's own trainers take some steps with a tiny model, and their logged advantages are what the tool computes and names."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.command import facts_of, ran

pytestmark = pytest.mark.filterwarnings("ignore")  # the trainers warn of each other's old names
PROMPTS = ["one two", "three four", "one two", "five", "three four", "six one"]  # some stand twice in a step
STEPS = 3
SIZE = 4
SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
WORDS = ["<pad>", "<eos>", "<unk>", "one", "two", "three", "four", "five", "six"]


def trainer(kind: str, folder: Path, **options: Any) -> Any:
    """A trainer of this kind with a model of some thousand weights and a tokenizer of nine words; nothing is downloaded."""
    trl = pytest.importorskip("trl")
    transformers = pytest.importorskip("transformers")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))  # noqa: S106 - a word
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, padding_side="left", **SPECIAL)
    config = transformers.Qwen2Config(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    drawn = random.Random(7)  # noqa: S311 - rewards of a test

    def solved(completions: list[str], **_: Any) -> list[float]:
        return [float(drawn.random() < 0.4) for _ in completions]

    arguments = getattr(trl, f"{kind}Config")(
        output_dir=str(folder), max_steps=STEPS, num_generations=SIZE, per_device_train_batch_size=SIZE * 6,
        max_completion_length=4, log_completions=True, logging_steps=1, report_to=[], use_cpu=True, save_strategy="no",
        **options,
    )  # fmt: skip
    made = getattr(trl, f"{kind}Trainer")(
        model=transformers.Qwen2ForCausalLM(config), reward_funcs=solved, args=arguments, processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
    )  # fmt: skip

    def kept(_: Any, __: Any, state: Any, ___: Any, **____: Any) -> None:
        """Write down, as GRPOTrainer does, what RLOOTrainer only prints of a step."""
        logs = made._logs
        columns = {"prompt": logs["prompt"], "completion": logs["completion"], **logs["rewards"]}
        columns["advantage"] = logs["advantages"]
        (folder / "completions").mkdir(parents=True, exist_ok=True)
        frame = pl.DataFrame({name: list(values) for name, values in columns.items()}).select(
            pl.lit(state.global_step).alias("step"), pl.all()
        )
        frame.write_parquet(folder / "completions" / f"completions_{state.global_step:05d}.parquet")

    if kind == "RLOO":
        made.add_callback(type("Kept", (transformers.TrainerCallback,), {"on_step_end": kept})())
    return made


@pytest.mark.parametrize(
    ("kind", "options", "more", "named"),
    [
        ("GRPO", {}, "", "trl-grpo"),
        ("GRPO", {"scale_rewards": "none"}, "", "trl-grpo --scale none"),
        ("GRPO", {"scale_rewards": "batch"}, "--batch-by step", "trl-grpo --scale batch"),
        ("RLOO", {"beta": 0.0}, "", "trl-rloo"),
    ],
    ids=str,
)  # fmt: skip
def test_the_advantages_of_a_trainer_are_computed_and_its_formula_is_named(
    kind: str, options: dict[str, Any], more: str, named: str, tmp_path: Path
) -> None:
    trainer(kind, tmp_path / "run", **options).train()
    logged = sorted((tmp_path / "run" / "completions").iterdir())
    assert len(logged) == STEPS
    files = " ".join(map(str, logged))
    ran(f"compute {files} --column ours --preset {named} {more} -o {tmp_path}/out/ -q")
    for path in logged:
        frame = pl.read_parquet(tmp_path / "out" / path.name)
        difference = frame["advantage"].to_numpy() - frame["ours"].to_numpy()
        assert np.abs(difference).max() < 2e-6
    match = facts_of(f"audit {files}")["match"]
    assert match["name"] == named
    assert match["mismatched_rows"] == 0
