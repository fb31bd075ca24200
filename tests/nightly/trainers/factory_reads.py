"""LLaMA-Factory: `factory_reads.py KIND FILE`, by its converter and processors with the entry of dataset_info.json that an export prints.

`torchaudio` is a stub: it is imported, and reads no text. The entry is in the file's name with `.entry` added.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

stub = types.ModuleType("torchaudio")
stub.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
sys.modules["torchaudio"] = stub

from common import TEMPLATE, loaded, printed, texts, tokenizer  # noqa: E402
from llamafactory.data import converter  # noqa: E402
from llamafactory.data.parser import DatasetAttr  # noqa: E402
from llamafactory.data.processor import (  # noqa: E402
    FeedbackDatasetProcessor,
    PairwiseDatasetProcessor,
    SupervisedDatasetProcessor,
)
from llamafactory.data.template import get_template_and_fix_tokenizer  # noqa: E402

KIND, FILE = sys.argv[1:3]
attr = DatasetAttr("file", dataset_name=FILE)
attr.join(json.loads(Path(f"{FILE}.entry").read_text()))
of = tokenizer(TEMPLATE, "<|im_start|>", "<|im_end|>")
asked = SimpleNamespace(
    template="qwen", train_on_prompt=False, tool_format=None, default_system=None, enable_thinking=True, preserve_thinking=True,
    mask_history=False, cutoff_len=4000, ignore_pad_token_for_loss=True, neat_packing=False,
)  # fmt: skip
template = get_template_and_fix_tokenizer(of, asked)
convert = converter.get_dataset_converter(attr.formatting, attr, asked)
rows = [convert(row) for row in loaded(FILE)]
examples = {name: [row[name] for row in rows] for name in rows[0]}
kinds = {"sft": SupervisedDatasetProcessor, "labels": FeedbackDatasetProcessor, "pairs": PairwiseDatasetProcessor}
made = kinds[KIND](template=template, tokenizer=of, processor=None, data_args=asked).preprocess_dataset(examples)
found: list[dict[str, Any]] = []
if KIND in {"sft", "labels"}:
    for at, (ids, labels) in enumerate(zip(made["input_ids"], made["labels"], strict=True)):
        label = {"label": made["kto_tags"][at]} if KIND == "labels" else {}
        found.append({**texts(of, ids, [token != -100 for token in labels]), **label})
else:
    for sides in zip(
        *(made[f"{side}_{part}"] for side in ("chosen", "rejected") for part in ("input_ids", "labels")), strict=True
    ):
        ours = texts(of, sides[0], [label != -100 for label in sides[1]])
        theirs = texts(of, sides[2], [label != -100 for label in sides[3]])
        asked_for = ours["all"].removesuffix(ours["trained"])
        found.append({"all": asked_for, "chosen": ours["trained"], "rejected": theirs["trained"]})
printed(found)
