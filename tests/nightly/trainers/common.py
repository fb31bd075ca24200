"""What the scripts of trainers share: a tokenizer with a token a byte, a model of one layer, and the texts that are trained on.

A script runs in an environment of its own, in which the trainer is installed and this project is not. It is called with a
file of an export, and prints a JSON list with `trained` and `all`, texts, for each record.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

os.environ.update(
    TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1", WANDB_DISABLED="true"
)

# Every part of a chat is written, the model's own between marks of generation.
TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for message in messages %}<|{{ message.role }}|>"
    "{% if message.role == 'assistant' %}{% generation %}"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content or '' }}{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}{{ eos_token }}"
    "{% endgeneration %}"
    "{% else %}{{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer(template: str = TEMPLATE, *special: str) -> Any:
    import tokenizers
    import transformers

    named = {"pad_token": "<pad>", "eos_token": "<eos>"}
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*named.values(), *special, *alphabet])}
    plain = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    plain.add_special_tokens([*named.values(), *special])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **named)
    made.chat_template = template
    return made


def model(of: Any, **more: Any) -> Any:
    import transformers

    transformers.set_seed(0)
    kind = transformers.LlamaForSequenceClassification if more else transformers.LlamaForCausalLM
    config = transformers.LlamaConfig(
        vocab_size=len(of), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=of.pad_token_id, eos_token_id=of.eos_token_id, bos_token_id=None, **more,
    )  # fmt: skip
    return kind(config)


def loaded(path: str) -> Any:
    import datasets

    datasets.disable_progress_bars()
    kind = "parquet" if path.endswith(".parquet") else "json"
    return datasets.load_dataset(kind, data_files=path, split="train", cache_dir=f"{path}.cache")


def texts(of: Any, ids: Sequence[int], counts: Iterable[Any]) -> dict[str, str]:
    """The text of all tokens, and that of those that count."""
    trained = [token for token, count in zip(ids, counts, strict=True) if count]
    return {"trained": of.decode(trained), "all": of.decode([token for token in ids if token != of.pad_token_id])}


def printed(found: Sequence[Mapping[str, Any]]) -> None:
    sys.stdout.write(f"\nDECODED {json.dumps([*found])}\n")
