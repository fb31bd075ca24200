"""A policy gradient on stored advantages with transformers' Trainer: `python policy_gradient.py groups.jsonl MODEL`.

The file is that of `grpo-adv export rollouts.jsonl --to groups --form turns -o groups.jsonl`, with the advantages of any method.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

IGNORED = -100  # the label of a token that is not trained on


def rows_of(groups: list[dict[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """Each response with an advantage that is not 0 as tokens; labels that are ignored on the prompt."""
    rows = []
    for group in groups:
        prompt = tokenizer.apply_chat_template(group["prompt"], add_generation_prompt=True, tokenize=False)
        for response, advantage in zip(group["responses"], group["advantages"], strict=True):
            whole = tokenizer.apply_chat_template(group["prompt"] + response, tokenize=False)
            asked, said = tokenizer(prompt)["input_ids"], tokenizer(whole.removeprefix(prompt))["input_ids"]
            if advantage:
                rows.append(
                    {"input_ids": asked + said, "labels": [IGNORED] * len(asked) + said, "advantage": advantage}
                )
    return rows


class PolicyGradient(transformers.Trainer):  # type: ignore[misc] # its package ships no types
    """The loss is -(A log p), summed over the tokens of responses, by their number."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:  # noqa: FBT001, FBT002 - as it is called
        """The loss of a batch."""
        labels, advantage = inputs.pop("labels")[:, 1:], inputs.pop("advantage")
        outputs = model(**inputs)
        counts = labels != IGNORED
        log_p = outputs.logits[:, :-1].log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
        loss = -(advantage[:, None] * log_p * counts).sum() / counts.sum()
        return (loss, outputs) if return_outputs else loss


def batch(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Rows of one length."""
    longest = max(len(row["input_ids"]) for row in rows)
    filled = {"input_ids": 0, "labels": IGNORED, "attention_mask": 0}
    lists = [{**row, "attention_mask": [1] * len(row["input_ids"])} for row in rows]
    made = {
        name: torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in lists])
        for name, value in filled.items()
    }
    return {**made, "advantage": torch.tensor([row["advantage"] for row in rows])}


def trainer(groups: list[dict[str, Any]], model: Any, tokenizer: Any, **settings: Any) -> PolicyGradient:
    """A trainer on these groups; `settings` are those of TrainingArguments."""
    args = transformers.TrainingArguments(remove_unused_columns=False, **settings)
    return PolicyGradient(model=model, args=args, train_dataset=rows_of(groups, tokenizer), data_collator=batch)


if __name__ == "__main__":
    file, name = sys.argv[1:3]
    found = [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    language_model = transformers.AutoModelForCausalLM.from_pretrained(name)
    trainer(found, language_model, transformers.AutoTokenizer.from_pretrained(name)).train()
