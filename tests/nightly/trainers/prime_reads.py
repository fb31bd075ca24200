"""prime-rl: `prime_reads.py sft FILE`, by the package `renderers`, which makes the tokens and the mask of its finetuning."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import renderers
import trl
from common import loaded, printed, texts, tokenizer
from renderers.base import build_training_sample, create_renderer

SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>",
)  # fmt: skip
TEMPLATE = Path(trl.__file__).with_name("chat_templates") / "qwen3.jinja"
of = tokenizer(TEMPLATE.read_text(), *SPECIAL)
renderer = create_renderer(of, renderers.Qwen3RendererConfig())
found = []
for row in loaded(sys.argv[2]):
    tools = row.get("tools")
    tools = json.loads(tools) if isinstance(tools, str) else tools
    messages = [{name: value for name, value in message.items() if value is not None} for message in row["messages"]]
    sample = build_training_sample(
        renderer, messages, role_to_mask=None, tools=tools or [], content_sft_roles=None, ensure_final_stop=True
    )
    found.append(texts(of, sample.token_ids, sample.loss_mask))
printed(found)
