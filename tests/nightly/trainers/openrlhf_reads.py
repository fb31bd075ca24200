"""OpenRLHF: `openrlhf_reads.py KIND FILE`, by its data sets with the settings that the target names."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from common import loaded, printed, texts, tokenizer

KIND, FILE = sys.argv[1:3]
of = tokenizer()


def strategy(**keys: Any) -> Any:
    return SimpleNamespace(args=SimpleNamespace(data=SimpleNamespace(apply_chat_template=True, **keys)))


found = []
if KIND == "sft":
    from openrlhf.datasets.sft_dataset import SFTDataset

    data = SFTDataset(loaded(FILE), of, 4000, strategy(input_key="prompt", output_key="completion"), num_processors=1)
    for at in range(len(data)):
        ids, _, mask = data[at]
        # the loss of a position is that of the next token
        found.append(texts(of, ids[0].tolist(), [0, *mask[0].tolist()[:-1]]))
elif KIND == "prompts":
    from openrlhf.datasets.prompts_dataset import PromptDataset

    asked = strategy(input_key="prompt", label_key="answer")
    asked.is_rank_0 = lambda: False
    data = PromptDataset(loaded(FILE), of, asked)
    for at in range(len(data)):
        _, prompt, label, _ = data[at]
        found.append({"trained": "", "all": prompt, "label": label})
else:
    from openrlhf.datasets.reward_dataset import RewardDataset

    keys = {"prompt_key": "prompt", "chosen_key": "chosen", "rejected_key": "rejected"}
    data = RewardDataset(loaded(FILE), of, 4000, strategy(**keys), is_dpo=True, num_processors=1)
    for prompt, chosen, rejected in zip(data.prompts, data.chosens, data.rejects, strict=True):
        found.append({"all": prompt, "chosen": chosen, "rejected": rejected})
printed(found)
