"""verl: `verl_reads.py KIND FILE`, by its own data sets; its package is on the path, without what it needs for training."""

from __future__ import annotations

import sys
from common import TEMPLATE, printed, texts, tokenizer
from omegaconf import OmegaConf

KIND, FILE = sys.argv[1:3]
of = tokenizer(TEMPLATE)
found = []
if KIND == "sft":
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    settings = {"max_length": 4000, "truncation": "right", "ignore_input_ids_mismatch": True, "pad_mode": "no_padding"}
    data = MultiTurnSFTDataset(parquet_files=FILE, tokenizer=of, config=OmegaConf.create(settings))
    for row in data:
        found.append(texts(of, row["input_ids"].tolist(), row["loss_mask"].tolist()))
else:
    from verl.utils.dataset.rl_dataset import RLHFDataset

    data = RLHFDataset(
        data_files=FILE,
        tokenizer=of,
        config=OmegaConf.create({"max_prompt_length": 4000, "filter_overlong_prompts_workers": 1}),
    )
    for row in data:
        shown = of.apply_chat_template(row["raw_prompt"], add_generation_prompt=True, tokenize=False)
        found.append({"trained": "", "all": shown, "data_source": row.get("data_source")})
printed(found)
