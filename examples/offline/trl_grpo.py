"""TRL's own GRPOTrainer on stored rollouts and stored advantages: `python trl_grpo.py groups.jsonl MODEL`.

The file is that of `grpo-adv export rollouts.jsonl --to groups --target trl -o groups.jsonl`. The trainer asks for rollouts, and gets
the stored ones; it asks for rewards, and gets the stored advantages, from which it subtracts the mean of their group: 0.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer


def trainer(groups: list[dict[str, Any]], model: Any, tokenizer: Any, **settings: Any) -> Any:
    """A GRPOTrainer that trains on these groups; `settings` are those of GRPOConfig."""
    size = len(groups[0]["responses"])
    stored = {json.dumps(group["prompt"]): group for group in groups}
    turn: dict[str, int] = defaultdict(int)

    def rollout(prompts: list[Any], _: Any) -> dict[str, Any]:
        """The next stored response to each prompt: each comes as often as its group has rows."""
        found: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": None, "stored_advantage": []}
        for prompt in prompts:
            key = json.dumps(prompt)
            at = turn[key] % size
            turn[key] += 1
            asked = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
            whole = tokenizer.apply_chat_template(prompt + stored[key]["responses"][at], tokenize=False)
            found["prompt_ids"].append(tokenizer(asked)["input_ids"])
            found["completion_ids"].append(tokenizer(whole.removeprefix(asked))["input_ids"])
            found["stored_advantage"].append(stored[key]["advantages"][at])
        return found

    def advantage(stored_advantage: list[float], **_: Any) -> list[float]:
        return stored_advantage

    return GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=advantage,
        rollout_func=rollout,
        train_dataset=Dataset.from_list([{"prompt": group["prompt"]} for group in groups]),
        args=GRPOConfig(scale_rewards="none", num_generations=size, **settings),
    )


if __name__ == "__main__":
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file, name = sys.argv[1:3]
    rows = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    trainer(rows, AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)).train()
