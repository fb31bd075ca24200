"""Training on stored advantages: `offline.py WAY FILE`, with the examples as they are printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import torch
from common import model, printed, tokenizer

WAY, FILE = sys.argv[1:3]
torch.set_num_threads(1)
groups = [json.loads(line) for line in Path(FILE).read_text().splitlines()]
of = tokenizer()
one = model(of)
plain = {
    "output_dir": f"{FILE}.out",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "save_strategy": "no",
}
if WAY == "trl_grpo":
    from trl_grpo import trainer

    size = len(groups[0]["responses"])
    trainer(
        groups, one, of, max_steps=2, per_device_train_batch_size=size, max_completion_length=400, log_completions=True,
        num_completions_to_print=0, logging_steps=1, **plain,
    ).train()  # fmt: skip
    logs = sorted(Path(f"{FILE}.out", "completions").glob("*.parquet"))
    rows = [row for log in logs for row in pq.read_table(log).to_pylist()]
    printed([{"logged": row["advantage"]} for row in rows])
else:
    from policy_gradient import rows_of, trainer

    made = trainer(groups, one, of, max_steps=30, learning_rate=3e-3, per_device_train_batch_size=8, **plain)

    def gap() -> float:
        """The mean log-probability of good responses minus that of bad ones."""
        sums = {True: [], False: []}
        with torch.no_grad():
            for row in rows_of(groups, of):
                labels = torch.tensor(row["labels"][1:])
                log_p = one(torch.tensor([row["input_ids"]])).logits[0, :-1].log_softmax(-1)
                counts = labels != -100
                sums[row["advantage"] > 0].append(float(log_p[counts].gather(-1, labels[counts][:, None]).mean()))
        return sum(sums[True]) / len(sums[True]) - sum(sums[False]) / len(sums[False])

    before = gap()
    made.train()
    printed([{"before": before, "after": gap()}])
