"""axolotl: `axolotl_reads.py KIND FILE`, by its prompt strategies with the settings that the target names."""

from __future__ import annotations

import sys

from axolotl.prompt_strategies.chat_template import load
from axolotl.prompt_strategies.dpo.chat_template import default
from axolotl.utils.dict import DictDefault
from common import TEMPLATE, loaded, printed, texts, tokenizer

KIND, FILE = sys.argv[1:3]
of = tokenizer()
found = []
if KIND == "sft":
    settings = {"type": "chat_template", "field_messages": "messages"}
    strategy = load(
        of,
        DictDefault({"chat_template": "tokenizer_default", "sequence_len": 4000, "train_on_inputs": False}),
        DictDefault(settings),
    )
    for row in loaded(FILE):
        made = strategy.tokenize_prompt(row)
        found.append(texts(of, made["input_ids"], [label != -100 for label in made["labels"]]))
else:
    settings = {"field_messages": "prompt", "field_chosen": "chosen", "field_rejected": "rejected"}
    transform, _ = default(
        DictDefault({"chat_template": "jinja", "chat_template_jinja": TEMPLATE, "datasets": [settings]})
    )
    for row in loaded(FILE):
        made = transform(row, tokenizer=of)
        found.append({"all": made["prompt"], "chosen": made["chosen"], "rejected": made["rejected"]})
printed(found)
