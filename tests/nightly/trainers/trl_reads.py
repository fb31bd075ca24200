"""TRL: `trl_reads.py KIND FILE`, with the trainer that reads the kind; nothing is trained, batches are decoded."""

from __future__ import annotations

import sys
from typing import Any

import trl
from common import loaded, model, printed, texts, tokenizer

KIND, FILE = sys.argv[1:3]


def options(**more: Any) -> dict[str, Any]:
    plain = {"output_dir": f"{FILE}.out", "report_to": [], "use_cpu": True, "bf16": False, "disable_tqdm": True}
    return {**plain, "per_device_train_batch_size": 1, "save_strategy": "no", **more}


def sft(**more: Any) -> Any:
    of = tokenizer()
    made = trl.SFTTrainer(
        model=model(of),
        args=trl.SFTConfig(**options(max_length=None, **more)),
        train_dataset=loaded(FILE),
        processing_class=of,
    )
    for row in made.train_dataset:
        batch = made.data_collator([row])
        yield texts(of, batch["input_ids"][0].tolist(), [label != -100 for label in batch["labels"][0].tolist()])


def pairs() -> Any:
    of = tokenizer()
    made = trl.DPOTrainer(
        model=model(of),
        ref_model=model(of),
        args=trl.DPOConfig(**options(max_length=None)),
        train_dataset=loaded(FILE),
        processing_class=of,
    )
    for row in made.train_dataset:
        found = {side: of.decode(row[f"{side}_ids"]) for side in ("chosen", "rejected")}
        yield {**found, "all": of.decode(row["prompt_ids"]), "columns": made.train_dataset.column_names}


def margin() -> Any:
    """Whether the loss of RewardTrainer has a margin."""
    of = tokenizer()
    made = trl.RewardTrainer(
        model=model(of, num_labels=1),
        args=trl.RewardConfig(**options()),
        train_dataset=loaded(FILE),
        processing_class=of,
    )
    yield {"margin": "margin" in made.data_collator([made.train_dataset[0]])}


def labels() -> Any:
    of = tokenizer()
    made = trl.KTOTrainer(
        model=model(of),
        ref_model=model(of),
        args=trl.KTOConfig(**options(max_length=None, per_device_train_batch_size=2)),
        train_dataset=loaded(FILE),
        processing_class=of,
    )
    for row in made.train_dataset:
        ids = row.get("completion_labels") or row["completion_ids"]
        both = row.get("completion_input_ids") or [*row["prompt_ids"], *row["completion_ids"]]
        trained = [token for token in ids if token != -100]
        yield {"trained": of.decode(trained), "all": of.decode(both), "label": row["label"]}


def prompts() -> Any:
    """As GRPOTrainer makes them into tokens."""
    from trl.data_utils import is_conversational

    of = tokenizer()
    for row in loaded(FILE):
        assert is_conversational(row)
        all_of_it = of.apply_chat_template(row["prompt"], tools=None, add_generation_prompt=True, tokenize=False)
        yield {"trained": "", "all": all_of_it}


READERS = {
    "sft": sft, "assistant-only": lambda: sft(assistant_only_loss=True), "pairs": pairs, "margin": margin, "labels": labels,
    "prompts": prompts,
}  # fmt: skip
printed([*READERS[KIND]()])
