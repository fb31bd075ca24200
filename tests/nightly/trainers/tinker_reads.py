"""tinker-cookbook: `tinker_reads.py KIND FILE`: sft by the builder that it has for files of conversations, weights by our example."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import chz
from common import printed, texts, tokenizer
from tinker_cookbook import renderers
from tinker_cookbook.renderers import TrainOnWhat
from tinker_cookbook.supervised.data import FromConversationFileBuilder
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig
from tinker_weights import weighted

of = tokenizer()
renderer = renderers.get_renderer("role_colon", of)
common = ChatDatasetBuilderCommonConfig(
    model_name_for_tokenizer="none", renderer_name="role_colon", max_length=None, batch_size=1,
    train_on_what=TrainOnWhat.ALL_ASSISTANT_MESSAGES,
)  # fmt: skip


@chz.chz
class Builder(FromConversationFileBuilder):
    """With a tokenizer that needs no model."""

    @property
    def renderer(self) -> Any:
        return renderer


KIND, FILE = sys.argv[1:3]
if KIND == "weights":
    records = [json.loads(line) for line in Path(FILE).read_text().splitlines()]
    data = [weighted(record, renderer) for record in records]
else:
    built, _ = Builder(file_path=FILE, common_config=common)()
    data = [datum for at in range(len(built)) for datum in built.get_batch(at)]
found: list[dict[str, Any]] = []
for datum in data:
    ids = [*datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].data[-1]]
    weights = [0, *datum.loss_fn_inputs["weights"].data]  # targets are shifted by one
    found.append({**texts(of, ids, [weight > 0 for weight in weights]), "weight": sum(weights)})
printed(found)
